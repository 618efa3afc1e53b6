"""The other end of a broker's connections to others, played by the test: no sockets, no time."""

import asyncio
import struct
from collections.abc import Callable

from tidelog.base.ports import BytesLike
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.network import ProtocolFactory, Reserved
from tidelog.broker.peers import Address, Peer

LENGTH = struct.Struct(">i")
ADDRESS = Address("far.example", 9092)


class FarTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.written = bytearray()
        self.protocol = protocol
        self.is_closed = False
        self.is_paused = False
        self.on_resumed: Callable[[], None] | None = None

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        if self.on_resumed is not None:
            asyncio.get_running_loop().call_soon(self.on_resumed)

    def write(self, data: BytesLike) -> None:
        assert not self.is_closed
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class FarConnection:
    """One connection as the broker at the far end sees it."""

    def __init__(self, transport: FarTransport) -> None:
        self._transport = transport
        self._unsent = bytearray()

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closed

    def requests(self) -> list[memoryview]:
        """What has arrived since this was last asked, without lengths."""
        arrived, frames = self._transport.written, []
        while arrived:
            (size_bytes,) = LENGTH.unpack_from(arrived)
            frames.append(memoryview(bytes(arrived[4 : 4 + size_bytes])))
            assert len(frames[-1]) == size_bytes
            del arrived[: 4 + size_bytes]
        return frames

    def send(self, data: bytes, *, chunk_bytes: int = 2**30) -> None:
        """As a socket does: what the reader has room for, and perhaps less; and when it will."""
        transport = self._transport
        self._unsent += data
        transport.on_resumed = lambda: self._go_on(chunk_bytes)
        self._go_on(chunk_bytes)

    def _go_on(self, chunk_bytes: int) -> None:
        protocol, rest = self._transport.protocol, memoryview(bytes(self._unsent))
        while rest and not self.is_closed and not self._transport.is_paused:
            buffer = memoryview(protocol.get_buffer(-1))
            assert len(buffer) > 0
            size_bytes = min(len(buffer), chunk_bytes, len(rest))
            buffer[:size_bytes] = rest[:size_bytes]
            rest = rest[size_bytes:]
            del self._unsent[:size_bytes]
            protocol.buffer_updated(size_bytes)

    def close(self) -> None:
        self._transport.is_closed = True
        self._transport.protocol.connection_lost(None)


class FarEnd:
    """A network on which everybody reaches the test."""

    def __init__(self) -> None:
        self.connections: list[FarConnection] = []
        self.is_refusing = False
        self.is_silent = False
        self.attempts = 0
        self.timeout_ms = 60_000

    @property
    def connection(self) -> FarConnection:
        """The newest."""
        return self.connections[-1]

    async def reserve(self, host: str, port: int, *, backlog: int) -> Reserved:
        raise AssertionError("nobody listens here")

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.is_refusing:
            raise ConnectionRefusedError
        if self.is_silent:
            await asyncio.Event().wait()  # Ended by whoever waits for it.
        protocol = factory()
        assert isinstance(protocol, asyncio.BufferedProtocol)
        transport = FarTransport(protocol)
        protocol.connection_made(transport)
        self.connections.append(FarConnection(transport))

    def peer(self, address: Address = ADDRESS) -> Peer:
        return Peer(
            address,
            network=self,
            loop=asyncio.get_running_loop(),
            timeout_ms=self.timeout_ms,
            answer_max_bytes=2**20,
            turns=HeavyTurns(asyncio.get_running_loop(), pause_s=0),
        )
