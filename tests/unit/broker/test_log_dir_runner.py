"""What a log directory leaves behind when it stops, and that nothing in doubt is marked clean."""

import asyncio
from contextlib import suppress

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import World, broker_world
from tidelog.base.errors import DiskFull, ErrorCode, StorageError

ONE_BATCH = {"internal.segment.bytes": "150"}
BOTH = (URGENT, BACKGROUND)


async def topic_with_records(world: World) -> None:
    world.create("t", config=ONE_BATCH)
    await world.settle()
    world.produce("t", plain_batch(1))
    await world.settle()


@in_virtual_time
async def test_a_clean_stop_is_marked_and_needs_no_recovery() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        await world.stop()
        assert world.is_marked_clean()
        async with broker_world(before=world) as restarted:
            assert restarted.log_dir.log_dir is not None
            assert restarted.log_dir.log_dir.was_clean
            assert restarted.stored_offsets("t") == [0]


@in_virtual_time
async def test_a_stop_during_a_roll_waits_for_it_and_appends_nothing_more() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        world.executor.hold(URGENT)
        queued = world.produce("t", plain_batch(1))
        stopping = asyncio.create_task(world.stop())
        await world.settle()
        assert not stopping.done()
        world.executor.release(URGENT)
        await stopping
        assert queued.code != ErrorCode.NONE
        assert world.is_marked_clean()
        async with broker_world(before=world) as restarted:
            assert restarted.stored_offsets("t") == [0]
            assert restarted.produce("t", plain_batch(1)).base_offset == 1


@in_virtual_time
async def test_a_roll_that_fails_during_a_stop_leaves_no_mark() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        world.executor.hold(URGENT)
        world.produce("t", plain_batch(1))
        stopping = asyncio.create_task(world.stop())
        await world.settle()
        world.disk.arm("open", "*.timeindex", StorageError)
        world.executor.step(URGENT)
        world.disk.heal()
        world.executor.release(URGENT)
        await stopping
        assert not world.is_marked_clean()


@in_virtual_time
async def test_a_flush_that_fails_during_a_stop_leaves_no_mark() -> None:
    """Asking the disk once more would find nothing wrong: it reports a lost write only once."""
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1"})
        await world.settle()
        world.executor.hold(BACKGROUND)
        world.produce("t", plain_batch(1))
        stopping = asyncio.create_task(world.stop())
        await world.settle()
        world.disk.arm("flush", "*.log", StorageError)
        while world.executor.waiting(BACKGROUND) > 1:
            world.executor.step(BACKGROUND)
        world.disk.heal()
        world.executor.release(BACKGROUND)
        await stopping
        assert not world.is_marked_clean()


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("flush", "*.log"),
        ("flush", "*.index"),
        ("append", "*.snapshot"),
        ("replace_file", "recovery-point-offset-checkpoint"),
        ("replace_file", "replication-offset-checkpoint"),
        ("replace_file", ".kafka_cleanshutdown"),
    ],
)
@in_virtual_time
async def test_a_disk_that_fails_at_the_last_moment_leaves_no_mark(
    operation: str, name: str
) -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        world.disk.arm(operation, name, DiskFull)
        await world.stop()
        assert not world.is_marked_clean()


@in_virtual_time
async def test_a_directory_that_is_offline_is_not_marked() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        world.log_dir.on_failure(StorageError("test"))
        await world.stop()
        assert not world.is_marked_clean()


@in_virtual_time
async def test_a_stop_while_a_directory_comes_back_leaves_no_mark() -> None:
    marked = []
    for steps in range(8):
        async with broker_world() as world:
            await topic_with_records(world)
            world.log_dir.on_failure(StorageError("test"))
            world.executor.hold(*BOTH)
            reopening = asyncio.create_task(world.reopen())
            for _ in range(steps):
                await world.settle()
                for lane in BOTH:
                    if world.executor.waiting(lane):
                        world.executor.step(lane)
                        break
            await world.settle()
            is_recovered = reopening.done()
            reopening.cancel()
            with suppress(asyncio.CancelledError):
                await reopening
            world.executor.release(*BOTH)
            await world.stop()
            assert world.is_marked_clean() == is_recovered
            marked.append(is_recovered)
            if world.log_dir.log_dir is not None and not is_recovered:
                world.log_dir.log_dir.close(clean=False)
            if not is_recovered:
                continue
            async with broker_world(before=world) as restarted:
                assert restarted.stored_offsets("t") == [0]
    assert set(marked) == {False, True}


@in_virtual_time
async def test_one_directory_that_fails_does_not_cost_the_other_its_mark() -> None:
    async with broker_world(dir_count=2) as world:
        world.create("t", partitions=2)
        await world.settle()
        world.log_dirs[0].on_failure(StorageError("test"))
        await world.stop()
        assert not world.is_marked_clean(world.log_dirs[0])
        assert world.is_marked_clean(world.log_dirs[1])


@in_virtual_time
async def test_checkpoints_are_written_only_when_something_changed() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        await world.upkeep.checkpoint()
        world.disk.arm("replace_file", "*", StorageError)
        await world.upkeep.checkpoint()
        assert world.log_dir.is_online
        world.produce("t", plain_batch(1))
        await world.settle()
        await world.upkeep.checkpoint()
        assert not world.log_dir.is_online


@in_virtual_time
async def test_files_of_expired_segments_go_after_the_delay() -> None:
    async with broker_world() as world:
        config = {**ONE_BATCH, "file.delete.delay.ms": "1000", "retention.ms": "1000"}
        world.create("t", config=config)
        await world.settle()
        world.produce("t", plain_batch(1))
        world.clock.moment_ms += 5_000
        await world.upkeep.enforce_retention()
        folder = world.log_dir.path / "t-0"
        assert any(name.endswith(".deleted") for name in world.disk.list_folder(folder))
        await asyncio.sleep(1.1)
        await world.settle()
        assert not any(name.endswith(".deleted") for name in world.disk.list_folder(folder))
