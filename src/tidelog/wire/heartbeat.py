"""Heartbeat: a member of a classic group is alive. Small, and sent by every member all the time."""

import struct
from typing import NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import Reader, frame

_FIRST_WITH_THROTTLE = 1
_FIRST_WITH_INSTANCE_ID = 3

_CODE = struct.Struct(">h")
_THROTTLE_AND_CODE = struct.Struct(">ih")


class HeartbeatRequest(NamedTuple):
    """Whose, in which generation."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


def decode_heartbeat(view: memoryview, position: int, version: int) -> HeartbeatRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.HEARTBEAT, version))
    group_id, generation, member_id = reader.string(), reader.int32(), reader.string()
    has_instance = version >= _FIRST_WITH_INSTANCE_ID
    instance_id = reader.nullable_string() if has_instance else None
    reader.end_structure()
    return HeartbeatRequest(group_id, generation, member_id, instance_id)


def encode_heartbeat_response(
    version: int, correlation_id: int, error_code: int, *, throttle_ms: int
) -> bytes:
    """The whole frame that answers a request of `version`."""
    parts = [encode_response_header(ApiKey.HEARTBEAT, version, correlation_id)]
    if version >= _FIRST_WITH_THROTTLE:
        parts.append(_THROTTLE_AND_CODE.pack(throttle_ms, error_code))
    else:
        parts.append(_CODE.pack(error_code))
    if is_flexible(ApiKey.HEARTBEAT, version):
        parts.append(b"\x00")
    return frame(parts)
