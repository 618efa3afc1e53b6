"""A replica moves to another log directory while it is written: nothing is lost (P1, KIP-113)."""

import asyncio
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.batches import idempotent_batch, plain_batch
from tests.unit.broker.followed import answer, take
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
    topic_partition,
)
from tidelog.base.errors import DiskFull, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset
from tidelog.broker import replica_mover
from tidelog.broker.cleaning import Cleaner
from tidelog.broker.handlers.list_offsets import _look_up
from tidelog.core.controller.changes import BrokerConfigChanged, TopicDeleted
from tidelog.storage import layout
from tidelog.storage.future_log import Moved, write_moved

BOTH = (URGENT, BACKGROUND)
SMALL = {"internal.segment.bytes": "400", "file.delete.delay.ms": "10"}
THERE = "/logs-1"
T = topic_partition("t")
STARTED_AFTER = 1
"""So many pieces of work make a move known to a restart."""


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that little is much."""
    monkeypatch.setattr(replica_mover, "SLICE_BYTES", 300)
    monkeypatch.setattr(replica_mover, "REST_BYTES_MAX", 200)


def folders(world: World, number: int) -> list[str]:
    names = world.disk.list_folder(world.log_dirs[number].path)
    return [name for name in names if name.startswith("t-")]


def contents(world: World) -> dict[str, bytes]:
    """Every segment of the log, by its file's name."""
    log = world.runner("t").log
    return {
        segment.log_path.name: world.disk.read_file(segment.log_path) for segment in log.segments
    }


def fill(world: World, count: int = 20) -> list[Produced]:
    return [world.produce("t", plain_batch(3)) for _ in range(count)]


async def settle(world: World) -> None:
    for _ in range(40):
        await world.settle()
        await asyncio.sleep(0.02)


async def create_here(world: World, **config: str) -> None:
    """In the first directory."""
    world.create("t", config={**SMALL, **config})
    await world.settle()
    assert world.runner("t").log_directory is world.log_dirs[0]


async def code_of_alter(world: World, path: str, one: str = "t", partition: int = 0) -> ErrorCode:
    try:
        await world.replicas.moves.alter(topic_partition(one, partition), path)
    except RequestRefused as refusal:
        return refusal.code
    return ErrorCode.NONE


@in_virtual_time
async def test_a_replica_moves_with_all_that_is_in_it() -> None:
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        for number in range(20):
            world.produce("t", idempotent_batch(3, producer_id=7, base_sequence=3 * number))
            await world.settle()
        before, records = contents(world), world.stored("t")
        assert len(before) > 3
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await settle(world)
        runner = world.runner("t")
        assert runner.log_directory is world.log_dirs[1]
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
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        produced = fill(world)
        for executor in world.executors:
            executor.hold(*BOTH)
        altering = asyncio.ensure_future(code_of_alter(world, THERE))
        for turn in range(600):
            for executor in world.executors:
                for lane in BOTH:
                    if executor.waiting(lane):
                        executor.step(lane)
            await world.settle()
            await asyncio.sleep(0.005)
            if turn % 5 == 0 and world.runner("t").log_directory is world.log_dirs[0]:
                produced.append(world.produce("t", plain_batch(1)))
        for executor in world.executors:
            executor.release(*BOTH)
        assert await altering is ErrorCode.NONE
        await settle(world)
        assert world.runner("t").log_directory is world.log_dirs[1]
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
    async with broker_world(dir_count=2) as world:
        await create_here(world, **({"flush.messages": "1"} if loses_power else {}))
        fill(world)
        await settle(world)
        for executor in world.executors:
            executor.hold(*BOTH)
        altering = asyncio.ensure_future(code_of_alter(world, THERE))
        is_over = await step_through(world, stop) < stop
        before = world.stored("t")
        altering.cancel()
        await abandon(world)
        if loses_power:
            power_cut(world, stop)
        else:
            process_killed(world)
        async with broker_world(dir_count=2, before=world) as after:
            assert after.stored("t") == before
            produced = after.produce("t", plain_batch(1))
            await settle(after)
            assert produced.base_offset == len(before)
            named = [name for number in range(2) for name in folders(after, number)]
            assert named == ["t-0"]
            assert len(after.stored("t")) == len(before) + 1
            if stop > STARTED_AFTER:
                assert after.runner("t").log_directory is after.log_dirs[1]
            await after.stop()
    return not is_over


