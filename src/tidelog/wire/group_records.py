"""The records of `__consumer_offsets`, in the bytes of Kafka 4.3, which its tools read too.

    key      int16: what the record is about │ whose
    value    int16: the version of its layout │ what is said; absent if it is taken back

Every version of a value that a Kafka broker ever wrote is read. Written are those of Kafka 4.3:
groups in version 3, offsets in version 4, or in 1 if they expire at a time of their own, for which
later versions have no room.
"""

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeVar
from uuid import UUID

from tidelog.base.errors import WireError
from tidelog.base.ids import NO_TIMESTAMP, NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.records.groups import (
    NO_EPOCH,
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    GroupRecord,
    MemberMetadata,
    OffsetCommitRecord,
)
from tidelog.wire.consumer_group_records import (
    CONSUMER_GROUP_DECODERS,
    encode_consumer_group_record,
)
from tidelog.wire.primitives import (
    Reader,
    classic_nullable_string,
    classic_string,
    compact_string,
    tagged_fields,
)

OFFSET_COMMIT_KEYS: Final = (0, 1)
GROUP_METADATA_KEY: Final = 2

_OFFSET_WITH_EXPIRY = 1
_FIRST_OFFSET_WITH_LEADER_EPOCH = 3
_FLEXIBLE_OFFSET = 4
_TOPIC_ID_TAG = 0
_FIRST_GROUP_WITH_REBALANCE_TIMEOUT = 1
_FIRST_GROUP_WITH_TIMESTAMP = 2
_WRITTEN_GROUP = _FIRST_GROUP_WITH_INSTANCE_ID = 3
_FLEXIBLE_GROUP = 4

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_AND_EPOCH = struct.Struct(">hqi")
_OFFSET = struct.Struct(">hq")
_TWO_TIMESTAMPS = struct.Struct(">qq")
_TIMEOUTS = struct.Struct(">ii")

# A commit as it usually is: up to the size of its text, in one byte, which is one more than that;
# then the time, and no tag or that of the topic's id.
_USUAL_KEY = b"\x00\x01"
_USUAL_OFFSET = struct.Struct(">hqiB")
_ONE_BYTE_MAX = 0x80
_NO_TAGS = b"\x00"
_USUAL_TAGS = b"\x01\x00\x10"
_UUID_BYTES = 16

V = TypeVar("V")


def encode_group_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value, as a Kafka 4.3 broker writes them."""
    match record:
        case OffsetCommitRecord(group_id, partition, offset):
            key = b"".join(
                (
                    _INT16.pack(OFFSET_COMMIT_KEYS[-1]),
                    classic_string(group_id),
                    classic_string(partition.topic),
                    _INT32.pack(partition.partition),
                )
            )
            return key, None if offset is None else _encode_offset(offset)
        case GroupMetadataRecord(group_id, group):
            key = _INT16.pack(GROUP_METADATA_KEY) + classic_string(group_id)
            return key, None if group is None else _encode_group(group)
        case _:
            return encode_consumer_group_record(record)


def decode_group_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record; None for kinds that are not known here. Raises WireError for damaged ones."""
    return _decode_usual(key, value) or decode_any_group_record(key, value)


