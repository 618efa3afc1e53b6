"""`.timeindex`: from a timestamp to a relative offset.

Entries of twelve bytes, big endian: the largest timestamp up to here, and the last offset of the
batch that carries it minus the segment's base offset. Timestamps grow from entry to entry even
where those of records do not. The last entry of a closed segment is the largest timestamp in it.
"""

import struct
from pathlib import Path

from tidelog.base.ids import NO_TIMESTAMP
from tidelog.base.ports import Disk
from tidelog.storage.file_cache import Access
from tidelog.storage.index_file import IndexFile

TIME_ENTRY = struct.Struct(">qi")
NO_ENTRY = (NO_TIMESTAMP, 0)

_TIMESTAMP = 0


class TimeIndex(IndexFile):
    """The time index of one segment."""

    __slots__ = ("last_entry",)

    def __init__(self, disk: Disk, path: Path, file_bytes: int, *, last: tuple[int, int]) -> None:
        """`last` is the last entry, or NO_ENTRY; only a writer has to know it."""
        super().__init__(disk, path, TIME_ENTRY, file_bytes)
        self.last_entry = last

    def is_full(self, size_bytes_max: int) -> bool:
        # One place is kept for the entry that closes the segment.
        return self.size_bytes > size_bytes_max - 2 * TIME_ENTRY.size

    def append_if_later(self, entry: tuple[int, int]) -> None:
        if entry[0] > self.last_entry[0]:
            self.append(*entry)
            self.last_entry = entry

    def at_or_before(self, timestamp_ms: int, access: Access) -> tuple[int, int] | None:
        """The last entry that is not later than `timestamp_ms`.

        Everything before the batch it names is older than that.
        """
        found = self.floor(timestamp_ms, field=_TIMESTAMP, access=access)
        return (found[0], found[1]) if found else None

    def largest(self, access: Access) -> tuple[int, int]:
        """(timestamp, relative offset) of the last entry; NO_ENTRY if there is none."""
        found = self.last(access)
        return (found[0], found[1]) if found else NO_ENTRY
