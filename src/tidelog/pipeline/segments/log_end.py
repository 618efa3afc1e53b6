"""Where a log ends: behind the last batch of its last segment that is whole and has its checksum.

    last entry of the index that is true          last whole batch       end of file
        ├────────── read, every checksum ──────────────┼───── the excess ─────┤

A running broker writes on behind it, and a copy of its folder may hold half a batch; a crash leaves
the same. Whether that matters is for whoever reads that far to say: what is below the high
watermark is whole in any case, and then nobody need look behind it.
"""

from dataclasses import dataclass

from tidelog.base.errors import CorruptBatch
from tidelog.pipeline.segments.errors import DamagedSegment, SegmentError, TornTail
from tidelog.pipeline.segments.indexed_segment import IndexedSegment, intact_header
from tidelog.pipeline.segments.partition_log import PartitionLog
from tidelog.pipeline.segments.read_only_file import ReadOnlyFile
from tidelog.records.batch import HEADER_SIZE_BYTES, read_header
from tidelog.storage.scan import intact_batches


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log."""

    position: int
    """In the last segment."""
    offset: int
    excess: SegmentError | None
    """What there is to say about bytes behind it; None if there are none."""

    @property
    def is_torn(self) -> bool:
        return isinstance(self.excess, TornTail)


def find_end(log: PartitionLog) -> LogEnd:
    """Where `log` ends now."""
    last = log.segments[-1]
    with IndexedSegment(last, end_position=None) as segment:
        position, offset = segment.last_indexed(), last.base_offset
        for at, header in intact_batches(segment.file, position=position, next_offset=offset):
            position, offset = at + header.size_bytes, header.end_offset
        return LogEnd(position, offset, _excess(segment.file, position, offset))


def _excess(file: ReadOnlyFile, position: int, offset: int) -> SegmentError | None:
    size_bytes = file.size_bytes - position
    if not size_bytes:
        return None
    if _is_followed(file, position):
        return DamagedSegment(
            file.path,
            position=position,
            offset=offset,
            problem="its checksum or its offset is wrong, and whole batches follow it",
        )
    return TornTail(file.path, position=position, size_bytes=size_bytes, offset=offset)


def _is_followed(file: ReadOnlyFile, position: int) -> bool:
    """Whether a whole batch is found by the length of the one at `position`."""
    try:
        header = read_header(file.read(position, HEADER_SIZE_BYTES), 0)
    except CorruptBatch:
        return False
    return intact_header(file, position + header.size_bytes) is not None
