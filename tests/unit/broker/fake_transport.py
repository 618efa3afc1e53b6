"""The other end of a connection without a socket."""

import asyncio
from typing import Any

from tidelog.base.ports import BytesLike


class FakeTransport(asyncio.Transport):
    """Takes what is written; `is_stalled` makes it keep everything, as a full socket does."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.unsent = bytearray()
        self.is_stalled = False
        self.reads = True
        self.is_closed = False
        self.protocol: asyncio.BufferedProtocol | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 4_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: BytesLike) -> None:
        if not self.is_stalled:
            self.sent += data
            return
        self.unsent += data
        assert self.protocol is not None
        self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def take_all(self) -> None:
        """The client reads again."""
        self.is_stalled = False
        self.sent += self.unsent
        self.unsent.clear()
        assert self.protocol is not None
        self.protocol.resume_writing()

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Outbox:
    """Feeds a connection as uvloop would: only what it has room for, only while it reads."""

    def __init__(self, connection: asyncio.BufferedProtocol, transport: FakeTransport) -> None:
        self._connection = connection
        self._transport = transport
        self._bytes = bytearray()

    def send(self, data: bytes, *, chunk_bytes: int = 2**20) -> None:
        self._bytes += data
        self.deliver(chunk_bytes)

    def deliver(self, chunk_bytes: int = 2**20) -> None:
        while self._bytes and self._transport.reads and not self._transport.is_closed:
            buffer = memoryview(self._connection.get_buffer(-1))
            assert len(buffer) > 0
            size_bytes = min(len(buffer), chunk_bytes, len(self._bytes))
            buffer[:size_bytes] = self._bytes[:size_bytes]
            del self._bytes[:size_bytes]
            self._connection.buffer_updated(size_bytes)
