"""OffsetForLeaderEpoch: where an epoch ended, and so where two logs part (KIP-101)."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import Reader, array_count, frame, string

_FIRST_WITH_REPLICA_ID = 3

CONSUMER_REPLICA_ID = -1

_INT32 = struct.Struct(">i")
_ANSWER = struct.Struct(">hiiq")


class EpochQuery(NamedTuple):
    """Where does `leader_epoch` end?"""

    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderEpochRequest(NamedTuple):
    """topics: (name, queries), ..."""

    replica_id: int
    topics: list[tuple[str, list[EpochQuery]]]


class EpochAnswer(NamedTuple):
    """The largest epoch not after the one asked for, and its end; -1 if there is none."""

    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int


def decode_offset_for_leader_epoch(
    view: memoryview, position: int, version: int
) -> OffsetForLeaderEpochRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.OFFSET_FOR_LEADER_EPOCH, version))
    replica_id = reader.int32() if version >= _FIRST_WITH_REPLICA_ID else CONSUMER_REPLICA_ID
    topics = []
    for _ in range(reader.array_count()):
        name = reader.string()
        queries = [_decode_query(reader) for _ in range(reader.array_count())]
        reader.end_structure()
        topics.append((name, queries))
    reader.end_structure()
    return OffsetForLeaderEpochRequest(replica_id, topics)


def _decode_query(reader: Reader) -> EpochQuery:
    query = EpochQuery(reader.int32(), reader.int32(), reader.int32())
    reader.end_structure()
    return query


def encode_offset_for_leader_epoch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str, Sequence[EpochAnswer]]],
    *,
    throttle_ms: int,
) -> bytes:
    """The whole frame that answers a request of `version`."""
    flexible = is_flexible(ApiKey.OFFSET_FOR_LEADER_EPOCH, version)
    end = b"\x00" if flexible else b""
    parts = [
        encode_response_header(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, correlation_id),
        _INT32.pack(throttle_ms),
        array_count(len(topics), flexible=flexible),
    ]
    for name, answers in topics:
        parts += (string(name, flexible=flexible), array_count(len(answers), flexible=flexible))
        for answer in answers:
            parts += (_ANSWER.pack(*answer), end)
        parts.append(end)
    parts.append(end)
    return frame(parts)
