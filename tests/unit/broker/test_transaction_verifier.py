"""Asking transaction coordinators, here and elsewhere (D3, KIP-890): A1-A4."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.unit.broker.far_end import FarEnd
from tests.unit.broker.played_leader import registered
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, OTHER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.broker.transaction_verifier import VERSION, Codes, Question, TransactionVerifier
from tidelog.core.controller.changes import BrokerGone
from tidelog.core.controller.names import TRANSACTION_STATE
from tidelog.wire.add_partitions_to_txn import (
    AddedPartitions,
    AddedResult,
    AddPartitionsToTxnResponse,
    decode_add_partitions_to_txn,
    encode_add_partitions_to_txn_response,
)
from tidelog.wire.api import decode_request_header

RETRY_BACKOFF_MS = 20
RETRY_MAX_MS = 100
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Coordinator:
    """Says NONE, unless a code is on its list."""

    def __init__(self) -> None:
        self.requests: list[list[AddedPartitions]] = []
        self.codes: list[ErrorCode] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, asked: Sequence[AddedPartitions]) -> list[AddedResult]:
        self.requests.append(list(asked))
        await self.may_answer.wait()
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        return [result(one, code) for one in asked]


def result(asked: AddedPartitions, code: ErrorCode) -> AddedResult:
    topics = [(topic, [(number, int(code)) for number in named]) for topic, named in asked.topics]
    return AddedResult(asked.transactional_id, topics)


class Asking:
    def __init__(self, world: World, tasks: asyncio.TaskGroup) -> None:
        self.world = world
        self.tasks = tasks
        self.here = Coordinator()
        self.far = FarEnd()
        self.verifier = TransactionVerifier(
            broker_id=BROKER,
            partitions=world.partitions,
            connect=lambda _broker: self.far.peer(),
            ask_here=self.here.ask,
            retry_backoff_ms=RETRY_BACKOFF_MS,
            retry_max_ms=RETRY_MAX_MS,
            loop=asyncio.get_running_loop(),
            tasks=tasks,
        )

    def ask(
        self, *partitions: TopicPartition, name: str = "id", is_addition: bool = True
    ) -> "asyncio.Task[Codes]":
        question = Question(name, 7, 3, partitions, is_addition)
        return self.tasks.create_task(self.verifier.verify(question))

    async def settle(self) -> None:
        await self.world.settle()

    def asked(self) -> tuple[int, list[AddedPartitions]]:
        """What the other broker was asked last, and the number of the request."""
        (frame,) = self.far.connection.requests()
        header = decode_request_header(frame)
        assert header.api_version == VERSION
        request = decode_add_partitions_to_txn(frame, header.body_position, VERSION)
        return header.correlation_id, request

    def answer(self, correlation_id: int, response: AddPartitionsToTxnResponse) -> None:
        frame = encode_add_partitions_to_txn_response(VERSION, correlation_id, response)
        self.far.connection.send(frame)


@asynccontextmanager
async def asking(*, is_here: bool = True) -> AsyncIterator[Asking]:
    """Everything is looked after by this broker, or by another."""
    async with broker_world() as world, asyncio.TaskGroup() as tasks:
        world.decide(registered(OTHER, 20))
        state = None if is_here else replicated(OTHER, 0)
        world.create(TRANSACTION_STATE, partitions=5, state=state)
        await world.settle()
        yield Asking(world, tasks)


@in_virtual_time
async def test_the_coordinator_is_asked_about_all_partitions_at_once() -> None:
    async with asking() as one:
        answer = one.ask(T0, U0, T1)
        await one.settle()
        assert answer.result() == dict.fromkeys((T0, T1, U0), ErrorCode.NONE)
        topics = [("t", [0, 1]), ("u", [0])]
        assert one.here.requests == [[AddedPartitions("id", 7, 3, False, topics)]]


@in_virtual_time
async def test_what_is_not_to_be_added_is_only_asked_about() -> None:
    async with asking() as one:
        one.ask(T0, is_addition=False)
        await one.settle()
        assert one.here.requests[0][0].is_verification


@in_virtual_time
async def test_what_waits_is_asked_together() -> None:
    """A1"""
    async with asking() as one:
        one.here.may_answer.clear()
        answers = [one.ask(T0, name="a")]
        await one.settle()
        answers += [one.ask(T0, name=name) for name in ("b", "c")]
        await one.settle()
        one.here.may_answer.set()
        await one.settle()
        names = [[asked.transactional_id for asked in request] for request in one.here.requests]
        assert names == [["a"], ["b", "c"]]
        assert all(answer.result() == {T0: ErrorCode.NONE} for answer in answers)


@in_virtual_time
async def test_another_broker_is_asked_over_the_wire() -> None:
    async with asking(is_here=False) as one:
        answer = one.ask(T0, T1)
        await one.settle()
        number, request = one.asked()
        assert request == [AddedPartitions("id", 7, 3, False, [("t", [0, 1])])]
        codes = [(0, 0), (1, int(ErrorCode.TRANSACTION_ABORTABLE))]
        results = [AddedResult("id", [("t", codes)])]
        one.answer(number, AddPartitionsToTxnResponse(0, 0, results))
        await one.settle()
        assert answer.result() == {T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}


@in_virtual_time
async def test_a_request_that_is_refused_as_a_whole_is_refused_for_each() -> None:
    async with asking(is_here=False) as one:
        answer = one.ask(T0)
        await one.settle()
        number, _ = one.asked()
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        one.answer(number, AddPartitionsToTxnResponse(0, code, []))
        await one.settle()
        assert answer.result() == {T0: code}


@in_virtual_time
async def test_a_partition_of_which_nothing_is_said_is_not_vouched_for() -> None:
    """A2"""
    async with asking(is_here=False) as one:
        answer = one.ask(T0, T1)
        await one.settle()
        number, _ = one.asked()
        results = [AddedResult("id", [("t", [(0, 0)])])]
        one.answer(number, AddPartitionsToTxnResponse(0, 0, results))
        await one.settle()
        assert answer.result() == {T0: ErrorCode.NONE, T1: ErrorCode.NETWORK_EXCEPTION}


@in_virtual_time
async def test_an_answer_about_somebody_else_is_none() -> None:
    """A2"""
    async with asking(is_here=False) as one:
        answer = one.ask(T0)
        await one.settle()
        number, _ = one.asked()
        results = [AddedResult("other", [("t", [(0, 0)])])]
        one.answer(number, AddPartitionsToTxnResponse(0, 0, results))
        await one.settle()
        assert answer.result() == {T0: ErrorCode.NETWORK_EXCEPTION}


@in_virtual_time
async def test_a_broker_that_cannot_be_reached_is_tried_again_with_the_next_question() -> None:
    """A2"""
    async with asking(is_here=False) as one:
        one.far.is_refusing = True
        refused = one.ask(T0)
        await one.settle()
        assert refused.result() == {T0: ErrorCode.NETWORK_EXCEPTION}
        one.far.is_refusing = False
        answer = one.ask(T0)
        await one.settle()
        number, _ = one.asked()
        results = [AddedResult("id", [("t", [(0, 0)])])]
        one.answer(number, AddPartitionsToTxnResponse(0, 0, results))
        await one.settle()
        assert answer.result() == {T0: ErrorCode.NONE}


@in_virtual_time
async def test_a_broker_that_is_silent_is_given_up() -> None:
    """A2"""
    async with asking(is_here=False) as one:
        answer = one.ask(T0)
        await asyncio.sleep(one.far.timeout_ms / 1000 + 1)
        assert answer.result() == {T0: ErrorCode.NETWORK_EXCEPTION}


@in_virtual_time
async def test_a_broker_that_hung_is_given_up_when_its_session_ends() -> None:
    """A4, A2"""
    async with asking(is_here=False) as one:
        answer = one.ask(T0)
        await one.settle()
        one.verifier.on_image(one.world.image, [BrokerGone(OTHER)])
        await one.settle()
        assert answer.result() == {T0: ErrorCode.NETWORK_EXCEPTION}


@in_virtual_time
async def test_there_may_be_no_coordinator() -> None:
    """A2"""
    async with asking() as one:
        one.world.delete(TRANSACTION_STATE)
        answer = one.ask(T0)
        await one.settle()
        assert answer.result() == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


@in_virtual_time
async def test_a_coordinator_that_ends_the_last_transaction_is_asked_again() -> None:
    """A3"""
    async with asking() as one:
        one.here.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        answer = one.ask(T0)
        await asyncio.sleep(RETRY_MAX_MS / 1000)
        assert answer.result() == {T0: ErrorCode.NONE}
        assert len(one.here.requests) == 3


@in_virtual_time
async def test_a_coordinator_is_not_asked_for_ever() -> None:
    """A3"""
    async with asking() as one:
        one.here.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 99
        answer = one.ask(T0)
        await asyncio.sleep(1)
        assert answer.result() == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
        # A few soon, the others by the setting.
        assert 3 < len(one.here.requests) <= 5 + RETRY_MAX_MS / RETRY_BACKOFF_MS


@in_virtual_time
async def test_older_clients_try_again_themselves() -> None:
    """A3"""
    async with asking() as one:
        one.here.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
        answer = one.ask(T0, is_addition=False)
        await one.settle()
        assert answer.result() == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}


@in_virtual_time
async def test_who_does_not_wait_any_more_keeps_nobody_from_an_answer() -> None:
    async with asking() as one:
        one.here.may_answer.clear()
        gone, answer = one.ask(T0), one.ask(T1)
        await one.settle()
        gone.cancel()
        one.here.may_answer.set()
        await one.settle()
        assert answer.result() == {T1: ErrorCode.NONE}
