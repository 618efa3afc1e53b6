"""ControlledShutdown: before it stops, a broker has the controller find its partitions new leaders.

A layout of our own, see cluster_states.py.
"""

import struct
from typing import NamedTuple

from tidelog.wire.api import (
    ApiKey,
    encode_request_header,
    encode_response_header,
    is_flexible,
)
from tidelog.wire.primitives import Reader, compact_string, frame, uvarint

_REQUEST = struct.Struct(">iqb")
_ERROR = struct.Struct(">h")
_PARTITION = struct.Struct(">ib")


class ControlledShutdownRequest(NamedTuple):
    """Who wants to stop."""

    broker_id: int
    broker_epoch: int


class ControlledShutdownResponse(NamedTuple):
    """remaining: (topic, partition), ... that the broker still leads. It may stop when none is."""

    error_code: int
    remaining: list[tuple[str, int]]


def encode_controlled_shutdown_request(
    version: int, correlation_id: int, client_id: str, request: ControlledShutdownRequest
) -> bytes:
    """The whole frame of a request."""
    header = encode_request_header(ApiKey.CONTROLLED_SHUTDOWN, version, correlation_id, client_id)
    return frame([header, _REQUEST.pack(*request, 0)])


def decode_controlled_shutdown(
    view: memoryview, position: int, version: int
) -> ControlledShutdownRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.CONTROLLED_SHUTDOWN, version))
    request = ControlledShutdownRequest(reader.int32(), reader.int64())
    reader.end_structure()
    return request


def encode_controlled_shutdown_response(
    version: int, correlation_id: int, response: ControlledShutdownResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    parts = [
        encode_response_header(ApiKey.CONTROLLED_SHUTDOWN, version, correlation_id),
        _ERROR.pack(response.error_code),
        uvarint(len(response.remaining) + 1),
    ]
    for topic, partition in response.remaining:
        parts += (compact_string(topic), _PARTITION.pack(partition, 0))
    parts.append(b"\x00")
    return frame(parts)


def decode_controlled_shutdown_response(
    view: memoryview, position: int, version: int
) -> ControlledShutdownResponse:
    """The answer whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.CONTROLLED_SHUTDOWN, version))
    error_code = reader.int16()
    remaining = []
    for _ in range(reader.array_count()):
        remaining.append((reader.string(), reader.int32()))
        reader.end_structure()
    reader.end_structure()
    return ControlledShutdownResponse(error_code, remaining)
