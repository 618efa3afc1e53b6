"""Which logs are compacted, when, and what may happen to them meanwhile (S5)."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.hash_keys import HASH_KEY
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import World, broker_world, process_killed
from tidelog.base.errors import DiskFull, StorageError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.broker.cleaning import Cleaner
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.config.broker import BrokerConfig
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_plain_batch
from tidelog.storage.compaction import CompactionLimits

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
HOUR_MS = 3_600_000


def cleaner_of(world: World, **settings: str) -> Cleaner:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.load({"node.id": "1", **given})
    return Cleaner(
        config=config.log, partitions=world.partitions, clock=world.clock, hash_key=HASH_KEY
    )


class CrampedCleaner(Cleaner):
    """Has less memory than anybody would give it."""

    def __init__(self, world: World, limits: CompactionLimits) -> None:
        super().__init__(
            config=world.config.log,
            partitions=world.partitions,
            clock=world.clock,
            hash_key=HASH_KEY,
        )
        self._cramped = limits

    def _limits(self, share: int) -> CompactionLimits:
        assert share == 1
        return self._cramped


async def write(
    world: World, keys: Sequence[bytes], *, name: str = "t", partition: int = 0
) -> None:
    """A segment for each of `keys`, and an active one behind them."""
    runner = world.runner(name, partition)
    for key in keys:
        record = Record(0, world.clock.now_ms(), key, b"%d" % runner.log.log_end_offset, ())
        world.produce(name, encode_plain_batch([record], Codec.NONE), partition=partition)
        await world.settle()
        await runner.queue.roll(world.clock.now_ms())
        await world.settle()


async def compacted_world(world: World, name: str = "t", **settings: str) -> None:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    world.create(name, config={**COMPACTED, **given})
    await world.settle()
    await world.become_all()


def checkpointed(world: World, name: str = "t") -> int | None:
    path = world.log_dir.path / "cleaner-offset-checkpoint"
    if not world.disk.exists(path):
        return None
    for line in world.disk.read_file(path).decode().splitlines()[2:]:
        topic, _, offset = line.split(" ")
        if topic == name:
            return int(offset)
    return None


def names_in(world: World, name: str = "t") -> list[str]:
    return list(world.disk.list_folder(world.log_dir.path / f"{name}-0"))


@in_virtual_time
async def test_dirty_log_is_compacted_and_how_far_is_written_down() -> None:
    async with broker_world() as world:
        await compacted_world(world)
        await write(world, [b"a", b"b", b"a"])
        await cleaner_of(world).clean_all()
        assert world.stored_offsets("t") == [1, 2]
        assert checkpointed(world) == 3


@in_virtual_time
async def test_topics_that_are_not_compacted_are_left_alone() -> None:
    async with broker_world() as world:
        await compacted_world(world, cleanup_policy="delete")
        await write(world, [b"a", b"b", b"a"])
        await cleaner_of(world).clean_all()
        assert world.stored_offsets("t") == [0, 1, 2]
        assert checkpointed(world) is None


@in_virtual_time
async def test_whoever_may_be_compacted_is_written_down_before_that() -> None:
    """Recovery expects gaps of those, whatever their settings are by then."""
    async with broker_world() as world:
        await compacted_world(world, min_cleanable_dirty_ratio="1.0")
        await write(world, [b"a", b"a"])
        await cleaner_of(world).clean_all()
        assert world.stored_offsets("t") == [0, 1]
        assert checkpointed(world) == 0


@in_virtual_time
async def test_log_below_its_dirty_ratio_is_left_alone() -> None:
    async with broker_world() as world:
        await compacted_world(world, min_cleanable_dirty_ratio="0.5")
        await write(world, [b"a", b"b", b"c"])
        cleaner = cleaner_of(world)
        await cleaner.clean_all()
        assert checkpointed(world) == 3
        await write(world, [b"a"])
        await cleaner.clean_all()
        assert world.stored_offsets("t") == [0, 1, 2, 3]
        await write(world, [b"a", b"b", b"c"])
        await cleaner.clean_all()
        assert world.stored_offsets("t") == [4, 5, 6]


@in_virtual_time
async def test_both_policies_do_both() -> None:
    async with broker_world() as world:
        await compacted_world(world, cleanup_policy="compact,delete", retention_ms=str(HOUR_MS))
        await write(world, [b"a", b"a"])
        await cleaner_of(world).clean_all()
        assert world.stored_offsets("t") == [1]
        world.clock.moment_ms += 2 * HOUR_MS
        await world.upkeep.enforce_retention()
        assert world.stored_offsets("t") == []


@in_virtual_time
async def test_it_runs_in_its_rhythm_until_cancelled() -> None:
    async with broker_world() as world:
        await compacted_world(world)
        task = asyncio.create_task(cleaner_of(world, log_cleaner_backoff_ms="5000").run())
        await asyncio.sleep(1)
        await write(world, [b"a", b"a"])
        assert world.stored_offsets("t") == [0, 1]
        await asyncio.sleep(5)
        assert world.stored_offsets("t") == [1]
        task.cancel()


@in_virtual_time
async def test_a_shorter_pause_does_not_wait_for_the_end_of_the_longer_one() -> None:
    async with broker_world() as world:
        await compacted_world(world)
        cleaner = cleaner_of(world, log_cleaner_backoff_ms=str(HOUR_MS))
        task = asyncio.create_task(cleaner.run())
        await asyncio.sleep(1)
        await write(world, [b"a", b"a"])
        cleaner.on_config(BrokerConfig.load({"log.cleaner.backoff.ms": "5000"}).log)
        await asyncio.sleep(6)
        assert world.stored_offsets("t") == [1]
        task.cancel()
        await asyncio.wait([task])


@in_virtual_time
async def test_it_does_not_run_where_it_is_switched_off() -> None:
    async with broker_world() as world:
        await compacted_world(world)
        await write(world, [b"a", b"a"])
        await cleaner_of(world, log_cleaner_enable="false").run()
        assert world.stored_offsets("t") == [0, 1]


@in_virtual_time
async def test_new_settings_count_from_the_next_log_on() -> None:
    async with broker_world() as world:
        await compacted_world(world)
        await write(world, [b"a", b"a"])
        cleaner = cleaner_of(world, log_cleaner_threads="0")
        await cleaner.clean_all()
        assert world.stored_offsets("t") == [0, 1]
        cleaner.on_config(BrokerConfig.load({"node.id": "1"}).log)
        await cleaner.clean_all()
        assert world.stored_offsets("t") == [1]


@in_virtual_time
async def test_keys_that_do_not_fit_are_taken_up_at_once() -> None:
    async with broker_world() as world:
        await compacted_world(world)
        await write(world, [b"%d" % (number % 4) for number in range(12)])
        # A megabyte is the least that can be set.
        limits = CompactionLimits(memory_bytes=24 * 5, load_factor=0.5, read_bytes=65_536)
        cleaner = CrampedCleaner(world, limits)
        await cleaner.clean_all()
        assert world.stored_offsets("t") == [8, 9, 10, 11]


@in_virtual_time
async def test_old_files_are_removed_after_the_delay() -> None:
    async with broker_world() as world:
        await compacted_world(world, file_delete_delay_ms="60000")
        await write(world, [b"a", b"a"])
        await cleaner_of(world).clean_all()
        assert [name for name in names_in(world) if name.endswith(".deleted")]
        await asyncio.sleep(61)
        assert not [name for name in names_in(world) if name.endswith(".deleted")]


@in_virtual_time
async def test_compaction_keeps_to_its_rate() -> None:
    async with broker_world() as world:
        await compacted_world(world)
        await write(world, [b"a", b"a"])
        size_bytes = world.runner("t").log.size_bytes
        began = asyncio.get_running_loop().time()
        await cleaner_of(world, **{"log.cleaner.io.max.bytes.per.second": "100"}).clean_all()
        took_s = asyncio.get_running_loop().time() - began
        # Everything is read twice and half of it is written.
        assert took_s == pytest.approx(2.5 * size_bytes / 100, rel=0.2)


class TestMeanwhile:
    """Things that happen to a log that is being compacted."""

    @in_virtual_time
    async def test_records_are_appended_and_read(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a"])
            world.executor.hold(URGENT)
            task = asyncio.create_task(cleaner_of(world).clean_all())
            await until(lambda: world.executor.waiting(URGENT) == 1)
            log = world.runner("t").log
            assert log.is_replacing
            assert (
                log.read_cached(Offset(0), end_offset=Offset(2), max_bytes=9, at_least_one=True)
                is None
            )
            record = Record(0, world.clock.now_ms(), b"b", b"1", ())
            await world.settle()
            world.executor.release(URGENT)
            produced = world.produce("t", encode_plain_batch([record], Codec.NONE))
            await task
            await world.settle()
            assert produced.base_offset == 2
            assert world.stored_offsets("t") == [1, 2]

    @in_virtual_time
    async def test_retention_waits_for_its_end(self) -> None:
        async with broker_world() as world:
            await compacted_world(world, cleanup_policy="compact,delete", retention_ms="1000")
            await write(world, [b"a", b"a"])
            world.clock.moment_ms += HOUR_MS
            world.executor.hold(BACKGROUND)
            task = asyncio.create_task(cleaner_of(world).clean_all())
            runner = await step_until_it_begins(world)
            assert await runner.enforce_retention(world.clock.now_ms()) == 0
            world.executor.release(BACKGROUND)
            await task
            assert await runner.enforce_retention(world.clock.now_ms()) > 0

    @in_virtual_time
    async def test_compaction_waits_for_retention(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a"])
            world.runner("t").is_rearranged = True
            cleaner = cleaner_of(world)
            await cleaner.clean_all()
            assert world.stored_offsets("t") == [0, 1]

    @in_virtual_time
    async def test_topic_is_deleted(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a"])
            for steps in range(1, 8):
                await self._delete_after(world, steps)

    async def _delete_after(self, world: World, steps: int) -> None:
        cleaner = cleaner_of(world)
        world.executor.hold(BACKGROUND)
        task = asyncio.create_task(cleaner.clean_all())
        for _ in range(steps):
            await until(lambda: bool(world.executor.waiting(BACKGROUND)) or task.done())
            if not task.done():
                world.executor.step(BACKGROUND)
        world.delete("t")
        world.executor.release(BACKGROUND)
        await world.settle()
        await task
        assert not cleaner.uncleanable
        assert world.log_dir.is_online
        await compacted_world(world)
        await write(world, [b"a", b"a"])
        assert world.stored_offsets("t") == [0, 1]

    @in_virtual_time
    async def test_topic_is_not_to_be_compacted_any_more(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a"])
            world.executor.hold(BACKGROUND)
            task = asyncio.create_task(cleaner_of(world).clean_all())
            await step_until_it_begins(world)
            world.configure("t", {"cleanup.policy": "delete"})
            world.executor.release(BACKGROUND)
            await world.settle()
            await task
            assert world.stored_offsets("t") == [0, 1]
            assert not [name for name in names_in(world) if name.endswith((".cleaned", ".swap"))]

    @in_virtual_time
    async def test_log_is_cut(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a", b"b"])
            world.executor.hold(URGENT)
            cleaner = cleaner_of(world)
            task = asyncio.create_task(cleaner.clean_all())
            await until(lambda: world.executor.waiting(URGENT) == 1)
            log = world.runner("t").log
            log.truncate_to(Offset(1))
            world.executor.release(URGENT)
            await task
            assert [header.base_offset for header in log.headers_from(Offset(0))] == [0]
            assert not [name for name in names_in(world) if name.endswith((".cleaned", ".swap"))]

    @in_virtual_time
    async def test_log_is_about_to_be_cut(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a", b"b"])
            runner = world.runner("t")
            world.executor.hold(BACKGROUND)
            task = asyncio.create_task(cleaner_of(world).clean_all())
            await step_until_it_begins(world)
            runner.follower = Cutting()  # type: ignore[assignment]
            world.executor.release(BACKGROUND)
            await task
            runner.follower = None
            assert world.stored_offsets("t") == [0, 1, 2]
            assert not [name for name in names_in(world) if name.endswith((".cleaned", ".swap"))]

    @in_virtual_time
    async def test_what_was_compacted_is_forgotten_as_far_as_the_log_is_cut(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a", b"b"])
            await cleaner_of(world).clean_all()
            assert checkpointed(world) == 3
            log = world.runner("t").log
            await world.log_dir.truncate(
                TopicPartition("t", 0), Offset(2), lambda: log.truncate_to(Offset(2))
            )
            assert checkpointed(world) == 2


class Cutting:
    """As much of a follower as says that it is about to cut its log."""

    is_cutting = True


class TestFailures:
    """A log that cannot be compacted is no reason to stop serving it."""

    @in_virtual_time
    async def test_damaged_log_is_left_alone_and_others_are_not(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await compacted_world(world, "u")
            for name in ("t", "u"):
                await write(world, [b"a", b"a"], name=name)
            await damage(world, "t")
            cleaner = cleaner_of(world)
            await cleaner.clean_all()
            assert set(cleaner.uncleanable) == {TopicPartition("t", 0)}
            assert world.stored_offsets("u") == [1]
            assert world.log_dir.is_online
            assert not [name for name in names_in(world) if name.endswith(".cleaned")]

    @in_virtual_time
    async def test_it_is_tried_again_once_it_was_opened_anew(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a"])
            good = await damage(world, "t")
            cleaner = cleaner_of(world)
            await cleaner.clean_all()
            await make_good(world, good)
            await cleaner.clean_all()
            assert world.stored_offsets("t") == [0, 1]
            world.log_dir.on_failure(StorageError("test"))
            await world.upkeep.retry_offline()
            await world.elect_recovered()
            await cleaner.clean_all()
            assert world.stored_offsets("t") == [1]

    @in_virtual_time
    async def test_full_disk_fails_the_compaction_alone(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"a"])
            world.disk.arm("append", "*.cleaned", DiskFull)
            cleaner = cleaner_of(world)
            await cleaner.clean_all()
            assert world.log_dir.is_online
            assert not cleaner.uncleanable
            assert world.stored_offsets("t") == [0, 1]
            assert not [name for name in names_in(world) if name.endswith(".cleaned")]
            world.disk.heal()
            await cleaner.clean_all()
            assert world.stored_offsets("t") == [1]

    @pytest.mark.parametrize("operation", ["append", "flush", "rename", "flush_folder"])
    @in_virtual_time
    async def test_failing_disk_takes_the_directory_offline_and_nothing_is_lost(
        self, operation: str
    ) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"b", b"a"])
            pattern = "t-0" if operation == "flush_folder" else "*0.log*"
            world.disk.arm(operation, pattern, StorageError)
            await cleaner_of(world).clean_all()
            assert not world.log_dir.is_online
            world.disk.heal()
            await world.upkeep.retry_offline()
            await world.elect_recovered()
            assert world.log_dir.is_online
            await cleaner_of(world).clean_all()
            assert world.stored_offsets("t") == [1, 2]

    @in_virtual_time
    async def test_process_that_is_killed_goes_on_after_a_restart(self) -> None:
        async with broker_world() as world:
            await compacted_world(world)
            await write(world, [b"a", b"b", b"a"])
            world.executor.hold(URGENT)
            task = asyncio.create_task(cleaner_of(world).clean_all())
            await until(lambda: world.executor.waiting(URGENT) == 1)
            assert [name for name in names_in(world) if name.endswith(".swap")]
            task.cancel()
            process_killed(world)
            async with broker_world(before=world) as restarted:
                await restarted.become_all()
                assert restarted.stored_offsets("t") == [1, 2]


async def step_until_it_begins(world: World) -> PartitionRunner:
    """With a background thread that is held."""
    runner = world.runner("t")
    while not runner.is_rearranged:
        await asyncio.sleep(0)
        if world.executor.waiting(BACKGROUND):
            world.executor.step(BACKGROUND)
    return runner


async def damage(world: World, name: str) -> tuple[Path, bytes]:
    """Change a byte of the first segment; what to write to make it good again."""
    log = world.runner(name).log
    log.flush(up_to=log.log_end_offset)
    path = log.segments[0].log_path
    data = world.memory_disk.read_file(path)
    world.memory_disk.replace_file(path, data[:-1] + bytes([data[-1] ^ 1]))
    log.files.forget_folder(log.folder)
    return path, data


async def make_good(world: World, good: tuple[Path, bytes]) -> None:
    world.memory_disk.replace_file(*good)
    world.runner("t").log.files.forget_folder(good[0].parent)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come true")
