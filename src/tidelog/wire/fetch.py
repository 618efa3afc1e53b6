"""Fetch: the request in, its answer out. On the hot path; benchmarks/fetch_path.py.

An answer is a list of buffers for `writelines`: what the broker has to say, and between that the
records exactly as the log handed them out. Most fetches of a consumer in a session name no
partition at all and most of their answers hold a few, so an empty list costs next to nothing.

A topic goes by name up to version 12 and by id, sixteen bytes as in the frame, from 13 on; the
other one is None.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.base.errors import WireError
from tidelog.base.ports import BytesLike
from tidelog.wire.leaders import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    encode_current_leader,
    encode_node_endpoints,
)
from tidelog.wire.primitives import (
    ELEMENTS_MAX,
    NO_UUID,
    Reader,
    classic_string,
    compact_string,
    read_classic_string,
    read_compact_string,
    read_uuid,
    read_uvarint,
    skip_tagged_fields,
    tagged_fields,
    uvarint,
)

_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_SESSION = 7
_FIRST_WITH_LEADER_EPOCH = 9
_FIRST_WITH_RACK = 11
_FIRST_FLEXIBLE = 12
_FIRST_WITH_TOPIC_ID = 13
_FIRST_WITH_REPLICA_STATE = 15
_FIRST_WITH_NODE_ENDPOINTS = 16

_CLUSTER_ID_TAG = 0
_REPLICA_STATE_TAG = 1
_DIVERGING_EPOCH_TAG = 0
_CURRENT_LEADER_TAG = 1
_NODE_ENDPOINTS_TAG = 0

NO_SESSION_ID = 0
NO_SESSION_EPOCH = -1
CONSUMER_REPLICA_ID = -1
NO_REPLICA_EPOCH = -1

_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">ii")
_REPLICA_STATE = struct.Struct(">iq")
_START_V4 = struct.Struct(">iiiib")
_START_V7 = struct.Struct(">iiiibii")
_START_V15 = struct.Struct(">iiibii")
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")

_ANSWER_START_V4 = struct.Struct(">iiii")
_ANSWER_START_V7 = struct.Struct(">iiihii")
_ANSWER_START_V12 = struct.Struct(">iibihi")
_RESULT_V4 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_PLAIN_RESULT_V11 = struct.Struct(">ihqqqiii")
_PLAIN_RESULT_V12 = struct.Struct(">ihqqqbi")
_ABORTED = struct.Struct(">qq")
_DIVERGING_EPOCH = struct.Struct(">iqb")


class FetchPartition(NamedTuple):
    """Where a reader stands in one partition; -1 for what its version does not say."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


FetchTopic = tuple[str | None, bytes | None, list[FetchPartition]]
"""Name, id and partitions."""
ForgottenTopic = tuple[str | None, bytes | None, list[int]]
"""Name, id and the partitions that leave the session."""


class FetchRequest(NamedTuple):
    """What a consumer or a follower wants to read."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str | None
    """Where a consumer stands, "" if it does not say. None: of a version before racks, whose
    clients do not expect to read from anybody but the leader (KIP-392)."""

    cluster_id: str | None


class AbortedTransaction(NamedTuple):
    """Records of this producer from this offset on, up to its abort marker, are to be skipped."""

    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    """Where the reader's log and ours part."""

    epoch: int
    end_offset: int


