"""What a log directory leaves behind when it stops, and that nothing in doubt is marked clean."""

import asyncio
from contextlib import suppress

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import (
    BOOT_ID,
    World,
    broker_world,
    power_cut,
    process_killed,
    topic_partition,
)
from tidelog.base.errors import DiskFull, ErrorCode, StorageError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.broker.log_dir_runner import UNKNOWN_BOOT
from tidelog.core.controller.image import LastStop
from tidelog.storage.checkpoints import read_offsets

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
async def test_log_starts_are_written_once_for_all_who_ask_meanwhile() -> None:
    async with broker_world() as world:
        world.create("t")
        world.create("u")
        await world.settle()
        for name in ("t", "u"):
            world.produce(name, plain_batch(3))
        world.executor.hold(BACKGROUND)
        world.runner("t").log.advance_log_start(Offset(1))
        asked = [asyncio.create_task(world.log_dir.checkpoint_log_starts())]
        await world.settle()
        world.runner("u").log.advance_log_start(Offset(2))
        asked += [asyncio.create_task(world.log_dir.checkpoint_log_starts()) for _ in range(50)]
        await world.settle()
        assert world.executor.waiting(BACKGROUND) == 1
        world.executor.step(BACKGROUND)
        await world.settle()
        assert [one.done() for one in asked] == [True] + [False] * 50
        assert world.executor.waiting(BACKGROUND) == 1
        world.executor.step(BACKGROUND)
        for _ in asked:  # One after the other finds that it is done.
            await world.settle()
        assert all(one.done() for one in asked)
        assert world.executor.waiting(BACKGROUND) == 0
        written = world.memory_disk.read_file(world.log_dir.path / "log-start-offset-checkpoint")
        assert written.decode().split() == ["0", "2", "t", "0", "1", "u", "0", "2"]
        world.executor.release(BACKGROUND)


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


# -- how it ended before -------------------------------------------------------------------------


@in_virtual_time
async def test_a_new_directory_and_one_that_was_closed_in_order_have_lost_nothing() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        for boot_id in (BOOT_ID, "another boot", UNKNOWN_BOOT):
            assert await world.log_dir.last_stop(boot_id) is LastStop.CLEAN
        await world.stop()
        async with broker_world(before=world) as restarted:
            for boot_id in (BOOT_ID, "another boot", UNKNOWN_BOOT):
                assert await restarted.log_dir.last_stop(boot_id) is LastStop.CLEAN


@in_virtual_time
async def test_a_process_that_was_killed_leaves_what_it_wrote_to_the_machine() -> None:
    """R13: the page cache outlives a process, but not its machine."""
    async with broker_world() as world:
        await topic_with_records(world)
        process_killed(world)
        async with broker_world(before=world) as restarted:
            assert await restarted.log_dir.last_stop(BOOT_ID) is LastStop.KILLED
            assert await restarted.log_dir.last_stop("another boot") is LastStop.LOST
            assert await restarted.log_dir.last_stop(UNKNOWN_BOOT) is LastStop.LOST


@in_virtual_time
async def test_a_directory_that_nobody_has_vouched_for_may_have_lost_anything() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        world.memory_disk.remove(world.log_dir.path / ".tidelog_boot")
        process_killed(world)
        async with broker_world(before=world, is_vouched_for=False) as restarted:
            assert await restarted.log_dir.last_stop(BOOT_ID) is LastStop.LOST


@in_virtual_time
async def test_a_directory_that_cannot_be_read_may_have_lost_anything() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        process_killed(world)
        async with broker_world(before=world) as restarted:
            restarted.disk.arm("read_file", "*", StorageError)
            assert await restarted.log_dir.last_stop(BOOT_ID) is LastStop.LOST
            assert not restarted.log_dir.is_online
            assert await restarted.log_dir.last_stop(BOOT_ID) is LastStop.LOST


