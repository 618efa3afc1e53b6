"""Find the first record of a time on, as a broker answers ListOffsets (S4).

That is another question than which records have a time: those behind it may be older. Spark's
`startingTimestamp` asks this one.
"""

from tidelog.base.errors import CorruptBatch
from tidelog.pipeline.segments.errors import DamagedSegment
from tidelog.pipeline.segments.folders import PartitionFolder
from tidelog.pipeline.segments.indexed_segment import IndexedSegment
from tidelog.pipeline.segments.log_end import find_end
from tidelog.pipeline.segments.partition_log import list_segments
from tidelog.records.record import decode_records


def first_offset_from(
    folder: PartitionFolder, timestamp_ms: int, *, is_beyond_high_watermark: bool
) -> int | None:
    """The first offset with a timestamp of at least that; None if there is none to be read."""
    log = list_segments(folder.path)
    end = find_end(log)
    end_offset = end.offset
    if folder.high_watermark is not None and not is_beyond_high_watermark:
        end_offset = min(end_offset, folder.high_watermark)
    for files in log.between(folder.log_start_offset, end_offset):
        is_last = files.next_base_offset is None
        with IndexedSegment(files, end_position=end.position if is_last else None) as segment:
            found = _first_in(segment, timestamp_ms, start_offset=folder.log_start_offset)
        if found is not None:
            return found if found < end_offset else None
    return None


def _first_in(segment: IndexedSegment, timestamp_ms: int, *, start_offset: int) -> int | None:
    from_offset = max(start_offset, segment.end_of_older_than(timestamp_ms))
    for position, header in segment.headers_from(segment.first_reaching(from_offset).position):
        if header.max_timestamp_ms < timestamp_ms:
            continue
        try:
            records = decode_records(segment.file.read(position, header.size_bytes))
        except CorruptBatch as error:
            raise DamagedSegment(
                segment.file.path,
                position=position,
                offset=header.base_offset,
                problem=str(error),
            ) from error
        for record in records:
            if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                return record.offset
    return None
