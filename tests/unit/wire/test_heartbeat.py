"""G1: Heartbeat, against kio in both directions and in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import kafka_api_versions
from tests.support.kio_codec import (
    PER_VERSION,
    int32s,
    milliseconds,
    names,
    request_bytes,
    response_bytes,
)
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey, encode_response_header
from tidelog.wire.heartbeat import HeartbeatRequest, decode_heartbeat, encode_heartbeat_response

LOWEST, HIGHEST = kafka_api_versions()[ApiKey.HEARTBEAT]
every_version = pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))


@every_version
@PER_VERSION
@given(request=st.builds(HeartbeatRequest, names, int32s, names, st.none() | names))
def test_request_of_the_message_library_is_read(version: int, request: HeartbeatRequest) -> None:
    body = request_bytes(
        ApiKey.HEARTBEAT,
        version,
        {
            "group_id": request.group_id,
            "generation_id": request.generation,
            "member_id": request.member_id,
            "group_instance_id": request.group_instance_id,
        },
    )
    decoded = decode_heartbeat(memoryview(b"h" + body), 1, version)
    assert decoded == (request if version >= 3 else request._replace(group_instance_id=None))


@every_version
@PER_VERSION
@given(code=st.sampled_from(ErrorCode), correlation_id=int32s, throttle_ms=int32s)
def test_answer_is_what_the_message_library_writes(
    version: int, code: ErrorCode, correlation_id: int, throttle_ms: int
) -> None:
    values = {"throttle_time": milliseconds(throttle_ms), "error_code": code}
    expected = response_bytes(ApiKey.HEARTBEAT, version, values)
    header = encode_response_header(ApiKey.HEARTBEAT, version, correlation_id)
    frame = encode_heartbeat_response(version, correlation_id, code, throttle_ms=throttle_ms)
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected
