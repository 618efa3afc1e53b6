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

Numbers are little-endian, so that entries are those of `records/ids.py`.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from crc32c import crc32c

from tidelog.base.errors import DiskFull, StorageError
from tidelog.base.ports import Disk
from tidelog.records.digest import BatchDigest, BatchKind
from tidelog.records.ids import ENTRY, IdSource, fingerprint
from tidelog.storage import layout

MAGIC = b"tidelog\x01"
_FRAME = struct.Struct("<qqiIqqiI")
_CRC = struct.Struct("<I")
_HEADER_BYTES = len(MAGIC) + 16
_WRITE_BYTES = 1024 * 1024

# An index that catches up, a search, and whoever closed the segment may write it at the same time,
# each on its thread; none may take away the other's file.
_attempts = count()


def write_digests(disk: Disk, path: Path, source: IdSource, digests: Iterable[BatchDigest]) -> None:
    """Make the file anew, complete when it has its name. On a full disk there is none then."""
    temporary = path.with_name(f"{path.name}.{next(_attempts)}{layout.TEMPORARY}")
    disk.remove(temporary)  # What an earlier process may have left under this number.
    try:
        _write(disk, temporary, source, digests)
    except DiskFull:
        disk.remove(temporary)
        return  # The log, which can be read without it, must not go offline for it.
    disk.rename(temporary, path)


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


def read_digests(disk: Disk, path: Path, source: IdSource) -> Iterator[BatchDigest]:
    """The digests up to the first that is torn (F1); none if they are of another source."""
    if not disk.exists(path):
        return
    try:
        data = disk.read_file(path)
    except StorageError:
        return  # It went with its segment, or cannot be read; the log can, or says why not.
    if data[:_HEADER_BYTES] != _start(source):
        return
    position = _HEADER_BYTES
    next_offset = -1
    while len(data) - position >= _FRAME.size:
        base, last, epoch, checksum, timestamp_ms, producer_id, kind, count = _FRAME.unpack_from(
            data, position
        )
        end = position + _FRAME.size + count * ENTRY.size
        if len(data) - end < _CRC.size:
            return
        with memoryview(data) as view:
            is_whole = _CRC.unpack_from(view, end)[0] == crc32c(view[position:end])
        if not is_whole or base < next_offset or last < base:
            return
        entries = data[position + _FRAME.size : end]
        yield BatchDigest(
            base, last, epoch, checksum, timestamp_ms, producer_id, BatchKind(kind), entries
        )
        next_offset = last + 1
        position = end + _CRC.size


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
