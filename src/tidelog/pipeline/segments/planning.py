"""Decide on the driver which bytes of which segments are to be read, and cut them into slices.

    how far     high watermark, if anybody knows; last stable offset, for committed records alone;
                the last whole batch. Behind the first of these nobody looks
    by offset   segments by their names, then a place in the first and the last by the offset index
    by time     what the time index says is older is left out. It says nothing about what is newer,
                so the end of a time range leaves out nothing here; and what is behind its last
                entry is looked at, or left to whoever reads, who tells by the header of each batch
    by size     a segment is cut where its offset index knows a batch; without one it is not cut
    by count    offsets are cut as a broker's are; a batch that is cut is read by both sides

No file is read as a whole but the small ones, and segments without indexes where it takes that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.ranges import OffsetRange, cut
from tidelog.pipeline.segments.folders import PartitionFolder
from tidelog.pipeline.segments.indexed_segment import IndexedSegment, Place
from tidelog.pipeline.segments.log_end import LogEnd, find_end
from tidelog.pipeline.segments.missing import Missing, find_missing
from tidelog.pipeline.segments.partition_log import PartitionLog, SegmentFiles, list_segments
from tidelog.pipeline.segments.replicas import ReadableRange
from tidelog.pipeline.segments.slices import SegmentSlice
from tidelog.pipeline.segments.transactions import (
    Transactions,
    find_transactions,
    with_records_between,
)

OFFSET_END: Final = 2**63 - 1
LOOKED_AT_BYTES: Final = 1024 * 1024
"""Of what a time index does not cover, so much is looked at before a task is made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to read of each partition."""

    offsets: Mapping[TopicPartition, tuple[int, int]]
    """`[start, end)`; a partition that is not in it is read from its start to its end."""
    start_ms: int | None
    end_ms: int | None
    """Timestamps `[start_ms, end_ms)`."""
    is_committed_only: bool
    """Leave out aborted transactions, and what comes after the start of one that is open."""
    is_beyond_high_watermark: bool
    """Also what was not committed when the high watermark was last written down."""
    is_torn_tail_ignored: bool
    slice_bytes: int
    """About how large slices are to be."""
    slice_offsets: int | None = None
    """How many offsets a slice has at most."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The slices of one replica, in order, and the offsets that they cover."""

    folder: PartitionFolder
    start_offset: int
    end_offset: int
    slices: tuple[SegmentSlice, ...]
    missing: tuple[Missing, ...]
    """Offsets that are wanted, and that the log should have."""
    readable: ReadableRange
    """All that could be read of it, if it were wanted."""


def plan_partition(folder: PartitionFolder, wanted: Wanted) -> PartitionPlan:
    """What to read of one replica.

    Offsets that are not there are not an error: compare the plan with what was wanted, and look at
    what is `missing`. Raises TornTail and DamagedSegment if the end of the log is wanted and is not
    whole.
    """
    log = list_segments(folder.path)
    end = find_end(log)
    start_offset, end_offset, limit_offset = _range(folder, log, end, wanted)
    transactions = Transactions(limit_offset, ())
    if wanted.is_committed_only:
        # What was open where the range ends may be decided behind it.
        transactions = find_transactions(
            log, end, start_offset=min(start_offset, limit_offset), end_offset=limit_offset
        )
        end_offset = max(start_offset, min(end_offset, transactions.last_stable_offset))
    planning = _Planning(folder.partition, wanted, transactions, start_offset, end_offset)
    for segment in log.between(start_offset, end_offset) if start_offset < end_offset else ():
        is_last = segment.next_base_offset is None
        with IndexedSegment(segment, end_position=end.position if is_last else None) as opened:
            planning.add(opened, end.offset if is_last else segment.next_base_offset)
    return PartitionPlan(
        folder,
        start_offset,
        end_offset,
        tuple(planning.slices),
        _missing(folder, log, end, wanted),
        _readable(folder, log, transactions),
    )


def _readable(
    folder: PartitionFolder, log: PartitionLog, transactions: Transactions
) -> ReadableRange:
    end_offset = transactions.last_stable_offset
    return ReadableRange(min(_start(folder, log), end_offset), end_offset)


def _start(folder: PartitionFolder, log: PartitionLog) -> int:
    return max(folder.log_start_offset, log.segments[0].base_offset)


def _missing(
    folder: PartitionFolder, log: PartitionLog, end: LogEnd, wanted: Wanted
) -> tuple[Missing, ...]:
    wanted_start, wanted_end = wanted.offsets.get(folder.partition, (0, OFFSET_END))
    limit_offset = _limit(folder, wanted)
    return find_missing(
        folder,
        log,
        end,
        start_offset=max(wanted_start, folder.log_start_offset),
        end_offset=min(wanted_end, limit_offset),
    )


