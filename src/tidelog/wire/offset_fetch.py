"""OffsetFetch: how far groups have come.

One group a request up to version 7, many from 8 on (KIP-709). Both are a list of groups here.
Topics have names up to version 9 and ids from 10 on (KIP-848); the answer repeats what the request
had, and has what fits the version where the request named none.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.offset_commit import topic_key
from tidelog.wire.primitives import Reader, array_count, frame, nullable_string, string

_FIRST_WITH_ALL_TOPICS = 2
_FIRST_WITH_ERROR_CODE = 2
_FIRST_WITH_THROTTLE = 3
_FIRST_WITH_LEADER_EPOCH = 5
_FIRST_WITH_REQUIRE_STABLE = 7
_FIRST_WITH_MANY_GROUPS = 8
_FIRST_WITH_MEMBER = 9
_FIRST_WITH_TOPIC_IDS = 10

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_OFFSET = struct.Struct(">iq")
_OFFSET_AND_EPOCH = struct.Struct(">iqi")

NO_MEMBER_EPOCH: Final = -1


class FetchTopic(NamedTuple):
    """Its name, or from version 10 on its id."""

    name: str | None
    topic_id: bytes | None
    partitions: list[int]


class FetchGroup(NamedTuple):
    """One group. All topics it has offsets for, if `topics` is None."""

    group_id: str
    member_id: str | None
    member_epoch: int
    topics: list[FetchTopic] | None


class OffsetFetchRequest(NamedTuple):
    """Which groups, and whether open transactions matter (KIP-447)."""

    groups: list[FetchGroup]
    requires_stable: bool


class OffsetResult(NamedTuple):
    """The answer for one partition; -1 if nothing is committed."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None
    error_code: int


class FetchedTopic(NamedTuple):
    """The answer for one topic."""

    name: str | None
    topic_id: bytes | None
    partitions: Sequence[OffsetResult]


class FetchedGroup(NamedTuple):
    """The answer for one group."""

    group_id: str
    topics: Sequence[FetchedTopic]
    error_code: int


def has_topic_ids(version: int) -> bool:
    """Whether topics go by their ids."""
    return version >= _FIRST_WITH_TOPIC_IDS


def decode_offset_fetch(view: memoryview, position: int, version: int) -> OffsetFetchRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.OFFSET_FETCH, version))
    if version >= _FIRST_WITH_MANY_GROUPS:
        groups = [_decode_group(reader, version) for _ in range(reader.array_count())]
    else:
        group_id, topics = reader.string(), _decode_topics(reader, version)
        groups = [FetchGroup(group_id, None, NO_MEMBER_EPOCH, topics)]
    requires_stable = reader.boolean() if version >= _FIRST_WITH_REQUIRE_STABLE else False
    reader.end_structure()
    return OffsetFetchRequest(groups, requires_stable)


def _decode_group(reader: Reader, version: int) -> FetchGroup:
    group_id = reader.string()
    has_member = version >= _FIRST_WITH_MEMBER
    member_id = reader.nullable_string() if has_member else None
    member_epoch = reader.int32() if has_member else NO_MEMBER_EPOCH
    group = FetchGroup(group_id, member_id, member_epoch, _decode_topics(reader, version))
    reader.end_structure()
    return group


def _decode_topics(reader: Reader, version: int) -> list[FetchTopic] | None:
    is_nullable = version >= _FIRST_WITH_ALL_TOPICS
    count = reader.nullable_array_count() if is_nullable else reader.array_count()
    return None if count is None else [_decode_topic(reader, version) for _ in range(count)]


def _decode_topic(reader: Reader, version: int) -> FetchTopic:
    has_id = has_topic_ids(version)
    name = None if has_id else reader.string()
    topic_id = reader.uuid() if has_id else None
    topic = FetchTopic(name, topic_id, reader.int32_array())
    reader.end_structure()
    return topic


def encode_offset_fetch_response(
    version: int, correlation_id: int, groups: Sequence[FetchedGroup], *, throttle_ms: int
) -> bytes:
    """The whole frame that answers a request of `version`; one group before version 8."""
    flexible = is_flexible(ApiKey.OFFSET_FETCH, version)
    end = b"\x00" if flexible else b""
    parts = [encode_response_header(ApiKey.OFFSET_FETCH, version, correlation_id)]
    if version >= _FIRST_WITH_THROTTLE:
        parts.append(_INT32.pack(throttle_ms))
    if version < _FIRST_WITH_MANY_GROUPS:
        (group,) = groups
        _add_topics(parts, group.topics, version)
        if version >= _FIRST_WITH_ERROR_CODE:
            parts.append(_INT16.pack(group.error_code))
    else:
        parts.append(array_count(len(groups), flexible=flexible))
        for group in groups:
            parts.append(string(group.group_id, flexible=flexible))
            _add_topics(parts, group.topics, version)
            parts += (_INT16.pack(group.error_code), end)
    parts.append(end)
    return frame(parts)


def _add_topics(parts: list[bytes], topics: Sequence[FetchedTopic], version: int) -> None:
    flexible = is_flexible(ApiKey.OFFSET_FETCH, version)
    end = b"\x00" if flexible else b""
    has_epoch = version >= _FIRST_WITH_LEADER_EPOCH
    parts.append(array_count(len(topics), flexible=flexible))
    for name, topic_id, results in topics:
        parts.append(topic_key(name, topic_id, flexible=flexible))
        parts.append(array_count(len(results), flexible=flexible))
        for partition, offset, leader_epoch, metadata, error_code in results:
            if has_epoch:
                parts.append(_OFFSET_AND_EPOCH.pack(partition, offset, leader_epoch))
            else:
                parts.append(_OFFSET.pack(partition, offset))
            parts.append(nullable_string(metadata, flexible=flexible))
            parts += (_INT16.pack(error_code), end)
        parts.append(end)
