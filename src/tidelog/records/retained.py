"""Batches from which compaction has taken records: found by position, copied as bytes.

Compaction asks for the key of every record and for nothing else of most. So a record here is where
it lies in the payload and what is needed to decide about it; those that stay are copied as they
are.

What stays of a batch, whatever records it has lost:

    base offset, last offset delta      offsets never change, nor does where a reader goes on
    producer, epoch, base sequence      the last sequence is the one that follows from them
    codec, timestamp type, leader epoch
    base timestamp                      the deltas of the records that stay count from it, unless
                                        it becomes the delete horizon (KIP-534)

The largest timestamp and the number of records are those of what is left. Where a batch says that
its largest timestamp is another than its records have, it does not become larger: what was refused
or let through when it came was what the batch said.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch
from tidelog.base.ids import NO_TIMESTAMP
from tidelog.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Codec,
)
from tidelog.records.compression import compress
from tidelog.records.record import assemble, read_varint, write_varint

_INT_BITS_MAX = 31
_LONG_BITS_MAX = 63
_DELTA_MIN_MS = -(2**63)


class LocatedRecord(NamedTuple):
    """Where a record lies in the payload, and what compaction asks about it."""

    start: int
    end: int
    after_timestamp: int
    """Where the offset delta starts: what is before that holds the timestamp delta."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def locate_records(payload: bytes, record_count: int) -> Iterator[LocatedRecord]:
    """Every record of an uncompressed payload; CorruptBatch unless they fill it exactly."""
    position = 0
    make = LocatedRecord._make
    try:
        for _ in range(record_count):
            start = position
            length, position = read_varint(payload, position, _INT_BITS_MAX)
            end = position + length
            if length < 0 or end > len(payload):
                raise CorruptBatch(f"record of {length} bytes, {len(payload) - position} are left")
            # One byte of attributes comes first; no bit of it has a meaning yet.
            timestamp_delta, after_timestamp = read_varint(payload, position + 1, _LONG_BITS_MAX)
            offset_delta, position = read_varint(payload, after_timestamp, _INT_BITS_MAX)
            key_length, position = read_varint(payload, position, _INT_BITS_MAX)
            key = None
            if key_length < -1:
                raise CorruptBatch(f"key of {key_length} bytes")
            if key_length >= 0:
                key = payload[position : position + key_length]
                position += key_length
            value_length, position = read_varint(payload, position, _INT_BITS_MAX)
            if position > end:
                raise CorruptBatch(f"the key of a record reaches {position - end} bytes behind it")
            yield make(
                (start, end, after_timestamp, timestamp_delta, offset_delta, key, value_length >= 0)
            )
            position = end
    except IndexError as error:
        raise CorruptBatch("records are cut off") from error
    if position != len(payload):
        raise CorruptBatch(f"{len(payload) - position} bytes follow the last record")


def retain(
    header: BatchHeader,
    payload: bytes,
    *,
    record_count: int,
    largest_timestamp_delta_ms: int,
    level: int | None,
) -> bytearray:
    """The batch of `header` with the records in the uncompressed `payload` left in it.

    `level` None is the codec's own default.
    """
    assert record_count
    retained = header._replace(
        max_timestamp_ms=_largest_timestamp_ms(header, largest_timestamp_delta_ms),
        record_count=record_count,
    )
    return assemble(retained, compress(header.codec, payload, level=level))


def retain_until(
    header: BatchHeader, payload: bytes, *, record_count: int, delete_horizon_ms: int
) -> bytearray:
    """The same for a batch that has no delete horizon yet, and gets one."""
    assert header.delete_horizon_ms is None
    records = list(locate_records(payload, record_count))
    largest_ms = max(record.timestamp_delta for record in records)
    retained = header._replace(
        attributes=header.attributes | DELETE_HORIZON_FLAG,
        base_timestamp_ms=delete_horizon_ms,
        max_timestamp_ms=_largest_timestamp_ms(header, largest_ms),
        record_count=record_count,
    )
    kept = _counted_from(delete_horizon_ms, header, payload, records)
    return assemble(retained, compress(header.codec, kept, level=None))


def empty_batch(header: BatchHeader) -> bytearray:
    """The batch without any record: what is left of it says who wrote it, and up to where."""
    return assemble(
        header._replace(
            batch_length=HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG) | Codec.NONE,
            base_timestamp_ms=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _largest_timestamp_ms(header: BatchHeader, largest_delta_ms: int) -> int:
    if header.is_log_append_time:
        return header.max_timestamp_ms
    largest_ms = header.base_timestamp_ms + largest_delta_ms
    return min(max(largest_ms, NO_TIMESTAMP), header.max_timestamp_ms)


def _counted_from(
    base_timestamp_ms: int, header: BatchHeader, payload: bytes, records: Sequence[LocatedRecord]
) -> bytearray:
    """The bytes of `records` with their timestamp deltas counted from `base_timestamp_ms`.

    Whatever a client said: if one is so long before it that 64 bits do not hold the difference, it
    is as long before it as they do. Nobody could read the batch otherwise.
    """
    kept = bytearray()
    for record in records:
        timestamp_ms = (
            header.max_timestamp_ms
            if header.is_log_append_time
            else header.base_timestamp_ms + record.timestamp_delta
        )
        body = bytearray(1)
        write_varint(body, max(timestamp_ms - base_timestamp_ms, _DELTA_MIN_MS))
        body += payload[record.after_timestamp : record.end]
        write_varint(kept, len(body))
        kept += body
    return kept