@in_virtual_time
async def test_a_stop_that_was_not_clean_is_not_forgotten_before_the_cluster_knows() -> None:
    async with broker_world() as world:
        await topic_with_records(world)
        power_cut(world, 1)
        async with broker_world(before=world, is_vouched_for=False) as restarted:
            await restarted.stop()
            assert not restarted.is_marked_clean()
            async with broker_world(before=restarted, is_vouched_for=False) as again:
                assert await again.log_dir.last_stop("another boot") is LastStop.LOST
                await again.log_dir.write_boot_id("another boot")
                await again.stop()
                assert again.is_marked_clean()


@in_virtual_time
async def test_a_directory_that_cannot_be_vouched_for_goes_offline() -> None:
    async with broker_world() as world:
        world.disk.arm("replace_file", "*", StorageError)
        await world.log_dir.write_boot_id("another boot")
        assert not world.log_dir.is_online


# -- cutting logs --------------------------------------------------------------------------------


def recovery_points(world: World) -> dict[TopicPartition, Offset]:
    """As they are on disk."""
    path = world.log_dir.path / "recovery-point-offset-checkpoint"
    return read_offsets(world.memory_disk, path) or {}


async def flushed_topics(world: World) -> None:
    """Three records each, on stable storage, and that written down."""
    for name in ("t", "u"):
        world.create(name)
        await world.settle()
        for _ in range(3):
            world.produce(name, plain_batch(1))
        world.runner(name).flusher.start()
    await world.settle()
    await world.log_dir.checkpoint()
    assert set(recovery_points(world).values()) == {3}


@in_virtual_time
async def test_a_recovery_point_is_lowered_before_the_log_is_cut() -> None:
    async with broker_world() as world:
        await flushed_topics(world)
        seen: list[dict[TopicPartition, Offset]] = []
        cut = world.log_dir.truncate(
            topic_partition("t"), Offset(1), lambda: seen.append(recovery_points(world))
        )
        await cut
        assert seen == [{topic_partition("t"): 1, topic_partition("u"): 3}]
        await world.log_dir.checkpoint()  # The log was not cut after all.
        assert set(recovery_points(world).values()) == {3}


@in_virtual_time
async def test_a_cut_waits_for_the_flush_that_is_under_way() -> None:
    async with broker_world() as world:
        await flushed_topics(world)
        world.executor.hold(BACKGROUND)
        world.produce("t", plain_batch(1))
        world.runner("t").flusher.start()
        done: list[str] = []
        cut = world.log_dir.truncate(topic_partition("t"), Offset(1), lambda: done.append("cut"))
        world.executor.step(BACKGROUND)
        assert done == []
        assert world.runner("t").log.recovery_point == 4
        world.executor.release(BACKGROUND)
        await cut
        assert done == ["cut"]
        assert recovery_points(world)[topic_partition("t")] == 1


@in_virtual_time
async def test_what_is_written_down_while_cuts_are_waiting_is_below_all_of_them() -> None:
    async with broker_world() as world:
        await flushed_topics(world)
        world.executor.hold(BACKGROUND)
        first = world.log_dir.truncate(topic_partition("t"), Offset(2), lambda: None)
        second = world.log_dir.truncate(topic_partition("u"), Offset(1), lambda: None)
        checkpointing = asyncio.create_task(world.log_dir.checkpoint())
        await world.settle()
        lowered = {topic_partition("t"): 2, topic_partition("u"): 1}
        expected = [{**lowered, topic_partition("u"): 3}, lowered, lowered]
        for points in expected:
            world.executor.step(BACKGROUND)
            assert recovery_points(world) == points
        world.executor.release(BACKGROUND)
        await asyncio.gather(first, second, checkpointing)


@in_virtual_time
async def test_nothing_is_cut_whose_recovery_point_cannot_be_lowered() -> None:
    async with broker_world() as world:
        await flushed_topics(world)
        world.disk.arm("replace_file", "*recovery-point*", StorageError)
        done: list[None] = []
        cut = world.log_dir.truncate(topic_partition("t"), Offset(1), lambda: done.append(None))
        with pytest.raises(StorageError):
            await cut
        assert done == []
        world.disk.heal()
        await world.log_dir.checkpoint()
        assert set(recovery_points(world).values()) == {3}
