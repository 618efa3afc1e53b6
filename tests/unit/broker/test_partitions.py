"""The partitions of a broker: found by name or id, refused with the code that clients act upon."""

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, LISTENER, World, broker_world, topic_partition
from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import LeaderEpoch
from tidelog.broker.partitions import Partitions, require_epoch
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop


def code_of(partitions: Partitions, name: str, partition: int = 0) -> ErrorCode:
    with pytest.raises(RequestRefused) as refusal:
        partitions.led(name, partition)
    return refusal.value.code


async def with_topic(world: World, name: str = "t", partitions: int = 2) -> None:
    world.create(name, partitions=partitions)
    await world.settle()


@in_virtual_time
async def test_a_partition_is_found_by_name_and_number() -> None:
    async with broker_world() as world:
        await with_topic(world)
        partitions = world.partitions
        for number in range(2):
            runner = partitions.led("t", number)
            assert runner.topic_partition == topic_partition("t", number)
            assert partitions.find("t", number) is runner
        assert len(partitions) == 2
        assert {runner.partition for runner in partitions} == {0, 1}


@in_virtual_time
async def test_what_does_not_exist_is_unknown() -> None:
    async with broker_world() as world:
        await with_topic(world)
        partitions = world.partitions
        for name, number in (("t", 2), ("t", -1), ("u", 0), ("", 0)):
            assert code_of(partitions, name, number) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert partitions.find(name, number) is None


@in_virtual_time
async def test_a_topic_is_found_by_its_id_until_it_is_deleted() -> None:
    async with broker_world() as world:
        await with_topic(world)
        first_id = world.image.topics["t"].topic_id.bytes
        assert world.partitions.topic_name(first_id) == "t"
        world.delete("t")
        await world.settle()
        await with_topic(world)
        second_id = world.image.topics["t"].topic_id.bytes
        assert world.partitions.topic_name(first_id) is None
        assert world.partitions.topic_name(second_id) == "t"
        assert world.partitions.topic_name(bytes(16)) is None


@in_virtual_time
async def test_topics_are_removed_together_and_alone() -> None:
    async with broker_world() as world:
        for name in ("t", "u", "v"):
            await with_topic(world, name)
        removed = world.partitions.remove_topics({"t", "v", "nobody"})
        assert {str(runner.topic_partition) for runner in removed} == {"t-0", "t-1", "v-0", "v-1"}
        assert {runner.topic_partition.topic for runner in world.partitions} == {"u"}
        assert world.partitions.find("t", 0) is None


@in_virtual_time
async def test_a_partition_that_is_not_open_yet_has_another_leader() -> None:
    """So that clients ask again, rather than give the topic up."""
    async with broker_world() as world:
        world.executor.hold("urgent")
        world.create("t")
        assert code_of(world.partitions, "t") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.executor.release("urgent")
        await world.settle()
        assert world.partitions.led("t", 0).partition == 0


@in_virtual_time
async def test_a_partition_whose_directory_failed_is_a_storage_error() -> None:
    async with broker_world() as world:
        await with_topic(world)
        world.log_dir.on_failure(StorageError("test"))
        assert code_of(world.partitions, "t") is ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_a_partition_that_could_not_be_opened_is_a_storage_error_until_it_is() -> None:
    async with broker_world() as world:
        world.log_dir.on_failure(StorageError("test"))
        world.create("t")
        await world.settle()
        assert world.partitions.find("t", 0) is None
        assert code_of(world.partitions, "t") is ErrorCode.KAFKA_STORAGE_ERROR
        await world.reopen()
        assert world.partitions.led("t", 0).partition == 0


@in_virtual_time
async def test_a_topic_that_is_removed_leaves_nothing_offline() -> None:
    async with broker_world() as world:
        await with_topic(world)
        world.partitions.mark_offline(topic_partition("t", 9))
        world.partitions.remove_topics({"t"})
        assert world.partitions.absence("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert world.partitions.absence("t", 9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("theirs", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (5, None), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_another_epoch_is_refused_by_its_side(theirs: int, code: ErrorCode | None) -> None:
    if code is None:
        require_epoch(LeaderEpoch(5), theirs)
        return
    with pytest.raises(RequestRefused) as refusal:
        require_epoch(LeaderEpoch(5), theirs)
    assert refusal.value.code is code


@in_virtual_time
async def test_no_epoch_is_no_claim() -> None:
    async with broker_world() as world:
        await with_topic(world)
        world.elect("t")
        await world.settle()
        assert world.partitions.led("t", 0, -1).leader_epoch == 1
        assert world.partitions.led("t", 0, 1).leader_epoch == 1


@in_virtual_time
async def test_dropped_roles_serve_nobody_but_keep_their_replicas() -> None:
    """C6. The broker goes on to look after its logs; it leads again when it is told to."""
    async with broker_world() as world:
        await with_topic(world)
        world.decide(BrokerGone(BROKER))
        assert world.partitions.find("t", 0) is not None
        assert len(world.partitions) == 2
        assert code_of(world.partitions, "t") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        endpoint = Endpoint(LISTENER, "PLAINTEXT", "localhost", 9092)
        world.decide(BrokerRegistered(BrokerImage(BROKER, 2, (endpoint,), None, LastStop.CLEAN)))
        await world.settle()
        assert code_of(world.partitions, "t") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.elect("t")
        await world.settle()
        assert world.partitions.led("t", 0).partition == 0
        assert world.produce("t", plain_batch(1)).code == ErrorCode.NONE
