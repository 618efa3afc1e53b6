"""Which offsets are missing from a log, as far as its files can tell.

    00000000000000000000.log     00000000000000002001.log
    ├── 0 ......... 1000 ──┤  ?  ├── 2001 ......... 3000 ──┤  ?
                            a gap                           less than was committed

A segment begins where the one before it ends, with brokers of tidelog and with Apache Kafka:
offsets are given out without gaps, retention takes segments off the beginning and truncation off
the end. So a gap between two segments is a file that was removed, or not copied. One thing else
makes gaps: compaction, which keeps the names of segments and takes batches out of them. It is known
by

    cleaner-offset-checkpoint   beside the folder: below that offset, the log was compacted
    the batches                 of the segments at both sides: one that lacks some of its records,
                                or a gap between two. A follower may have those although it has
                                compacted nothing

A folder that was copied without its checkpoints, of a topic whose compaction took nothing but the
last batches of one segment, looks like a missing segment, and is taken for one.

At the end, records are missing if they were committed (`replication-offset-checkpoint`), or if the
index of a segment is there and the segment is not. At the beginning only the latter is known: what
retention took, and what somebody else did, look the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tidelog.pipeline.segments.errors import DamagedSegment
from tidelog.pipeline.segments.folders import PartitionFolder
from tidelog.pipeline.segments.indexed_segment import IndexedSegment, last_offset_of_index
from tidelog.pipeline.segments.log_end import LogEnd
from tidelog.pipeline.segments.partition_log import PartitionLog, SegmentFiles
from tidelog.storage import layout

_NOT_COPIED: Final = "a segment was removed or not copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Offsets `[start_offset, end_offset)` that a log should have and has not."""

    folder: Path
    start_offset: int
    end_offset: int
    reason: str

    def __str__(self) -> str:
        last_offset = self.end_offset - 1
        offsets = f"offsets {self.start_offset} to {last_offset}"
        if self.start_offset == last_offset:
            offsets = f"offset {last_offset}"
        return f"{self.folder} lacks {offsets}: {self.reason}"


def find_missing(
    folder: PartitionFolder,
    log: PartitionLog,
    end: LogEnd,
    *,
    start_offset: int,
    end_offset: int,
) -> tuple[Missing, ...]:
    """What is missing of `[start_offset, end_offset)`, in order. Raises SegmentsChanged."""
    found = [*_before(log), *_between(folder, log, end, start_offset, end_offset)]
    # A torn tail is said elsewhere, and who ignores it knows that something is missing.
    if end.excess is None:
        found += _behind(folder, log, end)
    clipped = (
        replace(
            each,
            start_offset=max(each.start_offset, start_offset),
            end_offset=min(each.end_offset, end_offset),
        )
        for each in found
    )
    return tuple(each for each in clipped if each.start_offset < each.end_offset)


def _before(log: PartitionLog) -> Iterator[Missing]:
    first_offset = log.segments[0].base_offset
    for orphan in log.orphans[:1]:
        if orphan.base_offset < first_offset:
            yield Missing(
                folder=log.folder,
                start_offset=orphan.base_offset,
                end_offset=first_offset,
                reason=_without_log(orphan),
            )


def _between(
    folder: PartitionFolder, log: PartitionLog, end: LogEnd, start_offset: int, end_offset: int
) -> Iterator[Missing]:
    for segment in log.between(start_offset, end_offset):
        next_offset = segment.next_base_offset
        if next_offset is None or next_offset <= folder.cleaned_offset:
            continue
        segment_end_offset = _end_offset(segment)
        if segment_end_offset is None:
            continue  # Whoever reads it says where and why.
        if segment_end_offset < next_offset and not _is_compacted_around(log, end, segment):
            yield Missing(
                folder=log.folder,
                start_offset=segment_end_offset,
                end_offset=next_offset,
                reason=_between_reason(segment, segment_end_offset, next_offset),
            )


def _end_offset(segment: SegmentFiles) -> int | None:
    """None if it is damaged."""
    with IndexedSegment(segment, end_position=None) as opened:
        try:
            return opened.find_end_offset()
        except DamagedSegment:
            return None


def _between_reason(segment: SegmentFiles, segment_end_offset: int, next_offset: int) -> str:
    name = segment.path(layout.LOG).name
    if segment_end_offset == segment.base_offset:
        return f"{name} is empty"
    return f"{_NOT_COPIED} between {name} and {layout.file_name(next_offset, layout.LOG)}"


def _is_compacted_around(log: PartitionLog, end: LogEnd, segment: SegmentFiles) -> bool:
    """By the next segments at both sides that have anything left to tell it from."""
    at = log.segments.index(segment)
    before, behind = reversed(log.segments[: at + 1]), log.segments[at + 1 :]
    nearest = (next(filter(_has_batches, side), None) for side in (before, behind))
    return any(each is not None and _is_compacted(each, end) for each in nearest)


def _has_batches(segment: SegmentFiles) -> bool:
    with IndexedSegment(segment, end_position=None) as opened:
        return opened.end_position > 0


def _is_compacted(segment: SegmentFiles, end: LogEnd) -> bool:
    is_last = segment.next_base_offset is None
    with IndexedSegment(segment, end_position=end.position if is_last else None) as opened:
        next_offset = segment.base_offset
        try:
            for _, header in opened.headers_from(0):
                lacks_records = header.record_count <= header.last_offset_delta
                if lacks_records or header.base_offset > next_offset:
                    return True
                next_offset = header.end_offset
        except DamagedSegment:
            return False  # As above.
    return False


def _behind(folder: PartitionFolder, log: PartitionLog, end: LogEnd) -> Iterator[Missing]:
    for orphan in log.orphans[-1:]:
        last_offset = last_offset_of_index(orphan)
        if orphan.base_offset > log.segments[-1].base_offset and last_offset >= end.offset:
            yield Missing(
                folder=log.folder,
                start_offset=end.offset,
                end_offset=last_offset + 1,
                reason=_without_log(orphan),
            )
            return
    if folder.high_watermark is not None and folder.high_watermark > end.offset:
        yield Missing(
            folder=log.folder,
            start_offset=end.offset,
            end_offset=folder.high_watermark,
            reason=f"{layout.HIGH_WATERMARK_CHECKPOINT} says that they were committed, so "
            f"{_NOT_COPIED}, or it was copied while it was written",
        )


def _without_log(orphan: SegmentFiles) -> str:
    return f"of {orphan.path(layout.LOG).name} there is an index alone, so {_NOT_COPIED}"
