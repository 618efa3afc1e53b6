"""The implementations of the Coordinator port, each as something a test can connect to."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import ParamSpec, Protocol

from kazoo.client import KazooClient

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
        """Take the session over and close it: what a server does when it expires one."""
        assert isinstance(coordinator, ZooKeeperCoordinator)
        await asyncio.to_thread(self._close_session, coordinator.credentials)

    def _close_session(self, credentials: tuple[int, bytes]) -> None:
        client = KazooClient(self.hosts, client_id=credentials)
        client.start()
        client.stop()
        client.close()
