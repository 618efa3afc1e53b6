"""Fuzz target: bytes that a producer claims to be a record batch.

Every input is tried as it is and with its length and checksum made right, because a fuzzer would
hardly ever get past the checksum by itself.
"""

from collections.abc import Iterator

from tests.support.batches import accepted_batches, idempotent_batch
from tidelog.base.errors import CorruptBatch, RequestRefused
from tidelog.records.batch import (
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    Codec,
    TimestampType,
    iter_headers,
    write_checksum,
)
from tidelog.records.control import decode_transaction_end
from tidelog.records.record import decode_records
from tidelog.records.validation import BatchLimits, rewrite, validate_produce

_NOW_MS = 1_700_000_000_000
_LIMITS = BatchLimits(
    max_message_bytes=1_048_588,
    segment_bytes=1_073_741_824,
    timestamp_type=TimestampType.CREATE_TIME,
    timestamp_before_max_ms=1_000_000,
    timestamp_after_max_ms=3_600_000,
    compression=Codec.ZSTD,
    compression_level=None,
    compacted=True,
)


def fuzz_one(data: bytes) -> None:
    """Anything but a value, CorruptBatch or RequestRefused is a bug."""
    _try_all(data)
    if len(data) >= HEADER_SIZE_BYTES:
        _try_all(_repaired(data))


def _try_all(data: bytes | bytearray) -> None:
    try:
        for _ in iter_headers(data):
            pass
    except CorruptBatch:
        pass
    try:
        for record in decode_records(data):
            decode_transaction_end(record.key, record.value)
    except CorruptBatch:
        pass
    try:
        validate_produce(data, _LIMITS, now_ms=_NOW_MS)
        rewrite(data, _LIMITS, now_ms=_NOW_MS)
    except RequestRefused:
        pass


def _repaired(data: bytes) -> bytearray:
    batch = bytearray(data)
    batch[0:8] = bytes(8)
    batch[8:12] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    batch[MAGIC_POSITION] = MAGIC
    write_checksum(batch, 0, len(batch))
    return batch


def seeds() -> Iterator[bytes]:
    """Batches of every codec, small ones."""
    yield bytes(idempotent_batch())
    yield from (batch for batch in accepted_batches(_NOW_MS).values() if len(batch) < 1_000)
