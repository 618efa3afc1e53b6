"""Appends in order whatever has to be prepared for them, and what a failing disk does to them."""

import asyncio
from contextlib import suppress

import pytest

from tests.support.batches import idempotent_batch, plain_batch, record, with_header
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import Produced, World, broker_world
from tidelog.base.errors import DiskFull, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset
from tidelog.records.batch import Codec
from tidelog.records.record import encode_plain_batch
from tidelog.storage.memory_disk import MemoryLogFile

# Room for one batch of one record and not for two.
ONE_BATCH = {"internal.segment.bytes": "150"}
DAY_MS = 86_400_000


@in_virtual_time
async def test_batches_keep_their_order_around_a_roll() -> None:
    async with broker_world() as world:
        world.create("t", config=ONE_BATCH)
        await world.settle()
        produced = [world.produce("t", plain_batch(1)) for _ in range(5)]
        await world.settle()
        assert [one.base_offset for one in produced] == [0, 1, 2, 3, 4]
        assert len(world.runner("t").log.segments) == 5


@in_virtual_time
async def test_batches_keep_their_order_around_a_rewrite() -> None:
    async with broker_world() as world:
        world.create("t", config={"compression.type": "gzip"})
        await world.settle()
        slow = world.produce("t", idempotent_batch(base_sequence=0))
        assert not slow.is_settled
        rest = [world.produce("t", idempotent_batch(base_sequence=sequence)) for sequence in (3, 6)]
        await world.settle()
        assert [one.base_offset for one in (slow, *rest)] == [0, 3, 6]
        assert world.request_memory.held_bytes == 0


@in_virtual_time
async def test_a_batch_that_waits_for_memory_does_not_overtake_one_that_is_rewritten() -> None:
    """Giving back the memory of the first lets the second in, which must not go first."""
    async with broker_world() as world:
        world.create("t", config={"compression.type": "gzip"})
        await world.settle()
        first = world.produce("t", idempotent_batch(base_sequence=0))
        world.request_memory.bound_bytes = world.request_memory.held_bytes
        late: list[Produced] = []
        world.request_memory.when_available(
            lambda: late.append(world.produce("t", compressed_follower()))
        )
        await world.settle()
        assert first.base_offset == 0
        assert late[0].base_offset == 3


def compressed_follower() -> bytearray:
    """The second batch of the same producer, which needs no rewriting."""
    batch = plain_batch(3, Codec.GZIP)
    return with_header(batch, producer_id=1000, producer_epoch=0, base_sequence=3)


@in_virtual_time
async def test_a_refused_rewrite_lets_the_next_batch_in() -> None:
    async with broker_world() as world:
        world.create("t", config={"cleanup.policy": "compact"})
        await world.settle()
        keyless = world.produce("t", batch_without_key())
        good = world.produce("t", plain_batch(1))
        await world.settle()
        assert keyless.code == ErrorCode.INVALID_RECORD
        assert good.base_offset == 0
        assert world.request_memory.held_bytes == 0


def batch_without_key() -> bytearray:
    return encode_plain_batch([record(0, key=None)], Codec.NONE)


@in_virtual_time
async def test_a_disk_that_is_full_after_a_roll_refuses_everything_that_queued_up() -> None:
    async with broker_world() as world:
        world.create("t", config=ONE_BATCH)
        await world.settle()
        world.produce("t", plain_batch(1))
        world.disk.arm("append", "*.log", DiskFull)
        queued = [world.produce("t", plain_batch(1)) for _ in range(3)]
        await world.settle()
        assert {one.code for one in queued} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert world.request_memory.held_bytes == 0


@in_virtual_time
async def test_a_roll_that_fails_refuses_everything_that_queued_up() -> None:
    async with broker_world() as world:
        world.create("t", config=ONE_BATCH)
        await world.settle()
        world.produce("t", plain_batch(1))
        world.disk.arm("open", "*.timeindex", StorageError)
        queued = [world.produce("t", plain_batch(1)) for _ in range(3)]
        await world.settle()
        assert {one.code for one in queued} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert not world.log_dir.is_online


@in_virtual_time
async def test_an_append_to_a_partition_that_is_offline_does_not_wait_for_its_disk() -> None:
    async with broker_world() as world:
        world.create("t", config=ONE_BATCH)
        await world.settle()
        world.produce("t", plain_batch(1))
        world.executor.hold(URGENT)
        stuck = world.produce("t", plain_batch(1))
        world.log_dir.on_failure(StorageError("test"))
        assert world.produce("t", plain_batch(1)).code == ErrorCode.KAFKA_STORAGE_ERROR
        world.executor.release(URGENT)
        await world.settle()
        assert stuck.code == ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_log_append_time_rolls_by_the_brokers_clock() -> None:
    """Timestamps of the producer are thrown away there, so they cannot make a segment old."""
    async with broker_world() as world:
        world.create("t", config={"message.timestamp.type": "LogAppendTime"})
        await world.settle()
        for far_ms in (0, 2**62):
            assert world.produce("t", plain_batch(1, timestamp_ms=far_ms)).is_settled
        assert len(world.runner("t").log.segments) == 1


