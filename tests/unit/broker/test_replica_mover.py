"""A replica moves to another log directory while it is written: nothing is lost (P1, KIP-113)."""

import asyncio
from pathlib import Path

import pytest

from tests.support.batches import idempotent_batch, plain_batch
from tests.support.hash_keys import HASH_KEY
from tests.unit.broker.followed import answer, take
from tests.unit.broker.moving import (
    BOTH,
    IN_SLICES,
    SMALL,
    THERE,
    T,
    abandon,
    altering_in,
    begin_slowly,
    begin_to_follow,
    code_of_alter,
    contents,
    create_here,
    fill,
    fill_here,
    folders,
    hold,
    lies_in,
    placed,
    release,
    settle,
    step_through,
    stop_following,
)
from tests.unit.broker.played_leader import registered
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.test_deduplication import BY_HEADER, batch, send
from tests.unit.broker.world import (
    BROKER,
    OTHER,
    Produced,
    World,
    broker_world,
    power_cut,
    process_killed,
    replicated,
)
from tidelog.base.errors import DiskFull, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset
from tidelog.broker.cleaning import Cleaner
from tidelog.broker.handlers.list_offsets import _look_up
from tidelog.storage import layout

STARTED_AFTER = 1
"""So many pieces of work make a move known to a restart."""


@in_virtual_time
async def test_a_replica_moves_with_all_that_is_in_it() -> None:
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await create_here(world)
        for number in range(20):
            world.produce("t", idempotent_batch(3, producer_id=7, base_sequence=3 * number))
            await world.settle()
        before, records = contents(world), world.stored("t")
        assert len(before) > 3
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await settle(world)
        runner = world.runner("t")
        assert lies_in(world) == 1
        assert world.log_dirs[0].runners == {}
        assert world.log_dirs[1].runners == {T: runner}
        assert contents(world) == before
        assert world.stored("t") == records
        assert folders(world, 0) == []
        assert folders(world, 1) == ["t-0"]
        again = idempotent_batch(3, producer_id=7, base_sequence=57)
        assert world.produce("t", again).base_offset == 57
        assert world.produce("t", plain_batch(1)).base_offset == 60
        assert world.runner("t").move is None
        assert world.log_dirs[1].futures == {}


@in_virtual_time
async def test_what_is_produced_meanwhile_moves_along() -> None:
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await create_here(world)
        produced = fill(world)
        hold(world)
        altering = altering_in(world)
        for turn in range(600):
            for executor in world.executors:
                for lane in BOTH:
                    if executor.waiting(lane):
                        executor.step(lane)
            await world.settle()
            await asyncio.sleep(0.005)
            if turn % 5 == 0 and lies_in(world) == 0:
                produced.append(world.produce("t", plain_batch(1)))
        release(world)
        assert await altering is ErrorCode.NONE
        await settle(world)
        assert lies_in(world) == 1
        assert len(produced) > 25
        offsets = world.stored_offsets("t")
        assert offsets == list(range(len(offsets)))
        assert [one.code for one in produced] == [0] * len(produced)
        assert offsets[-1] == produced[-1].base_offset


@in_virtual_time
async def test_a_broker_that_is_killed_anywhere_in_a_move_has_every_record() -> None:
    """S6. Every piece of work on a thread may be the last one; then moves go on by themselves."""
    stops = 0
    while await _is_interrupted_at(stops, loses_power=False):
        stops += 1
    assert stops > 30


@in_virtual_time
async def test_a_machine_that_loses_power_anywhere_in_a_move_has_what_was_flushed() -> None:
    stops = 0
    while await _is_interrupted_at(stops, loses_power=True):
        stops += 1
    assert stops > 30


async def _is_interrupted_at(stop: int, *, loses_power: bool) -> bool:
    """Whether the move was under way after `stop` pieces of work."""
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world, {"flush.messages": "1"} if loses_power else {})
        hold(world)
        altering = altering_in(world)
        is_over = await step_through(world, stop) < stop
        before = world.stored("t")
        altering.cancel()
        await abandon(world)
        if loses_power:
            power_cut(world, stop)
        else:
            process_killed(world)
        async with broker_world(dir_count=2, before=world, settings=IN_SLICES) as after:
            assert after.stored("t") == before
            produced = after.produce("t", plain_batch(1))
            await settle(after)
            assert produced.base_offset == len(before)
            assert sorted(placed(after)) == [[], ["t-0"]]
            assert len(after.stored("t")) == len(before) + 1
            if stop > STARTED_AFTER:
                assert lies_in(after) == 1
            await after.stop()
    return not is_over


WRITES = frozenset(
    ("append", "truncate", "flush", "rename", "remove", "replace_file", "flush_folder", "open")
)


