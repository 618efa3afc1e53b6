"""Fetch from the other side: what a follower asks its leader, and the leader's answer taken apart.

On the hot path of replication. Flexible versions only, which every broker of a cluster speaks; the
values are those of fetch.py. Records stay where they are: each partition's are a slice of the frame
and live as long as the slice does.
"""

import struct
from typing import NamedTuple

from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, encode_request_header
from tidelog.wire.fetch import (
    CONSUMER_REPLICA_ID,
    NO_REPLICA_EPOCH,
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResult,
    FetchRequest,
)
from tidelog.wire.leaders import LeaderIdAndEpoch
from tidelog.wire.primitives import (
    ELEMENTS_MAX,
    UUID_BYTES,
    Reader,
    compact_string,
    frame,
    int32_array,
    read_compact_string,
    read_uuid,
    read_uvarint,
    skip_tagged_fields,
    tagged_fields,
    uvarint,
)

_FIRST_WITH_TOPIC_ID = 13
_FIRST_WITH_REPLICA_STATE = 15

_CLUSTER_ID_TAG = 0
_REPLICA_STATE_TAG = 1
_DIVERGING_EPOCH_TAG = 0
_CURRENT_LEADER_TAG = 1

_INT32 = struct.Struct(">i")
_REPLICA_STATE = struct.Struct(">iqb")
_START_V12 = struct.Struct(">iiiibii")
_START_V15 = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqib")

_ANSWER_START = struct.Struct(">ihi")
_RESULT_WITHOUT_ABORTED = struct.Struct(">ihqqqBi")
_ABORTED = struct.Struct(">qq")
_ABORTED_BYTES_MIN = 17


FetchedTopic = tuple[str | None, bytes | None, list[FetchPartitionResult]]
"""Name, id and results, of which the version decides which of name and id is known."""


class FetchResponse(NamedTuple):
    """What a leader has for its follower.

    Leaders that moved are in the results; where those are to be found (KIP-951) is left out,
    because a broker knows all others.
    """

    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]


def encode_fetch_request(
    version: int, correlation_id: int, client_id: str, request: FetchRequest
) -> bytes:
    """The whole frame of a request, of version 12 or later."""
    parts = [
        encode_request_header(ApiKey.FETCH, version, correlation_id, client_id),
        _encode_start(version, request),
        uvarint(len(request.topics) + 1),
    ]
    for name, topic_id, partitions in request.topics:
        parts += (_encode_topic(version, name, topic_id), uvarint(len(partitions) + 1))
        parts += [_PARTITION.pack(*partition, 0) for partition in partitions]
        parts.append(b"\x00")
    parts.append(uvarint(len(request.forgotten) + 1))
    for name, topic_id, indexes in request.forgotten:
        parts += (
            _encode_topic(version, name, topic_id),
            int32_array(indexes, flexible=True),
            b"\x00",
        )
    parts += (compact_string(request.rack_id or ""), _encode_tagged(version, request))
    return frame(parts)


def fetch_request_form(version: int, client_id: str, request: FetchRequest) -> tuple[bytes, int]:
    """The frame of a request without topics, and where in it they would be counted."""
    assert not request.topics
    header = encode_request_header(ApiKey.FETCH, version, 0, client_id)
    start = _encode_start(version, request)
    return encode_fetch_request(version, 0, client_id, request), 4 + len(header) + len(start)


def fetch_request_end(version: int, request: FetchRequest) -> bytes:
    """What follows the topics of a request that forgets none."""
    assert not request.forgotten
    return b"".join(
        (uvarint(1), compact_string(request.rack_id or ""), _encode_tagged(version, request))
    )


def _encode_start(version: int, request: FetchRequest) -> bytes:
    limits = request[2:8]
    if version >= _FIRST_WITH_REPLICA_STATE:
        return _START_V15.pack(*limits)
    return _START_V12.pack(request.replica_id, *limits)


def _encode_topic(version: int, name: str | None, topic_id: bytes | None) -> bytes:
    if version >= _FIRST_WITH_TOPIC_ID:
        assert topic_id is not None
        assert len(topic_id) == UUID_BYTES
        return topic_id
    assert name is not None
    return compact_string(name)


def _encode_tagged(version: int, request: FetchRequest) -> bytes:
    fields = []
    if request.cluster_id is not None:
        fields.append((_CLUSTER_ID_TAG, compact_string(request.cluster_id)))
    state = request.replica_id, request.replica_epoch
    if version >= _FIRST_WITH_REPLICA_STATE and state != (CONSUMER_REPLICA_ID, NO_REPLICA_EPOCH):
        fields.append((_REPLICA_STATE_TAG, _REPLICA_STATE.pack(*state, 0)))
    return tagged_fields(fields)


