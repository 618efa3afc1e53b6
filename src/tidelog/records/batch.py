"""The header of a record batch of magic 2: reading, checking and stamping it in place.

A batch travels and is stored as bytes. What the broker needs to know stands in its first 61 bytes,
and what the broker decides (offset and leader epoch) lies outside the checksum, so that it can be
written over the producer's bytes without touching the records:

    0             8              12             16      17    21                      61
    ├ base offset ┼ batch length ┼ leader epoch ┼ magic ┼ crc ┼ attributes ... count ─┼ records ...
    └────────────── not covered by the checksum ──────────────┴───────── covered by it ──────────▶

`batch length` counts from the leader epoch on, so a batch is 12 bytes longer than it says.

Not here: the records inside (record.py), and whether a producer may send such a batch
(validation.py). Nothing here copies or decompresses.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from tidelog.base.errors import CorruptBatch
from tidelog.base.ids import NO_SEQUENCE
from tidelog.base.ports import BytesLike

HEADER_SIZE_BYTES = 61
LOG_OVERHEAD_BYTES = 12
BATCH_LENGTH_MIN = HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES
MAGIC = 2
SEQUENCE_MAX = 2**31 - 1

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

MAGIC_POSITION = 16
_CRC_POSITION = 17
CHECKSUMMED_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35

HEADER = struct.Struct(">qiibIhiqqqhii")
_STAMP = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
assert HEADER.size == HEADER_SIZE_BYTES


class Codec(IntEnum):
    """How the records of a batch are compressed; the number is what the attributes hold."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Who sets a record's timestamp; `message.timestamp.type`."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The first 61 bytes of a batch, in their order on the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptBatch(f"unknown compression codec {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(self.is_log_append_time)

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the tombstones, or the marker, of this batch (KIP-534).

        Set by the first compaction that met them. It stands in the place of the base timestamp.
        """
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


def add_to_sequence(sequence: int, increment: int) -> int:
    """Sequences count from 0 to 2**31 - 1 and then start at 0 again."""
    return (sequence + increment) & SEQUENCE_MAX


def read_header(buffer: BytesLike, position: int) -> BatchHeader:
    """The header that starts at `position`. Says nothing about what follows it.

    The checksum is not verified and the batch may be longer than the buffer.
    """
    if len(buffer) - position < HEADER_SIZE_BYTES:
        raise CorruptBatch(
            f"a batch header needs {HEADER_SIZE_BYTES} bytes, {len(buffer) - position} are left"
        )
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptBatch(
            f"batch length {header.batch_length} is less than a header's {BATCH_LENGTH_MIN}"
        )
    if header.magic != MAGIC:
        raise CorruptBatch(f"batch has magic {header.magic}, expected {MAGIC}")
    return header


def checksum_matches(buffer: BytesLike, position: int, size_bytes: int) -> bool:
    """Whether the whole batch of `size_bytes` at `position` has the checksum it states."""
    if size_bytes < HEADER_SIZE_BYTES or len(buffer) - position < size_bytes:
        return False
    with memoryview(buffer) as view:
        stated: int = _CRC.unpack_from(view, position + _CRC_POSITION)[0]
        return stated == crc32c(view[position + CHECKSUMMED_POSITION : position + size_bytes])


def iter_headers(buffer: BytesLike) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch; what is cut off at the end is left out."""
    position = 0
    while len(buffer) - position >= HEADER_SIZE_BYTES:
        header = read_header(buffer, position)
        if len(buffer) - position < header.size_bytes:
            return
        yield position, header
        position += header.size_bytes


def stamp(
    batch: bytearray | memoryview, base_offset: int, batch_length: int, leader_epoch: int
) -> None:
    """Give `batch` its place in the log. The checksum stays right, and so does `batch_length`.

    By position and with a length that is there already: one call. benchmarks/request_path.py
    """
    _STAMP.pack_into(batch, 0, base_offset, batch_length, leader_epoch)


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, now_ms: int) -> None:
    """Make `now_ms` the timestamp of every record of the batch at `position`."""
    header = read_header(buffer, position)
    assert len(buffer) - position >= header.size_bytes
    _ATTRIBUTES.pack_into(
        buffer, position + CHECKSUMMED_POSITION, header.attributes | LOG_APPEND_TIME_FLAG
    )
    _TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, now_ms)
    write_checksum(buffer, position, header.size_bytes)


def write_checksum(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """State the checksum of the batch as it now is."""
    with memoryview(buffer) as view:
        crc = crc32c(view[position + CHECKSUMMED_POSITION : position + size_bytes])
        _CRC.pack_into(view, position + _CRC_POSITION, crc)
