"""One broker's connection to another: what goes wrong on it is told to whoever asked."""

import asyncio
import gc
import struct

import pytest

from tests.unit.broker.fake_transport import FakeTransport
from tidelog.broker.network import ProtocolFactory, Reserved
from tidelog.broker.peers import Address, Peer, PeerUnreachable

FRAME = struct.pack(">ihhi", 8, 1, 0, 7)


class NetworkOfOne:
    """Connects everybody to one end that never answers."""

    def __init__(self) -> None:
        self.protocols: list[asyncio.BaseProtocol] = []

    async def reserve(self, host: str, port: int, *, backlog: int) -> Reserved:
        raise AssertionError("nobody listens here")

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        protocol = factory()
        protocol.connection_made(FakeTransport())
        self.protocols.append(protocol)


def peer_on(network: NetworkOfOne) -> Peer:
    return Peer(
        Address("b", 9092),
        network=network,
        loop=asyncio.get_running_loop(),
        timeout_ms=60_000,
        answer_max_bytes=1_000,
    )


def test_answers_that_nobody_waits_for_any_more_may_fail() -> None:
    """Requests may be sent ahead: who hears that the first has failed does not ask for the rest.

    An exception that reaches the event loop ends a broker.
    """

    async def story() -> list[object]:
        reached_the_loop: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: reached_the_loop.append(context))
        peer = peer_on(NetworkOfOne())
        await peer.connect()
        first, ahead = peer.send(FRAME), peer.send(FRAME)
        peer.close()
        with pytest.raises(PeerUnreachable, match="given up"):
            await first
        del first, ahead
        gc.collect()
        await asyncio.sleep(0)
        return reached_the_loop

    assert asyncio.run(story()) == []
