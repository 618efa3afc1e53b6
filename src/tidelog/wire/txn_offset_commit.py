"""TxnOffsetCommit: how far a group has come, as part of a transaction (KIP-98, KIP-447)."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.offset_commit import PartitionOffset, decode_offset
from tidelog.wire.primitives import Reader, array_count, frame, string

_FIRST_WITH_LEADER_EPOCH = 2
_FIRST_WITH_MEMBER = 3

_INT32 = struct.Struct(">i")
_RESULT = struct.Struct(">ih")

NO_GENERATION: Final = -1


class TxnOffsetCommitRequest(NamedTuple):
    """Whose transaction commits what. Before version 3 the member is not named.

    topics: (name, offsets), ...
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[tuple[str, Sequence[PartitionOffset]]]


def decode_txn_offset_commit(
    view: memoryview, position: int, version: int
) -> TxnOffsetCommitRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.TXN_OFFSET_COMMIT, version))
    producer = reader.string(), reader.string(), reader.int64(), reader.int16()
    generation_id, member_id, instance_id = NO_GENERATION, "", None
    if version >= _FIRST_WITH_MEMBER:
        generation_id, member_id = reader.int32(), reader.string()
        instance_id = reader.nullable_string()
    topics = [_decode_topic(reader, version) for _ in range(reader.array_count())]
    reader.end_structure()
    return TxnOffsetCommitRequest(*producer, generation_id, member_id, instance_id, topics)


def _decode_topic(reader: Reader, version: int) -> tuple[str, list[PartitionOffset]]:
    name = reader.string()
    has_epoch = version >= _FIRST_WITH_LEADER_EPOCH
    offsets = [decode_offset(reader, has_epoch=has_epoch) for _ in range(reader.array_count())]
    reader.end_structure()
    return name, offsets


def encode_txn_offset_commit_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]],
    *,
    throttle_ms: int,
) -> bytes:
    """The whole frame that answers a request of `version`; topics: (name, results), ...

    A result is a partition and its error code.
    """
    flexible = is_flexible(ApiKey.TXN_OFFSET_COMMIT, version)
    end = b"\x00" if flexible else b""
    parts = [
        encode_response_header(ApiKey.TXN_OFFSET_COMMIT, version, correlation_id),
        _INT32.pack(throttle_ms),
        array_count(len(topics), flexible=flexible),
    ]
    for name, results in topics:
        parts += (string(name, flexible=flexible), array_count(len(results), flexible=flexible))
        for result in results:
            parts += (_RESULT.pack(*result), end)
        parts.append(end)
    parts.append(end)
    return frame(parts)
