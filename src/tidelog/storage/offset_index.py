"""`.index`: from a relative offset to a position in the `.log` file.

Entries of eight bytes, big endian: last offset of a batch minus the segment's base offset, and
where that batch starts. There is one about every `index.interval.bytes`, so a lookup ends with a
short walk over batch headers.
"""

import struct
from pathlib import Path

from tidelog.base.ports import Disk
from tidelog.storage.file_cache import Access
from tidelog.storage.index_file import IndexFile

OFFSET_ENTRY = struct.Struct(">ii")
RELATIVE_OFFSET_MAX = 2**31 - 1

_OFFSET, _POSITION = 0, 1


class OffsetIndex(IndexFile):
    """The offset index of one segment."""

    __slots__ = ()

    def __init__(self, disk: Disk, path: Path, file_bytes: int) -> None:
        super().__init__(disk, path, OFFSET_ENTRY, file_bytes)

    def is_full(self, size_bytes_max: int) -> bool:
        return self.size_bytes > size_bytes_max - OFFSET_ENTRY.size

    def at_or_below_offset(self, relative_offset: int, access: Access) -> tuple[int, int]:
        """(relative offset, position) from where a walk meets `relative_offset`."""
        found = self.floor(relative_offset, field=_OFFSET, access=access)
        return (found[0], found[1]) if found else (-1, 0)

    def position_at_or_below(self, position: int, access: Access) -> int:
        """A position at which a batch starts, not far below `position`."""
        found = self.floor(position, field=_POSITION, access=access)
        return found[1] if found else 0
