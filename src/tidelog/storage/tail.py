"""Find the end of a log that can be vouched for, without reading all of it.

The last index entry says where to start, the headers from there say the rest: where the log ends,
its largest timestamp, and how far away the next index entry is.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from tidelog.base.ids import Offset
from tidelog.base.ports import Disk, LogFile
from tidelog.storage import layout
from tidelog.storage.index_file import IndexUnusable
from tidelog.storage.indexer import Indexer
from tidelog.storage.offset_index import OFFSET_ENTRY, OffsetIndex
from tidelog.storage.scan import batch_headers, header_at
from tidelog.storage.segment import Segment
from tidelog.storage.time_index import NO_ENTRY, TIME_ENTRY, TimeIndex


class Tail(NamedTuple):
    """What it takes to go on appending to a segment."""

    file: LogFile
    indexer: Indexer
    end_offset: Offset


def find_tail(disk: Disk, segment: Segment, *, index_interval_bytes: int) -> Tail:
    """Open `segment` for appending.

    Raises IndexUnusable if an index does not fit the log, StorageError if the log does not end
    with a whole batch: then the stop was not as clean as it seemed.
    """
    file = disk.open_existing(segment.log_path)
    offset_index, entry_offset, position = _last_place(disk, segment)
    indexer = Indexer(offset_index, _time_index(disk, segment))
    if position:
        if position >= file.size_bytes:
            raise IndexUnusable(offset_index.path)
        indexer.first_timestamp_ms = header_at(file, 0).max_timestamp_ms
    end_offset = 0
    for at, header in batch_headers(
        file,
        base_offset=segment.base_offset,
        position=position,
        end_position=file.size_bytes,
    ):
        if at == position and position and header.base_offset > entry_offset:
            raise IndexUnusable(offset_index.path)
        indexer.add(
            header.last_offset - segment.base_offset,
            at,
            header.size_bytes,
            header.max_timestamp_ms,
            index_interval_bytes,
        )
        end_offset = header.end_offset
    return Tail(file, indexer, Offset(end_offset or segment.base_offset))


def _last_place(disk: Disk, segment: Segment) -> tuple[OffsetIndex, int, int]:
    path = segment.path(layout.OFFSET_INDEX)
    size_bytes, entry = read_last_entry(disk, path, OFFSET_ENTRY)
    relative_offset, position = entry or (0, 0)
    index = OffsetIndex(disk, path, size_bytes)
    return index, segment.base_offset + relative_offset, position


def _time_index(disk: Disk, segment: Segment) -> TimeIndex:
    path = segment.path(layout.TIME_INDEX)
    size_bytes, entry = read_last_entry(disk, path, TIME_ENTRY)
    last = (entry[0], entry[1]) if entry else NO_ENTRY
    return TimeIndex(disk, path, size_bytes, last=last)


def read_last_entry(
    disk: Disk, path: Path, entry: struct.Struct
) -> tuple[int, tuple[int, ...] | None]:
    """Size of an index file and its last entry."""
    file = disk.open_existing(path)
    try:
        size_bytes = file.size_bytes
        if size_bytes % entry.size:
            raise IndexUnusable(path)
        if not size_bytes:
            return 0, None
        return size_bytes, entry.unpack(file.read(size_bytes - entry.size, entry.size))
    finally:
        file.close()
