"""FindCoordinator: which broker looks after a group or a transactional id.

One key a request up to version 3, many from 4 on (KIP-699). Both are a list of keys here.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import Reader, array_count, frame, nullable_string, string

_FIRST_WITH_KEY_TYPE = 1
_FIRST_WITH_THROTTLE = 1
_FIRST_WITH_MANY_KEYS = 4

GROUP_KEY = 0

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class FindCoordinatorRequest(NamedTuple):
    """key_type: 0 for groups, 1 for transactional ids, 2 for share groups."""

    key_type: int
    keys: list[str]


class CoordinatorResult(NamedTuple):
    """The coordinator of one key; node -1 on an empty host if there is an error."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None


def decode_find_coordinator(
    view: memoryview, position: int, version: int
) -> FindCoordinatorRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.FIND_COORDINATOR, version))
    if version < _FIRST_WITH_MANY_KEYS:
        keys = [reader.string()]
        key_type = reader.int8() if version >= _FIRST_WITH_KEY_TYPE else GROUP_KEY
    else:
        key_type = reader.int8()
        keys = [reader.string() for _ in range(reader.array_count())]
    reader.end_structure()
    return FindCoordinatorRequest(key_type, keys)


def encode_find_coordinator_response(
    version: int, correlation_id: int, results: Sequence[CoordinatorResult], *, throttle_ms: int
) -> bytes:
    """The whole frame that answers a request of `version`; one result before version 4."""
    flexible = is_flexible(ApiKey.FIND_COORDINATOR, version)
    parts = [encode_response_header(ApiKey.FIND_COORDINATOR, version, correlation_id)]
    if version >= _FIRST_WITH_THROTTLE:
        parts.append(_INT32.pack(throttle_ms))
    if version >= _FIRST_WITH_MANY_KEYS:
        parts.append(array_count(len(results), flexible=flexible))
        parts += [_encode_result(result, flexible=flexible) for result in results]
    else:
        assert len(results) == 1
        parts += _encode_only_result(version, results[0], flexible=flexible)
    if flexible:
        parts.append(b"\x00")
    return frame(parts)


def _encode_result(result: CoordinatorResult, *, flexible: bool) -> bytes:
    return b"".join(
        (
            string(result.key, flexible=flexible),
            _INT32.pack(result.node_id),
            string(result.host, flexible=flexible),
            _INT32.pack(result.port),
            _INT16.pack(result.error_code),
            nullable_string(result.error_message, flexible=flexible),
            b"\x00",
        )
    )


def _encode_only_result(version: int, result: CoordinatorResult, *, flexible: bool) -> list[bytes]:
    parts = [_INT16.pack(result.error_code)]
    if version >= _FIRST_WITH_KEY_TYPE:
        parts.append(nullable_string(result.error_message, flexible=flexible))
    parts += (
        _INT32.pack(result.node_id),
        string(result.host, flexible=flexible),
        _INT32.pack(result.port),
    )
    return parts
