"""G1: Produce, against kio in both directions and in every version."""

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    PER_VERSION,
    int16s,
    int32s,
    int64s,
    milliseconds,
    moment,
    names,
    request_bytes,
    response_bytes,
    topic_ids,
    topic_uuid,
)
from tidelog.base.errors import ErrorCode, WireError
from tidelog.wire.api import SUPPORTED, ApiKey, encode_response_header
from tidelog.wire.leaders import LeaderIdAndEpoch, NodeEndpoint
from tidelog.wire.primitives import ELEMENTS_MAX
from tidelog.wire.produce import (
    PartitionProduceResult,
    ProduceRequest,
    decode_produce,
    encode_produce_response,
)

VERSIONS = range(SUPPORTED[ApiKey.PRODUCE].lowest, SUPPORTED[ApiKey.PRODUCE].highest + 1)
FIRST_WITH_TOPIC_ID = 13
FIRST_WITH_LEADERS = 10

every_version = pytest.mark.parametrize("version", VERSIONS)

_partitions = st.lists(st.tuples(int32s, st.none() | st.binary(max_size=300)), max_size=4)
_topics = st.lists(st.tuples(names, topic_ids, _partitions), max_size=3)
_record_errors = st.lists(st.tuples(int32s, st.none() | names), max_size=2)
_results = st.lists(
    st.builds(
        PartitionProduceResult,
        partition=int32s,
        error_code=st.sampled_from(ErrorCode),
        base_offset=int64s,
        log_append_time_ms=st.just(-1) | st.integers(0, 2**41),
        log_start_offset=int64s,
        record_errors=st.just(()) | _record_errors,
        error_message=st.none() | names,
        current_leader=st.none() | st.builds(LeaderIdAndEpoch, st.integers(0, 9), int32s),
    ),
    max_size=3,
)
_endpoints = st.lists(st.builds(NodeEndpoint, int32s, names, int32s, st.none() | names), max_size=2)


@every_version
@PER_VERSION
@given(transactional_id=st.none() | names, acks=int16s, timeout_ms=int32s, topics=_topics)
def test_request_of_the_message_library_is_read(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: list[tuple[str, bytes, list[tuple[int, bytes | None]]]],
) -> None:
    body = request_bytes(
        ApiKey.PRODUCE,
        version,
        {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": milliseconds(timeout_ms),
            "topic_data": [
                {
                    "name": name,
                    "topic_id": uuid.UUID(bytes=topic_id),
                    "partition_data": [
                        {"index": index, "records": records} for index, records in partitions
                    ],
                }
                for name, topic_id, partitions in topics
            ],
        },
    )
    by_id = version >= FIRST_WITH_TOPIC_ID
    request = decode_produce(memoryview(b"header" + body), 6, version)
    assert request[:3] == (transactional_id, acks, timeout_ms)
    assert _copied(request) == [
        (None if by_id else name, topic_id if by_id else None, partitions)
        for name, topic_id, partitions in topics
    ]


def _copied(
    request: ProduceRequest,
) -> list[tuple[str | None, bytes | None, list[tuple[int, bytes | None]]]]:
    """The topics of `request`, with bytes in place of views."""
    return [
        (
            name,
            topic_id,
            [(index, None if data is None else bytes(data)) for index, data in partitions],
        )
        for name, topic_id, partitions in request.topics
    ]


@every_version
@PER_VERSION
@given(
    correlation_id=int32s,
    topics=st.lists(st.tuples(names, topic_ids, _results), max_size=3),
    endpoints=_endpoints,
    throttle_ms=int32s,
)
def test_answer_is_what_the_message_library_writes(
    version: int,
    correlation_id: int,
    topics: list[tuple[str, bytes, list[PartitionProduceResult]]],
    endpoints: list[NodeEndpoint],
    throttle_ms: int,
) -> None:
    expected = response_bytes(
        ApiKey.PRODUCE,
        version,
        {
            "responses": [
                {
                    "name": name,
                    "topic_id": topic_uuid(topic_id),
                    "partition_responses": [_kio_result(result) for result in results],
                }
                for name, topic_id, results in topics
            ],
            "throttle_time": milliseconds(throttle_ms),
            "node_endpoints": [endpoint._asdict() for endpoint in endpoints],
        },
    )
    frame = encode_produce_response(
        version, correlation_id, topics, node_endpoints=endpoints, throttle_ms=throttle_ms
    )
    header = encode_response_header(ApiKey.PRODUCE, version, correlation_id)
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected


