"""The records of `__transaction_state`, as Kafka writes them.

    key     int16 0 │ transactional id
    value   int16 version │ ...             no value: the transactional id is forgotten

Version 1 is flexible, and what Kafka 4 writes: the producer ids before and after, and the
transaction version of the client, are tagged fields. Version 0 is read, for logs of older brokers.
"""

import struct
from collections.abc import Iterable
from typing import Final

from tidelog.base.errors import WireError
from tidelog.base.ids import (
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tidelog.records.transactions import (
    VERSION_WITHOUT_BUMP,
    TransactionForgotten,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from tidelog.wire.primitives import (
    Reader,
    array_count,
    classic_string,
    compact_string,
    int32_array,
    tagged_fields,
)

TRANSACTION_KEY: Final = 0
_VALUE_VERSION = 1
_FIRST_FLEXIBLE = 1

_PREVIOUS_PRODUCER_ID_TAG = 0
_NEXT_PRODUCER_ID_TAG = 1
_CLIENT_VERSION_TAG = 2

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")

_STATES = frozenset(TransactionState) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}


def encode_transaction_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value, None if the id is forgotten."""
    key = _INT16.pack(TRANSACTION_KEY) + classic_string(record.transactional_id)
    if isinstance(record, TransactionForgotten):
        return key, None
    return key, _encode_value(record)


def decode_transaction_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """None for a record of a kind that is not known here. Raises WireError if it is damaged."""
    reader = Reader(memoryview(key), 0, flexible=False)
    if reader.int16() != TRANSACTION_KEY:
        return None
    transactional_id = reader.string()
    if value is None:
        return TransactionForgotten(transactional_id)
    (version,) = struct.unpack_from(">h", value) if len(value) > 1 else (-1,)
    if not 0 <= version <= _VALUE_VERSION:
        return None
    flexible = version >= _FIRST_FLEXIBLE
    return _decode_value(transactional_id, Reader(memoryview(value), 2, flexible=flexible))


def _encode_value(metadata: TransactionMetadata) -> bytes:
    return b"".join(
        [
            _HEAD.pack(
                _VALUE_VERSION,
                metadata.producer_id,
                metadata.producer_epoch,
                metadata.timeout_ms,
                metadata.state,
            ),
            _encode_partitions(metadata),
            _TIMES.pack(metadata.last_update_ms, metadata.start_ms),
            tagged_fields(_encode_tags(metadata)),
        ]
    )


def _encode_partitions(metadata: TransactionMetadata) -> bytes:
    """By topic; null while there is no transaction."""
    if metadata.state is TransactionState.EMPTY:
        assert not metadata.partitions
        return b"\x00"
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [array_count(len(topics), flexible=True)]
    for topic, partitions in topics.items():
        parts += (compact_string(topic), int32_array(partitions, flexible=True), b"\x00")
    return b"".join(parts)


def _encode_tags(metadata: TransactionMetadata) -> list[tuple[int, bytes]]:
    """Those that say something else than their defaults."""
    tags = []
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_PRODUCER_ID_TAG, _INT64.pack(metadata.previous_producer_id)))
    if metadata.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_PRODUCER_ID_TAG, _INT64.pack(metadata.next_producer_id)))
    if metadata.client_version != VERSION_WITHOUT_BUMP:
        tags.append((_CLIENT_VERSION_TAG, _INT16.pack(metadata.client_version)))
    return tags


def _decode_value(transactional_id: str, reader: Reader) -> TransactionMetadata:
    producer_id = ProducerId(reader.int64())
    producer_epoch = ProducerEpoch(reader.int16())
    timeout_ms = reader.int32()
    status = reader.int8()
    if status not in _STATES:
        raise WireError(f"transaction {transactional_id!r} in state {status}")
    partitions = frozenset(_decode_partitions(reader))
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tagged_fields() if reader.flexible else {}
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        previous_producer_id=_tagged_producer_id(tags, _PREVIOUS_PRODUCER_ID_TAG),
        next_producer_id=_tagged_producer_id(tags, _NEXT_PRODUCER_ID_TAG),
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState(status),
        partitions=partitions,
        start_ms=start_ms,
        last_update_ms=last_update_ms,
        client_version=tags[_CLIENT_VERSION_TAG].int16()
        if _CLIENT_VERSION_TAG in tags
        else VERSION_WITHOUT_BUMP,
    )


def _decode_partitions(reader: Reader) -> Iterable[TopicPartition]:
    for _ in range(reader.nullable_array_count() or 0):
        topic = reader.string()
        for partition in reader.int32_array():
            yield TopicPartition(topic, partition)
        reader.end_structure()


def _tagged_producer_id(tags: dict[int, Reader], tag: int) -> ProducerId:
    return ProducerId(tags[tag].int64()) if tag in tags else NO_PRODUCER_ID
