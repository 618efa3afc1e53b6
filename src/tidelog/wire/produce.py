"""Produce: the request in, its answer out. On the hot path; benchmarks/request_path.py.

Records are handed on as views of the frame, never copied. The two spellings of a version are two
loops, because a test per field would cost more than the field.

A topic goes by name up to version 12 and by id from 13 on; the other one is None. Ids are the
sixteen bytes as they stand in the frame: making a `uuid.UUID` costs as much as half the request.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.base.errors import WireError
from tidelog.wire.leaders import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    encode_current_leader,
    encode_node_endpoints,
)
from tidelog.wire.primitives import (
    ELEMENTS_MAX,
    NO_UUID,
    classic_nullable_string,
    classic_string,
    compact_nullable_string,
    compact_string,
    read_classic_string,
    read_compact_string,
    read_uuid,
    read_uvarint,
    skip_tagged_fields,
    tagged_fields,
    uvarint,
)

FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_ID = 13
_FIRST_WITH_RECORD_ERRORS = 8
_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_LEADER_TAGS = 10

_CURRENT_LEADER_TAG = 0
_NODE_ENDPOINTS_TAG = 0

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">ii")
_ACKS_TIMEOUT = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_RESULT_V3 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_PLAIN_RESULT_V9 = struct.Struct(">ihqqq3s")
# An empty compact array of record errors, a null message, no tagged fields.
_PLAIN_END_V9 = b"\x01\x00\x00"
_FLEXIBLE_FRAME_START = struct.Struct(">iib")

ProducePartition = tuple[int, memoryview | None]
"""Partition and records."""
ProduceTopic = tuple[str | None, bytes | None, list[ProducePartition]]
"""Name, id and partitions."""


class ProduceRequest(NamedTuple):
    """What a producer wants stored, and when it wants to be told."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class PartitionProduceResult(NamedTuple):
    """One partition's part of the answer; log_append_time_ms is -1 with CreateTime."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: Sequence[tuple[int, str | None]]
    error_message: str | None
    current_leader: LeaderIdAndEpoch | None


def decode_produce(view: memoryview, position: int, version: int) -> ProduceRequest:
    """The request whose body starts at `position`. Its records are views of `view`."""
    try:
        if version >= FIRST_FLEXIBLE:
            return _decode_flexible(view, position, version)
        return _decode_classic(view, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"Produce request: {error}") from error


def _decode_flexible(view: memoryview, position: int, version: int) -> ProduceRequest:
    transactional_id, position = read_compact_string(view, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
    topic_count, position = read_uvarint(view, position + 6)
    if not 0 < topic_count <= ELEMENTS_MAX:
        raise WireError(f"Produce request with {topic_count - 1} topics")
    partitions_left = ELEMENTS_MAX
    topics: list[ProduceTopic] = []
    for _ in range(topic_count - 1):
        name = topic_id = None
        if version >= FIRST_WITH_TOPIC_ID:
            topic_id, position = read_uuid(view, position)
        else:
            name, position = read_compact_string(view, position)
            if name is None:
                raise WireError("Produce request for a topic without a name")
        partition_count, position = read_uvarint(view, position)
        partitions_left -= partition_count
        if partition_count == 0 or partitions_left < 0:
            raise WireError(f"Produce request with {partition_count - 1} partitions")
        partitions, position = _flexible_partitions(view, position, partition_count - 1)
        topics.append((name, topic_id, partitions))
    skip_tagged_fields(view, position)
    return tuple.__new__(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _flexible_partitions(
    view: memoryview, position: int, count: int
) -> tuple[list[ProducePartition], int]:
    partitions: list[ProducePartition] = []
    for _ in range(count):
        partition = _INT32.unpack_from(view, position)[0]
        length, position = read_uvarint(view, position + 4)
        if length:
            end = position + length - 1
            if end > len(view):
                raise WireError(f"records of {length - 1} bytes, {len(view) - position} are left")
            partitions.append((partition, view[position:end]))
            position = end
        else:
            partitions.append((partition, None))
        position = skip_tagged_fields(view, position)
    return partitions, skip_tagged_fields(view, position)


def _decode_classic(view: memoryview, position: int) -> ProduceRequest:
    transactional_id, position = read_classic_string(view, position)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(view, position)
    position += 10
    if not 0 <= topic_count <= ELEMENTS_MAX:
        raise WireError(f"Produce request with {topic_count} topics")
    partitions_left = ELEMENTS_MAX
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name, position = read_classic_string(view, position)
        if name is None:
            raise WireError("Produce request for a topic without a name")
        partition_count = _INT32.unpack_from(view, position)[0]
        partitions_left -= partition_count
        if partition_count < 0 or partitions_left < 0:
            raise WireError(f"Produce request with {partition_count} partitions")
        partitions, position = _classic_partitions(view, position + 4, partition_count)
        topics.append((name, None, partitions))
    return tuple.__new__(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _classic_partitions(
    view: memoryview, position: int, count: int
) -> tuple[list[ProducePartition], int]:
    partitions: list[ProducePartition] = []
    for _ in range(count):
        partition, length = _TWO_INT32.unpack_from(view, position)
        position += 8
        if length >= 0:
            end = position + length
            if end > len(view):
                raise WireError(f"records of {length} bytes, {len(view) - position} are left")
            partitions.append((partition, view[position:end]))
            position = end
        else:
            partitions.append((partition, None))
    return partitions, position


ProduceTopicResult = tuple[str | None, bytes | None, Sequence[PartitionProduceResult]]
"""Name, id and results, of which the version decides which of name and id is sent."""


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[ProduceTopicResult],
    *,
    node_endpoints: Sequence[NodeEndpoint],
    throttle_ms: int,
) -> bytes:
    """The whole frame that answers a request of `version`."""
    if version >= FIRST_FLEXIBLE:
        return _encode_flexible(
            version,
            correlation_id,
            topics,
            node_endpoints=node_endpoints,
            throttle_ms=throttle_ms,
        )
    parts = [b"", _INT32.pack(len(topics))]
    for name, _topic_id, results in topics:
        assert name is not None
        parts += (classic_string(name), _INT32.pack(len(results)))
        parts += [_classic_result(version, result) for result in results]
    parts.append(_INT32.pack(throttle_ms))
    parts[0] = _TWO_INT32.pack(4 + sum(map(len, parts)), correlation_id)
    return b"".join(parts)


def _encode_flexible(
    version: int,
    correlation_id: int,
    topics: Sequence[ProduceTopicResult],
    *,
    node_endpoints: Sequence[NodeEndpoint],
    throttle_ms: int,
) -> bytes:
    parts = [b"", uvarint(len(topics) + 1)]
    for name, topic_id, results in topics:
        if version >= FIRST_WITH_TOPIC_ID:
            parts.append(topic_id or NO_UUID)
        else:
            assert name is not None
            parts.append(compact_string(name))
        parts.append(uvarint(len(results) + 1))
        parts += [_flexible_result(version, result) for result in results]
        parts.append(b"\x00")
    parts.append(_INT32.pack(throttle_ms))
    if node_endpoints and version >= _FIRST_WITH_LEADER_TAGS:
        endpoints = encode_node_endpoints(node_endpoints)
        parts.append(tagged_fields([(_NODE_ENDPOINTS_TAG, endpoints)]))
    else:
        parts.append(b"\x00")
    parts[0] = _FLEXIBLE_FRAME_START.pack(5 + sum(map(len, parts)), correlation_id, 0)
    return b"".join(parts)


def _flexible_result(version: int, result: PartitionProduceResult) -> bytes:
    (
        partition,
        error_code,
        base_offset,
        log_append_time_ms,
        log_start_offset,
        record_errors,
        error_message,
        current_leader,
    ) = result
    if not record_errors and error_message is None and current_leader is None:
        return _PLAIN_RESULT_V9.pack(
            partition, error_code, base_offset, log_append_time_ms, log_start_offset, _PLAIN_END_V9
        )
    parts = [
        _RESULT_V5.pack(partition, error_code, base_offset, log_append_time_ms, log_start_offset),
        uvarint(len(record_errors) + 1),
    ]
    for batch_index, message in record_errors:
        parts += (_INT32.pack(batch_index), compact_nullable_string(message), b"\x00")
    parts.append(compact_nullable_string(error_message))
    if current_leader is not None and version >= _FIRST_WITH_LEADER_TAGS:
        leader = encode_current_leader(current_leader)
        parts.append(tagged_fields([(_CURRENT_LEADER_TAG, leader)]))
    else:
        parts.append(b"\x00")
    return b"".join(parts)


def _classic_result(version: int, result: PartitionProduceResult) -> bytes:
    if version < _FIRST_WITH_LOG_START_OFFSET:
        return _RESULT_V3.pack(*result[:4])
    if version < _FIRST_WITH_RECORD_ERRORS:
        return _RESULT_V5.pack(*result[:5])
    parts = [_RESULT_V5.pack(*result[:5]), _INT32.pack(len(result.record_errors))]
    for batch_index, message in result.record_errors:
        parts += (_INT32.pack(batch_index), classic_nullable_string(message))
    parts.append(classic_nullable_string(result.error_message))
    return b"".join(parts)
