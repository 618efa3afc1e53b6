"""Answers as they come over a socket of our own: a size, and as many bytes."""

import socket
import struct
from typing import Final

from tidelog.client.errors import ClientError

FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
"""An answer that is longer is none that anybody here asks for."""
_SIZE: Final = struct.Struct(">i")


def receive_frame(connection: socket.socket) -> memoryview:
    """The next answer without its size. Raises OSError, and ClientError if it cannot be one."""
    (size_bytes,) = _SIZE.unpack(_receive(connection, _SIZE.size))
    if not 0 <= size_bytes <= FRAME_BYTES_MAX:
        raise ClientError(f"the broker announced an answer of {size_bytes} bytes")
    return _receive(connection, size_bytes)


def _receive(connection: socket.socket, size_bytes: int) -> memoryview:
    received = memoryview(bytearray(size_bytes))
    filled = 0
    while filled < size_bytes:
        count = connection.recv_into(received[filled:])
        if not count:
            raise ConnectionResetError("it closed the connection")
        filled += count
    return received
