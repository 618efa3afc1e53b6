"""R2: a follower's Fetch, against kio in both directions and in every flexible version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fetch_messages import (
    as_of,
    fetch_requests,
    fetched_topics,
    kio_request,
    kio_response,
    node_endpoints,
)
from tests.support.kio_codec import PER_VERSION, int32s, request_bytes, response_bytes
from tests.support.peer_codec import request_body
from tidelog.base.errors import ErrorCode, WireError
from tidelog.wire.api import SUPPORTED, ApiKey
from tidelog.wire.fetch import (
    FetchPartitionResult,
    FetchRequest,
    decode_fetch,
    encode_fetch_response,
)
from tidelog.wire.fetch_client import (
    FetchedTopic,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from tidelog.wire.leaders import NodeEndpoint
from tidelog.wire.primitives import ELEMENTS_MAX, uvarint

_HIGH_WATERMARK_UNKNOWN = 2**63 - 1

every_version = pytest.mark.parametrize("version", range(12, SUPPORTED[ApiKey.FETCH].highest + 1))


@every_version
@PER_VERSION
@given(request=fetch_requests)
def test_request_is_what_the_message_library_writes(version: int, request: FetchRequest) -> None:
    values = kio_request(request, None, _HIGH_WATERMARK_UNKNOWN)
    frame = encode_fetch_request(version, 7, "peer", request)
    body = request_body(frame, ApiKey.FETCH, version)
    assert body == request_bytes(ApiKey.FETCH, version, values)
    assert decode_fetch(memoryview(body), 0, version) == as_of(version, request)


@every_version
def test_consumer_does_not_mention_a_replica(version: int) -> None:
    request = FetchRequest(-1, -1, 1, 1, 1, 0, 0, 0, [], [], "", None)
    values = kio_request(request, None, _HIGH_WATERMARK_UNKNOWN)
    frame = encode_fetch_request(version, 7, "peer", request)
    assert request_body(frame, ApiKey.FETCH, version) == request_bytes(
        ApiKey.FETCH, version, values
    )


@every_version
@PER_VERSION
@given(
    topics=fetched_topics,
    throttle_ms=int32s,
    error_code=st.sampled_from(ErrorCode),
    session_id=int32s,
    endpoints=st.lists(node_endpoints, max_size=2),
)
def test_answer_of_the_message_library_is_read(
    version: int,
    topics: list[FetchedTopic],
    throttle_ms: int,
    error_code: ErrorCode,
    session_id: int,
    endpoints: list[NodeEndpoint],
) -> None:
    body = response_bytes(
        ApiKey.FETCH,
        version,
        kio_response(
            topics,
            throttle_ms=throttle_ms,
            error_code=error_code,
            session_id=session_id,
            node_endpoints=endpoints,
        ),
    )
    by_id = version >= 13
    expected = [
        (None if by_id else name, topic_id if by_id else None, results)
        for name, topic_id, results in topics
    ]
    assert decode_fetch_response(memoryview(b"h" + body), 1, version) == FetchResponse(
        throttle_ms, error_code, session_id, expected
    )


@every_version
def test_records_are_slices_of_the_frame(version: int) -> None:
    result = FetchPartitionResult(0, 0, 9, 9, 0, None, None, None, -1, b"records" * 100)
    buffers = encode_fetch_response(
        version,
        1,
        [("t", bytes(16), [result, result._replace(records=b"")])],
        throttle_ms=0,
        error_code=0,
        session_id=0,
        node_endpoints=(),
    )
    frame = b"".join(buffers)
    response = decode_fetch_response(memoryview(frame), 9, version)
    first, second = (one.records for one in response.topics[0][2])
    assert isinstance(first, memoryview)
    assert first.obj is frame
    assert first == b"records" * 100
    assert second == b""


_START = bytes(10)
_HUGE = b"\xff\xff\xff\xff\x0f"
_PLAIN = bytes(30) + b"\x00" + bytes(4)


def test_records_of_null_are_none_at_all() -> None:
    body = _START + b"\x02" + bytes(16) + b"\x02" + _PLAIN + b"\x00\x00" + b"\x00\x00"
    ((_name, _topic_id, (result,)),) = decode_fetch_response(memoryview(body), 0, 17).topics
    assert result.records == b""


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (17, _START + b"\x00"),
        (17, _START + _HUGE),
        (17, _START + b"\x02" + bytes(16) + b"\x00"),
        (17, _START + b"\x02" + bytes(16) + _HUGE),
        (17, _START + b"\x02" + bytes(16) + b"\x02" + _PLAIN + _HUGE + bytes(40)),
        (17, _START + b"\x02" + bytes(16) + b"\x02" + _PLAIN + b"\x01"),
        (17, _START + b"\x02" + bytes(16) + b"\x02" + _PLAIN + b"\x01\x01\x00\x03abc\x00"),
        (17, _START + b"\x02" + bytes(16) + b"\x02" + bytes(30) + _HUGE + bytes(40)),
        (12, _START + b"\x02\x00\x01\x00\x00"),
        (12, _START + b"\x02\x02\xff\x01\x00\x00"),
    ],
)
def test_lengths_that_lie_are_refused(version: int, body: bytes) -> None:
    with pytest.raises(WireError):
        decode_fetch_response(memoryview(body), 0, version)


def test_partitions_of_all_topics_share_one_bound() -> None:
    half = ELEMENTS_MAX // 2 + 1
    topic = bytes(16) + uvarint(half + 1) + (bytes(30) + bytes(7)) * half + b"\x00"
    body = _START + b"\x03" + topic * 2 + b"\x00"
    with pytest.raises(WireError, match="partitions"):
        decode_fetch_response(memoryview(body), 0, 17)


def test_aborted_transactions_of_all_partitions_share_one_bound() -> None:
    half = ELEMENTS_MAX // 2 + 1
    result = bytes(30) + uvarint(half + 1) + bytes(17 * half) + bytes(4) + b"\x01\x00"
    body = _START + b"\x02" + bytes(16) + b"\x03" + result * 2 + b"\x00\x00"
    with pytest.raises(WireError, match="elements"):
        decode_fetch_response(memoryview(body), 0, 17)
