"""Bugs of moves between log dirs to be found, planted as those of `planted.py` are."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from tidelog.base.ids import TopicPartition
from tidelog.broker.decided_moves import DecidedMoves
from tidelog.broker.log_dir_moves import LogDirMoves
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.replica_mover import ReplicaMover
from tidelog.core.partition.log_move import LogMove, Pause, SegmentView
from tidelog.storage import future_log


@contextmanager
def mark_before_the_rest_is_copied() -> Iterator[None]:
    """The copy takes the place of the log, and then gets what it lacks."""
    complete = ReplicaMover._complete

    async def mark_first(self: ReplicaMover, step: Pause) -> None:
        await self._mark()
        await complete(self, step)

    with patch.object(ReplicaMover, "_complete", mark_first):
        yield


@contextmanager
def mark_before_the_copy_is_durable() -> Iterator[None]:
    """What was copied is left to the page cache."""
    with patch.object(future_log, "flush_file", lambda *_: None):
        yield


@contextmanager
def overlook_cuts() -> Iterator[None]:
    """What was copied before the log was cut counts for what was appended since."""

    def more_or_wait(self: LogMove, segment: SegmentView) -> int:
        lacking = segment.size_bytes - self._copied.get(segment.base_offset, 0)
        return lacking if lacking >= 0 else self._rest_bytes_max + 1

    def nothing(self: LogMove, segments: Sequence[SegmentView]) -> None:
        self._finished.discard(segments[-1].base_offset)

    with patch.object(LogMove, "on_cut", nothing), patch.object(LogMove, "_lacking", more_or_wait):
        yield


@contextmanager
def leave_marked_logs_alone() -> Iterator[None]:
    """After a restart nobody looks where a replica is that is not where it was."""

    async def nothing(self: DecidedMoves) -> None:
        return None

    with patch.object(DecidedMoves, "resolve", nothing):
        yield


@contextmanager
def let_the_first_who_asked_have_its_way() -> Iterator[None]:
    """A move that is under way goes on, whatever is asked for."""

    async def nothing(self: LogDirMoves, one: TopicPartition, target: LogDirRunner) -> None:
        return None

    with patch.object(LogDirMoves, "_end_other", nothing):
        yield


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    planted.__name__: planted
    for planted in (
        mark_before_the_rest_is_copied,
        mark_before_the_copy_is_durable,
        overlook_cuts,
        leave_marked_logs_alone,
        let_the_first_who_asked_have_its_way,
    )
}
