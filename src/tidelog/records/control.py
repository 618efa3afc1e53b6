"""Control records: the broker's own entries in a partition's log.

A control batch holds one record. Its key says what happened, its value who decided it. Consumers
skip control batches; a consumer that reads committed data acts on them first.

    key     version int16 │ type int16
    value   version int16 │ coordinator epoch int32          for the end of a transaction
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch
from tidelog.base.ids import NO_LEADER_EPOCH, NO_SEQUENCE
from tidelog.base.ports import BytesLike
from tidelog.records.batch import Codec
from tidelog.records.record import Record, decode_records, encode_batch

_KEY = struct.Struct(">hh")
_END_VALUE = struct.Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """What a control record announces; other numbers belong to Kafka's own metadata log."""

    ABORT = 0
    COMMIT = 1


class TransactionEnd(NamedTuple):
    """A transaction of the batch's producer ended here."""

    control_type: ControlType
    coordinator_epoch: int


def encode_transaction_end(end: TransactionEnd) -> tuple[bytes, bytes]:
    """Key and value of the record that ends a transaction."""
    return _KEY.pack(_VERSION, end.control_type), _END_VALUE.pack(_VERSION, end.coordinator_epoch)


def decode_transaction_end(key: bytes | None, value: bytes | None) -> TransactionEnd | None:
    """None for a control record of another type; those are to be skipped, not refused."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(f"control record with key {key!r}")
    _version, number = _KEY.unpack_from(key)
    if number not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    # Later versions may append fields; what is known stays where it is.
    if value is None or len(value) < _END_VALUE.size:
        raise CorruptBatch(f"end of a transaction with value {value!r}")
    _version, coordinator_epoch = _END_VALUE.unpack_from(value)
    return TransactionEnd(ControlType(number), coordinator_epoch)


def encode_marker(
    end: TransactionEnd, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """The control batch that ends a transaction, to be stamped with its place in the log.

    Never compressed, whatever its topic asks for.
    """
    key, value = encode_transaction_end(end)
    return encode_batch(
        [Record(0, timestamp_ms, key, value, ())],
        leader_epoch=NO_LEADER_EPOCH,
        codec=Codec.NONE,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        is_transactional=True,
        is_control=True,
    )


def read_transaction_end(marker: BytesLike) -> TransactionEnd | None:
    """What a control batch says; None if it does not end a transaction."""
    try:
        records = decode_records(marker)
        # Compaction may leave a control batch without its record.
        return decode_transaction_end(records[0].key, records[0].value) if records else None
    except CorruptBatch:
        return None  # Written so: its checksum is right. Consumers skip it as well.
