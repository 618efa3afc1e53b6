"""Connections between brokers in memory: what one writes the other reads, in the next turn."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.unit.broker.served import ServedWorld
from tests.unit.broker.world import LISTENER
from tidelog.base.ports import BytesLike
from tidelog.broker.connection import Connection
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.network import ProtocolFactory, Reserved
from tidelog.broker.peers import Address, Peer


class PipedTransport(asyncio.Transport):
    """One end."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.other: PipedTransport | None = None
        self._unread = bytearray()
        self._is_reading = True
        self._is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.9.9.9", 4_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: BytesLike) -> None:
        other = self.other
        if other is not None and not self._is_closed:
            other._unread += data
            asyncio.get_running_loop().call_soon(other.deliver)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        while self._unread and self._is_reading and not self._is_closed:
            buffer = memoryview(self.protocol.get_buffer(-1))
            size_bytes = min(len(buffer), len(self._unread))
            buffer[:size_bytes] = self._unread[:size_bytes]
            del self._unread[:size_bytes]
            self.protocol.buffer_updated(size_bytes)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        loop = asyncio.get_running_loop()
        loop.call_soon(self.protocol.connection_lost, None)
        if self.other is not None:
            loop.call_soon(self.other.abort)


class PipedNetwork:
    """Reaches the brokers that the test names."""

    def __init__(self, find: Callable[[Address], ServedWorld]) -> None:
        self._find = find

    async def reserve(self, host: str, port: int, *, backlog: int) -> Reserved:
        raise AssertionError("nobody listens here")

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        protocol = factory()
        assert isinstance(protocol, asyncio.BufferedProtocol)
        far = Connection(self._find(Address(host, port)).server, LISTENER)
        near_end, far_end = PipedTransport(protocol), PipedTransport(far)
        near_end.other, far_end.other = far_end, near_end
        far.connection_made(far_end)
        protocol.connection_made(near_end)

    def peer(self, address: Address) -> Peer:
        return Peer(
            address,
            network=self,
            loop=asyncio.get_running_loop(),
            timeout_ms=10_000,
            answer_max_bytes=2**20,
            turns=HeavyTurns(asyncio.get_running_loop(), pause_s=0),
        )
