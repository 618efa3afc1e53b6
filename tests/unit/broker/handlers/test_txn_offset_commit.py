"""D3: offsets that are committed with a transaction, and count from its marker on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.kio_codec import Values
from tests.unit.broker.controlled_world import ControlledWorld, controlled_world
from tests.unit.broker.served import Client
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.transactions import end
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.broker.transaction_verifier import Question
from tidelog.core.controller.names import CONSUMER_OFFSETS
from tidelog.core.coordinators import partition_of
from tidelog.wire.api import ApiKey

PARTITIONS = 3
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.topic.replication.factor": "1",
}
GROUP = "readers"
PRODUCER = 7
ADDS = 5
VERIFIES = 4
NOTHING = -1


class Committing:
    """A producer that commits offsets of GROUP, and whoever looks at them."""

    def __init__(self, controlled: ControlledWorld) -> None:
        self.controlled = controlled
        self.served = controlled.served
        self.client: Client = controlled.served.client()

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(CONSUMER_OFFSETS, partition_of(GROUP, PARTITIONS))

    def send(
        self,
        offset: int,
        *,
        partition: int = 0,
        topic: str = "t",
        epoch: int = 0,
        version: int = ADDS,
        member: tuple[int, str] = (-1, ""),
    ) -> None:
        values = {
            "transactional_id": "id",
            "group_id": GROUP,
            "producer_id": PRODUCER,
            "producer_epoch": epoch,
            "generation_id": member[0],
            "member_id": member[1],
            "group_instance_id": None,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": None,
                        }
                    ],
                }
            ],
        }
        self.client.send(ApiKey.TXN_OFFSET_COMMIT, version, values)

    async def code(self) -> int:
        await self.controlled.settle()
        (answer,) = self.client.take()
        ((result,),) = (topic.partitions for topic in answer.topics)
        return int(result.error_code)

    async def commit(self, offset: int, **told: Any) -> int:
        self.send(offset, **told)
        return await self.code()

    async def fetched(self, *, is_stable: bool = False) -> int:
        """What the group has committed; the code if it is refused."""
        group: Values = {
            "group_id": GROUP,
            "member_id": None,
            "member_epoch": -1,
            "topics": [{"name": "t", "partition_indexes": (0,)}],
        }
        self.client.send(ApiKey.OFFSET_FETCH, 9, {"groups": [group], "require_stable": is_stable})
        await self.controlled.settle()
        (answer,) = self.client.take()
        ((result,),) = (topic.partitions for topic in answer.groups[0].topics)
        code = int(result.error_code)
        offset: int = result.committed_offset
        return -100 - code if code else offset

    def mark(self, *, commit: bool, epoch: int = 1, version: int = 2) -> None:
        end(
            self.served.world,
            CONSUMER_OFFSETS,
            partition=self.place.partition,
            producer=PRODUCER,
            epoch=epoch,
            version=version,
            commit=commit,
        )


@asynccontextmanager
async def committing() -> AsyncIterator[Committing]:
    async with controlled_world(SETTINGS) as controlled:
        one = Committing(controlled)
        one.client.send(ApiKey.FIND_COORDINATOR, 3, {"key": GROUP, "key_type": 0})
        await controlled.settle()
        (found,) = one.client.take()
        assert int(found.error_code) == 0
        controlled.served.world.create("t", partitions=2)
        await controlled.settle()
        yield one


@pytest.mark.parametrize("version", range(6))
@in_virtual_time
async def test_offsets_count_from_the_marker_on(version: int) -> None:
    async with committing() as one:
        assert await one.commit(5, version=version) == 0
        assert await one.fetched() == NOTHING
        one.mark(commit=True)
        assert await one.fetched() == 5


@in_virtual_time
async def test_offsets_of_an_aborted_transaction_never_count() -> None:
    async with committing() as one:
        await one.commit(5)
        one.mark(commit=True)
        await one.commit(9, epoch=1)
        one.mark(commit=False, epoch=2)
        assert await one.fetched() == 5


@in_virtual_time
async def test_who_wants_stable_offsets_waits_for_the_marker() -> None:
    """KIP-447"""
    async with committing() as one:
        await one.commit(5)
        unstable = -100 - ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await one.fetched(is_stable=True) == unstable
        one.mark(commit=True)
        assert await one.fetched(is_stable=True) == 5


@in_virtual_time
async def test_a_restart_knows_what_is_pending() -> None:
    async with committing() as one:
        await one.commit(5)
        one.served.world.elect(CONSUMER_OFFSETS, one.place.partition)
        await one.controlled.settle()
        assert await one.fetched() == NOTHING
        one.mark(commit=True)
        assert await one.fetched() == 5
        one.served.world.elect(CONSUMER_OFFSETS, one.place.partition)
        await one.controlled.settle()
        assert await one.fetched() == 5


@pytest.mark.parametrize(("version", "is_addition"), [(ADDS, True), (VERIFIES, False)])
@in_virtual_time
async def test_the_coordinator_of_the_transaction_is_asked_once(
    version: int, is_addition: bool
) -> None:
    async with committing() as one:
        one.served.verifier.hold()
        one.send(5, version=version)
        await one.controlled.settle()
        assert one.client.take() == []
        question = Question("id", PRODUCER, 0, (one.place,), is_addition)
        assert one.served.verifier.asked == [question]
        one.served.verifier.release()
        assert await one.code() == 0
        assert await one.commit(6, version=version) == 0
        assert len(one.served.verifier.asked) == 1


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, ADDS, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, ADDS, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, VERIFIES, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ADDS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
@in_virtual_time
async def test_what_the_coordinator_does_not_vouch_for_is_refused(
    said: ErrorCode, version: int, told: ErrorCode
) -> None:
    async with committing() as one:
        one.served.verifier.codes[one.place] = said
        assert await one.commit(5, version=version) == told
        one.mark(commit=True)
        assert await one.fetched() == NOTHING


@in_virtual_time
async def test_a_marker_that_comes_before_the_answer_ends_what_had_not_begun() -> None:
    async with committing() as one:
        one.served.verifier.hold()
        one.send(5)
        await one.controlled.settle()
        one.mark(commit=True, epoch=1)
        one.served.verifier.release()
        assert await one.code() == ErrorCode.INVALID_TXN_STATE
        assert await one.fetched() == NOTHING


@in_virtual_time
async def test_a_fenced_producer_commits_nothing() -> None:
    async with committing() as one:
        one.mark(commit=True, epoch=3)
        assert await one.commit(5, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH


@in_virtual_time
async def test_a_setting_lets_older_clients_commit_unasked() -> None:
    async with committing() as one:
        one.served.is_verifying = False
        assert await one.commit(5, version=VERIFIES) == 0
        assert one.served.verifier.asked == []


@in_virtual_time
async def test_a_member_that_is_none_commits_nothing() -> None:
    """KIP-447"""
    async with committing() as one:
        assert await one.commit(5, member=(3, "stranger")) == ErrorCode.ILLEGAL_GENERATION


@in_virtual_time
async def test_partitions_that_nobody_knows_are_refused_alone() -> None:
    async with committing() as one:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await one.commit(5, topic="absent") == unknown
        assert await one.commit(5, partition=2) == unknown
        assert one.served.verifier.asked == []


@in_virtual_time
async def test_a_client_that_is_gone_keeps_nobody() -> None:
    async with committing() as one:
        one.served.verifier.hold()
        one.send(5)
        await one.controlled.settle()
        one.client.disconnect()
        one.served.verifier.release()
        await one.controlled.settle()
        one.client = one.served.client()
        assert await one.commit(6) == 0


@in_virtual_time
async def test_who_gave_up_waiting_commits_nothing_into_the_next_transaction() -> None:
    """It has sent the same again, and gone on: the offset would go back."""
    async with committing() as one:
        one.served.verifier.hold()
        one.send(5, version=VERIFIES)
        await one.controlled.settle()
        one.client.disconnect()
        one.client = one.served.client()
        one.served.is_verifying = False
        assert await one.commit(5, version=VERIFIES) == 0
        one.mark(commit=True, epoch=0, version=1)
        assert await one.commit(9, version=VERIFIES) == 0
        one.served.verifier.release()
        await one.controlled.settle()
        one.mark(commit=True, epoch=0, version=1)
        assert await one.fetched() == 9


@in_virtual_time
async def test_who_is_vouched_for_in_one_epoch_does_not_commit_in_another() -> None:
    """Others may have led meanwhile, and have ended the transaction that was asked about."""
    async with committing() as one:
        one.served.verifier.hold()
        one.send(5, version=VERIFIES)
        await one.controlled.settle()
        one.served.world.elect(CONSUMER_OFFSETS, one.place.partition)
        await one.controlled.settle()
        one.served.verifier.release()
        assert await one.code() == ErrorCode.NOT_COORDINATOR
        one.mark(commit=True)
        assert await one.fetched() == NOTHING


@in_virtual_time
async def test_another_broker_coordinates_the_group() -> None:
    async with controlled_world(SETTINGS) as controlled:
        one = Committing(controlled)
        controlled.served.world.create("t")
        await controlled.settle()
        assert await one.commit(5) == ErrorCode.NOT_COORDINATOR
