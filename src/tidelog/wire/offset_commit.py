"""OffsetCommit: how far a group has come.

Topics have names up to version 9 and ids from 10 on (KIP-848). The answer repeats what the request
had, so that a topic is both here: (name, id), one of them None.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import Reader, array_count, frame, string

_LAST_WITH_RETENTION_TIME = 4
_FIRST_WITH_THROTTLE = 3
_FIRST_WITH_LEADER_EPOCH = 6
_FIRST_WITH_INSTANCE_ID = 7
_FIRST_WITH_TOPIC_IDS = 10

_INT32 = struct.Struct(">i")
_RESULT = struct.Struct(">ih")

NO_RETENTION_TIME_MS: Final = -1
NO_LEADER_EPOCH: Final = -1


class PartitionOffset(NamedTuple):
    """One partition of a commit."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitTopic(NamedTuple):
    """Its name, or from version 10 on its id."""

    name: str | None
    topic_id: bytes | None
    partitions: list[PartitionOffset]


class OffsetCommitRequest(NamedTuple):
    """Who has come how far. `retention_ms` is -1 unless an old client says otherwise."""

    group_id: str
    generation_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int
    topics: list[CommitTopic]


class CommittedTopic(NamedTuple):
    """The answer for one topic: (partition, error code), ..."""

    name: str | None
    topic_id: bytes | None
    partitions: Sequence[tuple[int, int]]


def decode_offset_commit(view: memoryview, position: int, version: int) -> OffsetCommitRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.OFFSET_COMMIT, version))
    group_id, generation, member_id = reader.string(), reader.int32(), reader.string()
    has_instance = version >= _FIRST_WITH_INSTANCE_ID
    instance_id = reader.nullable_string() if has_instance else None
    has_retention = version <= _LAST_WITH_RETENTION_TIME
    retention_ms = reader.int64() if has_retention else NO_RETENTION_TIME_MS
    topics = [_decode_topic(reader, version) for _ in range(reader.array_count())]
    reader.end_structure()
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, retention_ms, topics)


def _decode_topic(reader: Reader, version: int) -> CommitTopic:
    has_id = version >= _FIRST_WITH_TOPIC_IDS
    name = None if has_id else reader.string()
    topic_id = reader.uuid() if has_id else None
    has_epoch = version >= _FIRST_WITH_LEADER_EPOCH
    partitions = [decode_offset(reader, has_epoch=has_epoch) for _ in range(reader.array_count())]
    reader.end_structure()
    return CommitTopic(name, topic_id, partitions)


def decode_offset(reader: Reader, *, has_epoch: bool) -> PartitionOffset:
    """One partition of a commit, with or without the epoch of its leader."""
    partition, offset = reader.int32(), reader.int64()
    leader_epoch = reader.int32() if has_epoch else NO_LEADER_EPOCH
    metadata = reader.nullable_string()
    reader.end_structure()
    return PartitionOffset(partition, offset, leader_epoch, metadata)


def encode_offset_commit_response(
    version: int, correlation_id: int, topics: Sequence[CommittedTopic], *, throttle_ms: int
) -> bytes:
    """The whole frame that answers a request of `version`."""
    flexible = is_flexible(ApiKey.OFFSET_COMMIT, version)
    end = b"\x00" if flexible else b""
    parts = [encode_response_header(ApiKey.OFFSET_COMMIT, version, correlation_id)]
    if version >= _FIRST_WITH_THROTTLE:
        parts.append(_INT32.pack(throttle_ms))
    parts.append(array_count(len(topics), flexible=flexible))
    for name, topic_id, results in topics:
        parts.append(topic_key(name, topic_id, flexible=flexible))
        parts.append(array_count(len(results), flexible=flexible))
        for result in results:
            parts += (_RESULT.pack(*result), end)
        parts.append(end)
    parts.append(end)
    return frame(parts)


def topic_key(name: str | None, topic_id: bytes | None, *, flexible: bool) -> bytes:
    """What a topic is called in an answer: as in the request."""
    if topic_id is not None:
        return topic_id
    assert name is not None
    return string(name, flexible=flexible)
