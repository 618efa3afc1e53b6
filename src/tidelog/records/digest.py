"""What remembering ids needs to know of one batch of the log: where it is, when, and its ids.

A digest is made from a batch as it is stored and is a function of that alone, so it may be kept in
a file beside the segment (`storage/ids_file.py`) and be believed as long as the batch is there.
"""

from enum import IntEnum
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch
from tidelog.base.ids import NO_PRODUCER_ID
from tidelog.base.ports import BytesLike
from tidelog.records.batch import HEADER_SIZE_BYTES, BatchHeader
from tidelog.records.control import ControlType, decode_transaction_end
from tidelog.records.ids import IdSource, read_ids
from tidelog.records.record import decode_records, uncompressed_payload


class BatchKind(IntEnum):
    """What a batch does to ids; the number is what files hold."""

    PLAIN = 0
    """Its ids count at once."""
    TRANSACTIONAL = 1
    """Its ids count once its producer's transaction is committed."""
    COMMIT = 2
    ABORT = 3
    OTHER = 4
    """A control batch that has nothing to do with transactions."""


class BatchDigest(NamedTuple):
    """One batch of the log, as far as ids go. `entries` are as in `records/ids.py`."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    max_timestamp_ms: int
    producer_id: int
    kind: BatchKind
    entries: bytes


def digest_of(header: BatchHeader, batch: BytesLike, source: IdSource) -> BatchDigest:
    """The digest of a whole batch of the log. Raises CorruptBatch."""
    if header.is_control:
        return summed_up(header, _control_kind(header, batch), b"")
    payload = uncompressed_payload(header, batch)
    entries = read_ids(payload, header.record_count, source, must_be_consecutive=False)
    return summed_up(header, data_kind(header), entries)


def summed_up(header: BatchHeader, kind: BatchKind, entries: bytes) -> BatchDigest:
    is_in_transaction = kind not in (BatchKind.PLAIN, BatchKind.OTHER)
    return BatchDigest(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.leader_epoch,
        crc=header.crc,
        max_timestamp_ms=header.max_timestamp_ms,
        producer_id=header.producer_id if is_in_transaction else NO_PRODUCER_ID,
        kind=kind,
        entries=entries,
    )


def data_kind(header: BatchHeader) -> BatchKind:
    return BatchKind.TRANSACTIONAL if header.is_transactional else BatchKind.PLAIN


def _control_kind(header: BatchHeader, batch: BytesLike) -> BatchKind:
    if header.size_bytes == HEADER_SIZE_BYTES:
        return BatchKind.OTHER  # Compaction took the marker out, when nobody needed it any more.
    try:
        record = decode_records(memoryview(batch)[: header.size_bytes])[0]
        end = decode_transaction_end(record.key, record.value)
    except (CorruptBatch, IndexError):
        return BatchKind.OTHER
    if end is None:
        return BatchKind.OTHER
    return BatchKind.COMMIT if end.control_type is ControlType.COMMIT else BatchKind.ABORT
