"""`.txnindex`: transactions that were aborted, by the segment that holds their abort marker (D3).

Entries of 34 bytes, big endian: version (int16, always 0), producer id, first offset, last offset
and the last stable offset at the time of the abort. A segment without aborted transactions has no
file. Readers at isolation level read_committed are told about them and skip their records
themselves.

The file is flushed with the log it belongs to. After a crash, and where it turns out to be damaged
when the log is opened, it is made again from the log (`aborted.py`).
"""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, ProducerId
from tidelog.base.ports import BytesLike, Disk

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">18xq8x")


class CorruptTransactionIndex(StorageError):
    """The file cannot have been written like this."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction; `last_offset` is that of its abort marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


def append_aborted(disk: Disk, path: Path, aborted: AbortedTransaction) -> None:
    """Write one entry; durable with the next flush of the segment."""
    file = disk.open(path)
    try:
        file.append(_ENTRY.pack(_VERSION, *aborted))
    finally:
        file.close()


def write_aborted(disk: Disk, path: Path, aborted: Sequence[AbortedTransaction]) -> None:
    """Make `path` hold just these, durably. A file that does already is not touched."""
    data = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in aborted)
    found = disk.read_file(path) if disk.exists(path) else b""
    if not data:
        disk.remove(path)
    elif data != found:
        disk.replace_file(path, data)


def is_usable(disk: Disk, path: Path, base_offset: Offset) -> bool:
    """Whether the file may be what was written for the segment that begins with `base_offset`."""
    try:
        entries = read_aborted(disk, path)
    except CorruptTransactionIndex:
        return False
    last_offset = base_offset - 1
    for entry in entries:
        if not last_offset < entry.last_offset or not entry.first_offset < entry.last_offset:
            return False
        last_offset = entry.last_offset
    return True


def read_aborted(disk: Disk, path: Path) -> list[AbortedTransaction]:
    """Every entry, oldest first."""
    return _decode(path, disk.read_file(path))


def find_aborted(
    path: Path, data: BytesLike, *, offset: Offset, end_offset: Offset
) -> tuple[list[AbortedTransaction], bool]:
    """Of the entries in `data`, those with records from `offset` up to `end_offset`.

    And whether all of them are found, so that no later segment need be searched.
    """
    count = len(data) // _ENTRY.size

    def last_offset(number: int) -> Offset:
        return Offset(_LAST_OFFSET.unpack_from(data, number * _ENTRY.size)[0])

    found: list[AbortedTransaction] = []
    first = bisect_left(range(count), offset, key=last_offset)
    for number in range(first, count):
        start = number * _ENTRY.size
        (entry,) = _decode(path, data[start : start + _ENTRY.size])
        if entry.first_offset < end_offset:
            found.append(entry)
        if entry.last_stable_offset >= end_offset:
            return found, True  # Later ones begin at or after that.
    return found, False


def _decode(path: Path, data: BytesLike) -> list[AbortedTransaction]:
    if len(data) % _ENTRY.size:
        raise CorruptTransactionIndex(f"{path} ends within an entry")
    aborted = []
    for version, producer_id, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptTransactionIndex(
                f"{path} has an entry of version {version}, expected {_VERSION}"
            )
        aborted.append(
            AbortedTransaction(
                ProducerId(producer_id),
                Offset(first_offset),
                Offset(last_offset),
                Offset(stable_offset),
            )
        )
    return aborted


def cut_aborted(disk: Disk, path: Path, *, end_offset: Offset) -> None:
    """Drop entries whose marker lies at or beyond `end_offset`, and half an entry at the end."""
    file = disk.open(path)
    try:
        size_bytes = file.size_bytes
        whole_bytes = size_bytes - size_bytes % _ENTRY.size
        entries = _decode(path, file.read(0, whole_bytes))
        kept_bytes = _ENTRY.size * sum(entry.last_offset < end_offset for entry in entries)
        if kept_bytes < size_bytes:
            file.truncate(kept_bytes)
            file.flush()
    finally:
        file.close()
