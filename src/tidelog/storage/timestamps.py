"""Find records by time (S4).

Timestamps of records go up and down; the largest up to a place only goes up. So: the first segment
whose largest timestamp is late enough, in it the last time index entry that is not late enough,
from there a walk over batch headers, and at last the records of one batch.

The time index entry is compared with the batch it names. An entry that lies could hide records
without a trace; as it is, the index is made again.
"""

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch, ErrorCode, RequestRefused
from tidelog.base.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from tidelog.records.batch import BatchHeader
from tidelog.records.record import decode_records
from tidelog.storage.file_cache import Access
from tidelog.storage.index_file import IndexUnusable
from tidelog.storage.scan import batch_headers, header_at
from tidelog.storage.segment import Segment


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp_ms: int
    offset: Offset
    leader_epoch: LeaderEpoch


class LargestTimestamps:
    """For a fixed tuple of closed segments: the first that is late enough, by binary search."""

    __slots__ = ("_running_ms", "segments")

    def __init__(self, segments: tuple[Segment, ...], access: Access) -> None:
        self.segments = segments
        largest_ms = [segment.max_timestamp(access)[0] for segment in segments]
        self._running_ms = list(accumulate(largest_ms, max))

    def first_reaching(self, timestamp_ms: int) -> int:
        """Number of the first segment with a record of `timestamp_ms` or later, or how many."""
        return bisect_left(self._running_ms, timestamp_ms)


def find_at_or_after(
    segment: Segment, timestamp_ms: int, *, from_offset: Offset, access: Access
) -> TimestampOffset | None:
    """The first record of `segment` at or after both `timestamp_ms` and `from_offset`."""
    position = segment.position_of(from_offset, access)
    if segment.has_usable_index:
        position = max(position, _position_before(segment, timestamp_ms, access))
    for at, header in batch_headers(
        segment.open(access),
        base_offset=segment.base_offset,
        position=position,
        end_position=segment.size_bytes,
    ):
        if header.max_timestamp_ms < timestamp_ms:
            continue
        for record in _records(segment, at, header, access):
            if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
                return record
    return None


def _position_before(segment: Segment, timestamp_ms: int, access: Access) -> int:
    """Where a batch starts before which everything is older than `timestamp_ms`."""
    index = segment.time_index(access)
    entry = index.at_or_before(timestamp_ms, access)
    if entry is None:
        return 0
    entry_ms, relative_offset = entry
    offset = segment.base_offset + relative_offset
    position = segment.position_of(offset, access)
    file = segment.open(access)
    if relative_offset >= 0 and position < segment.size_bytes:
        header = header_at(file, position)
        if header.max_timestamp_ms == entry_ms and header.base_offset <= offset:
            return position
    raise IndexUnusable(index.path)


def find_largest(segments: tuple[Segment, ...], access: Access) -> TimestampOffset | None:
    """The first record with the largest timestamp of all."""
    segment = max(segments, key=lambda candidate: candidate.max_timestamp(access)[0])
    timestamp_ms, relative_offset = segment.max_timestamp(access)
    if timestamp_ms <= NO_TIMESTAMP:
        return None
    position = segment.position_of(segment.base_offset + relative_offset, access)
    file = segment.open(access)
    # The file's own size: a batch that is just being appended counts in `max_timestamp` already.
    for at, header in batch_headers(
        file,
        base_offset=segment.base_offset,
        position=position,
        end_position=file.size_bytes,
    ):
        for record in _records(segment, at, header, access):
            if record.timestamp_ms == timestamp_ms:
                return record
    return None


def _records(
    segment: Segment, position: int, header: BatchHeader, access: Access
) -> list[TimestampOffset]:
    batch = access.read(segment.open(access), position, header.size_bytes)
    epoch = LeaderEpoch(header.leader_epoch)
    try:
        return [
            TimestampOffset(record.timestamp_ms, Offset(record.offset), epoch)
            for record in decode_records(batch)
        ]
    except CorruptBatch as error:
        # A producer may fill a batch with anything; the disk is not to blame.
        raise RequestRefused(
            ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset}: {error}"
        ) from error
