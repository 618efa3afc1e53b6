"""One segment: a `.log` file and the indexes that find things in it.

A segment is *active* (the last of its log, appended to, its file open) and then *closed* (only
read, its file opened through the cache when needed). What a closed segment knows about itself it
asks the disk for when it is first needed: a log with a thousand segments opens without touching
each.

The order of writes is the design:

    1  index entries of earlier batches, when enough have gathered
    2  the batch itself
    3  its index entry, in memory

If 1 fails the batch was not written; if 2 fails it was cut off again; 3 cannot fail. So an append
happens or does not, and an index never points past the end of its log.
"""

import struct
from pathlib import Path

from tidelog.base.errors import DamagedLog
from tidelog.base.ids import Offset
from tidelog.base.ports import BytesLike, Disk, LogFile
from tidelog.records.batch import BATCH_LENGTH_MIN, LOG_OVERHEAD_BYTES, MAGIC
from tidelog.storage import layout
from tidelog.storage.file_cache import Access
from tidelog.storage.index_file import IndexUnusable
from tidelog.storage.indexer import Indexer
from tidelog.storage.offset_index import OFFSET_ENTRY, OffsetIndex
from tidelog.storage.time_index import NO_ENTRY, TIME_ENTRY, TimeIndex

# Base offset, batch length, magic, last offset delta: what it takes to step from batch to batch.
WALK = struct.Struct(">qi4xb4x2xi")
# An index entry is at most `index.interval.bytes` and one batch away.
_WALK_READ_BYTES = 8192