class FailingAt:
    """The `count`th write in one directory fails, and so do all after it, until healed."""

    def __init__(self, world: World, number: int, count: int, error: type[StorageError]) -> None:
        self.left = count
        self.is_healed = False
        path, attempt = world.log_dirs[number].path, world.disk.attempt

        def may_fail(operation: str, file: Path) -> None:
            attempt(operation, file)
            if self.is_healed or operation not in WRITES or path not in (file, *file.parents):
                return
            self.left -= 1
            if self.left <= 0:
                raise error(f"cannot {operation} {file}")

        world.disk.attempt = may_fail  # type: ignore[method-assign, assignment]

    @property
    def has_failed(self) -> bool:
        return self.left <= 0


@pytest.mark.parametrize(("number", "error"), [(0, StorageError), (1, StorageError), (1, DiskFull)])
def test_a_disk_that_fails_anywhere_in_a_move_loses_nothing(
    number: int, error: type[StorageError]
) -> None:
    """S9, I2: before the mark the log is the replica, after it the copy is."""

    @in_virtual_time
    async def scenario() -> None:
        count = 1
        while await _has_failed_at(number, count, error):
            count += 1
        assert count > (15 if number == 0 else 60)

    scenario()


async def _has_failed_at(number: int, count: int, error: type[StorageError]) -> bool:
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world)
        failing = FailingAt(world, number, count, error)
        code = await code_of_alter(world, THERE)
        await settle(world)
        produced = world.produce("t", plain_batch(1))
        await settle(world)
        has_failed = failing.has_failed
        failing.is_healed = True
        is_served = not world.runner("t").is_offline
        if number == 1 and is_served and lies_in(world) == 0:
            assert produced.code == 0
        end_offset = 60 + (produced.code == 0)
        for log_dir in world.log_dirs:
            if not log_dir.is_online:
                await world.reopen(log_dir)
        await settle(world)
        assert all(log_dir.is_online for log_dir in world.log_dirs)
        assert world.stored_offsets("t")[:end_offset] == list(range(end_offset))
        await asyncio.sleep(1)
        await settle(world)
        assert sorted(placed(world)) == [[], ["t-0"]]
        if error is not DiskFull and code is ErrorCode.NONE:
            assert lies_in(world) == 1
        assert (folders(world, 1) == ["t-0"]) is (lies_in(world) == 1)
        await world.stop()
    async with broker_world(dir_count=2, before=world, settings=IN_SLICES) as after:
        assert after.stored_offsets("t")[:end_offset] == list(range(end_offset))
    return has_failed


@in_virtual_time
async def test_a_read_that_fails_where_the_log_was_does_no_harm_where_it_is() -> None:
    """S9: a disk that hangs, and then fails, takes its own replicas offline."""
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world)
        here = world.executors[0]
        here.hold(URGENT)
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await settle(world)
        here.step(URGENT)  # The rest is read,
        await settle(world)
        looking = asyncio.ensure_future(_look_up(world.runner("t"), 0))
        await world.settle()
        here.step(URGENT)  # and the log is marked.
        await settle(world)
        assert lies_in(world) == 1

        def fail(operation: str, file: Path) -> None:
            if world.log_dirs[0].path in file.parents:
                raise StorageError(f"cannot {operation} {file}")

        world.disk.attempt = fail  # type: ignore[method-assign, assignment]
        here.step(URGENT)
        with pytest.raises(RequestRefused):
            await looking
        assert [log_dir.is_online for log_dir in world.log_dirs] == [False, True]
        assert not world.runner("t").is_offline
        here.release(URGENT)
        await settle(world)


@in_virtual_time
async def test_a_topic_that_is_deleted_anywhere_in_its_move_leaves_nothing() -> None:
    stops = 0
    while await _is_deleted_at(stops):
        stops += 1
    assert stops > 20


async def _is_deleted_at(stop: int) -> bool:
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world, count=6)
        hold(world)
        altering = altering_in(world)
        is_over = await step_through(world, stop) < stop
        world.delete("t")
        world.create("t", config=SMALL)
        release(world)
        await settle(world)
        await asyncio.sleep(1)
        await settle(world)
        await altering
        assert sorted(placed(world)) == [[], ["t-0"]]
        assert all(log_dir.is_online for log_dir in world.log_dirs)
        assert world.produce("t", plain_batch(1)).base_offset == 0
        await world.stop()
    return not is_over


@in_virtual_time
async def test_records_deleted_meanwhile_do_not_come_back() -> None:
    """P1: DeleteRecords is answered when a crash cannot bring them back, wherever they are."""
    for stop in range(0, 60, 3):
        async with broker_world(dir_count=2, settings=IN_SLICES) as world:
            await fill_here(world, count=10)
            hold(world)
            altering = altering_in(world)
            await step_through(world, stop)
            deleting = asyncio.ensure_future(world.runner("t").delete_records(Offset(10)))
            while not deleting.done():
                assert await step_through(world, 1) or deleting.done()
            altering.cancel()
            await abandon(world)
            process_killed(world)
            async with broker_world(dir_count=2, before=world, settings=IN_SLICES) as after:
                assert after.runner("t").log.log_start_offset == 10
                await settle(after)
                assert after.stored_offsets("t") == list(range(10, 30))