# -- a topic that goes away in the middle of something -------------------------------------------


@pytest.mark.parametrize("held", [(URGENT,), (BACKGROUND,), (URGENT, BACKGROUND)])
@in_virtual_time
async def test_a_topic_deleted_during_a_roll_costs_nobody_else(held: tuple[str, ...]) -> None:
    async with broker_world() as world:
        world.create("t", config=ONE_BATCH)
        world.create("other")
        await world.settle()
        world.produce("t", plain_batch(1))
        await world.settle()
        world.executor.hold(*held)
        queued = world.produce("t", plain_batch(1))
        world.delete("t")
        await world.settle()
        world.executor.release(*held)
        await world.settle()
        assert queued.is_settled
        assert queued.code != ErrorCode.NONE
        assert world.log_dir.is_online
        assert world.produce("other", plain_batch(1)).code == ErrorCode.NONE


@in_virtual_time
async def test_a_topic_deleted_right_after_a_roll_costs_nobody_else() -> None:
    """The roll is done, but the loop has not heard of it yet."""
    async with broker_world() as world:
        world.create("t", config=ONE_BATCH)
        await world.settle()
        world.produce("t", plain_batch(1))
        await world.settle()
        world.executor.hold(URGENT)
        world.produce("t", plain_batch(1))
        world.executor.step(URGENT)
        world.delete("t")
        world.executor.release(URGENT)
        await world.settle()
        assert world.log_dir.is_online


@in_virtual_time
async def test_a_topic_deleted_while_it_is_flushed_costs_nobody_else() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1"})
        await world.settle()
        world.executor.hold(BACKGROUND)
        waiting = [world.produce("t", plain_batch(1)) for _ in range(2)]
        world.delete("t")
        assert all(one.code != ErrorCode.NONE for one in waiting)
        world.executor.release(BACKGROUND)
        await world.settle()
        assert world.log_dir.is_online


@in_virtual_time
async def test_a_topic_deleted_during_retention_costs_nobody_else() -> None:
    for steps in range(6):
        async with broker_world() as world:
            await expired_topic(world)
            world.executor.hold(URGENT, BACKGROUND)
            retention = asyncio.create_task(
                world.runner("t").enforce_retention(world.clock.now_ms())
            )
            await step_alternately(world, steps)
            world.delete("t")
            world.executor.release(URGENT, BACKGROUND)
            await world.settle()
            await retention
            assert world.log_dir.is_online


async def expired_topic(world: World) -> None:
    """One closed and one active segment, both old enough to go; the active one has room."""
    world.create("t", config={**ONE_BATCH, "retention.ms": str(DAY_MS)})
    await world.settle()
    world.produce("t", plain_batch(1))
    world.produce("t", plain_batch(1))
    await world.settle()
    world.configure("t", {"retention.ms": str(DAY_MS)})
    world.clock.moment_ms += 2 * DAY_MS


async def step_alternately(world: World, steps: int) -> None:
    """As far as that, and not so far that the loop has heard of the last step."""
    for _ in range(steps):
        await world.settle()
        for lane in (URGENT, BACKGROUND):
            if world.executor.waiting(lane):
                world.executor.step(lane)
                break


# -- retention -----------------------------------------------------------------------------------


@in_virtual_time
async def test_retention_removes_what_is_old() -> None:
    async with broker_world() as world:
        await expired_topic(world)
        assert await world.runner("t").enforce_retention(world.clock.now_ms()) == 2
        assert world.stored_offsets("t") == []
        assert world.runner("t").log.log_start_offset == 2
        assert world.produce("t", fresh_batch(world)).base_offset == 2


def fresh_batch(world: World) -> bytearray:
    return plain_batch(1, timestamp_ms=world.clock.now_ms())


@in_virtual_time
async def test_retention_keeps_a_record_that_is_appended_while_it_looks() -> None:
    for steps in range(8):
        async with broker_world() as world:
            await expired_topic(world)
            world.executor.hold(URGENT, BACKGROUND)
            retention = asyncio.create_task(
                world.runner("t").enforce_retention(world.clock.now_ms())
            )
            await step_alternately(world, steps)
            fresh = world.produce("t", fresh_batch(world))
            world.executor.release(URGENT, BACKGROUND)
            await world.settle()
            await retention
            assert fresh.base_offset == 2
            assert world.stored_offsets("t")[-1:] == [2]
            # The next round takes what is left of the old ones.
            await world.runner("t").enforce_retention(world.clock.now_ms())
            assert 2 in world.stored_offsets("t")


