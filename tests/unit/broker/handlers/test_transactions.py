"""D3: producers, brokers and operators ask a transaction coordinator that is on this broker.

What a shard decides is in tests/unit/core/transactions; here is what becomes of it on the way.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.types import TransactionalId

from tests.support.kio_codec import Values, milliseconds
from tests.unit.broker.controlled_world import ControlledWorld, controlled_world
from tests.unit.broker.handlers.samples import context
from tests.unit.broker.served import Client
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import led_by_us
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.handlers.add_partitions_to_txn import AddPartitionsToTxnApi
from tidelog.broker.handlers.describe_transactions import DescribeTransactionsHandler
from tidelog.broker.handlers.list_transactions import ListTransactionsHandler
from tidelog.core.coordinators import partition_of
from tidelog.records.batch import iter_headers
from tidelog.wire.add_partitions_to_txn import AddedPartitions, AddedResult
from tidelog.wire.api import ApiKey

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10",
}
TIMEOUT_MS = 60_000
ID = "orders"


class Asking:
    """One client, and answers by name."""

    def __init__(self, controlled: ControlledWorld) -> None:
        self.controlled = controlled
        self.client: Client = controlled.served.client()

    async def ask(self, api_key: ApiKey, version: int, values: Values) -> Any:
        self.client.send(api_key, version, values)
        await self.controlled.settle()
        (answer,) = self.client.take()
        return answer

    async def find(self, key: str, key_type: int) -> int:
        values = {"key": key, "key_type": key_type}
        answer = await self.ask(ApiKey.FIND_COORDINATOR, 3, values)
        return int(answer.error_code)

    async def init(
        self,
        transactional_id: str = ID,
        *,
        producer: tuple[int, int] = (-1, -1),
        timeout_ms: int = TIMEOUT_MS,
        version: int = 5,
    ) -> tuple[int, int, int]:
        values = initializing(transactional_id, producer=producer, timeout_ms=timeout_ms)
        answer = await self.ask(ApiKey.INIT_PRODUCER_ID, version, values)
        return int(answer.error_code), answer.producer_id, answer.producer_epoch

    async def add(
        self,
        producer: tuple[int, int],
        topics: dict[str, tuple[int, ...]],
        *,
        transactional_id: str = ID,
        version: int = 3,
    ) -> dict[tuple[str, int], int]:
        values = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [
                {"name": name, "partitions": numbers} for name, numbers in topics.items()
            ],
        }
        answer = await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, values)
        return _codes(answer.results_by_topic_v3_and_below)

    async def end(
        self,
        producer: tuple[int, int],
        *,
        is_commit: bool = True,
        transactional_id: str = ID,
        version: int = 5,
    ) -> tuple[int, ...]:
        values = ending(producer, is_commit=is_commit, transactional_id=transactional_id)
        answer = await self.ask(ApiKey.END_TXN, version, values)
        if version < 5:
            return (int(answer.error_code),)
        return int(answer.error_code), answer.producer_id, answer.producer_epoch


def initializing(
    transactional_id: str = ID,
    *,
    producer: tuple[int, int] = (-1, -1),
    timeout_ms: int = TIMEOUT_MS,
) -> Values:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout": milliseconds(timeout_ms),
        "producer_id": producer[0],
        "producer_epoch": producer[1],
    }


def ending(
    producer: tuple[int, int], *, is_commit: bool = True, transactional_id: str = ID
) -> Values:
    return {
        "transactional_id": transactional_id,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "committed": is_commit,
    }


def _codes(topics: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, result.partition_index): int(result.partition_error_code)
        for topic in topics
        for result in topic.results_by_partition
    }


@asynccontextmanager
async def asking() -> AsyncIterator[Asking]:
    """With the topic of transactions there, and topic `t` of two partitions."""
    async with controlled_world(SETTINGS) as controlled:
        asked = Asking(controlled)
        assert await asked.find(ID, key_type=1) == 0
        controlled.served.world.create("t", partitions=2)
        await controlled.settle()
        yield asked


def markers(asked: Asking, partition: int = 0) -> list[tuple[int, int]]:
    """Producer ids and epochs of the control batches in a partition of `t`."""
    log = asked.controlled.served.world.runner("t", partition).log
    if log.log_end_offset == log.log_start_offset:
        return []
    read = log.read(
        log.log_start_offset, end_offset=log.log_end_offset, max_bytes=2**20, at_least_one=True
    )
    return [
        (header.producer_id, header.producer_epoch)
        for _position, header in iter_headers(memoryview(read.data))
        if header.is_control
    ]


@in_virtual_time
async def test_transaction_reaches_its_partitions_and_ends_there() -> None:
    async with asking() as asked:
        code, producer_id, epoch = await asked.init()
        assert (code, epoch) == (0, 0)
        added = await asked.add((producer_id, 0), {"t": (0, 1)})
        assert added == {("t", 0): 0, ("t", 1): 0}
        assert await asked.end((producer_id, 0)) == (0, producer_id, 1)
        await asked.controlled.settle()
        assert markers(asked, 0) == markers(asked, 1) == [(producer_id, 1)]
        assert await asked.end((producer_id, 0)) == (0, producer_id, 1)


@in_virtual_time
async def test_older_client_keeps_its_epoch() -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        for number in range(2):
            await asked.add((producer_id, 0), {"t": (0,)})
            assert await asked.end((producer_id, 0), is_commit=False, version=4) == (0,)
            await asked.controlled.settle()
            assert markers(asked) == [(producer_id, 0)] * (number + 1)


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90)])
@in_virtual_time
async def test_fenced_producer_is_told_so_in_words_that_it_knows(version: int, code: int) -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        await asked.init()
        assert await asked.init(producer=(producer_id, 0), version=version) == (code, -1, -1)


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90)])
@in_virtual_time
async def test_fenced_transaction_is_told_so_in_words_that_it_knows(
    version: int, code: int
) -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        await asked.init()
        fenced = (producer_id, 0)
        assert await asked.add(fenced, {"t": (0,)}, version=version) == {("t", 0): code}
        assert await asked.end(fenced, version=version) == (code,)
        assert await asked.find("group", key_type=0) == 0
        answer = await asked.ask(
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            {
                "transactional_id": ID,
                "producer_id": producer_id,
                "producer_epoch": 0,
                "group_id": "group",
            },
        )
        assert int(answer.error_code) == code


@in_virtual_time
async def test_partition_that_there_is_not_is_named() -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        answer = await asked.add((producer_id, 0), {"t": (0, 2), "u": (0,)})
        assert answer == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        code, _producer_id, _epoch = await asked.end((producer_id, 0))
        assert code == ErrorCode.INVALID_TXN_STATE


@in_virtual_time
async def test_brokers_ask_about_many_transactions_at_once() -> None:
    async with asking() as asked:
        producers = {name: (await asked.init(name))[1] for name in ("a", "b", "c")}
        await asked.add((producers["b"], 0), {"t": (0,)}, transactional_id="b")

        def transaction(name: str, *, is_verification: bool, epoch: int = 0) -> Values:
            return {
                "transactional_id": name,
                "producer_id": producers[name],
                "producer_epoch": epoch,
                "verify_only": is_verification,
                "topics": [{"name": "t", "partitions": (0, 1)}],
            }

        values = {
            "transactions": [
                transaction("a", is_verification=False),
                transaction("b", is_verification=True),
                transaction("c", is_verification=True, epoch=1),
            ]
        }
        answer = await asked.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, values)
        assert int(answer.error_code) == 0
        results = {
            result.transactional_id: _codes(result.topic_results)
            for result in answer.results_by_transaction
        }
        abortable, fenced = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.PRODUCER_FENCED
        assert results == {
            "a": {("t", 0): 0, ("t", 1): 0},
            "b": {("t", 0): 0, ("t", 1): abortable},
            "c": {("t", 0): fenced, ("t", 1): fenced},
        }


@in_virtual_time
async def test_leader_on_the_same_broker_asks_without_a_connection() -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        controlled = asked.controlled
        api = AddPartitionsToTxnApi(controlled.transactions, controlled.served.world.partitions)
        topics = [("t", [1])]
        added = AddedPartitions(ID, producer_id, 0, False, topics)
        assert await api.ask_here([added]) == [AddedResult(ID, [("t", [(1, 0)])])]
        unknown = added._replace(transactional_id="unknown", is_verification=True)
        (result,) = await api.ask_here([unknown])
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert result == AddedResult("unknown", [("t", [(1, code)])])
        assert await asked.end((producer_id, 0)) == (0, producer_id, 1)


@in_virtual_time
async def test_offsets_of_a_group_are_part_of_the_transaction() -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        values = {
            "transactional_id": ID,
            "producer_id": producer_id,
            "producer_epoch": 0,
            "group_id": "group",
        }
        answer = await asked.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, values)
        assert int(answer.error_code) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await asked.find("group", key_type=0) == 0
        answer = await asked.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, values)
        assert int(answer.error_code) == 0
        metadata = await _described(asked)
        # Java says that the hash of "group" is 98629247.
        assert metadata == ("Ongoing", {("__consumer_offsets", 98629247 % 3)})


@in_virtual_time
async def test_operators_are_told_about_transactions() -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        handler = DescribeTransactionsHandler(transactions=asked.controlled.transactions)
        request = DescribeTransactionsRequest(
            transactional_ids=(TransactionalId(ID), TransactionalId("unknown"), TransactionalId(""))
        )
        known, unknown, empty = (await handler.handle(request, context())).transaction_states
        assert (int(known.error_code), known.transaction_state) == (0, "Empty")
        assert int(unknown.error_code) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert int(empty.error_code) == ErrorCode.INVALID_REQUEST
        await asked.add((producer_id, 0), {"t": (1, 0)})
        known, *_others = (await handler.handle(request, context())).transaction_states
        assert (known.transaction_state, known.producer_id) == ("Ongoing", producer_id)
        assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", (0, 1))]
        assert known.transaction_timeout == milliseconds(TIMEOUT_MS)


@in_virtual_time
async def test_transactions_are_listed() -> None:
    async with asking() as asked:
        for name in ("a", "b"):
            await asked.init(name)
        handler = ListTransactionsHandler(transactions=asked.controlled.transactions)

        async def found(**wanted: Any) -> tuple[int, tuple[str, ...], list[str]]:
            answer = await handler.handle(ListTransactionsRequest(**wanted), context())
            names = sorted(str(each.transactional_id) for each in answer.transaction_states)
            return int(answer.error_code), answer.unknown_state_filters, names

        assert await found() == (0, (), ["a", "b"])
        assert await found(state_filters=("Empty", "Open")) == (0, ("Open",), ["a", "b"])
        assert await found(state_filters=("Ongoing",)) == (0, (), [])
        assert await found(transactional_id_pattern="a|c") == (0, (), ["a"])
        invalid = ErrorCode.INVALID_REGULAR_EXPRESSION
        assert await found(transactional_id_pattern="(") == (invalid, (), [])


@in_virtual_time
async def test_list_is_whole_or_refused() -> None:
    async with asking() as asked:
        await asked.init("a")
        world = asked.controlled.served.world
        handler = ListTransactionsHandler(transactions=asked.controlled.transactions)
        world.executor.hold(URGENT)
        world.elect("__transaction_state", partition_of("a", 2))
        await world.settle()
        answer = await handler.handle(ListTransactionsRequest(), context())
        assert int(answer.error_code) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.executor.release(URGENT)
        await world.settle()


async def _described(asked: Asking) -> tuple[str, set[tuple[str, int]]]:
    handlers = asked.controlled
    future = handlers.transactions.ask(
        ID, lambda shard, token, _now_ms: shard.on_describe(ID, token=token), may_write=False
    )
    answer: Any = await future
    return answer.metadata.state.title, {tuple(one) for one in answer.metadata.partitions}


@in_virtual_time
async def test_id_that_no_record_has_room_for_is_refused() -> None:
    async with asking() as asked:
        assert await asked.init("") == (ErrorCode.INVALID_REQUEST, -1, -1)
        code, *_producer = await asked.end((1, 0), transactional_id="")
        assert code == ErrorCode.INVALID_REQUEST
        coordinator = asked.controlled.transactions
        with pytest.raises(RequestRefused) as refused:
            await coordinator.ask("x" * 32_001, lambda *_: pytest.fail("asked"))
        assert refused.value.code is ErrorCode.INVALID_REQUEST


@in_virtual_time
async def test_time_out_that_is_too_long_is_refused() -> None:
    async with asking() as asked:
        code, _id, _epoch = await asked.init(timeout_ms=900_001)
        assert code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@in_virtual_time
async def test_transaction_that_runs_out_of_time_is_aborted_in_its_partitions() -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init(timeout_ms=50)
        await asked.add((producer_id, 0), {"t": (0,)})
        asked.controlled.served.world.clock.advance(60)
        await asyncio.sleep(0.1)
        await asked.controlled.settle()
        assert markers(asked) == [(producer_id, 1)]


@in_virtual_time
async def test_nobody_coordinates_before_there_is_a_topic() -> None:
    async with controlled_world(SETTINGS) as controlled:
        asked = Asking(controlled)
        code, _id, _epoch = await asked.init()
        assert code == ErrorCode.NOT_COORDINATOR
        code, *_producer = await asked.end((1, 0))
        assert code == ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_who_needs_no_producer_id_does_not_wait_for_one() -> None:
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        ids = asked.controlled.transactions.producer_ids
        while not ids.is_empty:
            ids.take()
        asked.controlled.tree.refusing = 100
        await asked.add((producer_id, 0), {"t": (0,)})
        assert await asked.end((producer_id, 0)) == (0, producer_id, 1)
        await asked.controlled.settle()
        assert await asked.init() == (0, producer_id, 2)
        asked.controlled.tree.refusing = 0


@in_virtual_time
async def test_everybody_waits_for_producer_ids() -> None:
    async with asking() as asked:
        asked.controlled.tree.refusing = 1
        code, _id, _epoch = await asked.init()
        assert code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(5)
        code, _id, _epoch = await asked.init()
        assert code == 0


@pytest.mark.parametrize("asked_for", ["the end", "an epoch"])
@in_virtual_time
async def test_what_waited_through_a_change_of_leaders_is_not_decided_upon(asked_for: str) -> None:
    """Others led meanwhile, and the same producer may be in its next transaction (T1).

    The coordinator was stopped with a request in its socket; it reads it when it goes on, and
    leads again before it knows of the epochs between.
    """
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        await asked.add((producer_id, 0), {"t": (0,)})
        world = asked.controlled.served.world
        world.replicas.drop_roles()
        if asked_for == "the end":
            asked.client.send(ApiKey.END_TXN, 4, ending((producer_id, 0)))
        else:
            asked.client.send(ApiKey.INIT_PRODUCER_ID, 5, initializing())
        await asked.controlled.settle()
        assert asked.client.take() == []
        world.change("__transaction_state", led_by_us(2), partition_of(ID, 2))
        await asked.controlled.settle()
        (late,) = asked.client.take()
        assert late.error_code == ErrorCode.NOT_COORDINATOR
        assert await _described(asked) == ("Ongoing", {("t", 0)})
        assert markers(asked) == []


@in_virtual_time
async def test_end_of_a_client_that_is_gone_is_not_decided_when_its_coordinator_is_there() -> None:
    """It may have asked again, and be in its next transaction."""
    async with asking() as asked:
        _code, producer_id, _epoch = await asked.init()
        await asked.add((producer_id, 0), {"t": (0,)})
        world = asked.controlled.served.world
        world.executor.hold(URGENT)
        world.elect("__transaction_state", partition_of(ID, 2))
        await asked.controlled.settle()
        asked.client.send(ApiKey.END_TXN, 4, ending((producer_id, 0)))
        await asked.controlled.settle()
        asked.client.disconnect()
        world.executor.release(URGENT)
        await asked.controlled.settle()
        assert await _described(asked) == ("Ongoing", {("t", 0)})