class FetchPartitionResult(NamedTuple):
    """One partition's part of the answer."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction] | None
    diverging_epoch: EpochEndOffset | None
    current_leader: LeaderIdAndEpoch | None
    preferred_read_replica: int
    records: BytesLike


FetchTopicResult = tuple[str | None, bytes | None, Sequence[FetchPartitionResult]]
"""Name, id and results, of which the version decides which of name and id is sent."""


def decode_fetch(view: memoryview, position: int, version: int) -> FetchRequest:
    """The request whose body starts at `position`."""
    try:
        if version >= _FIRST_FLEXIBLE:
            return _decode_flexible(view, position, version)
        return _decode_classic(view, position, version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"Fetch request: {error}") from error


def _decode_flexible(view: memoryview, position: int, version: int) -> FetchRequest:
    if version >= _FIRST_WITH_REPLICA_STATE:
        replica_id = CONSUMER_REPLICA_ID
        start = list(_START_V15.unpack_from(view, position))
        position += 21
    else:
        replica_id, *start = _START_V7.unpack_from(view, position)
        position += 25
    topics, position = _flexible_topics(view, position, version)
    forgotten, position = _flexible_forgotten(view, position, version)
    rack_id, position = read_compact_string(view, position)
    if rack_id is None:
        raise WireError("Fetch request with null for a rack")
    replica_epoch = NO_REPLICA_EPOCH
    cluster_id = None
    if view[position]:
        tags = Reader(view, position, flexible=True).tagged_fields()
        if _CLUSTER_ID_TAG in tags:
            cluster_id = tags[_CLUSTER_ID_TAG].nullable_string()
        if _REPLICA_STATE_TAG in tags and version >= _FIRST_WITH_REPLICA_STATE:
            state = tags[_REPLICA_STATE_TAG]
            replica_id, replica_epoch = state.int32(), state.int64()
    return tuple.__new__(
        FetchRequest,
        (replica_id, replica_epoch, *start, topics, forgotten, rack_id, cluster_id),
    )


def _flexible_topics(view: memoryview, position: int, version: int) -> tuple[list[FetchTopic], int]:
    topic_count, position = read_uvarint(view, position)
    if not 0 < topic_count <= ELEMENTS_MAX:
        raise WireError(f"Fetch request with {topic_count - 1} topics")
    partitions_left = ELEMENTS_MAX
    topics: list[FetchTopic] = []
    for _ in range(topic_count - 1):
        name, topic_id, position = _flexible_topic(view, position, version)
        partition_count, position = read_uvarint(view, position)
        partitions_left -= partition_count
        if partition_count == 0 or partitions_left < 0:
            raise WireError(f"Fetch request with {partition_count - 1} partitions")
        partitions = []
        for _ in range(partition_count - 1):
            partitions.append(
                tuple.__new__(FetchPartition, _PARTITION_V12.unpack_from(view, position))
            )
            position = skip_tagged_fields(view, position + 32)
        position = skip_tagged_fields(view, position)
        topics.append((name, topic_id, partitions))
    return topics, position


def _flexible_forgotten(
    view: memoryview, position: int, version: int
) -> tuple[list[ForgottenTopic], int]:
    topic_count, position = read_uvarint(view, position)
    if not 0 < topic_count <= ELEMENTS_MAX:
        raise WireError(f"Fetch request that forgets {topic_count - 1} topics")
    partitions_left = ELEMENTS_MAX
    forgotten: list[ForgottenTopic] = []
    for _ in range(topic_count - 1):
        name, topic_id, position = _flexible_topic(view, position, version)
        partition_count, position = read_uvarint(view, position)
        partitions_left -= partition_count
        if partition_count == 0 or partitions_left < 0:
            raise WireError(f"Fetch request that forgets {partition_count - 1} partitions")
        partitions, position = _int32s(view, position, partition_count - 1)
        position = skip_tagged_fields(view, position)
        forgotten.append((name, topic_id, partitions))
    return forgotten, position


def _flexible_topic(
    view: memoryview, position: int, version: int
) -> tuple[str | None, bytes | None, int]:
    if version >= _FIRST_WITH_TOPIC_ID:
        topic_id, position = read_uuid(view, position)
        return None, topic_id, position
    name, position = read_compact_string(view, position)
    if name is None:
        raise WireError("Fetch request for a topic without a name")
    return name, None, position


def _int32s(view: memoryview, position: int, count: int) -> tuple[list[int], int]:
    end = position + 4 * count
    if end > len(view):
        raise WireError(f"{count} numbers, {len(view) - position} bytes are left")
    return list(struct.unpack_from(f">{count}i", view, position)), end


def _decode_classic(view: memoryview, position: int, version: int) -> FetchRequest:
    session_id = NO_SESSION_ID
    session_epoch = NO_SESSION_EPOCH
    if version >= _FIRST_WITH_SESSION:
        *start, session_id, session_epoch = _START_V7.unpack_from(view, position)
        position += 25
    else:
        start = list(_START_V4.unpack_from(view, position))
        position += 17
    replica_id, *limits = start
    topics, position = _classic_topics(view, position, version)
    forgotten: list[ForgottenTopic] = []
    if version >= _FIRST_WITH_SESSION:
        forgotten, position = _classic_forgotten(view, position)
    rack_id: str | None = None
    if version >= _FIRST_WITH_RACK:
        rack_id, position = read_classic_string(view, position)
        if rack_id is None:
            raise WireError("Fetch request with null for a rack")
    return tuple.__new__(
        FetchRequest,
        (
            replica_id,
            NO_REPLICA_EPOCH,
            *limits,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack_id,
            None,
        ),
    )


def _classic_topics(view: memoryview, position: int, version: int) -> tuple[list[FetchTopic], int]:
    topic_count = _INT32.unpack_from(view, position)[0]
    position += 4
    if not 0 <= topic_count <= ELEMENTS_MAX:
        raise WireError(f"Fetch request with {topic_count} topics")
    partitions_left = ELEMENTS_MAX
    topics: list[FetchTopic] = []
    for _ in range(topic_count):
        name, position = read_classic_string(view, position)
        if name is None:
            raise WireError("Fetch request for a topic without a name")
        partition_count = _INT32.unpack_from(view, position)[0]
        position += 4
        partitions_left -= partition_count
        if partition_count < 0 or partitions_left < 0:
            raise WireError(f"Fetch request with {partition_count} partitions")
        partitions = []
        for _ in range(partition_count):
            partition, position = _classic_partition(view, position, version)
            partitions.append(partition)
        topics.append((name, None, partitions))
    return topics, position


def _classic_partition(view: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    if version >= _FIRST_WITH_LEADER_EPOCH:
        index, epoch, offset, log_start, max_bytes = _PARTITION_V9.unpack_from(view, position)
        return FetchPartition(index, epoch, offset, -1, log_start, max_bytes), position + 28
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        index, offset, log_start, max_bytes = _PARTITION_V5.unpack_from(view, position)
        return FetchPartition(index, -1, offset, -1, log_start, max_bytes), position + 24
    index, offset, max_bytes = _PARTITION_V4.unpack_from(view, position)
    return FetchPartition(index, -1, offset, -1, -1, max_bytes), position + 16


def _classic_forgotten(view: memoryview, position: int) -> tuple[list[ForgottenTopic], int]:
    topic_count = _INT32.unpack_from(view, position)[0]
    position += 4
    if not 0 <= topic_count <= ELEMENTS_MAX:
        raise WireError(f"Fetch request that forgets {topic_count} topics")
    partitions_left = ELEMENTS_MAX
    forgotten: list[ForgottenTopic] = []
    for _ in range(topic_count):
        name, position = read_classic_string(view, position)
        if name is None:
            raise WireError("Fetch request for a topic without a name")
        partition_count = _INT32.unpack_from(view, position)[0]
        partitions_left -= partition_count
        if partition_count < 0 or partitions_left < 0:
            raise WireError(f"Fetch request that forgets {partition_count} partitions")
        partitions, position = _int32s(view, position + 4, partition_count)
        forgotten.append((name, None, partitions))
    return forgotten, position


def encode_fetch_response(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchTopicResult],
    *,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> list[BytesLike]:
    """The whole frame that answers a request of `version`, as buffers for `writelines`.

    Records are handed on, not copied; the first buffer starts with the length of all.
    """
    if version >= _FIRST_FLEXIBLE:
        return _encode_flexible(
            version,
            correlation_id,
            topics,
            throttle_ms=throttle_ms,
            error_code=error_code,
            session_id=session_id,
            node_endpoints=node_endpoints,
        )
    return _encode_classic(
        version,
        correlation_id,
        topics,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
    )


def _encode_flexible(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchTopicResult],
    *,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> list[BytesLike]:
    buffers: list[BytesLike] = [b""]
    parts = [uvarint(len(topics) + 1)]
    for name, topic_id, results in topics:
        if version >= _FIRST_WITH_TOPIC_ID:
            parts.append(topic_id or NO_UUID)
        else:
            assert name is not None
            parts.append(compact_string(name))
        parts.append(uvarint(len(results) + 1))
        for result in results:
            parts.append(_flexible_result_start(result))
            records = result[9]
            parts.append(uvarint(len(records) + 1))
            if records:
                buffers += (b"".join(parts), records)
                parts = []
            parts.append(_flexible_result_end(result))
        parts.append(b"\x00")
    if node_endpoints and version >= _FIRST_WITH_NODE_ENDPOINTS:
        endpoints = encode_node_endpoints(node_endpoints)
        parts.append(tagged_fields([(_NODE_ENDPOINTS_TAG, endpoints)]))
    else:
        parts.append(b"\x00")
    buffers.append(b"".join(parts))
    start = _ANSWER_START_V12.pack(
        15 + sum(map(len, buffers)), correlation_id, 0, throttle_ms, error_code, session_id
    )
    buffers[0] = start + buffers.pop(1)
    return buffers


def _flexible_result_start(result: FetchPartitionResult) -> bytes:
    (
        partition,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        _diverging_epoch,
        _current_leader,
        preferred_read_replica,
        _records,
    ) = result
    if not aborted:
        return _PLAIN_RESULT_V12.pack(
            partition,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            0 if aborted is None else 1,
            preferred_read_replica,
        )
    parts = [
        _RESULT_V5.pack(
            partition, error_code, high_watermark, last_stable_offset, log_start_offset
        ),
        uvarint(len(aborted) + 1),
    ]
    for transaction in aborted:
        parts += (_ABORTED.pack(*transaction), b"\x00")
    parts.append(_INT32.pack(preferred_read_replica))
    return b"".join(parts)


def _flexible_result_end(result: FetchPartitionResult) -> bytes:
    diverging_epoch = result[6]
    current_leader = result[7]
    if diverging_epoch is None and current_leader is None:
        return b"\x00"
    fields = []
    if diverging_epoch is not None:
        fields.append((_DIVERGING_EPOCH_TAG, _DIVERGING_EPOCH.pack(*diverging_epoch, 0)))
    if current_leader is not None:
        fields.append((_CURRENT_LEADER_TAG, encode_current_leader(current_leader)))
    return tagged_fields(fields)


def _encode_classic(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchTopicResult],
    *,
    throttle_ms: int,
    error_code: int,
    session_id: int,
) -> list[BytesLike]:
    buffers: list[BytesLike] = [b""]
    parts: list[bytes] = []
    for name, _topic_id, results in topics:
        assert name is not None
        parts += (classic_string(name), _INT32.pack(len(results)))
        for result in results:
            parts.append(_classic_result_start(version, result))
            records = result.records
            parts.append(_INT32.pack(len(records)))
            if records:
                buffers += (b"".join(parts), records)
                parts = []
    buffers.append(b"".join(parts))
    size_bytes = sum(map(len, buffers))
    if version >= _FIRST_WITH_SESSION:
        start = _ANSWER_START_V7.pack(
            18 + size_bytes, correlation_id, throttle_ms, error_code, session_id, len(topics)
        )
    else:
        start = _ANSWER_START_V4.pack(12 + size_bytes, correlation_id, throttle_ms, len(topics))
    buffers[0] = start + buffers.pop(1)
    return buffers


def _classic_result_start(version: int, result: FetchPartitionResult) -> bytes:
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        parts = [_RESULT_V5.pack(*result[:5])]
    else:
        parts = [_RESULT_V4.pack(*result[:4])]
    if result.aborted is None:
        parts.append(_INT32.pack(-1))
    else:
        parts.append(_INT32.pack(len(result.aborted)))
        parts += [_ABORTED.pack(*transaction) for transaction in result.aborted]
    if version >= _FIRST_WITH_RACK:
        parts.append(_INT32.pack(result.preferred_read_replica))
    return b"".join(parts)