def _limit(folder: PartitionFolder, wanted: Wanted) -> int:
    """Where whoever reads has to end, as far as the checkpoints say."""
    if folder.high_watermark is None or wanted.is_beyond_high_watermark:
        return OFFSET_END
    return folder.high_watermark


def _range(
    folder: PartitionFolder, log: PartitionLog, end: LogEnd, wanted: Wanted
) -> tuple[int, int, int]:
    """Where to begin and to end, and where everybody would have to end."""
    wanted_start, wanted_end = wanted.offsets.get(folder.partition, (0, OFFSET_END))
    limit_offset = _limit(folder, wanted)
    if (
        end.excess is not None
        and min(wanted_end, limit_offset) > end.offset
        and not (end.is_torn and wanted.is_torn_tail_ignored)
    ):
        raise end.excess
    limit_offset = min(limit_offset, end.offset)
    start_offset = max(wanted_start, _start(folder, log))
    return start_offset, max(start_offset, min(wanted_end, limit_offset)), limit_offset


class _Planning:
    """Slices of one partition, segment by segment."""

    def __init__(
        self,
        partition: TopicPartition,
        wanted: Wanted,
        transactions: Transactions,
        start_offset: int,
        end_offset: int,
    ) -> None:
        self._partition = partition
        self._wanted = wanted
        self._transactions = transactions
        whole = OffsetRange(partition, start_offset, end_offset)
        self._pieces = cut(
            [whole] if whole.size else [], min_count=None, max_size=wanted.slice_offsets
        )
        self.slices: list[SegmentSlice] = []

    def add(self, segment: IndexedSegment, segment_end_offset: int | None) -> None:
        """What is wanted of `segment`, which has nothing at `segment_end_offset` or later."""
        base_offset = segment.files.base_offset
        older_offset = base_offset
        if self._wanted.start_ms is not None:
            older_offset = segment.end_of_older_than(self._wanted.start_ms)
        for piece in self._pieces:
            is_behind = segment_end_offset is not None and piece.start_offset >= segment_end_offset
            if not is_behind and piece.end_offset > base_offset:
                self._add_piece(segment, segment_end_offset, piece, older_offset)

    def _add_piece(
        self,
        segment: IndexedSegment,
        segment_end_offset: int | None,
        piece: OffsetRange,
        older_offset: int,
    ) -> None:
        start_offset = max(piece.start_offset, older_offset)
        start = Place(0, segment.files.base_offset)
        if start_offset > segment.files.base_offset:
            start = segment.first_reaching(start_offset)
        end = Place(segment.end_position, segment_end_offset)
        if segment_end_offset is None or piece.end_offset < segment_end_offset:
            end = segment.first_beginning_at(piece.end_offset)
        if start.position < end.position and not self._is_all_older(segment, start, end):
            self._cut(segment, start, end, piece)

    def _is_all_older(self, segment: IndexedSegment, start: Place, end: Place) -> bool:
        start_ms = self._wanted.start_ms
        if start_ms is None or end.position - start.position > LOOKED_AT_BYTES:
            return False
        for position, header in segment.headers_from(start.position):
            if position >= end.position:
                break
            if header.max_timestamp_ms >= start_ms:
                return False
        return True

    def _cut(self, segment: IndexedSegment, start: Place, end: Place, piece: OffsetRange) -> None:
        size_bytes = end.position - start.position
        count = -(-size_bytes // self._wanted.slice_bytes)
        places = [start]
        for number in range(1, count):
            place = segment.at_or_below(start.position + size_bytes * number // count)
            if place is not None and places[-1].position < place.position < end.position:
                places.append(place)
        path = segment.file.path
        for first, following in zip(places, [*places[1:], end], strict=True):
            self.slices.append(self._slice(path, segment.files, first, following, piece))

    def _slice(
        self, path: Path, files: SegmentFiles, start: Place, end: Place, piece: OffsetRange
    ) -> SegmentSlice:
        wanted = self._wanted
        first_base_offset = files.base_offset if start.base_offset is None else start.base_offset
        end_base_offset = OFFSET_END if end.base_offset is None else end.base_offset
        return SegmentSlice(
            partition=self._partition,
            path=path,
            start_position=start.position,
            end_position=end.position,
            first_base_offset=first_base_offset,
            end_base_offset=end_base_offset,
            start_offset=piece.start_offset,
            end_offset=piece.end_offset,
            start_ms=wanted.start_ms,
            end_ms=wanted.end_ms,
            is_committed_only=wanted.is_committed_only,
            aborted=with_records_between(
                self._transactions.aborted, offset=first_base_offset, end_offset=end_base_offset
            ),
        )
