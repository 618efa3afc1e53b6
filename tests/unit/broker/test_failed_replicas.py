"""Replicas whose directory failed, or that are others' by now (S9, R11)."""

from tests.support.batches import plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import (
    OTHER,
    World,
    broker_world,
    live_brokers,
    replicated,
    roles_of,
    topic_partition,
)
from tidelog.base.errors import DiskFull, ErrorCode, StorageError
from tidelog.base.ids import LeaderEpoch
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.image import PartitionImage

T0 = topic_partition("t")


async def told(world: World) -> dict[str, ErrorCode]:
    """What this broker answers when it is told its role again."""
    failed = await world.replicas.become(roles_of(world.image, [T0]), live_brokers(world.image))
    return {str(one): code for one, code in failed.items()}


async def failed_and_recovered(world: World) -> None:
    world.disk.arm("append", "*.log", DiskFull)
    assert world.produce("t", plain_batch(1)).code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await told(world) == {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}
    world.disk.heal()
    await world.replicas.reopen(world.log_dir)


@in_virtual_time
async def test_a_log_that_was_recovered_is_not_led_in_the_epoch_it_was_led_in() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        await failed_and_recovered(world)
        assert world.produce("t", plain_batch(1)).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await told(world) == {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}


@in_virtual_time
async def test_an_election_by_who_has_not_heard_of_the_failure_does_not_count() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        await failed_and_recovered(world)
        world.elect("t")
        await world.settle()
        assert world.runner("t").leader is None
        assert await told(world) == {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}


@in_virtual_time
async def test_a_role_without_a_leader_shows_that_the_controller_has_heard() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        await failed_and_recovered(world)
        await world.elect_recovered()
        assert await told(world) == {}
        assert world.runner("t").leader_epoch == 2
        assert world.produce("t", plain_batch(1)).code == ErrorCode.NONE


@in_virtual_time
async def test_a_role_outside_the_isr_shows_it_too() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        await failed_and_recovered(world)
        world.change("t", replicated(OTHER, 1, isr=(OTHER,)))
        await world.settle()
        assert await told(world) == {}
        assert world.runner("t").follower is not None


@in_virtual_time
async def test_the_controller_is_to_hear_of_a_failure_and_of_its_end_but_not_of_a_start() -> None:
    async with broker_world() as world:
        assert world.log_dir_changes == []
        world.log_dir.on_failure(StorageError("test"))
        assert world.log_dir_changes == [0]
        await world.reopen()
        assert world.log_dir_changes == [0, 0]


@in_virtual_time
async def test_a_replica_that_may_be_on_a_broken_disk_is_not_made_anew_on_another() -> None:
    async with broker_world(dir_count=2) as world:
        for log_dir in world.log_dirs:
            log_dir.on_failure(StorageError("test"))
        world.create("t")
        await world.settle()
        await world.replicas.reopen(world.log_dirs[1])
        world.elect("t")
        await world.settle()
        assert world.partitions.find("t", 0) is None
        assert await told(world) == {"t-0": ErrorCode.KAFKA_STORAGE_ERROR}


@in_virtual_time
async def test_what_others_have_got_is_deleted_without_being_told_to_stop() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        folder = world.log_dir.path / "t-0"
        assert world.disk.exists(folder)
        moved = PartitionImage(
            leader=OTHER,
            leader_epoch=LeaderEpoch(1),
            replicas=(OTHER,),
            isr=(OTHER,),
            adding_replicas=(),
            removing_replicas=(),
            partition_epoch=1,
        )
        world.decide(PartitionChanged("t", 0, moved))
        await world.settle()
        assert world.partitions.find("t", 0) is None
        assert not world.disk.exists(folder)
