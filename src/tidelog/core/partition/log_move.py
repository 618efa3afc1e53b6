"""How a log gets to another log dir while it is written and read: what to copy next (KIP-113).

A log is a list of segments of which only the last grows. The copy is made of the same segments,
byte for byte, so all there is to know is how many bytes of each are there:

    closed segment, lacks bytes     CopyBytes, a slice of it
    closed segment, has them all    FinishSegment: its other files, and a flush
    copied, but not in the log      DropCopies: retention was there, or the log was cut
    active segment, lacks many      CopyBytes
    active segment, lacks few       Pause: appends wait, the rest is copied, the two change places

What is asked for is done by threads, and the log moves on meanwhile. `next_step` is asked anew each
time, with the log as it is by then. Of a cut it has to be told (`on_cut`), before anything is
appended behind it: from the sizes alone nobody could tell afterwards.

Invariants:

    M1  What counts as copied of a segment is the beginning of what it holds: bytes that were read
        before a cut do not count after it.
    M2  Only a segment that nobody appends to, and of which all is copied, is finished.
    M3  Pause is asked for only if every closed segment is finished, nothing else is in the copy,
        and the active segment lacks at most `rest_bytes_max`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import Offset


class SegmentView(NamedTuple):
    """A segment of the log as it is now."""

    base_offset: Offset
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CopyBytes:
    """Copy these bytes of a segment's log, to the same place."""

    base_offset: Offset
    position: int
    size_bytes: int
    cut_count: int


@dataclass(frozen=True, slots=True)
class FinishSegment:
    """Copy what a segment has beside its log, and make all of it durable."""

    base_offset: Offset
    size_bytes: int
    cut_count: int


@dataclass(frozen=True, slots=True)
class DropCopies:
    """Remove what was copied of segments that are not in the log any more."""

    base_offsets: tuple[Offset, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Let nobody append, and copy the rest of the active segment from `position` on."""

    base_offset: Offset
    position: int


Step = CopyBytes | FinishSegment | DropCopies | Pause


class LogMove:
    """What is copied of one log. Its caller looks at the log and performs steps, one at a time."""

    def __init__(self, *, slice_bytes: int, rest_bytes_max: int) -> None:
        assert slice_bytes > 0
        self._slice_bytes = slice_bytes
        self._rest_bytes_max = rest_bytes_max
        self._copied: dict[Offset, int] = {}
        self._finished: set[Offset] = set()
        self._cut_count = 0

    @property
    def copied_bytes(self) -> int:
        return sum(self._copied.values())

    def reached_offset(self, segments: Sequence[SegmentView]) -> Offset:
        """Everything below it is copied; where in a segment the copy is, nobody looks up."""
        for segment in segments:
            if self._copied.get(segment.base_offset, 0) < segment.size_bytes:
                return segment.base_offset
        return segments[-1].base_offset

    def next_step(self, segments: Sequence[SegmentView]) -> Step:
        """What to do next, with the log as it is now."""
        present = {segment.base_offset for segment in segments}
        gone = tuple(sorted(self._copied.keys() - present))
        if gone:
            return DropCopies(gone)
        *closed, active = segments
        for segment in closed:
            base_offset, size_bytes = segment
            if base_offset in self._finished:
                continue
            if self._lacking(segment):
                return self._slice_of(segment)
            return FinishSegment(base_offset, size_bytes, self._cut_count)
        assert active.base_offset not in self._finished  # M2
        if self._lacking(active) > self._rest_bytes_max:
            return self._slice_of(active)
        return Pause(active.base_offset, self._copied.get(active.base_offset, 0))

    def _lacking(self, segment: SegmentView) -> int:
        lacking = segment.size_bytes - self._copied.get(segment.base_offset, 0)
        assert lacking >= 0  # M1
        return lacking

    def _slice_of(self, segment: SegmentView) -> CopyBytes:
        return CopyBytes(
            segment.base_offset,
            self._copied.get(segment.base_offset, 0),
            min(self._lacking(segment), self._slice_bytes),
            self._cut_count,
        )

    def on_copied(self, step: CopyBytes) -> None:
        """The bytes are where they were asked for; unless the log was cut, they count. M1"""
        self._copied.setdefault(step.base_offset, 0)  # There is a file now, whatever is in it. M3
        if step.cut_count == self._cut_count:
            self._copied[step.base_offset] = step.position + step.size_bytes

    def on_finished(self, step: FinishSegment) -> None:
        self._copied.setdefault(step.base_offset, 0)
        if step.cut_count == self._cut_count:
            self._finished.add(step.base_offset)

    def on_dropped(self, step: DropCopies) -> None:
        for base_offset in step.base_offsets:
            self._copied.pop(base_offset, None)
            self._finished.discard(base_offset)

    def on_cut(self, segments: Sequence[SegmentView]) -> None:
        """The end of the log was taken off, and nothing was appended since. M1"""
        self._cut_count += 1
        sizes = dict(segments)
        active = segments[-1].base_offset
        self._finished = {one for one in self._finished if one in sizes and one < active}
        for base_offset in self._copied:
            # Those that are not in the log stay, with nothing: their files have to go.
            self._copied[base_offset] = min(self._copied[base_offset], sizes.get(base_offset, 0))