def decode_fetch_response(view: memoryview, position: int, version: int) -> FetchResponse:
    """The answer whose body starts at `position`, of version 12 or later."""
    try:
        throttle_ms, error_code, session_id = _ANSWER_START.unpack_from(view, position)
        topics, position = _read_topics(view, position + 10, version)
        skip_tagged_fields(view, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"Fetch response: {error}") from error
    return FetchResponse(throttle_ms, error_code, session_id, topics)


def _read_topics(view: memoryview, position: int, version: int) -> tuple[list[FetchedTopic], int]:
    topic_count, position = read_uvarint(view, position)
    if not 0 < topic_count <= ELEMENTS_MAX:
        raise WireError(f"Fetch response with {topic_count - 1} topics")
    elements_left = ELEMENTS_MAX
    topics: list[FetchedTopic] = []
    for _ in range(topic_count - 1):
        name = topic_id = None
        if version >= _FIRST_WITH_TOPIC_ID:
            topic_id, position = read_uuid(view, position)
        else:
            name, position = read_compact_string(view, position)
            if name is None:
                raise WireError("Fetch response of a topic without a name")
        length, position = read_uvarint(view, position)
        if not 0 < length <= elements_left:
            raise WireError(f"Fetch response with {length - 1} partitions")
        results, position, elements_left = _read_results(
            view, position, length - 1, elements_left=elements_left
        )
        position = skip_tagged_fields(view, position)
        topics.append((name, topic_id, results))
    return topics, position


def _read_results(
    view: memoryview, position: int, count: int, *, elements_left: int
) -> tuple[list[FetchPartitionResult], int, int]:
    results = []
    elements_left -= count
    for _ in range(count):
        result, position = _read_result(view, position)
        results.append(result)
        aborted = result[5]
        if aborted:
            elements_left -= len(aborted)
            if elements_left < 0:
                raise WireError(f"Fetch response with more than {ELEMENTS_MAX} elements")
    return results, position, elements_left


def _read_result(view: memoryview, position: int) -> tuple[FetchPartitionResult, int]:
    (
        partition,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted_length,
        preferred_read_replica,
    ) = _RESULT_WITHOUT_ABORTED.unpack_from(view, position)
    aborted: list[AbortedTransaction] | None = None
    if aborted_length > 1:
        aborted, position = _read_aborted(view, position + 30)
        preferred_read_replica = _INT32.unpack_from(view, position)[0]
        position += 4
    else:
        if aborted_length:
            aborted = []
        position += 35
    records_length, position = read_uvarint(view, position)
    # Null is as good as nothing.
    end = position + records_length - 1 if records_length else position
    if end > len(view):
        raise WireError(f"{records_length - 1} bytes of records, {len(view) - position} are left")
    records = view[position:end]
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    if view[end]:
        diverging_epoch, current_leader, position = _read_tagged(view, end)
    else:
        position = end + 1
    result = tuple.__new__(
        FetchPartitionResult,
        (
            partition,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted,
            diverging_epoch,
            current_leader,
            preferred_read_replica,
            records,
        ),
    )
    return result, position


def _read_aborted(view: memoryview, position: int) -> tuple[list[AbortedTransaction], int]:
    length, position = read_uvarint(view, position)
    count = length - 1
    if count > ELEMENTS_MAX or count * _ABORTED_BYTES_MIN > len(view) - position:
        raise WireError(f"{count} aborted transactions, {len(view) - position} bytes are left")
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(view, position)))
        position = skip_tagged_fields(view, position + 16)
    return aborted, position


def _read_tagged(
    view: memoryview, position: int
) -> tuple[EpochEndOffset | None, LeaderIdAndEpoch | None, int]:
    reader = Reader(view, position, flexible=True)
    fields = reader.tagged_fields()
    diverging_epoch = current_leader = None
    if _DIVERGING_EPOCH_TAG in fields:
        field = fields[_DIVERGING_EPOCH_TAG]
        diverging_epoch = EpochEndOffset(field.int32(), field.int64())
    if _CURRENT_LEADER_TAG in fields:
        field = fields[_CURRENT_LEADER_TAG]
        current_leader = LeaderIdAndEpoch(field.int32(), field.int32())
    return diverging_epoch, current_leader, reader.position
