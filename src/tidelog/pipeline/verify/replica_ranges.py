"""Compare some offsets of the replicas of one partition, on an executor.

    bytes     of all replicas side by side, whatever segments they lie in: mostly they are equal,
              and nothing else is looked at
    batches   from the last place where a segment begins, if the bytes differ: which batch it is, in
              which file and where, and what each replica lacks

A batch belongs to the range in which it begins. Memory is a piece of each replica, or a batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.segments.errors import DamagedSegment
from tidelog.pipeline.segments.indexed_segment import IndexedSegment
from tidelog.pipeline.segments.log_end import find_end
from tidelog.pipeline.segments.partition_log import PartitionLog, list_segments
from tidelog.pipeline.segments.read_only_file import ReadOnlyFile
from tidelog.records.batch import BatchHeader, checksum_matches

PIECE_BYTES: Final = 1024 * 1024
_OFFSET_BYTES: Final = 8
MISSING_MAX: Final = 20
"""Ranges that are told for each replica; the rest is only counted."""


@dataclass(frozen=True, slots=True)
class ReplicaRange:
    """The task: batches that begin in `[start_offset, end_offset)`. Travels by pickle."""

    partition: TopicPartition
    folders: tuple[Path, ...]
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """What one replica has where replicas differ."""

    folder: Path
    file: Path | None
    """None if there is nothing."""
    position: int
    """Of the first byte that differs, or of the batch."""
    what: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Where replicas differ first: in the batch that begins with `offset`."""

    offset: int
    places: tuple[FoundPlace, ...]


@dataclass(frozen=True, slots=True, order=True)
class MissingRange:
    """Offsets `[start_offset, end_offset)` that others have."""

    folder: Path
    start_offset: int
    end_offset: int


@dataclass(slots=True)
class RangeComparison:
    """What came of it."""

    partition: TopicPartition
    compared_bytes: int = 0
    """Of one replica."""
    differing_batches: int = 0
    missing_offsets: int = 0
    first_difference: Difference | None = None
    missing: list[MissingRange] = field(default_factory=list)


def compare_range(task: ReplicaRange) -> RangeComparison:
    """Raises SegmentsChanged if somebody removes segments meanwhile."""
    comparison = RangeComparison(task.partition)
    try:
        unequal_from = _unequal_from(task, comparison)
    except DamagedSegment:
        unequal_from = task.start_offset
    if unequal_from is not None:
        _Walk(task, unequal_from, comparison).run()
    return comparison


class ReplicaEnd(NamedTuple):
    """Where a log ends, checksums aside: a batch that is wrong is there, and differs."""

    position: int
    """In the last segment."""
    offset: int
    excess_bytes: int
    """Behind it, which are no batch."""


def replica_end(log: PartitionLog) -> ReplicaEnd:
    """Behind the last whole batch of a replica."""
    found = find_end(log)
    position, offset = found.position, found.offset
    with IndexedSegment(log.segments[-1], end_position=None) as opened:
        try:
            for at, header in opened.headers_from(position):
                position, offset = at + header.size_bytes, header.end_offset
        except DamagedSegment:
            pass  # Here it ends.
        return ReplicaEnd(position, offset, opened.end_position - position)


class _Run(NamedTuple):
    """A part of one segment."""

    path: Path
    start_position: int
    end_position: int
    base_offset: int


def _opened(folder: Path, start_offset: int, end_offset: int) -> Iterator[IndexedSegment]:
    """The segments that may have any of these offsets, one after the other."""
    log = list_segments(folder)
    log_end = replica_end(log)
    for segment in log.between(start_offset, end_offset):
        is_last = segment.next_base_offset is None
        with IndexedSegment(segment, end_position=log_end.position if is_last else None) as opened:
            yield opened


def _runs(folder: Path, start_offset: int, end_offset: int) -> Iterator[_Run]:
    """Where the batches are that begin in a range. Raises DamagedSegment."""
    for opened in _opened(folder, start_offset, end_offset):
        start = opened.first_beginning_at(start_offset)
        end = opened.first_beginning_at(end_offset)
        if start.base_offset is not None and start.position < end.position:
            yield _Run(opened.file.path, start.position, end.position, start.base_offset)


class _ByteStream:
    """The bytes of some runs, one after the other."""

    def __init__(self, runs: Iterator[_Run], running: ExitStack) -> None:
        self._runs = runs
        self._running = running
        self._run: _Run | None = None
        self._file: ReadOnlyFile | None = None
        self._position = 0
        self.next_run()

    def next_run(self) -> None:
        self._run = next(self._runs, None)
        if self._file is not None:
            self._file.close()
        if self._run is not None:
            self._file = self._running.enter_context(ReadOnlyFile(self._run.path))
            self._position = self._run.start_position

    @property
    def left_bytes(self) -> int:
        """Of the run; 0 at the end of the last."""
        return 0 if self._run is None else self._run.end_position - self._position

    @property
    def is_at_start_of_run(self) -> bool:
        return self._run is not None and self._position == self._run.start_position

    def next_offset(self) -> int:
        """Which offset the batch begins with that is next. Only where a batch begins."""
        assert self._file is not None
        return int.from_bytes(self._file.read(self._position, _OFFSET_BYTES), "big")

    def read(self, size_bytes: int) -> bytes:
        assert self._file is not None
        data = self._file.read(self._position, size_bytes)
        self._position += size_bytes
        if not self.left_bytes:
            self.next_run()
        return data


