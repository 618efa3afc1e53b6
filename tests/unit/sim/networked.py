"""Servers and clients for tests of the simulated network."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tidelog.broker.network import Network
from tidelog.sim.links import Conditions, same_machine, same_rack
from tidelog.sim.network import SimulatedNetwork
from tidelog.sim.process import Process
from tidelog.sim.world import World

PORT = 9092
SERVER = "server"
CLIENT = "client"
CONNECT_TIMEOUT_S = 20.0
WINDOW_BYTES = 64 * 1024
LATENCY_MAX_S = 0.001


def calm() -> Conditions:
    """Nothing is lost, so that a test can say when something arrives."""
    return replace(same_rack(), loss_probability=0.0, split_probability=0.0)


def new_network(world: World) -> SimulatedNetwork:
    return SimulatedNetwork(
        world,
        between=calm(),
        within=same_machine(),
        connect_timeout_s=CONNECT_TIMEOUT_S,
        window_bytes=WINDOW_BYTES,
    )


class Peer(asyncio.Protocol):
    """Writes down what it hears, and sends what `answer` makes of it."""

    def __init__(self, answer: Callable[[bytes], bytes] | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = bytearray()
        self.pieces: list[int] = []
        self.pauses: list[bool] = []
        self.losses: list[Exception | None] = []
        self.ended = asyncio.Event()
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.pieces.append(len(data))
        if self._answer is not None:
            self.write(self._answer(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.losses.append(exc)
        self.ended.set()

    def pause_writing(self) -> None:
        self.pauses.append(True)

    def resume_writing(self) -> None:
        self.pauses.append(False)

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class Scene:
    """A server and a client, each a process on a machine of its own."""

    def __init__(self, world: World, *, answer: Callable[[bytes], bytes] | None) -> None:
        self.world = world
        self.network = new_network(world)
        self.accepted: list[Peer] = []
        self._answer = answer
        self.server = self.start_server()

    def start_server(self) -> Process:
        self.server = self.world.spawn(SERVER, self._serve)
        return self.server

    def start_client(self, use: Callable[[Network], Awaitable[None]]) -> Process:
        async def main(process: Process) -> None:
            await use(self.network.attach(process, CLIENT))

        return self.world.spawn(CLIENT, main)

    def connected(self) -> Peer:
        """A client that is connected."""
        peers: list[Peer] = []

        async def use(network: Network) -> None:
            peers.append(await connect(network))
            await asyncio.Event().wait()

        self.start_client(use)
        self.world.run_until(lambda: bool(peers), within_s=10)
        return peers[0]

    def _accept(self) -> Peer:
        peer = Peer(self._answer)
        self.accepted.append(peer)
        return peer

    async def _serve(self, process: Process) -> None:
        network: Network = self.network.attach(process, SERVER)
        address = await network.reserve("", PORT, backlog=50)
        await address.listen(self._accept)
        await asyncio.Event().wait()


async def connect(network: Network) -> Peer:
    peer = Peer()
    await network.connect(SERVER, PORT, lambda: peer)
    return peer
