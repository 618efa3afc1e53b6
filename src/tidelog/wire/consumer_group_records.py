"""The records of groups of the consumer protocol (KIP-848), in the bytes of Kafka 4.3.

`group_records.py` says how keys and values begin. All values here have version 0 and are flexible;
what Kafka added later is in tagged fields, which older brokers skip.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from uuid import UUID

from tidelog.base.errors import WireError
from tidelog.base.ids import TopicId, TopicIdPartition
from tidelog.records.consumer_groups import (
    ClassicIdentity,
    ConsumerGroupRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    ExpressionRecord,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    OwnedPartitions,
    PartitionMetadataRecord,
    Partitions,
    ResolvedExpression,
    Subscription,
    TargetEpochRecord,
    TargetRecord,
)
from tidelog.wire.primitives import (
    Reader,
    array_count,
    classic_string,
    compact_nullable_string,
    compact_string,
    int32_array,
    tagged_fields,
    uvarint,
)

GROUP_EPOCH_KEY: Final = 3
PARTITION_METADATA_KEY: Final = 4
MEMBER_KEY: Final = 5
TARGET_EPOCH_KEY: Final = 6
TARGET_KEY: Final = 7
CURRENT_ASSIGNMENT_KEY: Final = 8
EXPRESSION_KEY: Final = 16

NO_EPOCH: Final = -1
"""Of a partition: its record is older than Kafka 4.3, which began to write them."""

V = TypeVar("V", int, tuple[int, int])

_KEYS: Final[Mapping[type, int]] = {
    GroupEpochRecord: GROUP_EPOCH_KEY,
    PartitionMetadataRecord: PARTITION_METADATA_KEY,
    MemberRecord: MEMBER_KEY,
    TargetEpochRecord: TARGET_EPOCH_KEY,
    TargetRecord: TARGET_KEY,
    CurrentAssignmentRecord: CURRENT_ASSIGNMENT_KEY,
    ExpressionRecord: EXPRESSION_KEY,
}

_VERSION = b"\x00\x00"
_NO_TAGS = b"\x00"
_METADATA_HASH_TAG = _TIMESTAMP_TAG = _CLASSIC_TAG = _EPOCHS_TAG = 0
_IS_MISSING, _IS_THERE = b"\x00", b"\x01"

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_MEMBER_STATE = struct.Struct(">iib")
_VERSION_AND_TIME = struct.Struct(">qq")


def encode_consumer_group_record(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value, as a Kafka 4.3 broker writes them."""
    return _encode_key(record), None if record.is_tombstone else _encode_value(record)


def _encode_key(record: ConsumerGroupRecord) -> bytes:
    names = [record.group_id]
    match record:
        case MemberRecord() | TargetRecord() | CurrentAssignmentRecord():
            names.append(record.member_id)
        case ExpressionRecord():
            names.append(record.expression)
    return _INT16.pack(_KEYS[type(record)]) + b"".join(map(classic_string, names))


def _encode_value(record: ConsumerGroupRecord) -> bytes:
    match record:
        case GroupEpochRecord(epoch=int() as epoch):
            return _with_long(epoch, _METADATA_HASH_TAG, record.metadata_hash)
        case MemberRecord(subscription=Subscription() as subscription):
            return _encode_subscription(subscription)
        case TargetEpochRecord(epoch=int() as epoch):
            return _with_long(epoch, _TIMESTAMP_TAG, record.time_ms)
        case TargetRecord(partitions=frozenset() as partitions):
            return _encode_target(partitions)
        case CurrentAssignmentRecord(current=CurrentAssignment() as current):
            return _encode_current(current)
        case ExpressionRecord(resolved=ResolvedExpression() as resolved):
            return _encode_resolved(resolved)
    raise AssertionError(f"nobody writes what these used to say: {record}")


def _with_long(epoch: int, tag: int, number: int) -> bytes:
    tags = [(tag, _INT64.pack(number))] if number else []
    return _VERSION + _INT32.pack(epoch) + tagged_fields(tags)


