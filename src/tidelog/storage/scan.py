"""Step through the batches of a `.log` file.

`intact_batches` believes nothing: it checks every checksum and stops at the first batch that is
cut off, damaged or out of order. `batch_headers` is for bytes that are vouched for and reads
headers only.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from crc32c import crc32c

from tidelog.records.batch import (
    CHECKSUMMED_POSITION,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
)
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX
from tidelog.storage.segment import not_a_batch

_SCAN_BYTES = 1024 * 1024
_HEADERS_READ_BYTES = 8192


class ReadableFile(Protocol):
    """What of a LogFile it takes to read one; who reads somebody else's files has no more."""

    @property
    def path(self) -> Path: ...
    @property
    def size_bytes(self) -> int: ...
    def read(self, position: int, size_bytes: int) -> bytes: ...


def intact_batches(
    file: ReadableFile, *, position: int, next_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch from `position` on, up to the first that is not whole.

    Offsets may skip (compaction leaves gaps) but never go back behind `next_offset`.
    """
    end = file.size_bytes
    read_bytes = _SCAN_BYTES
    while end - position >= HEADER_SIZE_BYTES:
        wanted_bytes = min(read_bytes, end - position)
        chunk = file.read(position, wanted_bytes)
        if len(chunk) < wanted_bytes:
            return  # Somebody cut the file since it was opened.
        read_bytes = _SCAN_BYTES
        at = 0
        with memoryview(chunk) as view:
            while len(chunk) - at >= HEADER_SIZE_BYTES:
                fields = HEADER.unpack_from(chunk, at)
                header: BatchHeader = tuple.__new__(BatchHeader, fields)
                size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
                if not _is_plausible(header, size_bytes, next_offset):
                    return
                if len(chunk) - at < size_bytes:
                    if end - position - at < size_bytes:
                        return
                    read_bytes = max(size_bytes, _SCAN_BYTES)
                    break
                if header.crc != crc32c(view[at + CHECKSUMMED_POSITION : at + size_bytes]):
                    return
                yield position + at, header
                next_offset = header.base_offset + header.last_offset_delta + 1
                at += size_bytes
        position += at


def _is_plausible(header: BatchHeader, size_bytes: int, next_offset: int) -> bool:
    return (
        header.magic == MAGIC
        and size_bytes >= HEADER_SIZE_BYTES
        and header.base_offset >= next_offset
        and header.last_offset_delta >= 0
    )


def batch_headers(
    file: ReadableFile, *, base_offset: int, position: int, end_position: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch in `[position, end_position)`, which must be batches of
    the segment that begins with `base_offset`.

    Anything else is a DamagedLog that names the file.
    """
    next_offset = base_offset
    while position < end_position:
        chunk = file.read(position, min(_HEADERS_READ_BYTES, end_position - position))
        at = 0
        while len(chunk) - at >= HEADER_SIZE_BYTES:
            header: BatchHeader = tuple.__new__(BatchHeader, HEADER.unpack_from(chunk, at))
            size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
            if (
                not _is_plausible(header, size_bytes, next_offset)
                or position + at + size_bytes > end_position
                or header.last_offset - base_offset > RELATIVE_OFFSET_MAX
            ):
                raise not_a_batch(file.path, position + at)
            yield position + at, header
            next_offset = header.end_offset
            at += size_bytes
        if at == 0:
            raise not_a_batch(file.path, position)
        position += at


def header_at(file: ReadableFile, position: int) -> BatchHeader:
    """The header that starts at `position`, whatever it says."""
    data = file.read(position, HEADER_SIZE_BYTES)
    if len(data) < HEADER_SIZE_BYTES:
        raise not_a_batch(file.path, position)
    return BatchHeader(*HEADER.unpack(data))
