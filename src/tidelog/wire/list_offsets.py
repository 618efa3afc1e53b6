"""ListOffsets: the offset that belongs to a time, or to one of the special times below."""

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import Reader, array_count, frame, string

_FIRST_WITH_ISOLATION_LEVEL = 2
_FIRST_WITH_LEADER_EPOCH = 4
_FIRST_WITH_TIMEOUT = 10

_INT32 = struct.Struct(">i")
_RESULT_V1 = struct.Struct(">ihqq")
_RESULT_V4 = struct.Struct(">ihqqi")

NO_TIMEOUT_MS = 0
NO_LEADER_EPOCH = -1


class SpecialTimestamp(IntEnum):
    """Timestamps that name a place in the log."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # KIP-734
    EARLIEST_LOCAL = -4  # KIP-405
    LATEST_TIERED = -5  # KIP-1005
    EARLIEST_PENDING_UPLOAD = -6  # KIP-1023


FIRST_VERSION_OF: Mapping[int, int] = {
    SpecialTimestamp.LATEST: 0,
    SpecialTimestamp.EARLIEST: 0,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""The version that brought each special timestamp; in an older one it means nothing."""


class ListOffsetsPartition(NamedTuple):
    """One question."""

    partition: int
    current_leader_epoch: int
    timestamp_ms: int


class ListOffsetsRequest(NamedTuple):
    """topics: (name, partitions), ..."""

    replica_id: int
    isolation_level: int
    topics: list[tuple[str, list[ListOffsetsPartition]]]
    timeout_ms: int


class ListOffsetsResult(NamedTuple):
    """One answer; -1 where there is no such record."""

    partition: int
    error_code: int
    timestamp_ms: int
    offset: int
    leader_epoch: int


def decode_list_offsets(view: memoryview, position: int, version: int) -> ListOffsetsRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.LIST_OFFSETS, version))
    replica_id = reader.int32()
    isolation_level = reader.int8() if version >= _FIRST_WITH_ISOLATION_LEVEL else 0
    topics = []
    for _ in range(reader.array_count()):
        name = reader.string()
        partitions = [_decode_partition(reader, version) for _ in range(reader.array_count())]
        reader.end_structure()
        topics.append((name, partitions))
    timeout_ms = reader.int32() if version >= _FIRST_WITH_TIMEOUT else NO_TIMEOUT_MS
    reader.end_structure()
    return ListOffsetsRequest(replica_id, isolation_level, topics, timeout_ms)


def _decode_partition(reader: Reader, version: int) -> ListOffsetsPartition:
    index = reader.int32()
    leader_epoch = reader.int32() if version >= _FIRST_WITH_LEADER_EPOCH else NO_LEADER_EPOCH
    partition = ListOffsetsPartition(index, leader_epoch, reader.int64())
    reader.end_structure()
    return partition


def encode_list_offsets_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str, Sequence[ListOffsetsResult]]],
    *,
    throttle_ms: int,
) -> bytes:
    """The whole frame that answers a request of `version`."""
    flexible = is_flexible(ApiKey.LIST_OFFSETS, version)
    end = b"\x00" if flexible else b""
    parts = [encode_response_header(ApiKey.LIST_OFFSETS, version, correlation_id)]
    if version >= _FIRST_WITH_ISOLATION_LEVEL:
        parts.append(_INT32.pack(throttle_ms))
    parts.append(array_count(len(topics), flexible=flexible))
    for name, results in topics:
        parts += (string(name, flexible=flexible), array_count(len(results), flexible=flexible))
        for result in results:
            if version >= _FIRST_WITH_LEADER_EPOCH:
                parts.append(_RESULT_V4.pack(*result))
            else:
                parts.append(_RESULT_V1.pack(*result[:4]))
            parts.append(end)
        parts.append(end)
    parts.append(end)
    return frame(parts)
