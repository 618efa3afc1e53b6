"""`flush.messages` and `flush.ms`: who hears of records before they are on stable storage (G4)."""

from tests.support.batches import idempotent_batch, plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import World, broker_world
from tidelog.base.errors import ErrorCode, StorageError

ALL = -1


async def step_until_flushed(world: World, end_offset: int) -> None:
    while world.runner("t").log.recovery_point < end_offset:
        world.executor.step(BACKGROUND)
        await world.settle()


@in_virtual_time
async def test_an_answer_waits_for_the_flush_that_holds_its_record() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1"})
        await world.settle()
        world.executor.hold(BACKGROUND)
        first = world.produce("t", plain_batch(1))
        second = world.produce("t", plain_batch(1))
        await step_until_flushed(world, 1)
        assert first.code == 0
        assert not second.is_settled
        assert world.runner("t").high_watermark == 1
        await step_until_flushed(world, 2)
        assert second.code == 0
        assert world.runner("t").high_watermark == 2


@in_virtual_time
async def test_records_behind_one_that_is_being_flushed_become_visible_after_it() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "2"})
        await world.settle()
        world.executor.hold(BACKGROUND)
        assert world.produce("t", plain_batch(1)).code == 0
        second = world.produce("t", plain_batch(1))
        third = world.produce("t", plain_batch(1))
        assert world.runner("t").high_watermark == 1
        assert not second.is_settled
        assert not third.is_settled
        world.executor.release(BACKGROUND)
        await world.settle()
        assert second.base_offset == 1
        assert third.base_offset == 2
        assert world.runner("t").high_watermark == 3


@in_virtual_time
async def test_a_record_that_nobody_need_flush_costs_no_flush_of_its_own() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "2"})
        await world.settle()
        for _ in range(3):
            world.produce("t", plain_batch(1))
        await world.settle()
        assert world.runner("t").high_watermark == 3
        assert world.runner("t").log.recovery_point == 2


@in_virtual_time
async def test_a_repeated_batch_is_not_acknowledged_before_its_first_copy_is_flushed() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1"})
        await world.settle()
        world.executor.hold(BACKGROUND)
        first = world.produce("t", idempotent_batch())
        again = world.produce("t", idempotent_batch())
        to_all = world.produce("t", idempotent_batch(), acks=ALL)
        assert not again.is_settled
        assert not to_all.is_settled
        world.executor.release(BACKGROUND)
        await world.settle()
        assert [one.base_offset for one in (first, again, to_all)] == [0, 0, 0]
        assert world.stored_offsets("t") == [0, 1, 2]


@in_virtual_time
async def test_a_new_leader_epoch_does_not_show_what_is_not_flushed() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1"})
        await world.settle()
        world.executor.hold(BACKGROUND)
        waiting = world.produce("t", plain_batch(1))
        world.elect("t")
        await world.settle()
        assert world.runner("t").leader_epoch == 1
        assert world.runner("t").high_watermark == 0
        world.executor.release(BACKGROUND)
        await world.settle()
        assert waiting.code == 0
        assert world.runner("t").high_watermark == 1
        assert world.runner("t").epochs.entries == ((0, 0), (1, 1))


@in_virtual_time
async def test_a_failed_flush_refuses_everybody_who_waits_for_it() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1"})
        await world.settle()
        world.disk.arm("flush", "*.log", StorageError)
        waiting = [world.produce("t", plain_batch(1)) for _ in range(3)]
        await world.settle()
        assert {one.code for one in waiting} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert not world.log_dir.is_online
        assert world.runner("t").high_watermark == 0


@in_virtual_time
async def test_a_flush_from_before_a_failure_says_nothing_of_the_log_opened_since() -> None:
    """The old log may have ended further on: records at the same offsets are not the same."""
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1", "internal.segment.bytes": "150"})
        await world.settle()
        world.produce("t", plain_batch(1))
        await world.settle()
        world.executor.hold(URGENT, BACKGROUND)
        world.produce("t", plain_batch(1))  # Rolls first.
        world.log_dir.on_failure(StorageError("test"))
        world.executor.release(URGENT)
        await world.settle()
        world.executor.release(BACKGROUND)
        await world.settle()
        await world.reopen()
        world.executor.hold(BACKGROUND)
        fresh = world.produce("t", plain_batch(1))
        await world.settle()
        assert not fresh.is_settled
        world.executor.release(BACKGROUND)
        await world.settle()
        assert fresh.code == 0


@in_virtual_time
async def test_flush_ms_flushes_what_is_old_enough() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.ms": "100"})
        await world.settle()
        world.produce("t", plain_batch(2))
        runner = world.runner("t")
        runner.flush_if_due(world.clock.now_ms() + 99)
        await world.settle()
        assert runner.log.recovery_point == 0
        runner.flush_if_due(world.clock.now_ms() + 100)
        await world.settle()
        assert runner.log.recovery_point == 2


@in_virtual_time
async def test_what_recovery_found_is_flushed_before_its_repetition_is_acknowledged() -> None:
    async with broker_world() as world:
        world.create("t", config={"flush.messages": "1"})
        await world.settle()
        world.disk.arm("flush", "*.log", StorageError)
        refused = world.produce("t", idempotent_batch())
        await world.settle()
        assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
        world.disk.heal()
        await world.reopen()
        assert world.produce("t", idempotent_batch()).base_offset == 0
        assert world.runner("t").log.recovery_point == 3
