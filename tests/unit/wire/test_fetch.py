"""G1: Fetch, against kio in both directions and in every version."""

import struct
import uuid
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    PER_VERSION,
    int8s,
    int32s,
    int64s,
    milliseconds,
    names,
    request_bytes,
    response_bytes,
    topic_ids,
    topic_uuid,
)
from tidelog.base.errors import ErrorCode, WireError
from tidelog.base.ports import BytesLike
from tidelog.wire.api import SUPPORTED, ApiKey, encode_response_header
from tidelog.wire.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    decode_fetch,
    encode_fetch_response,
)
from tidelog.wire.leaders import LeaderIdAndEpoch, NodeEndpoint
from tidelog.wire.primitives import ELEMENTS_MAX, uvarint

VERSIONS = range(SUPPORTED[ApiKey.FETCH].lowest, SUPPORTED[ApiKey.FETCH].highest + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)

_partition = st.builds(FetchPartition, int32s, int32s, int64s, int32s, int64s, int32s)
_topic = st.tuples(names, topic_ids, st.lists(_partition, max_size=3))
_forgotten = st.tuples(names, topic_ids, st.lists(int32s, max_size=3))
_request = st.builds(
    FetchRequest,
    replica_id=int32s,
    replica_epoch=int64s,
    max_wait_ms=int32s,
    min_bytes=int32s,
    max_bytes=int32s,
    isolation_level=int8s,
    session_id=int32s,
    session_epoch=int32s,
    topics=st.lists(_topic, max_size=3),
    forgotten=st.lists(_forgotten, max_size=3),
    rack_id=names,
    cluster_id=st.none() | names,
)
_result = st.builds(
    FetchPartitionResult,
    partition=int32s,
    error_code=st.sampled_from(ErrorCode),
    high_watermark=int64s,
    last_stable_offset=int64s,
    log_start_offset=int64s,
    aborted=st.none() | st.lists(st.builds(AbortedTransaction, int64s, int64s), max_size=3),
    diverging_epoch=st.none() | st.builds(EpochEndOffset, st.integers(0, 9), int64s),
    current_leader=st.none() | st.builds(LeaderIdAndEpoch, st.integers(0, 9), int32s),
    preferred_read_replica=int32s,
    records=st.binary(max_size=300),
)
_endpoint = st.builds(NodeEndpoint, int32s, names, int32s, st.none() | names)


@every_version
@PER_VERSION
@given(request=_request, directory=st.none() | st.uuids(), high_watermark=int64s)
def test_request_of_the_message_library_is_read(
    version: int, request: FetchRequest, directory: uuid.UUID | None, high_watermark: int
) -> None:
    body = request_bytes(ApiKey.FETCH, version, _kio_request(request, directory, high_watermark))
    assert decode_fetch(memoryview(b"head" + body), 4, version) == _as_of(version, request)


def _kio_request(
    request: FetchRequest, directory: uuid.UUID | None, high_watermark: int
) -> Mapping[str, object]:
    return {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica_id,
        "replica_state": {
            "replica_id": request.replica_id,
            "replica_epoch": request.replica_epoch,
        },
        "max_wait": milliseconds(request.max_wait_ms),
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [
            {
                "topic": name,
                "topic_id": topic_uuid(topic_id),
                "partitions": [
                    {
                        **partition._asdict(),
                        "partition_max_bytes": partition.max_bytes,
                        "replica_directory_id": directory,
                        "high_watermark": high_watermark,
                    }
                    for partition in partitions
                ],
            }
            for name, topic_id, partitions in request.topics
        ],
        "forgotten_topics_data": [
            {"topic": name, "topic_id": topic_uuid(topic_id), "partitions": tuple(partitions)}
            for name, topic_id, partitions in request.forgotten
        ],
        "rack_id": request.rack_id,
    }


def _as_of(version: int, request: FetchRequest) -> FetchRequest:
    """What of `request` a version can say."""
    by_id = version >= 13
    return request._replace(
        replica_epoch=request.replica_epoch if version >= 15 else -1,
        session_id=request.session_id if version >= 7 else 0,
        session_epoch=request.session_epoch if version >= 7 else -1,
        topics=[
            (
                None if by_id else name,
                topic_id if by_id else None,
                [_partition_as_of(version, partition) for partition in partitions],
            )
            for name, topic_id, partitions in request.topics
        ],
        forgotten=[
            (None if by_id else name, topic_id if by_id else None, partitions)
            for name, topic_id, partitions in request.forgotten
            if version >= 7
        ],
        rack_id=request.rack_id if version >= 11 else "",
        cluster_id=request.cluster_id if version >= 12 else None,
    )


def _partition_as_of(version: int, partition: FetchPartition) -> FetchPartition:
    return partition._replace(
        current_leader_epoch=partition.current_leader_epoch if version >= 9 else -1,
        last_fetched_epoch=partition.last_fetched_epoch if version >= 12 else -1,
        log_start_offset=partition.log_start_offset if version >= 5 else -1,
    )


