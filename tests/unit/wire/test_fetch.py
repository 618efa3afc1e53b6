"""G1: Fetch, against kio in both directions and in every version."""

import struct
import uuid

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
from tests.support.kio_codec import PER_VERSION, int32s, int64s, request_bytes, response_bytes
from tidelog.base.errors import ErrorCode, WireError
from tidelog.base.ports import BytesLike
from tidelog.wire.api import SUPPORTED, ApiKey, encode_response_header
from tidelog.wire.fetch import (
    FetchPartitionResult,
    FetchRequest,
    decode_fetch,
    encode_fetch_response,
)
from tidelog.wire.leaders import NodeEndpoint
from tidelog.wire.primitives import ELEMENTS_MAX, uvarint

VERSIONS = range(SUPPORTED[ApiKey.FETCH].lowest, SUPPORTED[ApiKey.FETCH].highest + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
@PER_VERSION
@given(request=fetch_requests, directory=st.none() | st.uuids(), high_watermark=int64s)
def test_request_of_the_message_library_is_read(
    version: int, request: FetchRequest, directory: uuid.UUID | None, high_watermark: int
) -> None:
    body = request_bytes(ApiKey.FETCH, version, kio_request(request, directory, high_watermark))
    assert decode_fetch(memoryview(b"head" + body), 4, version) == as_of(version, request)


@every_version
@PER_VERSION
@given(
    correlation_id=int32s,
    topics=fetched_topics,
    throttle_ms=int32s,
    error_code=st.sampled_from(ErrorCode),
    session_id=int32s,
    endpoints=st.lists(node_endpoints, max_size=2),
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
        kio_response(
            topics,
            throttle_ms=throttle_ms,
            error_code=error_code,
            session_id=session_id,
            node_endpoints=endpoints,
        ),
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
