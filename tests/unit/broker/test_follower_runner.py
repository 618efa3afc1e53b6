"""A follower's log becomes the leader's: copied, cut, begun anew (R2, R3, R7)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.batches import idempotent_batch, plain_batch, with_header
from tests.unit.broker.followed import answer, follower_of, records, stamped, stored_bytes, take
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import (
    BROKER,
    OTHER,
    World,
    broker_world,
    power_cut,
    replicated,
    topic_partition,
)
from tidelog.base.errors import DiskFull, ErrorCode, StorageError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.broker.follower_runner import FollowerRunner, Position, Verdict
from tidelog.core.controller.changes import BrokerRegistered
from tidelog.core.controller.image import BrokerImage, LastStop
from tidelog.storage.checkpoints import read_offsets

ONE_BATCH = {"internal.segment.bytes": "150"}
# The leader has the first two of these.
PARTED = records(2, offset=0, epoch=0) + records(2, offset=2, epoch=1)
RECOVERY_POINTS = Path("/logs-0/recovery-point-offset-checkpoint")


class Ready:
    """Whoever fetches, and hears that a follower was busy and is not any more."""

    def __init__(self, follower: FollowerRunner) -> None:
        self.count = 0
        follower.on_ready = self.hear

    def hear(self, _follower: FollowerRunner) -> None:
        self.count += 1


@asynccontextmanager
async def following(
    config: Mapping[str, str] | None = None, *, epoch: int = 3
) -> AsyncIterator[World]:
    """A broker that follows another one."""
    async with broker_world() as world:
        world.decide(BrokerRegistered(BrokerImage(OTHER, 1, (), None, LastStop.CLEAN)))
        world.create("t", config=config, state=replicated(OTHER, epoch))
        await world.settle()
        yield world


def offsets(world: World) -> tuple[int, int, int]:
    """Log start, high watermark, log end."""
    runner = world.runner("t")
    return runner.log.log_start_offset, runner.high_watermark, runner.log.log_end_offset


def recovery_point(world: World) -> Offset:
    """As it is on disk."""
    written = read_offsets(world.memory_disk, RECOVERY_POINTS)
    assert written is not None
    return written[topic_partition("t")]


@in_virtual_time
async def test_a_follower_says_where_it_stands() -> None:
    async with following() as world:
        follower = follower_of(world)
        assert follower.position == Position(LeaderEpoch(3), Offset(0), LeaderEpoch(-1), Offset(0))
        take(world, answer(records(2, offset=0, epoch=1) + records(1, offset=2, epoch=2)))
        assert follower.position == Position(LeaderEpoch(3), Offset(3), LeaderEpoch(2), Offset(0))


@in_virtual_time
async def test_what_the_leader_sends_is_written_byte_for_byte() -> None:
    async with following() as world:
        sent = (
            stamped(plain_batch(3), offset=0, epoch=1)
            + stamped(idempotent_batch(2), offset=3, epoch=1)
            # Compaction has left a gap.
            + stamped(plain_batch(1), offset=9, epoch=3)
        )
        assert take(world, answer(sent, high_watermark=10)) is Verdict.GO_ON
        runner = world.runner("t")
        assert stored_bytes(runner.log) == sent
        assert offsets(world) == (0, 10, 10)
        assert runner.epochs.entries == ((1, 0), (3, 9))
        assert [entry.producer_id for entry in runner.producers.entries()] == [1000]
        await world.settle()
        await runner.flusher.start()
        assert world.memory_disk.read_file(runner.log.folder / "leader-epoch-checkpoint")


@pytest.mark.parametrize(("leaders", "expected"), [(0, 0), (2, 2), (3, 3), (7, 3)])
@in_virtual_time
async def test_the_high_watermark_is_the_smaller_of_the_own_end_and_the_leaders(
    leaders: int, expected: int
) -> None:
    async with following() as world:
        take(world, answer(records(3, offset=0, epoch=1), high_watermark=leaders))
        assert offsets(world) == (0, expected, 3)
        assert world.stored_offsets("t") == list(range(expected))


@in_virtual_time
async def test_an_answer_without_records_tells_what_is_committed() -> None:
    async with following() as world:
        take(world, answer(records(3, offset=0, epoch=1), high_watermark=1))
        assert take(world, answer(high_watermark=3)) is Verdict.GO_ON
        assert offsets(world) == (0, 3, 3)
        assert take(world, answer(high_watermark=2)) is Verdict.GO_ON  # A new leader knows less.
        assert offsets(world) == (0, 3, 3)


@in_virtual_time
async def test_the_log_starts_where_the_leaders_does() -> None:
    async with following() as world:
        take(world, answer(records(4, offset=0, epoch=1), high_watermark=3, log_start=2))
        assert offsets(world) == (2, 3, 4)
        assert world.runner("t").epochs.entries == ((1, 2),)
        take(world, answer(high_watermark=3, log_start=4))
        assert offsets(world) == (3, 3, 4)  # No further than what is known to be committed.
        take(world, answer(high_watermark=4, log_start=1))
        assert offsets(world) == (3, 4, 4)


@in_virtual_time
async def test_a_roll_in_the_middle_of_an_answer_is_waited_for() -> None:
    async with following(ONE_BATCH) as world:
        ready = Ready(follower_of(world))
        sent = records(4, offset=0, epoch=1)
        world.executor.hold(URGENT)
        assert take(world, answer(sent, high_watermark=4)) is Verdict.BUSY
        assert offsets(world) == (0, 0, 1)  # Nothing is learned from half an answer.
        assert not follower_of(world).may_fetch
        for _ in range(3):
            assert ready.count == 0
            world.executor.step(URGENT)
            await world.settle()
        assert ready.count == 1
        assert offsets(world) == (0, 4, 4)
        assert stored_bytes(world.runner("t").log) == sent
        assert len(world.runner("t").log.segments) == 4
        assert follower_of(world).may_fetch


@in_virtual_time
async def test_an_answer_while_it_is_busy_counts_nothing() -> None:
    async with following(ONE_BATCH) as world:
        follower = follower_of(world)
        world.executor.hold(URGENT)
        take(world, answer(records(2, offset=0, epoch=1)))
        late = answer(records(1, offset=1, epoch=1), high_watermark=2)
        assert follower.on_answer(follower.position, late) is Verdict.LATER
        world.executor.release(URGENT)
        await world.settle()
        assert offsets(world) == (0, 0, 2)


@in_virtual_time
async def test_flush_messages_holds_back_what_the_follower_says_it_has() -> None:
    async with following({"flush.messages": "2"}) as world:
        ready = Ready(follower_of(world))
        assert take(world, answer(records(1, offset=0, epoch=1))) is Verdict.GO_ON
        world.executor.hold(BACKGROUND)
        assert take(world, answer(records(1, offset=1, epoch=1), high_watermark=2)) is Verdict.BUSY
        assert not follower_of(world).may_fetch
        assert world.runner("t").log.recovery_point == 0
        world.executor.release(BACKGROUND)
        await world.settle()
        assert ready.count == 1
        assert world.runner("t").log.recovery_point == 2
        assert offsets(world) == (0, 2, 2)


@in_virtual_time
async def test_an_answer_to_another_question_is_passed_over() -> None:
    async with following() as world:
        follower = follower_of(world)
        asked = follower.position
        take(world, answer(records(1, offset=0, epoch=1)))
        assert follower.on_answer(asked, answer(records(2, offset=0, epoch=2))) is Verdict.GO_ON
        assert offsets(world) == (0, 0, 1)


def corrupted() -> dict[str, bytes]:
    good = bytearray(records(1, offset=5, epoch=1))
    flipped = bytearray(good)
    flipped[-1] ^= 1
    return {
        "flipped bit": bytes(flipped),
        "flipped bit in the second": bytes(good + stamped(flipped, offset=6, epoch=1)),
        "below what was asked for": records(1, offset=4, epoch=1),
        "the same offset twice": bytes(good + good),
        "farther on than a segment reaches": records(1, offset=5 + 2**31, epoch=1),
        "ends before it begins": bytes(with_header(good, last_offset_delta=-1)),
        "magic 1": bytes(with_header(good, magic=1)),
        "length that cannot be": bytes(with_header(good, batch_length=3)),
    }


@pytest.mark.parametrize("what", corrupted())
@in_virtual_time
async def test_damaged_records_are_refused_whole(what: str) -> None:
    async with following() as world:
        take(world, answer(records(5, offset=0, epoch=1)))
        assert take(world, answer(corrupted()[what], high_watermark=6)) is Verdict.LATER
        assert offsets(world) == (0, 0, 5)
        assert take(world, answer(records(1, offset=5, epoch=1), high_watermark=6)) is Verdict.GO_ON
        assert offsets(world) == (0, 6, 6)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
@in_virtual_time
async def test_an_error_that_may_pass_changes_nothing(code: ErrorCode) -> None:
    async with following() as world:
        take(world, answer(records(2, offset=0, epoch=1), high_watermark=1))
        refused = answer(error=code, high_watermark=-1, log_start=-1)
        assert take(world, refused) is Verdict.LATER
        assert offsets(world) == (0, 1, 2)


# -- where the logs part -------------------------------------------------------------------------


@in_virtual_time
async def test_a_diverging_log_is_cut_where_the_logs_part() -> None:
    async with following() as world:
        ready = Ready(follower_of(world))
        kept = records(3, offset=0, epoch=1)
        take(world, answer(kept + records(4, offset=3, epoch=2), high_watermark=2))
        assert take(world, answer(diverging=(1, 5))) is Verdict.BUSY
        assert not follower_of(world).may_fetch
        await world.settle()
        assert ready.count == 1
        assert offsets(world) == (0, 2, 3)
        assert stored_bytes(world.runner("t").log) == kept
        assert follower_of(world).position.last_fetched_epoch == 1
        assert world.runner("t").epochs.entries == ((1, 0),)
        assert take(world, answer(records(1, offset=3, epoch=3))) is Verdict.GO_ON


@in_virtual_time
async def test_producers_are_what_they_were_until_the_log_is_cut() -> None:
    """A thread reads them again; whoever looks at them meanwhile, or lets them expire, is here."""
    async with following() as world:
        runner = world.runner("t")
        sent = bytes(stamped(idempotent_batch(2, producer_id=5), offset=0, epoch=1))
        sent += bytes(stamped(idempotent_batch(2, producer_id=6), offset=2, epoch=2))
        take(world, answer(sent, high_watermark=2))
        before = runner.producers
        world.executor.hold(URGENT)
        take(world, answer(diverging=(1, 2)))
        await world.settle()
        assert runner.producers is before
        assert [one.producer_id for one in before.entries()] == [5, 6]
        world.executor.release(URGENT)
        await world.settle()
        assert [one.producer_id for one in runner.producers.entries()] == [5]
        assert [one.producer_id for one in before.entries()] == [5, 6]


@in_virtual_time
async def test_a_cut_takes_back_what_was_committed_only_where_it_must() -> None:
    """Somebody was elected who lacked it."""
    async with following() as world:
        take(world, answer(records(5, offset=0, epoch=1), high_watermark=5))
        take(world, answer(diverging=(1, 3)))
        await world.settle()
        assert offsets(world) == (0, 3, 3)


@in_virtual_time
async def test_who_follows_forgets_epochs_in_which_it_wrote_nothing() -> None:
    """It led, wrote nothing, and another broker was elected that never heard of that epoch."""
    async with following(epoch=1) as world:
        take(world, answer(records(2, offset=0, epoch=1)))
        world.change("t", replicated(BROKER, 2))
        await world.settle()
        assert world.runner("t").epochs.latest_epoch == 2
        world.change("t", replicated(OTHER, 3))
        await world.settle()
        assert follower_of(world).position == (3, 2, 1, 0)


@in_virtual_time
async def test_producers_are_those_of_what_is_left() -> None:
    async with following() as world:
        first = stamped(idempotent_batch(2, producer_id=7), offset=0, epoch=1)
        second = stamped(idempotent_batch(2, producer_id=8), offset=2, epoch=2)
        third = stamped(idempotent_batch(2, producer_id=7, base_sequence=2), offset=4, epoch=2)
        take(world, answer(first + second + third))
        take(world, answer(diverging=(1, 2)))
        await world.settle()
        (entry,) = world.runner("t").producers.entries()
        assert entry.producer_id == 7
        assert [batch.last_offset for batch in entry.batches] == [1]


@in_virtual_time
async def test_the_recovery_point_on_disk_is_lowered_before_anything_is_cut() -> None:
    """I3. What is written in place of the cut is not flushed; a crash must find that out."""
    async with following() as world:
        take(world, answer(PARTED))
        world.runner("t").flusher.start()
        await world.settle()
        await world.log_dir.checkpoint()
        assert recovery_point(world) == 4
        world.disk.arm("truncate", "*.log", StorageError)
        take(world, answer(diverging=(0, 2)))
        await world.settle()
        assert not world.log_dir.is_online
        assert recovery_point(world) == 2


@in_virtual_time
async def test_a_power_cut_after_a_cut_finds_what_was_written_since() -> None:
    for seed in range(8):
        async with following() as world:
            take(world, answer(PARTED))
            world.runner("t").flusher.start()
            await world.settle()
            await world.log_dir.checkpoint()
            take(world, answer(diverging=(0, 2)))
            await world.settle()
            take(world, answer(records(3, offset=2, epoch=3)))
            power_cut(world, seed)
            async with broker_world(before=world) as restarted:
                runner = restarted.runner("t")
                log_end = runner.log.log_end_offset
                assert 2 <= log_end <= 5
                expected = records(2, offset=0, epoch=0) + records(3, offset=2, epoch=3)
                assert expected.startswith(stored_bytes(runner.log))


@in_virtual_time
async def test_a_checkpoint_while_a_cut_is_waiting_stays_below_it() -> None:
    async with following() as world:
        take(world, answer(PARTED))
        world.runner("t").flusher.start()
        await world.settle()
        world.executor.hold(BACKGROUND)
        take(world, answer(diverging=(0, 2)))
        checkpointing = world.tasks.create_task(world.log_dir.checkpoint())
        await world.settle()
        world.executor.release(BACKGROUND)
        await checkpointing
        assert recovery_point(world) == 2


@in_virtual_time
async def test_a_follower_below_the_leaders_start_begins_afresh_there() -> None:
    async with following() as world:
        ready = Ready(follower_of(world))
        take(world, answer(records(3, offset=0, epoch=1), high_watermark=3))
        too_old = answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=7, high_watermark=9)
        assert take(world, too_old) is Verdict.BUSY
        await world.settle()
        assert ready.count == 1
        assert follower_of(world).position == (3, 7, -1, 7)
        assert take(
            world, answer(records(2, offset=7, epoch=2), high_watermark=9, log_start=7)
        ) is (Verdict.GO_ON)
        assert offsets(world) == (7, 9, 9)
        assert world.runner("t").epochs.entries == ((2, 7),)


@in_virtual_time
async def test_a_leaders_log_that_starts_within_a_batch_is_copied_from_the_whole_batch() -> None:
    """DeleteRecords moves the start of a log to any offset, and batches are never taken apart."""
    async with following() as world:
        ready = Ready(follower_of(world))
        take(world, answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=5, high_watermark=9))
        await world.settle()
        sent = stamped(plain_batch(4), offset=3, epoch=1) + records(2, offset=7, epoch=2)
        assert take(world, answer(sent, high_watermark=9, log_start=5)) is Verdict.BUSY
        await world.settle()
        assert ready.count == 2
        assert offsets(world) == (5, 9, 9)
        assert world.stored_offsets("t") == [5, 6, 7, 8]
        assert world.runner("t").log.segments[0].base_offset == 3
        assert follower_of(world).position == (3, 9, 2, 5)


@in_virtual_time
async def test_a_log_without_epochs_that_is_longer_than_the_leaders_begins_afresh() -> None:
    async with following() as world:
        take(world, answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=7, high_watermark=9))
        await world.settle()
        # Elected uncleanly, the next leader has less.
        take(world, answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=2, high_watermark=4))
        await world.settle()
        assert offsets(world) == (2, 2, 2)


@in_virtual_time
async def test_a_leader_that_knows_less_than_its_epochs_say_is_asked_again_later() -> None:
    async with following() as world:
        take(world, answer(records(3, offset=0, epoch=1)))
        refused = answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=1, high_watermark=2)
        assert take(world, refused) is Verdict.LATER
        assert offsets(world) == (0, 0, 3)


# -- when it has to end --------------------------------------------------------------------------


@in_virtual_time
async def test_one_that_was_stopped_takes_nothing_in() -> None:
    async with following() as world:
        follower = follower_of(world)
        follower.stop()
        assert not follower.may_fetch
        late = answer(records(1, offset=0, epoch=1))
        assert follower.on_answer(follower.position, late) is Verdict.STOPPED
        assert offsets(world) == (0, 0, 0)


@in_virtual_time
async def test_one_that_is_stopped_within_an_answer_appends_nothing_more() -> None:
    async with following(ONE_BATCH) as world:
        follower = follower_of(world)
        ready, idle = Ready(follower), Ready(follower)
        follower.on_idle = lambda: idle.hear(follower)
        world.executor.hold(URGENT)
        take(world, answer(records(3, offset=0, epoch=1), high_watermark=3))
        follower.stop()
        assert idle.count == 0
        world.executor.release(URGENT)
        await world.settle()
        assert (ready.count, idle.count) == (0, 1)
        assert offsets(world) == (0, 0, 1)


@in_virtual_time
async def test_a_cut_that_is_under_way_when_it_is_stopped_is_known_of() -> None:
    async with following() as world:
        follower = follower_of(world)
        take(world, answer(records(2, offset=0, epoch=1) + records(2, offset=2, epoch=2)))
        take(world, answer(high_watermark=3))
        world.executor.hold(BACKGROUND)
        take(world, answer(diverging=(1, 2)))
        await world.settle()
        follower.stop()
        world.executor.release(BACKGROUND)
        await world.settle()
        assert offsets(world) == (0, 2, 2)
        assert world.runner("t").epochs.entries == ((1, 0),)


@pytest.mark.parametrize("error", [DiskFull, StorageError])
@in_virtual_time
async def test_a_disk_that_fails_under_an_append_takes_the_directory_offline(
    error: type[StorageError],
) -> None:
    async with following() as world:
        world.disk.arm("append", "*.log", error, after=1)
        assert take(world, answer(records(3, offset=0, epoch=1))) is Verdict.LATER
        assert not world.log_dir.is_online
        assert not follower_of(world).may_fetch
        world.disk.heal()
        await world.reopen()
        assert offsets(world) == (0, 0, 1)
        assert take(world, answer(records(2, offset=1, epoch=1))) is Verdict.GO_ON


@in_virtual_time
async def test_a_disk_that_fails_under_a_roll_leaves_the_rest_of_the_answer() -> None:
    async with following(ONE_BATCH) as world:
        ready = Ready(follower_of(world))
        world.disk.arm("open", "*.log", StorageError)
        assert take(world, answer(records(3, offset=0, epoch=1))) is Verdict.BUSY
        await world.settle()
        assert not world.log_dir.is_online
        assert ready.count == 0
        world.disk.heal()
        await world.reopen()
        assert take(world, answer(records(2, offset=1, epoch=1))) is Verdict.BUSY
        await world.settle()
        assert offsets(world) == (0, 0, 3)
