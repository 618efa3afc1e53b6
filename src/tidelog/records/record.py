"""The records inside a batch, as values.

The broker leaves records as bytes; this is for what has to look inside (a topic whose keys or
timestamps are checked, recompression, control records) and for whoever writes batches.

    length │ attributes │ timestamp delta │ offset delta │ key │ value │ headers

Every number is a zigzag varint; a length of -1 is null. Bytes come from outside: whatever they
hold, the outcome is a list of records or CorruptBatch, and no length is believed before it has been
compared with what is left.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch
from tidelog.base.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from tidelog.base.ports import BytesLike
from tidelog.records.batch import (
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Codec,
    read_header,
    write_checksum,
)
from tidelog.records.compression import compress, decompress

# What a batch may take once decompressed: the default of `socket.request.max.bytes`, which bounds
# what an uncompressed batch can take.
UNCOMPRESSED_BYTES_MAX = 100 * 1024 * 1024

_VARINT_BITS_MAX = 31
_VARLONG_BITS_MAX = 63


class Record(NamedTuple):
    """One record. Header keys that are not UTF-8 survive by surrogate escapes."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def decode_records(batch: BytesLike) -> list[Record]:
    """Every record of the one whole batch that `batch` is. The checksum is not verified."""
    header = read_header(batch, 0)
    if header.size_bytes != len(batch):
        raise CorruptBatch(f"batch of {header.size_bytes} bytes in a buffer of {len(batch)}")
    return decode_payload(header, uncompressed_payload(header, batch))


def uncompressed_payload(header: BatchHeader, batch: BytesLike) -> BytesLike:
    """What follows the header of `batch`, decompressed, within UNCOMPRESSED_BYTES_MAX."""
    return uncompressed_within(header, batch, max_bytes=UNCOMPRESSED_BYTES_MAX)


def uncompressed_within(header: BatchHeader, batch: BytesLike, *, max_bytes: int) -> BytesLike:
    """The same; CorruptBatch if it was compressed and is longer than `max_bytes`."""
    payload = memoryview(batch)[HEADER_SIZE_BYTES : header.size_bytes]
    return decompress(header.codec, payload, max_bytes=max_bytes)


def decode_payload(header: BatchHeader, payload: BytesLike) -> list[Record]:
    """The records of an uncompressed payload; CorruptBatch unless they fill it exactly."""
    return list(iter_payload(header, payload))


def iter_payload(header: BatchHeader, payload: BytesLike) -> Iterator[Record]:
    """The same, one after the other; what is wrong is found when it is come to."""
    data = bytes(payload)
    position = 0
    try:
        for _ in range(header.record_count):
            record, position = _decode_record(header, data, position)
            yield record
    except IndexError as error:
        raise CorruptBatch("records are cut off") from error
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last record")


def _decode_record(header: BatchHeader, data: bytes, position: int) -> tuple[Record, int]:
    length, position = read_varint(data, position, _VARINT_BITS_MAX)
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptBatch(f"record of {length} bytes, {len(data) - position} are left")
    position += 1  # Attributes: no bit has a meaning yet.
    timestamp_delta, position = read_varint(data, position, _VARLONG_BITS_MAX)
    offset_delta, position = read_varint(data, position, _VARINT_BITS_MAX)
    key, position = _read_nullable_bytes(data, position, end)
    value, position = _read_nullable_bytes(data, position, end)
    headers, position = _read_headers(data, position, end)
    if position != end:
        raise CorruptBatch(f"record ends at {position}, its length says {end}")
    timestamp_ms = (
        header.max_timestamp_ms
        if header.is_log_append_time
        else header.base_timestamp_ms + timestamp_delta
    )
    return Record(header.base_offset + offset_delta, timestamp_ms, key, value, headers), end


def _read_headers(
    data: bytes, position: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position, _VARINT_BITS_MAX)
    if not 0 <= count <= end - position:
        raise CorruptBatch(f"record with {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _read_nullable_bytes(data, position, end)
        if key is None:
            raise CorruptBatch("record header without a key")
        value, position = _read_nullable_bytes(data, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _read_nullable_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position, _VARINT_BITS_MAX)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptBatch(f"field of {length} bytes, {end - position} are left in its record")
    return data[position : position + length], position + length


def read_varint(data: bytes, position: int, bits_max: int) -> tuple[int, int]:
    """The number at `position` and where it ends; IndexError if the data ends first."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    number = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift > bits_max:
            raise CorruptBatch(f"varint is longer than {bits_max + 1} bits")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    if number >> (bits_max + 1):
        raise CorruptBatch(f"varint is longer than {bits_max + 1} bits")
    return (number >> 1) ^ -(number & 1), position


def encode_batch(
    records: Sequence[Record],
    *,
    leader_epoch: int,
    codec: Codec,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
    is_control: bool,
) -> bytearray:
    """One batch of `records`, at the offsets they state, with the producer's own timestamps."""
    assert records
    base_offset = records[0].offset
    base_timestamp_ms = records[0].timestamp_ms
    payload = bytearray()
    for record in records:
        assert record.offset >= base_offset
        payload += _encode_record(record, base_offset, base_timestamp_ms)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0),
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compress(codec, payload, level=None))


def encode_plain_batch(records: Sequence[Record], codec: Codec) -> bytearray:
    """One batch of `records` as a producer without idempotence sends it."""
    return encode_batch(
        records,
        leader_epoch=NO_LEADER_EPOCH,
        codec=codec,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        is_transactional=False,
        is_control=False,
    )


def assemble(header: BatchHeader, payload: BytesLike) -> bytearray:
    """`header` and `payload` as one batch; its length and checksum are worked out here."""
    size_bytes = HEADER_SIZE_BYTES + len(payload)
    batch = bytearray(size_bytes)
    HEADER.pack_into(batch, 0, *header._replace(batch_length=size_bytes - LOG_OVERHEAD_BYTES))
    batch[HEADER_SIZE_BYTES:] = payload
    write_checksum(batch, 0, size_bytes)
    return batch


def _encode_record(record: Record, base_offset: int, base_timestamp_ms: int) -> bytearray:
    body = bytearray(1)  # Attributes: no bit has a meaning yet.
    write_varint(body, record.timestamp_ms - base_timestamp_ms)
    write_varint(body, record.offset - base_offset)
    _write_nullable_bytes(body, record.key)
    _write_nullable_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for key, value in record.headers:
        _write_nullable_bytes(body, key.encode("utf-8", "surrogateescape"))
        _write_nullable_bytes(body, value)
    encoded = bytearray()
    write_varint(encoded, len(body))
    return encoded + body


def _write_nullable_bytes(output: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(output, -1)
    else:
        write_varint(output, len(data))
        output += data


def write_varint(output: bytearray, number: int) -> None:
    """Add `number`, which has at most 64 bits."""
    zigzag = (number << 1) ^ (number >> 63)
    while zigzag >= 0x80:
        output.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    output.append(zigzag)