class Segment:
    """The batches from `base_offset` up to the next segment."""

    __slots__ = (
        "_disk",
        "_folder",
        "_log_path",
        "_max_timestamp",
        "_offset_index",
        "_time_index",
        "base_offset",
        "created_ms",
        "file",
        "has_aborted",
        "has_usable_index",
        "indexer",
        "is_flushed",
        "known_size_bytes",
    )

    def __init__(self, disk: Disk, folder: Path, base_offset: Offset) -> None:
        """A closed segment that is on disk, durably."""
        self._disk = disk
        self._folder = folder
        self.base_offset = base_offset
        self.file: LogFile | None = None
        self.indexer: Indexer | None = None
        self.known_size_bytes: int | None = None
        self.created_ms = 0
        self.is_flushed = True
        self.has_usable_index = True
        self.has_aborted = False  # Whether there is a transaction index.
        self._log_path: Path | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._max_timestamp: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"Segment({self.log_path})"

    @property
    def log_path(self) -> Path:
        if self._log_path is None:
            self._log_path = self.path(layout.LOG)
        return self._log_path

    def path(self, suffix: str) -> Path:
        return self._folder / layout.file_name(self.base_offset, suffix)

    @property
    def size_bytes(self) -> int:
        """Length of the `.log` file; asks the disk once."""
        if self.known_size_bytes is None:
            self.known_size_bytes = self._disk.size_bytes(self.log_path)
        return self.known_size_bytes

    # -- writing ---------------------------------------------------------------------------------

    def create(self, now_ms: int) -> None:
        """Make the files of a new, empty segment and activate it.

        Whatever has these names was left by a roll that failed, and is emptied.
        """
        indexes = (self.path(layout.OFFSET_INDEX), self.path(layout.TIME_INDEX))
        for path in indexes:
            self._open_empty(path).close()
        self.activate(
            self._open_empty(self.log_path),
            Indexer.fresh(self._disk, *indexes),
            created_ms=now_ms,
        )

    def _open_empty(self, path: Path) -> LogFile:
        file = self._disk.open(path)
        if file.size_bytes:
            file.truncate(0)
        return file

    def activate(self, file: LogFile, indexer: Indexer, *, created_ms: int) -> None:
        """Take `file` and `indexer` for appending; they agree with each other."""
        self.file = file
        self.known_size_bytes = file.size_bytes
        self.is_flushed = False
        self.created_ms = created_ms
        self.indexer = indexer
        self.has_usable_index = True
        self._offset_index = indexer.offset_index
        self._time_index = indexer.time_index

    def append(
        self,
        batch: BytesLike,
        *,
        last_offset: int,
        max_timestamp_ms: int,
        index_interval_bytes: int,
    ) -> int:
        """Write `batch` at the end and return where the file now ends.

        Readers do not see it before the caller sets `known_size_bytes` to that.
        """
        file = self.file
        indexer = self.indexer
        position = self.known_size_bytes
        assert file is not None
        assert indexer is not None
        assert position is not None
        if indexer.unindexed_bytes > index_interval_bytes:
            indexer.make_room()
        size_bytes = file.append(batch)
        indexer.add(
            last_offset - self.base_offset,
            position,
            size_bytes,
            max_timestamp_ms,
            index_interval_bytes,
        )
        return position + size_bytes

    def deactivate(self) -> None:
        """Complete the index files; there will be no more appends.

        The file stays open until it has been flushed: the kernel reports a write that failed to
        whoever had the file open by then.
        """
        assert self.indexer is not None
        self.indexer.close()
        self._max_timestamp = self.indexer.max_timestamp
        self.indexer = None
        if not self.has_usable_index:
            self.forget_indexes()

    def flush_log(self) -> None:
        """With the aborted transactions: recovery believes what is below the recovery point."""
        if self.file is not None:
            self.file.flush()
        else:
            self._flush(self.log_path)
        if self.has_aborted:
            self._flush(self.path(layout.TRANSACTION_INDEX))

    def flush_indexes(self) -> None:
        """Only of a closed segment; before that they are not complete and nobody trusts them."""
        self._flush(self.path(layout.OFFSET_INDEX))
        self._flush(self.path(layout.TIME_INDEX))

    def _flush(self, path: Path) -> None:
        flush_file(self._disk, path)

    # -- reading ---------------------------------------------------------------------------------

    def open(self, access: Access) -> LogFile:
        file = self.file
        if file is None:
            file = access.open(self.log_path)
            if self.known_size_bytes is None:
                self.known_size_bytes = file.size_bytes
        return file

    def offset_index(self, access: Access) -> OffsetIndex:
        if self._offset_index is None:
            path = self.path(layout.OFFSET_INDEX)
            size_bytes = access.open(path).size_bytes
            if size_bytes % OFFSET_ENTRY.size:
                raise IndexUnusable(path)
            self._offset_index = OffsetIndex(self._disk, path, size_bytes)
        return self._offset_index

    def time_index(self, access: Access) -> TimeIndex:
        if self._time_index is None:
            path = self.path(layout.TIME_INDEX)
            size_bytes = access.open(path).size_bytes
            if size_bytes % TIME_ENTRY.size:
                raise IndexUnusable(path)
            self._time_index = TimeIndex(self._disk, path, size_bytes, last=NO_ENTRY)
        return self._time_index

    def forget_indexes(self) -> None:
        """Look at the index files again: they were replaced, or turned out to be wrong."""
        self.has_usable_index = True
        self._offset_index = None
        self._time_index = None
        self._max_timestamp = None

    def max_timestamp(self, access: Access) -> tuple[int, int]:
        """The largest timestamp and the relative offset it belongs to; NO_TIMESTAMP if none."""
        indexer = self.indexer
        if indexer is not None:
            return indexer.max_timestamp
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index(access).largest(access)
        return self._max_timestamp

    def position_of(self, offset: int, access: Access) -> int:
        """Where the first batch starts whose last offset is at least `offset`; else the end."""
        file = self.open(access)
        position = self._indexed_position(offset, file, access)
        size_bytes = self.size_bytes
        while position < size_bytes:
            chunk = access.read(file, position, min(_WALK_READ_BYTES, size_bytes - position))
            at = 0
            while len(chunk) - at >= WALK.size:
                base_offset, length, magic, last_offset_delta = WALK.unpack_from(chunk, at)
                if magic != MAGIC or length < BATCH_LENGTH_MIN or base_offset < self.base_offset:
                    raise not_a_batch(self.log_path, position + at)
                if base_offset + last_offset_delta >= offset:
                    return position + at
                at += length + LOG_OVERHEAD_BYTES
            if at == 0:
                raise not_a_batch(self.log_path, position)
            position += at
        return size_bytes

    def _indexed_position(self, offset: int, file: LogFile, access: Access) -> int:
        """Where a batch starts that does not lie behind `offset`."""
        if not self.has_usable_index:
            return 0
        index = self.offset_index(access)
        relative_offset, position = index.at_or_below_offset(offset - self.base_offset, access)
        if relative_offset < 0:
            return 0
        # If no batch starts where the entry says, then the index lies, not the log.
        last_offset = self.base_offset + relative_offset
        if position >= 0 and self._is_batch_before(last_offset, file, position, access):
            return position
        raise IndexUnusable(self.path(layout.OFFSET_INDEX))

    def _is_batch_before(
        self, last_offset: int, file: LogFile, position: int, access: Access
    ) -> bool:
        header = access.read(file, position, WALK.size)
        if len(header) < WALK.size:
            return False
        base_offset, length, magic, _ = WALK.unpack_from(header, 0)
        return bool(
            magic == MAGIC
            and length >= BATCH_LENGTH_MIN
            and self.base_offset <= base_offset <= last_offset
        )


def flush_file(disk: Disk, path: Path) -> None:
    """Make what was written to `path` durable, by whichever descriptor."""
    file = disk.open_existing(path)
    try:
        file.flush()
    finally:
        file.close()


def not_a_batch(path: Path, position: int) -> DamagedLog:
    return DamagedLog(f"{path}: no record batch at position {position}")
