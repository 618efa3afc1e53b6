"""The coordinator of one machine: an SQLite file that all its brokers open (C1, G2).

A session is one `SqliteCoordinator` and two threads. The *worker* (`sqlite_worker.py`) owns the
connection, so that the event loop never waits for a disk or for another process's lock; the other
only renews the lease (`session_file.py`).

    event loop ──requests──▶ worker ──BEGIN IMMEDIATE … COMMIT──▶ file ◀── other processes
        ▲                      │  ▲                                          │
        └──answers, watches────┘  └────────── PRAGMA data_version ───────────┘

How the promises of `port.py` are kept:

    K1  synchronous=FULL: a commit returns once it is flushed. Writes that wait for the worker at
        the same time share one transaction and one flush.
    K2  Every call has a savepoint of its own within that transaction.
    K4  A watch remembers the versions it last saw and offers the newest state when they differ.
    K5  Each transaction first makes sure that the session is still in the file. Whoever declares
        a session dead removes it and its ephemeral nodes in one transaction.

Beside the file lie SQLite's own `-wal` and `-shm` and a folder `-sessions`; all of them must be on
a local disk.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidelog.base.errors import SessionLost, TidelogError
from tidelog.coordination.paths import is_well_formed
from tidelog.coordination.port import Create, Delete, Node, Operation, Set
from tidelog.coordination.sqlite_tree import SqliteTree
from tidelog.coordination.sqlite_worker import (
    Arm,
    Callback,
    Close,
    Disarm,
    LoopClosed,
    Read,
    SqliteWorker,
    Watch,
    Write,
)
from tidelog.coordination.watches import WatchSlot

Answer = TypeVar("Answer")


async def connect(
    path: Path, *, session_timeout_ms: int, heartbeat_interval_ms: int
) -> "SqliteCoordinator":
    """Begin a session on the file at `path`, which is made if it is absent.

    The lease is renewed every `heartbeat_interval_ms`; nobody may call the session dead before
    `session_timeout_ms` have passed without that, unless its process is gone.

    Sessions of processes that died are ended first, so a broker that restarts finds none of its
    former claims. Raises StorageError if the file cannot be used.
    """
    coordinator = SqliteCoordinator(
        path,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
    )
    await coordinator.join()
    return coordinator


class SqliteCoordinator:
    """One session; use `connect` to begin it."""

    def __init__(self, path: Path, *, session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[int] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._unanswered: set[Callable[[TidelogError], None]] = set()
        self._slots: set[WatchSlot[Node | None] | WatchSlot[list[str]]] = set()
        self._worker = SqliteWorker(
            path,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            post=self._post,
            joined=self._on_joined,
            ended=self._on_ended,
        )

    async def join(self) -> None:
        self._worker.start()
        try:
            await self._joined  # Ended by the worker, which waits for nothing without a bound.
        except asyncio.CancelledError:
            self._worker.requests.put(Close())
            raise

    @property
    def session_id(self) -> int:
        return self._joined.result()

    async def get(self, path: str) -> Node | None:
        assert is_well_formed(path)
        return await self._read(lambda tree: tree.get(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        assert all(map(is_well_formed, paths))
        return await self._read(lambda tree: tree.get_many(paths))

    async def children(self, path: str) -> list[str]:
        assert is_well_formed(path)
        return await self._read(lambda tree: tree.children(path))

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        await self.transact([Create(path, value, ephemeral)])

    async def ensure(self, path: str) -> None:
        assert is_well_formed(path)
        await self._write(lambda tree: tree.ensure(path, self.session_id))

    async def set(self, path: str, value: bytes, *, expected_version: int | None = None) -> int:
        def run(tree: SqliteTree) -> int:
            tree.apply([Set(path, value, expected_version)], self.session_id)
            node = tree.get(path)
            assert node is not None
            return node.version

        assert is_well_formed(path)
        return await self._write(run)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        await self.transact([Delete(path, expected_version)])

    async def delete_tree(self, path: str) -> None:
        assert is_well_formed(path)
        await self._write(lambda tree: tree.delete_tree(path))

    async def transact(self, operations: Sequence[Operation]) -> None:
        assert all(is_well_formed(operation.path) for operation in operations)
        await self._write(lambda tree: tree.apply(operations, self.session_id))

    async def watch(self, path: str) -> AsyncIterator[Node | None]:
        assert is_well_formed(path)
        slot: WatchSlot[Node | None] = WatchSlot()
        watch = Watch(
            lambda tree: tree.node_fingerprint(path),
            lambda tree: partial(slot.offer, tree.get(path)),
        )
        with self._armed(slot, watch):
            async for node in slot.states():
                yield node

    async def watch_children(self, path: str) -> AsyncIterator[list[str]]:
        assert is_well_formed(path)
        slot: WatchSlot[list[str]] = WatchSlot()
        watch = Watch(
            lambda tree: tree.children_fingerprint(path),
            lambda tree: partial(slot.offer, tree.children(path)),
        )
        with self._armed(slot, watch):
            async for names in slot.states():
                yield names

    def is_reliable(self, for_ms: int) -> bool:
        return not self._ended.is_set() and self._worker.is_reliable(for_ms)

    async def session_lost(self) -> None:
        await self._ended.wait()  # Ended by `close` or by the loss of the session.

    async def close(self) -> None:
        self._worker.requests.put(Close())
        await self._ended.wait()  # The worker's last words, said whatever happens to it.

    @contextmanager
    def _armed(
        self, slot: WatchSlot[Node | None] | WatchSlot[list[str]], watch: Watch
    ) -> Iterator[None]:
        self._admit()
        self._slots.add(slot)
        self._worker.requests.put(Arm(watch))
        try:
            yield
        finally:
            self._slots.discard(slot)
            self._worker.requests.put(Disarm(watch))

    async def _read(self, action: Callable[[SqliteTree], Answer]) -> Answer:
        return await self._ask(Read, action)

    async def _write(self, action: Callable[[SqliteTree], Answer]) -> Answer:
        return await self._ask(Write, action)

    async def _ask(
        self, kind: type[Read] | type[Write], action: Callable[[SqliteTree], Answer]
    ) -> Answer:
        self._admit()
        future: asyncio.Future[Answer] = self._loop.create_future()
        fail = partial(_fail, future)
        self._unanswered.add(fail)
        self._worker.requests.put(kind(lambda tree: partial(_settle, future, action(tree)), fail))
        try:
            return await future  # Ended by the worker's answer or by the loss of the session.
        finally:
            self._unanswered.discard(fail)

    def _admit(self) -> None:
        if self._ended.is_set():
            raise self._loss()

    def _post(self, callbacks: Sequence[Callback]) -> None:
        """Called by the worker, on its thread."""
        if self._loop.is_closed():
            raise LoopClosed
        if not callbacks:
            return
        try:
            self._loop.call_soon_threadsafe(_run_all, callbacks)
        except RuntimeError as error:  # Closed since we asked.
            raise LoopClosed from error

    def _on_joined(self, outcome: int | TidelogError) -> None:
        if isinstance(outcome, TidelogError):
            _fail(self._joined, outcome)
        else:
            _settle(self._joined, outcome)

    def _on_ended(self) -> None:
        """Tell everybody who waits: the worker will not."""
        self._ended.set()
        for slot in self._slots:
            slot.lose()
        for fail in self._unanswered:
            fail(self._loss())

    def _loss(self) -> SessionLost:
        return SessionLost(f"session {self.session_id} has ended")


def _run_all(callbacks: Sequence[Callback]) -> None:
    for callback in callbacks:
        callback()


def _settle(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():  # Done already: whoever asked was cancelled.
        future.set_result(answer)


def _fail(future: asyncio.Future[Answer], error: TidelogError) -> None:
    if not future.done():
        future.set_exception(error)
