"""Fuzz target: a stream of bytes as a connection sees it, from a frame's length to its body."""

import struct
from collections.abc import Iterator

from tests.support.decoders import DECODERS, example_requests
from tidelog.base.errors import WireError
from tidelog.wire.api import SUPPORTED, ApiKey, decode_request_header

_LENGTH = struct.Struct(">i")


def fuzz_one(data: bytes) -> None:
    """Anything but WireError, which closes the connection, is a bug."""
    view = memoryview(data)
    position = 0
    while len(view) - position >= _LENGTH.size:
        length = _LENGTH.unpack_from(view, position)[0]
        position += _LENGTH.size
        if not 0 <= length <= len(view) - position:
            return
        try:
            _handle(view[position : position + length])
        except WireError:
            return
        position += length


def _handle(frame: memoryview) -> None:
    header = decode_request_header(frame)
    key = ApiKey(header.api_key)
    versions = SUPPORTED.get(key)
    if versions is None or not versions.lowest <= header.api_version <= versions.highest:
        return
    DECODERS[key](frame, header.body_position, header.api_version)


def seeds() -> Iterator[bytes]:
    """Every supported request by itself, and all in a row."""
    frames = [_LENGTH.pack(len(request)) + request for request in example_requests()]
    yield from frames
    yield b"".join(frames[:10])