@in_virtual_time
async def test_a_follower_that_is_cut_in_the_middle_of_its_move_has_what_its_leader_has() -> None:
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await begin_slowly(world)
        world.decide(registered(OTHER, 20))
        for _ in range(7):  # Half of it is copied by then.
            if world.executors[0].waiting(BACKGROUND):
                world.executors[0].step(BACKGROUND)
            await world.settle()
        world.change("t", replicated(OTHER, 1))
        await world.settle()
        take(world, answer(diverging=(0, 12)))
        world.executors[0].release(BACKGROUND)
        await settle(world)
        runner = world.runner("t")
        assert lies_in(world) == 1
        assert runner.log.log_end_offset == 12
        assert [header.base_offset for header in runner.log.headers_from(Offset(0))] == [0, 3, 6, 9]
        await stop_following(world)


@in_virtual_time
async def test_a_thread_that_cuts_a_log_in_its_move_may_take_its_time() -> None:
    """M1 of `log_move.py`: the log is shorter already, and the move has not heard of it."""
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await begin_slowly(world)
        here, there = world.executors
        await begin_to_follow(world)
        future = world.log_dirs[1].futures[T]
        there.hold(BACKGROUND)
        while not future.size_bytes:  # Of the first segment a slice is there, and one is read.
            await step_through(world, 1)
            await world.settle()
        here.step(BACKGROUND)
        await world.settle()
        assert there.waiting(BACKGROUND) == 1
        take(world, answer(diverging=(0, 6)))
        await world.settle()
        assert here.waiting(BACKGROUND) == 1
        there.step(BACKGROUND)  # The move looks what comes next,
        here.step(BACKGROUND)  # but what it sees is the work of this.
        await world.settle()
        here.release(BACKGROUND)
        there.release(BACKGROUND)
        await settle(world)
        runner = world.runner("t")
        assert lies_in(world) == 1
        assert [header.base_offset for header in runner.log.headers_from(Offset(0))] == [0, 3]
        await stop_following(world)


@in_virtual_time
async def test_a_recovery_point_that_was_written_for_a_copy_is_lowered_when_the_log_is_cut() -> (
    None
):
    """I3 of `follower_runner.py`: what is appended there is not flushed, and would pass for it."""
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world)
        await begin_to_follow(world)
        there = world.executors[1]
        there.hold(BACKGROUND)
        altering = altering_in(world)
        log_dir = world.log_dirs[1].log_dir
        assert log_dir is not None
        while T not in log_dir._recovery_points:
            await step_through(world, 1)
        assert log_dir._recovery_points[T] > 6
        take(world, answer(diverging=(0, 6)))
        there.release(BACKGROUND)
        await settle(world)
        assert await altering is ErrorCode.NONE
        runner = world.runner("t")
        assert lies_in(world) == 1
        assert runner.log.log_end_offset == 6
        assert log_dir._recovery_points[T] <= 6
        await stop_following(world)


@in_virtual_time
async def test_whoever_waits_for_a_flush_is_answered_when_the_log_has_moved() -> None:
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world, {"flush.messages": "1"})
        hold(world)
        altering = altering_in(world)
        produced: list[Produced] = []
        for _ in range(80):
            produced.append(world.produce("t", plain_batch(1)))
            await step_through(world, 2)
        release(world)
        assert await altering is ErrorCode.NONE
        await settle(world)
        assert lies_in(world) == 1
        assert [one.base_offset for one in produced] == list(range(60, 140))


@in_virtual_time
async def test_how_far_a_move_is_can_be_told_without_the_disk_that_it_leaves() -> None:
    """S9: it waits for its turn, and the disk has failed; DescribeLogDirs is about all of them."""
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world)
        await world.stop()
    async with broker_world(dir_count=2, before=world, settings=IN_SLICES) as after:
        after.executors[0].hold(BACKGROUND)
        assert await code_of_alter(after, THERE) is ErrorCode.NONE

        def fail(operation: str, file: Path) -> None:
            raise StorageError(f"cannot {operation} {file}")

        attempt = after.disk.attempt
        after.disk.attempt = fail  # type: ignore[method-assign, assignment]
        assert after.log_dirs[1].futures[T].offset_lag == 60
        after.disk.attempt = attempt  # type: ignore[method-assign]
        after.executors[0].release(BACKGROUND)
        await settle(after)
        assert lies_in(after) == 1