def _encode_subscription(subscription: Subscription) -> bytes:
    classic = subscription.classic
    tagged = _IS_MISSING if classic is None else _IS_THERE + _encode_classic(classic)
    topics = sorted(subscription.topics)
    return b"".join(
        (
            _VERSION,
            compact_nullable_string(subscription.instance_id),
            compact_nullable_string(subscription.rack_id),
            compact_string(subscription.client_id),
            compact_string(subscription.client_host),
            array_count(len(topics), flexible=True),
            *map(compact_string, topics),
            compact_string(subscription.expression),
            _INT32.pack(subscription.rebalance_timeout_ms),
            compact_nullable_string(subscription.assignor),
            tagged_fields([(_CLASSIC_TAG, tagged)]),
        )
    )


def _encode_classic(classic: ClassicIdentity) -> bytes:
    parts = [
        _INT32.pack(classic.session_timeout_ms),
        array_count(len(classic.protocols), flexible=True),
    ]
    for name, metadata in classic.protocols:
        parts += (compact_string(name), uvarint(len(metadata) + 1), metadata, _NO_TAGS)
    return b"".join((*parts, _NO_TAGS))


def _in_order(by_topic: dict[TopicId, list[V]]) -> list[tuple[TopicId, list[V]]]:
    """Topics by their ids, and what there is of each by number."""
    return sorted(
        ((topic_id, sorted(found)) for topic_id, found in by_topic.items()),
        key=lambda entry: entry[0].int,
    )


def _encode_target(partitions: Partitions) -> bytes:
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, number in partitions:
        by_topic.setdefault(topic_id, []).append(number)
    parts = [_VERSION, array_count(len(by_topic), flexible=True)]
    for topic_id, numbers in _in_order(by_topic):
        parts += (topic_id.bytes, int32_array(numbers, flexible=True), _NO_TAGS)
    return b"".join((*parts, _NO_TAGS))


def _encode_current(current: CurrentAssignment) -> bytes:
    return b"".join(
        (
            _VERSION,
            _MEMBER_STATE.pack(current.epoch, current.previous_epoch, current.state),
            _encode_owned(current.assigned),
            _encode_owned(current.revoking),
            _NO_TAGS,
        )
    )


def _encode_owned(owned: OwnedPartitions) -> bytes:
    by_topic: dict[TopicId, list[tuple[int, int]]] = {}
    for (topic_id, number), epoch in owned.items():
        by_topic.setdefault(topic_id, []).append((number, epoch))
    parts = [array_count(len(by_topic), flexible=True)]
    for topic_id, numbers_and_epochs in _in_order(by_topic):
        numbers, epochs = zip(*numbers_and_epochs, strict=True)
        tags = tagged_fields([(_EPOCHS_TAG, int32_array(epochs, flexible=True))])
        parts += (topic_id.bytes, int32_array(numbers, flexible=True), tags)
    return b"".join(parts)


def _encode_resolved(resolved: ResolvedExpression) -> bytes:
    topics = sorted(resolved.topics)
    return b"".join(
        (
            _VERSION,
            array_count(len(topics), flexible=True),
            *map(compact_string, topics),
            _VERSION_AND_TIME.pack(resolved.version, resolved.time_ms),
            _NO_TAGS,
        )
    )


def _value(value: bytes) -> Reader:
    reader = Reader(memoryview(value), 0, flexible=False, elements_max=len(value))
    version = reader.int16()
    if version != 0:
        raise WireError(f"record of a consumer group of version {version}, 0 is the newest")
    reader.flexible = True
    return reader


def _long(reader: Reader, tag: int) -> int:
    field = reader.tagged_fields().get(tag)
    return 0 if field is None else field.int64()


def _decode_group_epoch(key: Reader, value: bytes | None) -> GroupEpochRecord:
    group_id = key.string()
    if value is None:
        return GroupEpochRecord(group_id, None)
    reader = _value(value)
    return GroupEpochRecord(group_id, reader.int32(), _long(reader, _METADATA_HASH_TAG))


