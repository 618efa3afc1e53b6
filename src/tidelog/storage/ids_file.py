"""The `.ids` file beside a segment: the digests of its batches, which need not be read again.

    magic 8 bytes │ source 16 bytes       where ids are: a topic may be told another header
    frame │ frame │ ...

    frame   batch: base offset │ last offset │ leader epoch │ checksum │ largest timestamp
            producer id │ kind │ number of entries │ entries │ crc32c of the frame

It is a cache and nothing depends on it: what is missing, torn, or of another time is read from the
log. It is never flushed, and not cut when its log is. Instead:

    F1  Frames count up to the first that is torn or out of order.
    F2  Frames count up to the last whose batch still is in the log, at its offset, with its leader
        epoch and checksum. Two logs that agree on one batch agree on all before it (the rule by
        which followers truncate), so that one look at the log vouches for all frames before it.
    F3  F2 is not so of a log that was compacted meanwhile, nor are frames that were gathered before
        and after a cut those of one log. So the file goes with its segment, and gets its name only
        while the segment that it was read from is in the log (`digests.py`).

Numbers are little-endian, so that entries are those of `records/ids.py`.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from crc32c import crc32c

from tidelog.base.errors import DiskFull, StorageError
from tidelog.base.ids import Offset
from tidelog.base.ports import Disk, LogFile
from tidelog.records.digest import BatchDigest, BatchKind
from tidelog.records.ids import ENTRY, IdSource, fingerprint
from tidelog.storage import layout

MAGIC = b"tidelog\x01"
_FRAME = struct.Struct("<qqiIqqiI")
_CRC = struct.Struct("<I")
_HEADER_BYTES = len(MAGIC) + 16
_WRITE_BYTES = 1024 * 1024
_READ_BYTES = 1024 * 1024

# An index that catches up, a search, and whoever closed the segment may write it at the same time,
# each on its thread; none may take away the other's file.
_attempts = count()


def write_digests(
    disk: Disk, path: Path, source: IdSource, digests: Iterable[BatchDigest]
) -> Path | None:
    """Make the file anew, under a name that it has until it gets that of `path` (F3).

    None on a full disk: there is no file then.
    """
    temporary = path.with_name(f"{path.name}.{next(_attempts)}{layout.TEMPORARY}")
    disk.remove(temporary)  # What an earlier process may have left under this number.
    try:
        _write(disk, temporary, source, digests)
    except DiskFull:
        disk.remove(temporary)
        return None  # The log, which can be read without it, must not go offline for it.
    return temporary


def _write(disk: Disk, path: Path, source: IdSource, digests: Iterable[BatchDigest]) -> None:
    file = disk.open(path)
    try:
        gathered = bytearray(_start(source))
        for digest in digests:
            gathered += _frame(digest)
            if len(gathered) >= _WRITE_BYTES:
                file.append(gathered)
                gathered = bytearray()
        file.append(gathered)
    finally:
        file.close()


class IdsFile:
    """An `.ids` file as it was when it was opened, whatever has its name by now.

    It may have tens of bytes for each record of a gigabyte, so it is read piece by piece.
    """

    def __init__(self, file: LogFile, source: IdSource) -> None:
        self._file = file
        self._source = source

    def last(self, first_offset: Offset, end_offset: Offset) -> BatchDigest | None:
        """The last digest between two offsets, without its entries, and before it nothing that is
        torn (F1). None if there is none, or they are of another source."""
        last = None
        for digest, _, _ in self._frames():
            if first_offset <= digest.base_offset and digest.last_offset < end_offset:
                last = digest
        return last

    def digests(self, first_offset: Offset, end_offset: Offset) -> Iterator[BatchDigest]:
        """All of them between two offsets."""
        for digest, data, position in self._frames():
            if first_offset <= digest.base_offset and digest.last_offset < end_offset:
                start = position + _FRAME.size
                end = start + _FRAME.unpack_from(data, position)[-1] * ENTRY.size
                yield digest._replace(entries=data[start:end])

    def _frames(self) -> Iterator[tuple[BatchDigest, bytes, int]]:
        """Of every frame its digest without entries, and where it is in some bytes."""
        if self._read(0, _HEADER_BYTES) != _start(self._source):
            return
        position = _HEADER_BYTES
        next_offset = -1
        while data := self._whole_frames(position):
            at = 0
            while at < len(data):
                base, last, epoch, crc, time_ms, producer_id, kind, count = _FRAME.unpack_from(
                    data, at
                )
                end = at + _FRAME.size + count * ENTRY.size
                with memoryview(data) as view:
                    is_whole = _CRC.unpack_from(view, end)[0] == crc32c(view[at:end])
                if not is_whole or base < next_offset or last < base:
                    return
                digest = BatchDigest(
                    base, last, epoch, crc, time_ms, producer_id, BatchKind(kind), b""
                )
                yield digest, data, at
                next_offset = last + 1
                at = end + _CRC.size
            position += len(data)

    def _whole_frames(self, position: int) -> bytes:
        """Some frames from `position` on, one at least; nothing if that is torn."""
        data = self._read(position, _READ_BYTES)
        end = 0
        while len(data) - end >= _FRAME.size:
            size_bytes = _size_of_frame(data, end)
            if size_bytes > len(data) - end:
                if end == 0 and size_bytes <= self._file.size_bytes - position:
                    whole = self._read(position, size_bytes)
                    return whole if len(whole) == size_bytes else b""
                break
            end += size_bytes
        return data[:end]

    def _read(self, position: int, size_bytes: int) -> bytes:
        try:
            return self._file.read(position, size_bytes)
        except StorageError:
            return b""  # The log can be read, or says why not.


def open_ids_file(disk: Disk, path: Path, source: IdSource) -> IdsFile | None:
    """None if there is none."""
    if not disk.exists(path):
        return None
    try:
        return IdsFile(disk.open_existing(path), source)
    except StorageError:
        return None  # It went with its segment, or cannot be opened.


def _size_of_frame(data: bytes, position: int) -> int:
    count: int = _FRAME.unpack_from(data, position)[-1]
    return _FRAME.size + count * ENTRY.size + _CRC.size


def _start(source: IdSource) -> bytes:
    name = b"key" if source.header is None else b"header " + source.header
    return MAGIC + fingerprint(name)


def _frame(digest: BatchDigest) -> bytes:
    frame = (
        _FRAME.pack(
            digest.base_offset,
            digest.last_offset,
            digest.leader_epoch,
            digest.crc,
            digest.max_timestamp_ms,
            digest.producer_id,
            digest.kind,
            len(digest.entries) // ENTRY.size,
        )
        + digest.entries
    )
    return frame + _CRC.pack(crc32c(frame))