@in_virtual_time
async def test_a_log_that_is_cut_before_its_move_has_its_turn_is_not_asked_for_its_size() -> None:
    """S9: the loop waits for no disk, and a follower goes on whatever that says."""
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world)
        await world.stop()
    async with broker_world(dir_count=2, before=world, settings=IN_SLICES) as after:
        turn = after.replicas.moves._turns[after.log_dirs[1]]
        await turn.acquire()
        assert await code_of_alter(after, THERE) is ErrorCode.NONE
        await begin_to_follow(after)
        after.executors[0].hold(BACKGROUND)
        take(after, answer(diverging=(0, 30)))
        await after.settle()
        after.executors[0].step(BACKGROUND)
        asked: list[str] = []
        attempt = after.disk.attempt
        after.disk.attempt = lambda operation, _: asked.append(operation)  # type: ignore[method-assign, assignment]
        await after.settle()
        after.disk.attempt = attempt  # type: ignore[method-assign]
        assert "size_bytes" not in asked
        after.executors[0].release(BACKGROUND)
        turn.release()
        await settle(after)
        runner = after.runner("t")
        assert lies_in(after) == 1
        assert runner.log.log_end_offset == 30
        await stop_following(after)


@in_virtual_time
async def test_a_log_that_is_being_moved_is_not_compacted_until_it_is_there() -> None:
    """I5 of `cleaning.py`."""
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await fill_here(world, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        cleaner = Cleaner(
            config=world.config.log,
            partitions=world.partitions,
            clock=world.clock,
            hash_key=HASH_KEY,
        )
        world.executors[1].hold(BACKGROUND)
        altering = altering_in(world)
        await world.settle()
        before = contents(world)
        await cleaner.clean_all()
        assert contents(world) == before
        world.executors[1].release(BACKGROUND)
        assert await altering is ErrorCode.NONE
        await settle(world)
        assert lies_in(world) == 1
        assert contents(world) == before
        await cleaner.clean_all()
        assert contents(world) != before
        assert world.log_dirs[1].cleaner_offset(T)


@in_virtual_time
async def test_what_was_seen_is_known_where_the_log_is_moved_to() -> None:
    """D5: its `.ids` files move along, and nothing is read again but after a restart."""
    async with broker_world(dir_count=2, settings=IN_SLICES) as world:
        await create_here(world, BY_HEADER)
        for number in range(12):
            await send(world, batch(f"a{number}", f"b{number}"))
        await settle(world)
        log = world.runner("t").log
        before = {
            path.name: world.disk.read_file(path)
            for path in (segment.path(layout.IDS) for segment in log.segments[:-1])
        }
        assert len(before) == 3
        deduplicator = world.runner("t").deduplicator
        assert deduplicator is not None
        assert deduplicator.is_current
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await settle(world)
        moved = world.runner("t").log
        assert moved is not log
        assert deduplicator.is_current
        paths = [segment.path(layout.IDS) for segment in moved.segments[:-1]]
        assert {path.name: world.disk.read_file(path) for path in paths} == before
        assert paths[0].parent == world.log_dirs[1].path / "t-0"
        await send(world, batch("a0", "new", "b11"))
        assert len(world.stored("t")) == 25
        new_offset = world.stored_offsets("t")[-1]
        await world.stop()
    async with broker_world(dir_count=2, before=world, settings=IN_SLICES) as after:
        assert (await send(after, batch("b0"))).base_offset == 1
        assert (await send(after, batch("new"))).base_offset == new_offset
        assert len(after.stored("t")) == 25


@in_virtual_time
async def test_ids_that_are_read_while_the_log_is_moved_are_read_to_the_end() -> None:
    """I1 of `deduplication.py`: the log is another one, so what was read of it counts for nothing.

    A follower reads on by ticks, which no queue keeps from meeting a move.
    """
    for stop in range(0, 90, 3):
        async with broker_world(dir_count=2, settings=IN_SLICES) as world:
            await create_here(world, BY_HEADER)
            for number in range(12):
                await send(world, batch(f"a{number}"))
            await settle(world)
            await begin_to_follow(world)
            deduplicator = world.runner("t").deduplicator
            assert deduplicator is not None
            deduplicator._reading = None
            hold(world)
            altering = altering_in(world)
            await step_through(world, stop)
            world.runner("t").on_tick()
            await step_through(world, 1000)
            release(world)
            assert await altering is ErrorCode.NONE
            await settle(world)
            assert all(log_dir.is_online for log_dir in world.log_dirs)
            assert lies_in(world) == 1
            await stop_following(world)
            world.change("t", replicated(BROKER, 2))
            await settle(world)
            assert (await send(world, batch("a0"))).base_offset == 0
            assert (await send(world, batch("a12"))).base_offset == 12