@in_virtual_time
async def test_retention_keeps_a_record_in_a_segment_that_was_rolled_while_it_looked() -> None:
    async with broker_world() as world:
        await expired_topic(world)
        world.executor.hold(BACKGROUND)
        retention = asyncio.create_task(world.runner("t").enforce_retention(world.clock.now_ms()))
        await world.settle()
        world.executor.step(BACKGROUND)
        first = world.produce("t", fresh_batch(world))
        world.configure("t", {**ONE_BATCH, "retention.ms": str(DAY_MS)})
        second = world.produce("t", fresh_batch(world))
        world.executor.release(BACKGROUND)
        await world.settle()
        await retention
        assert (first.base_offset, second.base_offset) == (2, 3)
        assert world.stored_offsets("t") == [1, 2, 3]


@in_virtual_time
async def test_a_round_of_retention_that_is_cancelled_lets_no_append_into_its_roll() -> None:
    async with broker_world() as world:
        await expired_topic(world)
        world.executor.hold(URGENT)
        retention = asyncio.create_task(world.runner("t").enforce_retention(world.clock.now_ms()))
        await world.settle()
        assert world.executor.waiting(URGENT) == 1
        queued = world.produce("t", fresh_batch(world))
        retention.cancel()
        with suppress(asyncio.CancelledError):
            await retention
        assert not queued.is_settled
        world.executor.release(URGENT)
        await world.settle()
        assert queued.base_offset == 2
        assert world.stored_offsets("t")[-1] == 2


@in_virtual_time
async def test_retention_leaves_a_log_alone_that_was_opened_again_meanwhile() -> None:
    for steps in range(6):
        async with broker_world() as world:
            await expired_topic(world)
            world.executor.hold(URGENT, BACKGROUND)
            retention = asyncio.create_task(
                world.runner("t").enforce_retention(world.clock.now_ms())
            )
            await step_alternately(world, steps)
            world.log_dir.on_failure(StorageError("test"))
            world.executor.release(URGENT, BACKGROUND)
            await world.settle()
            await retention
            await world.reopen()
            assert world.log_dir.is_online
            start = world.runner("t").log.log_start_offset
            assert world.stored_offsets("t") == list(range(start, 2))


@in_virtual_time
async def test_a_disk_that_fails_during_retention_goes_offline_and_nothing_else() -> None:
    for operation in ("rename", "open", "append"):
        async with broker_world() as world:
            await expired_topic(world)
            world.disk.arm(operation, "*", StorageError)
            await world.upkeep.enforce_retention()
            assert not world.log_dir.is_online
            refused = world.produce("t", fresh_batch(world))
            assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR


# -- DeleteRecords -------------------------------------------------------------------------------


@in_virtual_time
async def test_deleted_records_stay_deleted_after_a_crash() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(5))
        assert await world.runner("t").delete_records(Offset(3)) == 3
        world.log_dir.on_failure(StorageError("test"))
        await world.reopen()
        assert world.stored_offsets("t") == [3, 4]


@in_virtual_time
async def test_records_are_not_reported_deleted_while_that_is_not_on_disk() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(5))
        world.disk.arm("replace_file", "log-start-offset-checkpoint", StorageError)
        with pytest.raises(RequestRefused) as refused:
            await world.runner("t").delete_records(Offset(3))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_the_second_to_delete_the_same_records_waits_for_the_first() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(5))
        world.executor.hold(BACKGROUND)
        first = asyncio.create_task(world.runner("t").delete_records(Offset(3)))
        second = asyncio.create_task(world.runner("t").delete_records(Offset(2)))
        await world.settle()
        assert not first.done()
        assert not second.done()
        world.executor.release(BACKGROUND)
        assert await first == 3
        assert await second == 2
        assert world.runner("t").low_watermark == 3


@in_virtual_time
async def test_a_disk_that_hangs_is_asked_once_to_begin_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size_bytes = len(plain_batch(1))
    monkeypatch.setattr("tidelog.storage.log.WRITING_BYTES", 2 * size_bytes)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(
        MemoryLogFile, "start_writing", lambda _, position, size: asked.append((position, size))
    )
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.executor.hold(BACKGROUND)
        for _ in range(9):
            world.produce("t", plain_batch(1))
        world.executor.release(BACKGROUND)
        await world.settle()
        assert asked == [(0, 2 * size_bytes)]
        world.produce("t", plain_batch(1))
        await world.settle()
        assert asked[1:] == [(2 * size_bytes, 8 * size_bytes)]
