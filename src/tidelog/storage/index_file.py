"""Sorted entries of a fixed size: what the offset index and the time index have in common.

An index belongs to one writer. Its newest entries wait in memory (`tail`) and go to the file
`SPILL_BYTES` at a time, or when the segment is closed; an index that is lost or short costs a
longer scan and is rebuilt from the log, so nothing here is ever flushed on its own.

Readers may be on other threads while the writer spills. The tail is then replaced, never emptied,
and a reader takes the tail before it takes the size of the file: it may see an entry twice, but
never misses one.

    X1  the file holds whole entries only
    X2  every field grows from entry to entry (callers keep that)
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from tidelog.base.ports import BytesLike, Disk, LogFile
from tidelog.storage.file_cache import Access

SPILL_BYTES = 4096
# Below this many entries one read and a search in memory beat further reads.
_PAGE_ENTRIES = 2048


class IndexFile:
    """One index of one segment: a file and the entries that are not in it yet."""

    __slots__ = ("_disk", "_entry", "_tail", "file_bytes", "path")

    def __init__(self, disk: Disk, path: Path, entry: struct.Struct, file_bytes: int) -> None:
        assert file_bytes % entry.size == 0  # X1
        self._disk = disk
        self.path = path
        self._entry = entry
        self.file_bytes = file_bytes
        self._tail = bytearray()

    @property
    def size_bytes(self) -> int:
        return self.file_bytes + len(self._tail)

    @property
    def needs_spill(self) -> bool:
        return len(self._tail) >= SPILL_BYTES

    def append(self, *fields: int) -> None:
        self._tail += self._entry.pack(*fields)

    def spill(self) -> None:
        """Move the tail to the file. If the disk is full, nothing has changed."""
        tail = self._tail
        if not tail:
            return
        file = self._disk.open(self.path)
        try:
            file.append(tail)
        finally:
            file.close()
        self.file_bytes += len(tail)
        self._tail = bytearray()

    def truncate(self, size_bytes: int) -> None:
        """Keep the first `size_bytes`. No reader may be at work."""
        assert size_bytes % self._entry.size == 0  # X1
        self.spill()
        file = self._disk.open(self.path)
        try:
            file.truncate(size_bytes)
        finally:
            file.close()
        self.file_bytes = size_bytes

    def flush(self) -> None:
        file = self._disk.open(self.path)
        try:
            file.flush()
        finally:
            file.close()

    def last(self, access: Access) -> tuple[int, ...] | None:
        """The newest entry."""
        tail = self._tail
        if tail:
            return self._entry.unpack_from(tail, len(tail) - self._entry.size)
        count = self.file_bytes // self._entry.size
        return self._entry.unpack_from(self._read(access, count - 1, 1), 0) if count else None

    def floor(self, key: int, *, field: int, access: Access) -> tuple[int, ...] | None:
        """The newest entry whose `field` is at most `key`."""
        tail = self._tail  # Before `file_bytes`: see the module docstring.
        entry = self._entry
        if tail and entry.unpack_from(tail, 0)[field] <= key:
            return _floor(tail, entry, key, field)
        low, high = 0, self.file_bytes // entry.size
        if low == high:
            return None
        file = access.open(self.path)
        while high - low > _PAGE_ENTRIES:
            middle = (low + high) // 2
            data = self._read_from(file, access, middle, 1)
            if entry.unpack_from(data, 0)[field] <= key:
                low = middle
            else:
                high = middle
        return _floor(self._read_from(file, access, low, high - low), entry, key, field)

    def entries(self, access: Access) -> Iterator[tuple[int, ...]]:
        """Every entry, oldest first."""
        count = self.file_bytes // self._entry.size
        if count:
            yield from self._entry.iter_unpack(self._read(access, 0, count))
        yield from self._entry.iter_unpack(bytes(self._tail))

    def _read(self, access: Access, first: int, count: int) -> BytesLike:
        return self._read_from(access.open(self.path), access, first, count)

    def _read_from(self, file: LogFile, access: Access, first: int, count: int) -> BytesLike:
        size_bytes = count * self._entry.size
        data = access.read(file, first * self._entry.size, size_bytes)
        if len(data) != size_bytes:
            raise IndexUnusable(self.path)
        return data


class IndexUnusable(Exception):
    """The index contradicts the log or itself. It is rebuilt; this never leaves the package."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


def _floor(buffer: BytesLike, entry: struct.Struct, key: int, field: int) -> tuple[int, ...] | None:
    low, high = 0, len(buffer) // entry.size
    while low < high:
        middle = (low + high) // 2
        if entry.unpack_from(buffer, middle * entry.size)[field] <= key:
            low = middle + 1
        else:
            high = middle
    return entry.unpack_from(buffer, (low - 1) * entry.size) if low else None
