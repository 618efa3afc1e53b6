"""The broker's own server and connections, unchanged, on the simulated network."""

import asyncio
import struct
from collections.abc import Iterator

import pytest

from tests.unit.sim.networked import CLIENT, PORT, SERVER, Peer, connect, new_network
from tidelog.base.clock import SystemClock
from tidelog.broker.after_read import AfterRead
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.memory import MemoryBound
from tidelog.broker.network import Network
from tidelog.broker.server import Server, ServerLimits
from tidelog.broker.shortcuts import SHORTCUTS
from tidelog.config.listeners import Listener
from tidelog.sim.process import Process
from tidelog.sim.world import World

LIMITS = ServerLimits(
    request_max_bytes=2**20,
    read_budget_bytes=2**16,
    connections_max=100,
    connections_max_per_ip=100,
    connections_max_per_ip_overrides={},
    connections_per_second_max=2**31 - 1,
    unpaced_listener=None,
    descriptor_max=100,
    idle_max_ms=600_000,
    slow_reader_max_ms=30_000,
    send_buffer_bytes=-1,
    receive_buffer_bytes=-1,
)


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1, lines_max=1_000) as world:
        yield world


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(_connection: Connection, request: memoryview) -> Answer:
    return frame(bytes(request))


async def serve(network: Network, process: Process) -> None:
    server = Server(
        limits=LIMITS,
        network=network,
        clock=SystemClock(),
        loop=process.loop,
        frame_memory=MemoryBound(2**30),
        request_memory=MemoryBound(2**30),
        answer_memory=MemoryBound(2**30),
        after_read=AfterRead(process.loop),
        turns=HeavyTurns(process.loop, pause_s=0),
        protocol=SHORTCUTS.protocol,
        dispatch=echo,
    )
    await server.bind(Listener("PLAINTEXT", SERVER, PORT), backlog=50)
    await server.listen()
    await asyncio.Event().wait()


def test_a_server_answers_requests_of_every_size_in_order(world: World) -> None:
    network = new_network(world)
    requests = [frame(bytes([size % 251]) * size) for size in (1, 100, 70_000, 3, 900_000, 5)]
    expected = b"".join(requests)
    peers: list[Peer] = []

    async def server_main(process: Process) -> None:
        await serve(network.attach(process, SERVER), process)

    async def client_main(process: Process) -> None:
        peers.append(await connect(network.attach(process, CLIENT)))
        for request in requests:
            peers[0].write(request)
        await asyncio.Event().wait()

    world.spawn(SERVER, server_main)
    world.spawn(CLIENT, client_main)
    world.run_until(lambda: bool(peers) and len(peers[0].received) == len(expected), within_s=60)
    assert peers[0].received == expected
