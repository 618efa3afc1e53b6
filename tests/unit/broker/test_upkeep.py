"""The periodic jobs: a failure of one disk ends nothing but that disk."""

import asyncio

from tests.support.batches import idempotent_batch, plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import World, broker_world, process_killed
from tidelog.base.errors import DiskFull, ErrorCode, FlushFailed, RequestRefused, StorageError

HOUR_MS = 3_600_000


@in_virtual_time
async def test_retention_goes_on_with_the_other_directory() -> None:
    async with broker_world(dir_count=2) as world:
        world.create("t", partitions=2, config={"retention.ms": "1000"})
        await world.settle()
        for number in range(2):
            world.produce("t", plain_batch(number + 1), partition=number)
        world.clock.moment_ms += HOUR_MS
        world.disk.arm("open", "*1.timeindex", StorageError)  # That of partition 0 begins there.
        await world.upkeep.enforce_retention()
        assert [world.runner("t", number).is_offline for number in range(2)] == [True, False]
        assert world.runner("t", 1).log.log_start_offset == 2


@in_virtual_time
async def test_retention_survives_a_topic_that_vanishes_while_it_looks() -> None:
    async with broker_world() as world:
        world.create("t", config={"retention.ms": "1000"})
        world.create("u", config={"retention.ms": "1000"})
        await world.settle()
        for name in ("t", "u"):
            world.produce(name, plain_batch(1))
        world.clock.moment_ms += HOUR_MS

        def vanish(**_settings: object) -> None:
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

        world.runner("t").log = VanishedLog(vanish)  # type: ignore[assignment]
        await world.upkeep.enforce_retention()
        assert world.runner("u").log.log_start_offset == 1


class VanishedLog:
    """As much of a log as retention needs."""

    def __init__(self, expired_segments: object) -> None:
        self.expired_segments = expired_segments
        self.log_start_offset = 0
        self.log_end_offset = 1
        self.segments = (None,)
        self.truncation_count = 0


@in_virtual_time
async def test_a_directory_that_cannot_be_opened_does_not_keep_the_next_one_offline() -> None:
    async with broker_world(dir_count=2) as world:
        for log_dir in world.log_dirs:
            log_dir.on_failure(StorageError("test"))
        world.disk.arm("lock", "*", StorageError, after=1)
        await world.upkeep.retry_offline()
        assert [log_dir.is_online for log_dir in world.log_dirs] == [True, False]
        world.disk.heal()
        await world.upkeep.retry_offline()
        assert all(log_dir.is_online for log_dir in world.log_dirs)


@in_virtual_time
async def test_silent_producers_are_forgotten() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", idempotent_batch())
        assert len(world.runner("t").producers) == 1
        world.clock.moment_ms += 48 * HOUR_MS
        await world.upkeep.expire_producers()
        assert len(world.runner("t").producers) == 0


@in_virtual_time
async def test_jobs_run_in_their_rhythm_until_they_are_cancelled() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        async with asyncio.TaskGroup() as tasks:
            jobs = world.upkeep.start(tasks)
            await produce_and_wait(world, seconds=5.5)
            assert checkpointed_high_watermark(world) == 3
            await asyncio.sleep(60)
            assert not any(job.done() for job in jobs)
            for job in jobs:
                job.cancel()


async def produce_and_wait(world: World, *, seconds: float) -> None:
    world.produce("t", plain_batch(3))
    await asyncio.sleep(seconds)


def checkpointed_high_watermark(world: World) -> int:
    path = world.log_dir.path / "replication-offset-checkpoint"
    return int(world.disk.read_file(path).split()[-1])


@in_virtual_time
async def test_a_directory_whose_flush_failed_stays_offline_until_a_restart() -> None:
    """The kernel takes what it could not write for written; reading it back proves nothing."""
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1"})
        await world.settle()
        world.disk.arm("flush", "*.log", FlushFailed)
        refused = world.produce("t", plain_batch(1))
        await world.settle()
        assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
        world.disk.heal()
        await world.upkeep.retry_offline()
        assert not world.log_dir.is_online
        process_killed(world)
        async with broker_world(before=world) as restarted:
            again = restarted.produce("t", plain_batch(1))
            await restarted.settle()
            assert again.code == ErrorCode.NONE


@in_virtual_time
async def test_a_flush_that_fails_on_a_disk_that_was_full_keeps_it_offline() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.log_dir.on_failure(DiskFull("no room"))
        world.log_dir.on_failure(FlushFailed("and the flush that was under way"))
        await world.upkeep.retry_offline()
        assert not world.log_dir.is_online


@in_virtual_time
async def test_a_directory_that_was_full_comes_back() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.disk.arm("append", "*.log", DiskFull)
        assert world.produce("t", plain_batch(1)).code == ErrorCode.KAFKA_STORAGE_ERROR
        world.disk.heal()
        await world.upkeep.retry_offline()
        await world.elect_recovered()
        assert world.produce("t", plain_batch(1)).code == ErrorCode.NONE
