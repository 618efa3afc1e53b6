"""LeaveGroup: members leave a classic group, or an administrator removes them.

One member a request up to version 2, many from 3 on (KIP-345). Both are a list of members here.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import Reader, array_count, frame, nullable_string, string

_FIRST_WITH_THROTTLE = 1
_FIRST_WITH_MANY_MEMBERS = 3
_FIRST_WITH_REASON = 5

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class LeavingMember(NamedTuple):
    """By its id or, with an empty one, by its instance's."""

    member_id: str
    group_instance_id: str | None
    reason: str | None


class LeaveGroupRequest(NamedTuple):
    """Who leaves which group."""

    group_id: str
    members: list[LeavingMember]


class LeftMember(NamedTuple):
    """What came of it for one of them."""

    member_id: str
    group_instance_id: str | None
    error_code: int


def decode_leave_group(view: memoryview, position: int, version: int) -> LeaveGroupRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.LEAVE_GROUP, version))
    group_id = reader.string()
    if version >= _FIRST_WITH_MANY_MEMBERS:
        members = [_decode_member(reader, version) for _ in range(reader.array_count())]
    else:
        members = [LeavingMember(reader.string(), None, None)]
    reader.end_structure()
    return LeaveGroupRequest(group_id, members)


def _decode_member(reader: Reader, version: int) -> LeavingMember:
    member_id, instance_id = reader.string(), reader.nullable_string()
    reason = reader.nullable_string() if version >= _FIRST_WITH_REASON else None
    reader.end_structure()
    return LeavingMember(member_id, instance_id, reason)


def encode_leave_group_response(
    version: int,
    correlation_id: int,
    error_code: int,
    members: Sequence[LeftMember],
    *,
    throttle_ms: int,
) -> bytes:
    """The whole frame that answers a request of `version`.

    Before version 3 the only member's code is the request's.
    """
    flexible = is_flexible(ApiKey.LEAVE_GROUP, version)
    parts = [encode_response_header(ApiKey.LEAVE_GROUP, version, correlation_id)]
    if version >= _FIRST_WITH_THROTTLE:
        parts.append(_INT32.pack(throttle_ms))
    if version < _FIRST_WITH_MANY_MEMBERS:
        own_code = members[0].error_code if members else 0
        parts.append(_INT16.pack(error_code or own_code))
        return frame(parts)
    parts += (_INT16.pack(error_code), array_count(len(members), flexible=flexible))
    end = b"\x00" if flexible else b""
    for member in members:
        parts += (
            string(member.member_id, flexible=flexible),
            nullable_string(member.group_instance_id, flexible=flexible),
            _INT16.pack(member.error_code),
            end,
        )
    parts.append(end)
    return frame(parts)