def _kio_result(result: PartitionProduceResult) -> dict[str, object]:
    values: dict[str, object] = {
        "index": result.partition,
        "error_code": result.error_code,
        "base_offset": result.base_offset,
        "log_append_time": moment(result.log_append_time_ms),
        "log_start_offset": result.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message}
            for index, message in result.record_errors
        ],
        "error_message": result.error_message,
    }
    if result.current_leader is not None:
        values["current_leader"] = result.current_leader._asdict()
    return values


def test_records_are_views_of_the_frame() -> None:
    body = request_bytes(
        ApiKey.PRODUCE,
        9,
        {
            "acks": 1,
            "timeout": milliseconds(1),
            "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"abc"}]}],
        },
    )
    frame = bytearray(body)
    (_name, _id, ((_partition, records),)) = decode_produce(memoryview(frame), 0, 9).topics[0]
    assert records is not None
    records[0] = ord("X")
    assert b"Xbc" in frame


def test_unknown_tagged_fields_are_skipped() -> None:
    tags = b"\x01\x09\x02zz"
    body = b"\x00" + struct.pack(">hi", 1, 5) + b"\x02\x02t\x02" + struct.pack(">i", 3) + b"\x02r"
    request = decode_produce(memoryview(body + tags * 3), 0, 9)
    assert _copied(request) == [("t", None, [(3, b"r")])]


def test_message_library_s_topic_id_of_zero_is_written_for_none() -> None:
    frame = encode_produce_response(13, 1, [(None, None, [])], node_endpoints=(), throttle_ms=0)
    assert bytes(16) in frame


_START_V3 = b"\xff\xff" + struct.pack(">hi", 1, 5)
_START_V9 = b"\x00" + struct.pack(">hi", 1, 5)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (3, _START_V3 + struct.pack(">i", -1)),
        (3, _START_V3 + struct.pack(">i", 2**31 - 1)),
        (3, _START_V3 + struct.pack(">ih", 1, -1)),
        (3, _START_V3 + struct.pack(">ih", 1, 5)),
        (3, _START_V3 + struct.pack(">ihi", 1, 0, -1)),
        (3, _START_V3 + struct.pack(">ihi", 1, 0, 2**31 - 1)),
        (3, _START_V3 + struct.pack(">ihiii", 1, 0, 1, 0, 1)),
        (3, struct.pack(">h", 9) + b"abc"),
        (9, b"\x05abc"),
        (9, _START_V9 + b"\x00"),
        (9, _START_V9 + b"\xff\xff\xff\xff\x0f"),
        (9, _START_V9 + b"\x02\x00"),
        (9, _START_V9 + b"\x02\x05abc"),
        (9, _START_V9 + b"\x02\x01\x00"),
        (9, _START_V9 + b"\x02\x01\xff\xff\xff\xff\x0f"),
        (9, _START_V9 + b"\x02\x01\x02" + struct.pack(">i", 0) + b"\x09abc"),
        (9, _START_V9 + b"\x02\x03\xff\xfe\x01\x00\x00"),
        (13, _START_V9 + b"\x02" + bytes(15)),
    ],
)
def test_lengths_that_lie_are_refused(version: int, body: bytes) -> None:
    with pytest.raises(WireError):
        decode_produce(memoryview(body), 0, version)


@pytest.mark.parametrize("version", [8, 9])
def test_partitions_of_all_topics_share_one_bound(version: int) -> None:
    half = ELEMENTS_MAX // 2 + 1
    if version == 8:
        topic = struct.pack(">hi", 0, half) + struct.pack(">ii", 0, -1) * half
        body = _START_V3 + struct.pack(">i", 2) + topic * 2
    else:
        # half + 1 as a varint of three bytes.
        count = bytes([(half + 1) & 0x7F | 0x80, (half + 1) >> 7 & 0x7F | 0x80, (half + 1) >> 14])
        topic = b"\x01" + count + b"\x00\x00\x00\x00\x00\x00" * half + b"\x00"
        body = _START_V9 + b"\x03" + topic * 2 + b"\x00"
    with pytest.raises(WireError, match="partitions"):
        decode_produce(memoryview(body), 0, version)