@every_version
@PER_VERSION
@given(
    correlation_id=int32s,
    topics=st.lists(st.tuples(names, topic_ids, st.lists(_result, max_size=3)), max_size=3),
    throttle_ms=int32s,
    error_code=st.sampled_from(ErrorCode),
    session_id=int32s,
    endpoints=st.lists(_endpoint, max_size=2),
)
def test_answer_is_what_the_message_library_writes(
    version: int,
    correlation_id: int,
    topics: list[tuple[str, bytes, list[FetchPartitionResult]]],
    throttle_ms: int,
    error_code: ErrorCode,
    session_id: int,
    endpoints: list[NodeEndpoint],
) -> None:
    expected = response_bytes(
        ApiKey.FETCH,
        version,
        {
            "throttle_time": milliseconds(throttle_ms),
            "error_code": error_code,
            "session_id": session_id,
            "responses": [
                {
                    "topic": name,
                    "topic_id": topic_uuid(topic_id),
                    "partitions": [_kio_result(result) for result in results],
                }
                for name, topic_id, results in topics
            ],
            "node_endpoints": [endpoint._asdict() for endpoint in endpoints],
        },
    )
    buffers = encode_fetch_response(
        version,
        correlation_id,
        topics,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        node_endpoints=endpoints,
    )
    header = encode_response_header(ApiKey.FETCH, version, correlation_id)
    frame = struct.pack(">i", len(header) + len(expected)) + header + expected
    assert b"".join(buffers) == frame


def _kio_result(result: FetchPartitionResult) -> dict[str, object]:
    values: dict[str, object] = {
        "partition_index": result.partition,
        "error_code": result.error_code,
        "high_watermark": result.high_watermark,
        "last_stable_offset": result.last_stable_offset,
        "log_start_offset": result.log_start_offset,
        "aborted_transactions": None
        if result.aborted is None
        else [transaction._asdict() for transaction in result.aborted],
        "preferred_read_replica": result.preferred_read_replica,
        "records": result.records,
    }
    if result.diverging_epoch is not None:
        values["diverging_epoch"] = result.diverging_epoch._asdict()
    if result.current_leader is not None:
        values["current_leader"] = result.current_leader._asdict()
    return values


@every_version
def test_records_are_handed_on_without_a_copy(version: int) -> None:
    records: list[BytesLike] = [b"first", bytearray(b"second"), memoryview(b"third"), b""]
    results = [
        FetchPartitionResult(index, 0, 9, 9, 0, None, None, None, -1, data)
        for index, data in enumerate(records)
    ]
    buffers = encode_fetch_response(
        version,
        1,
        [("t", bytes(16), results)],
        throttle_ms=0,
        error_code=0,
        session_id=0,
        node_endpoints=(),
    )
    assert len(buffers) == 7
    assert all(buffers[2 * index + 1] is records[index] for index in range(3))
    assert struct.unpack_from(">i", buffers[0])[0] == sum(map(len, buffers)) - 4


def test_topic_id_of_zero_is_written_for_none() -> None:
    buffers = encode_fetch_response(
        13, 1, [(None, None, [])], throttle_ms=0, error_code=0, session_id=0, node_endpoints=()
    )
    assert bytes(16) in buffers[0]


_V4 = struct.pack(">iiiib", -1, 1, 1, 1, 0)
_V7 = struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, 0)
_V15 = struct.pack(">iiibii", 1, 1, 1, 0, 0, 0)
_HUGE = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (4, _V4 + struct.pack(">i", -1)),
        (4, _V4 + struct.pack(">i", 2**31 - 1)),
        (4, _V4 + struct.pack(">ih", 1, -1)),
        (4, _V4 + struct.pack(">ihi", 1, 0, -1)),
        (4, _V4 + struct.pack(">ihi", 1, 0, 2**31 - 1)),
        (7, _V7 + struct.pack(">ii", 0, -1)),
        (7, _V7 + struct.pack(">ii", 0, 2**31 - 1)),
        (7, _V7 + struct.pack(">iih", 0, 1, -1)),
        (7, _V7 + struct.pack(">iihi", 0, 1, 0, -1)),
        (7, _V7 + struct.pack(">iihi", 0, 1, 0, 5)),
        (11, _V7 + struct.pack(">iih", 0, 0, -1)),
        (12, _V7 + b"\x02\x00"),
        (15, _V15 + b"\x00"),
        (15, _V15 + _HUGE),
        (15, _V15 + b"\x02" + bytes(16) + b"\x00"),
        (15, _V15 + b"\x02" + bytes(16) + _HUGE),
        (15, _V15 + b"\x01\x00"),
        (15, _V15 + b"\x01" + _HUGE),
        (15, _V15 + b"\x01\x02" + bytes(16) + b"\x00"),
        (15, _V15 + b"\x01\x02" + bytes(16) + _HUGE),
        (15, _V15 + b"\x01\x02" + bytes(16) + b"\x09abc"),
        (15, _V15 + b"\x01\x01\x00\x00"),
        (15, _V15 + b"\x01\x01\x01\x01\x01\x03abc"),
        (15, _V15 + b"\x01\x01\x01\x01\x00\x05abc"),
    ],
)
def test_lengths_that_lie_are_refused(version: int, body: bytes) -> None:
    with pytest.raises(WireError):
        decode_fetch(memoryview(body), 0, version)


@pytest.mark.parametrize("version", [11, 15])
@pytest.mark.parametrize("forgotten", [False, True])
def test_partitions_of_all_topics_share_one_bound(version: int, forgotten: bool) -> None:
    half = ELEMENTS_MAX // 2 + 1
    if version == 11:
        element = bytes(4) if forgotten else bytes(28)
        topics = struct.pack(">i", 2) + (struct.pack(">hi", 0, half) + element * half) * 2
        body = _V7 + (bytes(4) if forgotten else b"") + topics
    else:
        element = bytes(4) if forgotten else bytes(33)
        topics = b"\x03" + (bytes(16) + uvarint(half + 1) + element * half + b"\x00") * 2
        body = _V15 + (b"\x01" if forgotten else b"") + topics
    with pytest.raises(WireError, match="partitions"):
        decode_fetch(memoryview(body), 0, version)