def _unequal_from(task: ReplicaRange, comparison: RangeComparison) -> int | None:
    """An offset before which all is equal, and is counted; None if everything is."""
    equal_to, since_bytes = task.start_offset, 0
    with ExitStack() as running:
        streams = [
            _ByteStream(_runs(folder, task.start_offset, task.end_offset), running)
            for folder in task.folders
        ]
        while size_bytes := min(PIECE_BYTES, *(each.left_bytes for each in streams)):
            # Where one begins a segment, a batch begins in all of them; not the same, if one has
            # lost the segment before.
            if any(each.is_at_start_of_run for each in streams):
                next_offset = min(each.next_offset() for each in streams)
                if next_offset >= equal_to:
                    equal_to = next_offset
                    comparison.compared_bytes += since_bytes
                    since_bytes = 0
            first, *others = [each.read(size_bytes) for each in streams]
            if any(other != first for other in others):
                return equal_to
            since_bytes += size_bytes
        if any(each.left_bytes for each in streams):
            return equal_to
    comparison.compared_bytes += since_bytes
    return None


class _StoredBatch(NamedTuple):
    path: Path
    position: int
    header: BatchHeader
    data: bytes


class _Replica:
    """The batches of one replica, the next of them in `head`."""

    def __init__(self, folder: Path, start_offset: int, end_offset: int) -> None:
        self.folder = folder
        self._batches = self._read(start_offset, end_offset)
        self.damage: DamagedSegment | None = None
        self.head: _StoredBatch | None = None
        self.advance()

    def advance(self) -> None:
        try:
            self.head = next(self._batches, None)
        except DamagedSegment as error:
            self.head, self.damage = None, error

    def _read(self, start_offset: int, end_offset: int) -> Iterator[_StoredBatch]:
        for opened in _opened(self.folder, start_offset, end_offset):
            start = opened.first_beginning_at(start_offset)
            for position, header in opened.headers_from(start.position):
                if header.base_offset >= end_offset:
                    break
                data = opened.file.read(position, header.size_bytes)
                yield _StoredBatch(opened.file.path, position, header, data)

    def found(self, offset: int, differing_at: int) -> FoundPlace:
        """What is here, where somebody has a batch that begins with `offset`."""
        head = self.head
        if head is not None and head.header.base_offset == offset:
            return FoundPlace(
                self.folder, head.path, head.position + differing_at, _described(head)
            )
        if self.damage is not None:
            return FoundPlace(self.folder, self.damage.path, self.damage.position, "damaged")
        what = "nothing up to its end" if head is None else f"next is {_described(head)}"
        return FoundPlace(
            self.folder, head and head.path, 0 if head is None else head.position, what
        )


def _described(batch: _StoredBatch) -> str:
    header = batch.header
    is_whole = checksum_matches(batch.data, 0, header.size_bytes)
    return (
        f"offsets {header.base_offset} to {header.last_offset}, epoch {header.leader_epoch}, "
        f"{len(batch.data)} bytes, crc {header.crc:08x}{'' if is_whole else ', which is wrong'}"
    )


class _Walk:
    """Goes through the batches of all replicas, the lowest offset first."""

    def __init__(self, task: ReplicaRange, start_offset: int, comparison: RangeComparison) -> None:
        self._replicas = [
            _Replica(folder, start_offset, task.end_offset) for folder in task.folders
        ]
        self._comparison = comparison

    def run(self) -> None:
        while heads := [each.head for each in self._replicas if each.head is not None]:
            first = min(heads, key=lambda head: head.header.base_offset)
            offset = first.header.base_offset
            holding = [each for each in self._replicas if _begins_at(each, offset)]
            contents = {each.head.data for each in holding if each.head is not None}
            if len(contents) > 1:
                self._comparison.differing_batches += 1
            if len(contents) > 1 or len(holding) < len(self._replicas):
                self._note_difference(offset, contents)
                self._note_missing(offset, first.header.end_offset)
            self._comparison.compared_bytes += len(first.data)
            for each in holding:
                each.advance()

    def _note_difference(self, offset: int, contents: set[bytes]) -> None:
        if self._comparison.first_difference is None:
            differing_at = _first_differing(sorted(contents)) if len(contents) > 1 else 0
            places = tuple(each.found(offset, differing_at) for each in self._replicas)
            self._comparison.first_difference = Difference(offset, places)

    def _note_missing(self, offset: int, end_offset: int) -> None:
        for each in self._replicas:
            if _begins_at(each, offset):
                continue
            end = end_offset if each.head is None else min(end_offset, each.head.header.base_offset)
            self._comparison.missing_offsets += end - offset
            add_missing(self._comparison.missing, MissingRange(each.folder, offset, end))


def _begins_at(replica: _Replica, offset: int) -> bool:
    return replica.head is not None and replica.head.header.base_offset == offset


def _first_differing(contents: Sequence[bytes]) -> int:
    first = contents[0]
    return min(
        next(
            (at for at, (one, two) in enumerate(zip(first, other, strict=False)) if one != two),
            min(len(first), len(other)),
        )
        for other in contents[1:]
    )


def add_missing(ranges: list[MissingRange], new: MissingRange) -> None:
    """Make one of it with the one before, if it goes on there."""
    same = [number for number, each in enumerate(ranges) if each.folder == new.folder]
    if same and ranges[same[-1]].end_offset == new.start_offset:
        last = ranges[same[-1]]
        ranges[same[-1]] = MissingRange(new.folder, last.start_offset, new.end_offset)
    elif len(same) < MISSING_MAX:
        ranges.append(new)