def _decode_partition_metadata(key: Reader, value: bytes | None) -> PartitionMetadataRecord:
    return PartitionMetadataRecord(key.string(), is_there=value is not None)


def _decode_member(key: Reader, value: bytes | None) -> MemberRecord:
    group_id, member_id = key.string(), key.string()
    return MemberRecord(
        group_id, member_id, None if value is None else _decode_subscription(_value(value))
    )


def _decode_subscription(reader: Reader) -> Subscription:
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics = frozenset(reader.string() for _ in range(reader.array_count()))
    expression = reader.nullable_string() or ""
    rebalance_timeout_ms, assignor = reader.int32(), reader.nullable_string()
    classic = reader.tagged_fields().get(_CLASSIC_TAG)
    return Subscription(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        expression=expression,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        classic=None if classic is None else _decode_classic(classic),
    )


def _decode_classic(reader: Reader) -> ClassicIdentity | None:
    if reader.int8() == 0:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.array_count()):
        protocols.append((reader.string(), reader.data()))
        reader.end_structure()
    return ClassicIdentity(session_timeout_ms, tuple(protocols))


def _decode_target_epoch(key: Reader, value: bytes | None) -> TargetEpochRecord:
    group_id = key.string()
    if value is None:
        return TargetEpochRecord(group_id, None)
    reader = _value(value)
    return TargetEpochRecord(group_id, reader.int32(), _long(reader, _TIMESTAMP_TAG))


def _decode_target(key: Reader, value: bytes | None) -> TargetRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return TargetRecord(group_id, member_id, None)
    return TargetRecord(group_id, member_id, frozenset(_decode_owned(_value(value))))


def _decode_current_assignment(key: Reader, value: bytes | None) -> CurrentAssignmentRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return CurrentAssignmentRecord(group_id, member_id, None)
    reader = _value(value)
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    if state not in list(MemberState):
        raise WireError(f"member in state {state}")
    current = CurrentAssignment(
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState(state),
        assigned=_decode_owned(reader),
        revoking=_decode_owned(reader),
    )
    return CurrentAssignmentRecord(group_id, member_id, current)


def _decode_owned(reader: Reader) -> dict[TopicIdPartition, int]:
    """Targets are like this too, without epochs."""
    owned: dict[TopicIdPartition, int] = {}
    for _ in range(reader.array_count()):
        topic_id = TopicId(UUID(bytes=reader.uuid()))
        numbers = reader.int32_array()
        field = reader.tagged_fields().get(_EPOCHS_TAG)
        epochs = [NO_EPOCH] * len(numbers) if field is None else field.int32_array()
        if len(epochs) != len(numbers):
            raise WireError(f"{len(numbers)} partitions with {len(epochs)} epochs")
        for number, epoch in zip(numbers, epochs, strict=True):
            owned[TopicIdPartition(topic_id, number)] = epoch
    return owned


def _decode_expression(key: Reader, value: bytes | None) -> ExpressionRecord:
    group_id, expression = key.string(), key.string()
    if value is None:
        return ExpressionRecord(group_id, expression, None)
    reader = _value(value)
    topics = frozenset(reader.string() for _ in range(reader.array_count()))
    resolved = ResolvedExpression(topics, reader.int64(), reader.int64())
    return ExpressionRecord(group_id, expression, resolved)


CONSUMER_GROUP_DECODERS: Final[
    Mapping[int, Callable[[Reader, bytes | None], ConsumerGroupRecord]]
] = {
    GROUP_EPOCH_KEY: _decode_group_epoch,
    PARTITION_METADATA_KEY: _decode_partition_metadata,
    MEMBER_KEY: _decode_member,
    TARGET_EPOCH_KEY: _decode_target_epoch,
    TARGET_KEY: _decode_target,
    CURRENT_ASSIGNMENT_KEY: _decode_current_assignment,
    EXPRESSION_KEY: _decode_expression,
}