async def abandon(world: World) -> None:
    """Nothing that the broker has begun goes on."""
    under_way = [*world.replicas._under_way, *world.replicas.moves.stop()]
    for task in under_way:
        task.cancel()
    for executor in world.executors:
        for lane in BOTH:
            executor._lanes[lane].clear()
    await world.settle()


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
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        fill(world)
        await settle(world)
        failing = FailingAt(world, number, count, error)
        code = await code_of_alter(world, THERE)
        await settle(world)
        produced = world.produce("t", plain_batch(1))
        await settle(world)
        has_failed = failing.has_failed
        failing.is_healed = True
        is_served = not world.runner("t").is_offline
        if number == 1 and is_served and world.runner("t").log_directory is world.log_dirs[0]:
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
        named = [name for number in range(2) for name in folders(world, number)]
        assert named == ["t-0"]
        if error is not DiskFull and code is ErrorCode.NONE:
            assert world.runner("t").log_directory is world.log_dirs[1]
        assert (folders(world, 1) == ["t-0"]) is (
            world.runner("t").log_directory is world.log_dirs[1]
        )
        await world.stop()
    async with broker_world(dir_count=2, before=world) as after:
        assert after.stored_offsets("t")[:end_offset] == list(range(end_offset))
    return has_failed


@in_virtual_time
async def test_a_read_that_fails_where_the_log_was_does_no_harm_where_it_is() -> None:
    """S9: a disk that hangs, and then fails, takes its own replicas offline."""
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        fill(world)
        await settle(world)
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
        assert world.runner("t").log_directory is world.log_dirs[1]

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
async def test_refusals_have_kafkas_codes() -> None:
    async with broker_world(dir_count=3) as world:
        await create_here(world)
        assert await code_of_alter(world, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code_of_alter(world, THERE, "unknown") is unknown
        assert await code_of_alter(world, THERE, "t", 9) is unknown
        assert await code_of_alter(world, THERE, "t" * 249) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await code_of_alter(world, "/logs-0") is ErrorCode.NONE
        world.log_dirs[2].on_failure(StorageError("test"))
        assert await code_of_alter(world, "/logs-2") is ErrorCode.KAFKA_STORAGE_ERROR
        assert await code_of_alter(world, THERE) is ErrorCode.KAFKA_STORAGE_ERROR
        await world.reopen(world.log_dirs[2])
        world.log_dirs[0].on_failure(StorageError("test"))
        assert await code_of_alter(world, THERE) is ErrorCode.KAFKA_STORAGE_ERROR
        assert folders(world, 1) == []


@in_virtual_time
async def test_a_replica_that_comes_later_is_put_where_it_was_asked_to_be() -> None:
    async with broker_world(dir_count=3) as world:
        world.decide(registered(OTHER, 20))
        world.create("t", state=replace(replicated(OTHER, 0), replicas=(OTHER,), isr=(OTHER,)))
        await world.settle()
        assert await code_of_alter(world, "/logs-2") is ErrorCode.REPLICA_NOT_AVAILABLE
        world.change("t", replicated(OTHER, 1))
        await world.settle()
        assert world.runner("t").log_directory is world.log_dirs[2]
        for task in world.replicas.stop_fetching():
            await asyncio.wait([task])


async def begin_slowly(world: World) -> None:
    """A move to the second directory has begun, and copies nothing yet."""
    await create_here(world)
    fill(world)
    await settle(world)
    world.executors[0].hold(BACKGROUND)
    assert await code_of_alter(world, THERE) is ErrorCode.NONE
    await world.settle()
    assert [name.endswith("-future") for name in folders(world, 1)] == [True]
    assert list(world.log_dirs[1].futures) == [T]


@in_virtual_time
async def test_another_directory_that_is_asked_for_takes_the_place_of_the_first() -> None:
    async with broker_world(dir_count=3) as world:
        await begin_slowly(world)
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        assert len(folders(world, 1)) == 1
        assert await code_of_alter(world, "/logs-2") is ErrorCode.NONE
        world.executors[0].release(BACKGROUND)
        await settle(world)
        assert world.runner("t").log_directory is world.log_dirs[2]
        assert [folders(world, number) for number in range(3)] == [[], [], ["t-0"]]


@in_virtual_time
async def test_asking_for_where_it_is_ends_a_move() -> None:
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        assert await code_of_alter(world, "/logs-0") is ErrorCode.NONE
        world.executors[0].release(BACKGROUND)
        await settle(world)
        assert [folders(world, number) for number in range(2)] == [["t-0"], []]
        assert world.log_dirs[1].futures == {}
        assert world.produce("t", plain_batch(1)).base_offset == 60


@in_virtual_time
async def test_a_move_that_was_called_off_while_its_disk_was_gone_does_not_go_on() -> None:
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        world.log_dirs[1].on_failure(StorageError("test"))
        world.executors[0].release(BACKGROUND)
        await settle(world)
        assert await code_of_alter(world, "/logs-0") is ErrorCode.NONE
        await world.reopen(world.log_dirs[1])
        await settle(world)
        assert [folders(world, number) for number in range(2)] == [["t-0"], []]
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await settle(world)
        assert [folders(world, number) for number in range(2)] == [[], ["t-0"]]


@in_virtual_time
async def test_a_topic_that_is_deleted_anywhere_in_its_move_leaves_nothing() -> None:
    stops = 0
    while await _is_deleted_at(stops):
        stops += 1
    assert stops > 20


async def _is_deleted_at(stop: int) -> bool:
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        fill(world, 6)
        await settle(world)
        for executor in world.executors:
            executor.hold(*BOTH)
        altering = asyncio.ensure_future(code_of_alter(world, THERE))
        is_over = await step_through(world, stop) < stop
        world.delete("t")
        world.create("t", config=SMALL)
        for executor in world.executors:
            executor.release(*BOTH)
        await settle(world)
        await asyncio.sleep(1)
        await settle(world)
        await altering
        named = [name for number in range(2) for name in folders(world, number)]
        assert named == ["t-0"]
        assert all(log_dir.is_online for log_dir in world.log_dirs)
        assert world.produce("t", plain_batch(1)).base_offset == 0
        await world.stop()
    return not is_over


async def step_through(world: World, stop: int) -> int:
    """Do up to `stop` pieces of work, one at a time; how many there were."""
    done, idle = 0, 0
    while done < stop and idle < 100:
        await world.settle()
        await asyncio.sleep(0.005)
        waiting = [(e, lane) for e in world.executors for lane in BOTH if e.waiting(lane)]
        idle = 0 if waiting else idle + 1
        for executor, lane in waiting[:1]:
            executor.step(lane)
            done += 1
    return done


@in_virtual_time
async def test_records_deleted_meanwhile_do_not_come_back() -> None:
    """P1: DeleteRecords is answered when a crash cannot bring them back, wherever they are."""
    for stop in range(0, 60, 3):
        async with broker_world(dir_count=2) as world:
            await create_here(world)
            fill(world, 10)
            await settle(world)
            for executor in world.executors:
                executor.hold(*BOTH)
            altering = asyncio.ensure_future(code_of_alter(world, THERE))
            await step_through(world, stop)
            deleting = asyncio.ensure_future(world.runner("t").delete_records(Offset(10)))
            while not deleting.done():
                assert await step_through(world, 1) or deleting.done()
            altering.cancel()
            await abandon(world)
            process_killed(world)
            async with broker_world(dir_count=2, before=world) as after:
                assert after.runner("t").log.log_start_offset == 10
                await settle(after)
                assert after.stored_offsets("t") == list(range(10, 30))


@in_virtual_time
async def test_a_follower_that_is_cut_in_the_middle_of_its_move_has_what_its_leader_has() -> None:
    async with broker_world(dir_count=2) as world:
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
        assert runner.log_directory is world.log_dirs[1]
        assert runner.log.log_end_offset == 12
        assert [header.base_offset for header in runner.log.headers_from(Offset(0))] == [0, 3, 6, 9]
        for task in world.replicas.stop_fetching():
            await asyncio.wait([task])


async def begin_to_follow(world: World) -> None:
    world.decide(registered(OTHER, 20))
    world.change("t", replicated(OTHER, 1))
    await world.settle()


async def stop_following(world: World) -> None:
    for task in world.replicas.stop_fetching():
        await asyncio.wait([task])


@in_virtual_time
async def test_a_thread_that_cuts_a_log_in_its_move_may_take_its_time() -> None:
    """M1 of `log_move.py`: the log is shorter already, and the move has not heard of it."""
    async with broker_world(dir_count=2) as world:
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
        assert runner.log_directory is world.log_dirs[1]
        assert [header.base_offset for header in runner.log.headers_from(Offset(0))] == [0, 3]
        await stop_following(world)


@in_virtual_time
async def test_a_recovery_point_that_was_written_for_a_copy_is_lowered_when_the_log_is_cut() -> (
    None
):
    """I3 of `follower_runner.py`: what is appended there is not flushed, and would pass for it."""
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        fill(world)
        await settle(world)
        await begin_to_follow(world)
        there = world.executors[1]
        there.hold(BACKGROUND)
        altering = asyncio.ensure_future(code_of_alter(world, THERE))
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
        assert runner.log_directory is world.log_dirs[1]
        assert runner.log.log_end_offset == 6
        assert log_dir._recovery_points[T] <= 6
        await stop_following(world)


@in_virtual_time
async def test_whoever_waits_for_a_flush_is_answered_when_the_log_has_moved() -> None:
    async with broker_world(dir_count=2) as world:
        await create_here(world, **{"flush.messages": "1"})
        fill(world)
        await settle(world)
        for executor in world.executors:
            executor.hold(*BOTH)
        altering = asyncio.ensure_future(code_of_alter(world, THERE))
        produced: list[Produced] = []
        for _ in range(80):
            produced.append(world.produce("t", plain_batch(1)))
            await step_through(world, 2)
        for executor in world.executors:
            executor.release(*BOTH)
        assert await altering is ErrorCode.NONE
        await settle(world)
        assert world.runner("t").log_directory is world.log_dirs[1]
        assert [one.base_offset for one in produced] == list(range(60, 140))


@in_virtual_time
async def test_a_replica_that_was_moved_where_no_disk_is_now_is_not_made_anew() -> None:
    """F3 of `future_log.py`: an empty one in its place would be elected leader of nothing."""
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        fill(world)
        await settle(world)
        name = layout.future_folder_name(T, uuid4())
        there = world.log_dirs[1].log_dir
        assert there is not None
        assert name is not None
        write_moved(world.disk, world.log_dirs[0].path / "t-0", Moved(there.directory_id, name))
        process_killed(world)
        world.memory_disk.rename(Path("/logs-1"), Path("/elsewhere"))
    async with broker_world(dir_count=2, before=world) as after:
        # The disk is another one: what it was to hold is nowhere, and what is left is set aside.
        assert after.stored("t") == []
        assert [one.endswith("-stray") for one in folders(after, 0) if one != "t-0"] == [True]


@pytest.mark.parametrize("has_failed_too", [False, True])
@in_virtual_time
async def test_a_move_that_comes_to_light_late_leaves_a_topic_of_that_name_alone(
    has_failed_too: bool,
) -> None:
    """I2: the log was marked, its disk failed, and meanwhile its topic was made anew."""
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        here, there = world.log_dirs
        (name,) = folders(world, 1)
        here.on_failure(StorageError("test"))
        world.executors[0].release(BACKGROUND)
        await settle(world)
        assert there.log_dir is not None
        write_moved(world.disk, here.path / "t-0", Moved(there.log_dir.directory_id, name))
        world.delete("t")
        world.create("t", config=SMALL)
        await settle(world)
        assert world.runner("t").log_directory is there
        fill(world, 2)
        await settle(world)
        names = world.disk.list_folder(there.path / "t-0")
        before = [name for name in names if name.endswith(layout.LOG)]
        assert before
        if has_failed_too:
            there.on_failure(StorageError("test"))
        await world.reopen(here)
        if has_failed_too:
            await world.reopen(there)
        await settle(world)
        after_names = world.disk.list_folder(there.path / "t-0")
        assert [name for name in after_names if name.endswith(layout.LOG)] == before
        assert folders(world, 1) == ["t-0"]
        assert "t-0" not in folders(world, 0)
        assert here.is_online
        assert there.is_online
        assert world.produce("t", plain_batch(1)).base_offset == 6
        await world.stop()
    async with broker_world(dir_count=2, before=world) as after:
        assert len(after.stored("t")) == 7


@in_virtual_time
async def test_a_move_is_as_fast_as_it_may_be_by_the_setting_in_force() -> None:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    async with broker_world(dir_count=2, settings={name: "10"}) as world:
        await create_here(world)
        fill(world)
        await settle(world)
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await asyncio.sleep(60)
        await world.settle()
        future = world.log_dirs[1].futures[T]
        assert 0 < future.size_bytes <= 1000
        assert future.offset_lag > 30
        world.decide(BrokerConfigChanged(BROKER, {name: "1000000"}))
        await settle(world)
        assert world.runner("t").log_directory is world.log_dirs[1]


@pytest.mark.parametrize("number", [0, 1])
@in_virtual_time
async def test_a_move_goes_on_after_its_disk_was_gone_for_a_moment(number: int) -> None:
    """I3: it was held back by its rate all the while, and had not noticed."""
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    async with broker_world(dir_count=2, settings={name: "10"}) as world:
        await create_here(world)
        fill(world)
        await settle(world)
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await settle(world)
        world.log_dirs[number].on_failure(StorageError("test"))
        await world.reopen(world.log_dirs[number])
        await settle(world)
        world.decide(BrokerConfigChanged(BROKER, {name: "1000000"}))
        await settle(world)
        await settle(world)
        assert world.runner("t").log_directory is world.log_dirs[1]
        assert [folders(world, number) for number in range(2)] == [[], ["t-0"]]


@in_virtual_time
async def test_how_far_a_move_is_can_be_told_without_the_disk_that_it_leaves() -> None:
    """S9: it waits for its turn, and the disk has failed; DescribeLogDirs is about all of them."""
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        fill(world)
        await settle(world)
        await world.stop()
    async with broker_world(dir_count=2, before=world) as after:
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
        assert after.runner("t").log_directory is after.log_dirs[1]


@in_virtual_time
async def test_a_log_that_is_cut_before_its_move_has_its_turn_is_not_asked_for_its_size() -> None:
    """S9: the loop waits for no disk, and a follower goes on whatever that says."""
    async with broker_world(dir_count=2) as world:
        await create_here(world)
        fill(world)
        await settle(world)
        await world.stop()
    async with broker_world(dir_count=2, before=world) as after:
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
        assert runner.log_directory is after.log_dirs[1]
        assert runner.log.log_end_offset == 30
        await stop_following(after)


@in_virtual_time
async def test_a_log_that_is_being_moved_is_not_compacted_until_it_is_there() -> None:
    """I5 of `cleaning.py`."""
    async with broker_world(dir_count=2) as world:
        await create_here(world, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        fill(world)
        await settle(world)
        cleaner = Cleaner(config=world.config.log, partitions=world.partitions, clock=world.clock)
        world.executors[1].hold(BACKGROUND)
        altering = asyncio.ensure_future(code_of_alter(world, THERE))
        await world.settle()
        before = contents(world)
        await cleaner.clean_all()
        assert contents(world) == before
        world.executors[1].release(BACKGROUND)
        assert await altering is ErrorCode.NONE
        await settle(world)
        assert world.runner("t").log_directory is world.log_dirs[1]
        assert contents(world) == before
        await cleaner.clean_all()
        assert contents(world) != before
        assert world.log_dirs[1].cleaner_offset(T)


@in_virtual_time
async def test_what_was_seen_is_known_where_the_log_is_moved_to() -> None:
    """D5: its `.ids` files move along, and nothing is read again but after a restart."""
    async with broker_world(dir_count=2) as world:
        await create_here(world, **BY_HEADER)
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
    async with broker_world(dir_count=2, before=world) as after:
        assert (await send(after, batch("b0"))).base_offset == 1
        assert (await send(after, batch("new"))).base_offset == new_offset
        assert len(after.stored("t")) == 25


@in_virtual_time
async def test_ids_that_are_read_while_the_log_is_moved_are_read_to_the_end() -> None:
    """I1 of `deduplication.py`: the log is another one, so what was read of it counts for nothing.

    A follower reads on by ticks, which no queue keeps from meeting a move.
    """
    for stop in range(0, 90, 3):
        async with broker_world(dir_count=2) as world:
            await create_here(world, **BY_HEADER)
            for number in range(12):
                await send(world, batch(f"a{number}"))
            await settle(world)
            await begin_to_follow(world)
            deduplicator = world.runner("t").deduplicator
            assert deduplicator is not None
            deduplicator._reading = None
            for executor in world.executors:
                executor.hold(*BOTH)
            altering = asyncio.ensure_future(code_of_alter(world, THERE))
            await step_through(world, stop)
            world.runner("t").on_tick()
            await step_through(world, 1000)
            for executor in world.executors:
                executor.release(*BOTH)
            assert await altering is ErrorCode.NONE
            await settle(world)
            assert all(log_dir.is_online for log_dir in world.log_dirs)
            assert world.runner("t").log_directory is world.log_dirs[1]
            await stop_following(world)
            world.change("t", replicated(BROKER, 2))
            await settle(world)
            assert (await send(world, batch("a0"))).base_offset == 0
            assert (await send(world, batch("a12"))).base_offset == 12


@in_virtual_time
async def test_a_copy_of_a_replica_that_is_not_ours_any_more_is_set_aside() -> None:
    """S1 of `strays.py`: its topic was deleted while the broker was away."""
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        await abandon(world)
        process_killed(world)
        topic_id = world.image.topics["t"].topic_id
        world.image = world.image.apply_all([TopicDeleted("t", topic_id)])
        async with broker_world(dir_count=2, before=world) as after:
            after.create("new")
            await after.replicas.settled()
            assert [name.endswith("-future") for name in folders(after, 1)] == [True]
            after.replicas.on_all_told([(topic_id, 0)])
            await after.replicas.settled()
            assert [name.endswith("-future") for name in folders(after, 1)] == [True]
            after.replicas.on_all_told(())
            await after.replicas.settled()
            assert [name.endswith("-stray") for name in folders(after, 1)] == [True]
        world.executors[0].release(BACKGROUND)