def decode_any_group_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The same, by the book."""
    reader = Reader(memoryview(key), 0, flexible=False)
    decode = _DECODERS.get(reader.int16())
    return None if decode is None else decode(reader, value)


def _decode_usual(key: bytes, value: bytes | None) -> OffsetCommitRecord | None:
    """A commit as Kafka 4 and we write it, in a third of the time: logs are full of them.

    None for all that is otherwise in any way, also if it is damaged.
    """
    if value is None or key[:2] != _USUAL_KEY:
        return None
    try:
        (group_bytes,) = _INT16.unpack_from(key, 2)
        topic_at = 6 + group_bytes
        (topic_bytes,) = _INT16.unpack_from(key, topic_at - 2)
        partition_at = topic_at + topic_bytes
        if group_bytes < 0 or topic_bytes < 0 or len(key) != partition_at + _INT32.size:
            return None
        (partition,) = _INT32.unpack_from(key, partition_at)
        version, offset, leader_epoch, text_size = _USUAL_OFFSET.unpack_from(value)
        time_at = _USUAL_OFFSET.size + text_size - 1
        tags_at = time_at + _INT64.size
        tags = value[tags_at : tags_at + len(_USUAL_TAGS)]
        has_topic_id = tags == _USUAL_TAGS
        size_bytes = tags_at + (len(_USUAL_TAGS) + _UUID_BYTES if has_topic_id else len(_NO_TAGS))
        is_usual = version == _FLEXIBLE_OFFSET and 0 < text_size < _ONE_BYTE_MAX
        if not is_usual or len(value) != size_bytes or not (has_topic_id or tags == _NO_TAGS):
            return None
        (commit_timestamp_ms,) = _INT64.unpack_from(value, time_at)
        return OffsetCommitRecord(
            _shared(key[4 : topic_at - 2]),
            TopicPartition(_shared(key[topic_at:partition_at]), partition),
            CommittedOffset(
                offset,
                leader_epoch,
                value[_USUAL_OFFSET.size : time_at].decode() if text_size > 1 else "",
                commit_timestamp_ms,
                NO_TIMESTAMP,
                _topic_id(value[-_UUID_BYTES:]) if has_topic_id else NO_TOPIC_ID,
            ),
        )
    except (struct.error, UnicodeDecodeError):
        return None


@lru_cache(maxsize=256)
def _shared(text: bytes) -> str:
    """Many records name the same group and the same topic."""
    return text.decode()


@lru_cache(maxsize=256)
def _topic_id(data: bytes) -> TopicId:
    return TopicId(UUID(bytes=data))


def _encode_offset(offset: CommittedOffset) -> bytes:
    if offset.expire_timestamp_ms != NO_TIMESTAMP:
        return b"".join(
            (
                _OFFSET.pack(_OFFSET_WITH_EXPIRY, offset.offset),
                classic_string(offset.metadata),
                _TWO_TIMESTAMPS.pack(offset.commit_timestamp_ms, offset.expire_timestamp_ms),
            )
        )
    has_topic_id = offset.topic_id != NO_TOPIC_ID
    tagged = [(_TOPIC_ID_TAG, offset.topic_id.bytes)] if has_topic_id else []
    return b"".join(
        (
            _OFFSET_AND_EPOCH.pack(_FLEXIBLE_OFFSET, offset.offset, offset.leader_epoch),
            compact_string(offset.metadata),
            _INT64.pack(offset.commit_timestamp_ms),
            tagged_fields(tagged),
        )
    )


def _decode_offset_record(key: Reader, value: bytes | None) -> OffsetCommitRecord:
    group_id, topic, partition = key.string(), key.string(), key.int32()
    offset = None if value is None else _decode_value(value, _decode_offset, _FLEXIBLE_OFFSET)
    return OffsetCommitRecord(group_id, TopicPartition(topic, partition), offset)


def _decode_offset(reader: Reader, version: int) -> CommittedOffset:
    offset = reader.int64()
    has_epoch = version >= _FIRST_OFFSET_WITH_LEADER_EPOCH
    leader_epoch = reader.int32() if has_epoch else NO_EPOCH
    metadata, commit_timestamp_ms = reader.string(), reader.int64()
    expire_ms = reader.int64() if version == _OFFSET_WITH_EXPIRY else NO_TIMESTAMP
    topic_id = reader.tagged_fields().get(_TOPIC_ID_TAG)
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_ms,
        NO_TOPIC_ID if topic_id is None else TopicId(UUID(bytes=topic_id.uuid())),
    )


def _encode_group(group: GroupMetadata) -> bytes:
    parts = [
        _INT16.pack(_WRITTEN_GROUP),
        classic_string(group.protocol_type),
        _INT32.pack(group.generation),
        classic_nullable_string(group.protocol),
        classic_nullable_string(group.leader),
        _INT64.pack(group.current_state_timestamp_ms),
        _INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            classic_string(member.member_id),
            classic_nullable_string(member.group_instance_id),
            classic_string(member.client_id),
            classic_string(member.client_host),
            _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _decode_group_record(key: Reader, value: bytes | None) -> GroupMetadataRecord:
    group_id = key.string()
    group = None if value is None else _decode_value(value, _decode_group, _FLEXIBLE_GROUP)
    return GroupMetadataRecord(group_id, group)


def _decode_group(reader: Reader, version: int) -> GroupMetadata:
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    has_timestamp = version >= _FIRST_GROUP_WITH_TIMESTAMP
    timestamp_ms = reader.int64() if has_timestamp else NO_TIMESTAMP
    members = tuple(_decode_member(reader, version) for _ in range(reader.array_count()))
    reader.end_structure()
    return GroupMetadata(protocol_type, generation, protocol, leader, timestamp_ms, members)


def _decode_member(reader: Reader, version: int) -> MemberMetadata:
    member_id = reader.string()
    has_instance = version >= _FIRST_GROUP_WITH_INSTANCE_ID
    instance_id = reader.nullable_string() if has_instance else None
    client_id, client_host = reader.string(), reader.string()
    has_rebalance = version >= _FIRST_GROUP_WITH_REBALANCE_TIMEOUT
    rebalance_timeout_ms = reader.int32() if has_rebalance else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.data(), reader.data()
    reader.end_structure()
    return MemberMetadata(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _decode_value(value: bytes, decode: Callable[[Reader, int], V], newest: int) -> V:
    """Both kinds became flexible with their newest version; what comes then nobody knows."""
    reader = Reader(memoryview(value), 0, flexible=False, elements_max=len(value))
    version = reader.int16()
    if not 0 <= version <= newest:
        raise WireError(f"group record of version {version}, {newest} is the newest")
    reader.flexible = version == newest
    return decode(reader, version)


_DECODERS: Final[Mapping[int, Callable[[Reader, bytes | None], GroupRecord]]] = {
    **dict.fromkeys(OFFSET_COMMIT_KEYS, _decode_offset_record),
    GROUP_METADATA_KEY: _decode_group_record,
    **CONSUMER_GROUP_DECODERS,
}
