"""The implementations of the Coordinator port, each as something a test can connect to."""

import asyncio
import functools
import socket
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import ParamSpec, Protocol

from kazoo.protocol.serialization import Close, Connect

from tidelog.coordination import sqlite, zookeeper
from tidelog.coordination.memory import MemoryTree
from tidelog.coordination.port import Coordinator
from tidelog.coordination.sqlite_tree import SqliteTree
from tidelog.coordination.zookeeper import ZooKeeperCoordinator
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.links import same_machine, same_rack
from tidelog.sim.network import SimulatedNetwork
from tidelog.sim.world import World

TEST_LIMIT_S = 30
SESSION_TIMEOUT_MS = 2_000
CONNECTION_TIMEOUT_MS = 15_000

P = ParamSpec("P")


def on_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run an asynchronous test on a loop of its own; one that hangs fails."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        limited = asyncio.wait_for(test(*args, **kwargs), TEST_LIMIT_S)
        store = kwargs.get("store")
        if isinstance(store, SimulatedStore):
            store.run(limited)
        else:
            asyncio.run(limited)

    return run


class Store(Protocol):
    """What sessions of one implementation share."""

    async def connect(self) -> Coordinator: ...

    async def expire(self, coordinator: Coordinator) -> None:
        """Declare a session dead, as the store or another session does."""
        ...


class MemoryStore:
    def __init__(self) -> None:
        self._tree = MemoryTree()

    async def connect(self) -> Coordinator:
        return self._tree.connect()

    async def expire(self, coordinator: Coordinator) -> None:
        self._tree.expire(coordinator.session_id)


class SimulatedStore:
    """In virtual time, with sessions that all belong to the process of the test."""

    def __init__(self, seed: int) -> None:
        self._world = World(seed, lines_max=0)
        self._network = SimulatedNetwork(
            self._world,
            between=same_rack(),
            within=same_machine(),
            connect_timeout_s=10.0,
            window_bytes=2**16,
        )
        self._service = SimulatedCoordinatorService(
            self._world,
            self._network,
            host="coordinator",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            notices_death=False,
        )
        self._process = self._world.process("test")

    def run(self, test: Coroutine[None, None, None]) -> None:
        async def main() -> None:
            await test

        with self._world:
            self._process.start(main())
            self._world.run_until(lambda: not self._process.is_alive, within_s=2 * TEST_LIMIT_S)
            if self._process.failure is not None:
                raise self._process.failure

    async def connect(self) -> Coordinator:
        return await self._service.connect(self._process, "client")

    async def expire(self, coordinator: Coordinator) -> None:
        self._service.expire(coordinator.session_id)


class SqliteStore:
    def __init__(self, path: Path) -> None:
        self.path = path

    async def connect(self) -> Coordinator:
        return await sqlite.connect(
            self.path,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=SESSION_TIMEOUT_MS // 4,
        )

    async def expire(self, coordinator: Coordinator) -> None:
        tree = SqliteTree(self.path)
        tree.begin()
        tree.end_session(coordinator.session_id)
        tree.commit()
        tree.close()


class ZooKeeperStore:
    """One chroot of an ensemble, as `host:port,host:port/chroot`."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    async def connect(self) -> Coordinator:
        return await zookeeper.connect(
            self.hosts,
            session_timeout_ms=2 * SESSION_TIMEOUT_MS,
            connection_timeout_ms=CONNECTION_TIMEOUT_MS,
        )

    async def expire(self, coordinator: Coordinator) -> None:
        """Close it over another connection: servers do the same when a session has expired."""
        assert isinstance(coordinator, ZooKeeperCoordinator)
        servers, _ = zookeeper.split_chroot(self.hosts)
        await asyncio.to_thread(_end_session, servers, coordinator.credentials)


# A number that no request of the session's client has: servers would confuse the two.
_CLOSE_REQUEST = struct.pack(">ii", 2**31 - 1, Close.type)


def _end_session(servers: str, credentials: tuple[int, bytes]) -> None:
    while _granted_timeout_ms(servers, credentials, []) != 0:
        # In one breath, so that its client has no time to take the session back.
        _granted_timeout_ms(servers, credentials, [_CLOSE_REQUEST])


def _granted_timeout_ms(
    servers: str, credentials: tuple[int, bytes], requests: list[bytes]
) -> int | None:
    """Join the session, make requests; the time-out is 0 if it has ended, None if not known."""
    host, _, port = Random().choice(servers.split(",")).rpartition(":")
    session_id, password = credentials
    begin = Connect(0, 0, SESSION_TIMEOUT_MS, session_id, password, False).serialize()
    frames = [struct.pack(">i", len(each)) + each for each in (begin, *requests)]
    try:
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            connection.sendall(b"".join(frames))
            with connection.makefile("rb") as answer:
                granted_ms: int
                _size_bytes, _protocol, granted_ms = struct.unpack(">iii", answer.read(12))
                if requests:
                    answer.read()  # Servers close the connection after they have closed a session.
                return granted_ms
    except (OSError, struct.error):
        return None  # The server is dead, or has hung up before it was heard.
