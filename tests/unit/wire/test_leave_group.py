"""G1: LeaveGroup, against kio in both directions and in every version."""

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
from tidelog.wire.leave_group import (
    LeaveGroupRequest,
    LeavingMember,
    LeftMember,
    decode_leave_group,
    encode_leave_group_response,
)

LOWEST, HIGHEST = kafka_api_versions()[ApiKey.LEAVE_GROUP]
every_version = pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))
_members = st.builds(LeavingMember, names, st.none() | names, st.none() | names)
_left = st.builds(LeftMember, names, st.none() | names, st.sampled_from(ErrorCode))


@every_version
@PER_VERSION
@given(group_id=names, members=st.lists(_members, min_size=1, max_size=3))
def test_request_of_the_message_library_is_read(
    version: int, group_id: str, members: list[LeavingMember]
) -> None:
    body = request_bytes(
        ApiKey.LEAVE_GROUP,
        version,
        {
            "group_id": group_id,
            "member_id": members[0].member_id,
            "members": [member._asdict() for member in members],
        },
    )
    expected = members if version >= 3 else [LeavingMember(members[0].member_id, None, None)]
    if version < 5:
        expected = [member._replace(reason=None) for member in expected]
    decoded = decode_leave_group(memoryview(b"h" + body), 1, version)
    assert decoded == LeaveGroupRequest(group_id, expected)


@every_version
@PER_VERSION
@given(
    code=st.sampled_from(ErrorCode),
    members=st.lists(_left, max_size=3),
    correlation_id=int32s,
    throttle_ms=int32s,
)
def test_answer_is_what_the_message_library_writes(
    version: int,
    code: ErrorCode,
    members: list[LeftMember],
    correlation_id: int,
    throttle_ms: int,
) -> None:
    only_code = code or (members[0].error_code if members else ErrorCode.NONE)
    expected = response_bytes(
        ApiKey.LEAVE_GROUP,
        version,
        {
            "throttle_time": milliseconds(throttle_ms),
            "error_code": code if version >= 3 else only_code,
            "members": [member._asdict() for member in members],
        },
    )
    header = encode_response_header(ApiKey.LEAVE_GROUP, version, correlation_id)
    frame = encode_leave_group_response(
        version, correlation_id, code, members, throttle_ms=throttle_ms
    )
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected
