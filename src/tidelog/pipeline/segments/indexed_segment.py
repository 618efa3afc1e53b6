"""Find places in one segment by its indexes (S3, S4), whatever they are worth.

An index is a hint. The batch that it names must be there, whole, and not behind what was looked
for; otherwise, and where there is no index, the search begins at the start of the file, which is
slower and finds the same. So a wrong index costs time, and never a record.

The one thing that cannot be seen from a batch is whether everything before it is older than a time
index says. That is believed, as brokers believe it, if the batch has the timestamp of the entry.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch, DamagedLog
from tidelog.pipeline.segments.errors import DamagedSegment
from tidelog.pipeline.segments.partition_log import SegmentFiles
from tidelog.pipeline.segments.read_only_file import ReadOnlyFile
from tidelog.records.batch import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    checksum_matches,
    read_header,
)
from tidelog.records.record import UNCOMPRESSED_BYTES_MAX
from tidelog.storage import layout
from tidelog.storage.offset_index import OFFSET_ENTRY
from tidelog.storage.scan import batch_headers
from tidelog.storage.time_index import TIME_ENTRY

_OFFSET, _POSITION = 0, 1
_TIMESTAMP = 0


class Place(NamedTuple):
    """Where a batch starts, or the end."""

    position: int
    base_offset: int | None
    """Of the batch there; None at the end."""


class IndexedSegment:
    """One segment, open, up to `end_position`, where its last whole batch ends."""

    def __init__(self, files: SegmentFiles, *, end_position: int | None) -> None:
        """`end_position` None: all of the file."""
        self.files = files
        self.file = ReadOnlyFile(files.path(layout.LOG))
        self.end_position = self.file.size_bytes if end_position is None else end_position
        self._offsets = _Entries(files, layout.OFFSET_INDEX, OFFSET_ENTRY, used_field=_POSITION)
        self._times = _Entries(files, layout.TIME_INDEX, TIME_ENTRY, used_field=_TIMESTAMP)

    def __enter__(self) -> "IndexedSegment":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.file.close()
        self._offsets.close()
        self._times.close()

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Where every batch from `position` on is. Raises DamagedSegment."""
        next_position, next_offset = position, self.files.base_offset
        try:
            for at, header in batch_headers(
                self.file,
                base_offset=self.files.base_offset,
                position=position,
                end_position=self.end_position,
            ):
                yield at, header
                next_position, next_offset = at + header.size_bytes, header.end_offset
        except DamagedLog as error:
            raise DamagedSegment(
                self.file.path,
                position=next_position,
                offset=next_offset,
                problem="what is there is no batch",
            ) from error

    def first_reaching(self, offset: int) -> Place:
        """The first batch that has `offset` or a later one."""
        for position, header in self.headers_from(self._hint(offset)):
            if header.last_offset >= offset:
                return Place(position, header.base_offset)
        return Place(self.end_position, None)

    def first_beginning_at(self, offset: int) -> Place:
        """The first batch that has nothing before `offset`."""
        for position, header in self.headers_from(self._hint(offset)):
            if header.base_offset >= offset:
                return Place(position, header.base_offset)
        return Place(self.end_position, None)

    def at_or_below(self, position: int) -> Place | None:
        """A batch that starts there or not far below; None if no index knows one."""
        entry = self._offsets.floor(position, field=_POSITION)
        header = None if entry is None else self._indexed(*entry)
        return None if header is None or entry is None else Place(entry[1], header.base_offset)

    def last_indexed(self) -> int:
        """The position of the last whole batch that the index knows; 0 if it knows none."""
        for number in range(self._offsets.count - 1, -1, -1):
            entry = self._offsets.entry(number)
            if self._indexed(*entry) is not None:
                return entry[1]
        return 0

    def find_end_offset(self) -> int:
        """Behind its last batch. Raises DamagedSegment if that is not whole."""
        end_offset = self.files.base_offset
        for _, header in self.headers_from(self.last_indexed()):
            end_offset = header.end_offset
        return end_offset

    def end_of_older_than(self, timestamp_ms: int) -> int:
        """An offset before which everything in this segment is older than that."""
        entry = self._times.floor(timestamp_ms - 1, field=_TIMESTAMP)
        if entry is None or entry[1] < 0:
            return self.files.base_offset
        entry_ms, offset = entry[0], self.files.base_offset + entry[1]
        for _, header in self.headers_from(self._hint(offset)):
            if header.last_offset >= offset:
                if header.max_timestamp_ms == entry_ms and header.base_offset <= offset:
                    return offset + 1
                break
        return self.files.base_offset

    def _hint(self, offset: int) -> int:
        entry = self._offsets.floor(offset - self.files.base_offset, field=_OFFSET)
        return 0 if entry is None or self._indexed(*entry) is None else entry[1]

    def _indexed(self, relative_offset: int, position: int) -> BatchHeader | None:
        """The batch of an entry of the offset index; None if that is not true."""
        if not 0 <= position < self.end_position:
            return None
        header = intact_header(self.file, position)
        if header is None:
            return None
        first, last = self.files.base_offset, self.files.base_offset + relative_offset
        return header if first <= header.base_offset <= last else None


def intact_header(file: ReadOnlyFile, position: int) -> BatchHeader | None:
    """The header of the batch at `position` if it is whole and has its checksum."""
    try:
        header = read_header(file.read(position, HEADER_SIZE_BYTES), 0)
    except CorruptBatch:
        return None
    left_bytes = min(file.size_bytes - position, UNCOMPRESSED_BYTES_MAX)
    if header.size_bytes > left_bytes or header.last_offset_delta < 0:
        return None
    batch = file.read(position, header.size_bytes)
    return header if checksum_matches(batch, 0, header.size_bytes) else None


def last_offset_of_index(files: SegmentFiles) -> int:
    """The last offset that the indexes of a segment know; one less than its first if none."""
    last_offset = files.base_offset - 1
    for suffix, entry, used_field, offset_field in (
        (layout.OFFSET_INDEX, OFFSET_ENTRY, _POSITION, _OFFSET),
        (layout.TIME_INDEX, TIME_ENTRY, _TIMESTAMP, 1 - _TIMESTAMP),
    ):
        entries = _Entries(files, suffix, entry, used_field=used_field)
        try:
            if entries.count:
                known = entries.entry(entries.count - 1)[offset_field]
                last_offset = max(last_offset, files.base_offset + known)
        finally:
            entries.close()
    return last_offset


class _Entries:
    """Pairs of growing numbers in a file, which is opened when it is needed.

    Kafka makes the file of a segment that is being written longer than it needs, and fills it with
    zeros.
    """

    def __init__(
        self, files: SegmentFiles, suffix: str, entry: struct.Struct, *, used_field: int
    ) -> None:
        """`used_field` of an entry is not 0."""
        self._path = files.path(suffix) if suffix in files.suffixes else None
        self._file: ReadOnlyFile | None = None
        self._entry = entry
        self._used_field = used_field
        self._count = 0

    @property
    def count(self) -> int:
        if self._file is None and self._path is not None:
            self._file = ReadOnlyFile(self._path)
            self._count = self._file.size_bytes // self._entry.size
            if self._count and self.entry(self._count - 1)[self._used_field] == 0:
                self._count = self._first(lambda pair: pair[self._used_field] == 0)
        return self._count

    def floor(self, key: int, *, field: int) -> tuple[int, int] | None:
        """The last entry whose `field` is at most `key`."""
        number = self._first(lambda pair: pair[field] > key) - 1
        return None if number < 0 else self.entry(number)

    def entry(self, number: int) -> tuple[int, int]:
        assert self._file is not None
        data = self._file.read(number * self._entry.size, self._entry.size)
        first, second = self._entry.unpack(data.ljust(self._entry.size, b"\0"))
        return first, second

    def _first(self, is_it: Callable[[tuple[int, int]], bool]) -> int:
        """The number of the first entry that is, all behind it being as well; else how many."""
        return bisect_left(range(self.count), True, key=lambda number: is_it(self.entry(number)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
