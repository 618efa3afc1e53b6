"""The coordinator of many machines: a ZooKeeper ensemble, through kazoo (C1).

    event loop ──requests──▶ kazoo's connection thread ══▶ one of the servers
        ▲                          │         ▲
        └───answers, bells─────────┘         └── heartbeats ── lease thread

`kazoo_client.py` is the protocol, `zookeeper_session.py` the session and its lease. How the
promises of `port.py` are kept:

    K1  ZooKeeper acknowledges what a majority of its servers has on disk. Others may be behind, so
        every read is led by a `sync`, in the same round trip.
    K2  `transact` is ZooKeeper's multi.
    K3  Versions are ZooKeeper's; ids are its zxids, one counter for all clusters of an ensemble.
    K4  ZooKeeper's watches fire once. A watcher that is rung sets the watch again and reads, in
        this order, so that no change falls between. A lost connection rings them all.
    K5  `_admit`, before a request is sent and after it is answered, asks the session's lease.

A read that the connection took with it is repeated. A write is not, since it may have happened: it
raises CoordinatorUnavailable, though not before there is a connection again or the session is lost.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, assert_never

from kazoo import exceptions as kazoo_errors

from tidelog.base.errors import SessionLost, TidelogError
from tidelog.coordination.paths import ROOT, ancestors, is_well_formed, join
from tidelog.coordination.port import (
    BadVersion,
    Check,
    CoordinatorRefused,
    CoordinatorUnavailable,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
)
from tidelog.coordination.zookeeper_session import Callback, LoopClosed, ZooKeeperSession

# Servers drop the connection of whoever sends more at once (jute.maxbuffer).
REQUEST_BYTES_MAX = 1_048_575
DELETE_GROUP_MAX = 1_000
# So many requests are handed over before other tasks of the loop get their turn.
SUBMIT_GROUP_MAX = 100

_ANY_VERSION = -1
# Of one operation in a transaction, beside its path and value.
_OPERATION_OVERHEAD_BYTES = 64

_REFUSALS: dict[type[Exception], type[CoordinatorRefused]] = {
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NotEmptyError: NotEmpty,
}
_CONNECTION_LOST = (kazoo_errors.ConnectionLoss, kazoo_errors.SessionMovedError)
# What a transaction says of its operations before and after the one that failed.
_NOT_TO_BLAME = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)

Request: TypeAlias = Callable[[], Any]
"""Hands one request to kazoo and returns its AsyncResult."""

Outcome: TypeAlias = Any
"""What kazoo has for an answer, or its exception."""


def split_chroot(hosts: str) -> tuple[str, str]:
    """The servers and the folder of `a:2181,b:2181/folder`; an empty folder is the root."""
    servers, _, chroot = hosts.partition("/")
    chroot = chroot.strip("/")
    return servers, f"/{chroot}" if chroot else ""


async def connect(
    hosts: str, *, session_timeout_ms: int, connection_timeout_ms: int
) -> "ZooKeeperCoordinator":
    """Begin a session with the ensemble at `hosts`: `host:port,host:port/chroot`.

    The chroot is made if it is absent. Raises CoordinatorUnavailable if no server has answered
    within `connection_timeout_ms`. The servers may shorten or lengthen the session time-out.
    """
    servers, chroot = split_chroot(hosts)
    coordinator = ZooKeeperCoordinator(servers, chroot, session_timeout_ms=session_timeout_ms)
    try:
        async with asyncio.timeout(connection_timeout_ms / 1_000):
            await coordinator.join()
    except TimeoutError:
        await coordinator.close()
        raise CoordinatorUnavailable(
            f"no ZooKeeper server at {servers} has answered within {connection_timeout_ms} ms"
        ) from None
    except BaseException:
        await coordinator.close()
        raise
    return coordinator


class ZooKeeperCoordinator:
    """One session; use `connect` to begin it."""

    def __init__(self, servers: str, chroot: str, *, session_timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._chroot = chroot
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._unanswered: set[asyncio.Future[list[Outcome]]] = set()
        self._bells: dict[str, _Bell] = {}
        self._connection_news = asyncio.Event()
        self._session = ZooKeeperSession(
            servers,
            session_timeout_ms=session_timeout_ms,
            post=self._post,
            connected=self._on_connected,
            joined=self._on_joined,
            ended=self._on_ended,
        )
        self._client = self._session.client

    async def join(self) -> None:
        self._session.start()
        await self._joined  # Ended by the session, or by the caller's patience.
        if self._chroot:
            await self._make_absent([*ancestors(self._chroot), self._chroot])

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def credentials(self) -> tuple[int, bytes]:
        """With these another client can take the session over."""
        return self._session.client.credentials

    async def get(self, path: str) -> Node | None:
        (node,) = await self.get_many([path])
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        places = [self._place(path) for path in paths]
        outcomes = await self._read([partial(self._client.get_async, place) for place in places])
        return [_node(outcome) for outcome in outcomes]

    async def children(self, path: str) -> list[str]:
        (names,) = await self._children([self._place(path)])
        return names

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        place = self._place(path)
        request = partial(self._client.create_async, place, value, ephemeral=ephemeral)
        _require_done(path, *await self._write([request]))

    async def ensure(self, path: str) -> None:
        steps = [*ancestors(path), path] if path != ROOT else []
        await self._make_absent([self._place(step) for step in steps])

    async def set(self, path: str, value: bytes, *, expected_version: int | None = None) -> int:
        version = _ANY_VERSION if expected_version is None else expected_version
        request = partial(self._client.set_async, self._place(path), value, version)
        (outcome,) = await self._write([request])
        _require_done(path, outcome)
        return int(outcome.version)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        version = _ANY_VERSION if expected_version is None else expected_version
        request = partial(self._client.delete_async, self._place(path), version)
        _require_done(path, *await self._write([request]))

    async def delete_tree(self, path: str) -> None:
        while True:  # Ends: who changes the tree meanwhile cannot do so for ever.
            doomed = await self._tree_below(path)
            try:
                for start in range(0, len(doomed), DELETE_GROUP_MAX):
                    group = doomed[start : start + DELETE_GROUP_MAX]
                    await self.transact([Delete(each) for each in group])
                return
            except (NoNode, NotEmpty):
                continue

    async def transact(self, operations: Sequence[Operation]) -> None:
        self._admit()
        if not operations:
            return
        self._require_small(operations)
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        (outcome,) = await self._write([transaction.commit_async])
        _require_done(operations[0].path, outcome)
        for operation, result in zip(operations, outcome, strict=True):
            if not isinstance(result, _NOT_TO_BLAME):
                _require_done(operation.path, result)

    async def watch(self, path: str) -> AsyncIterator[Node | None]:
        place = self._place(path)
        seen: object = self  # Unlike any state.
        with self._listening(place) as (bell, rung):
            while True:
                rung.clear()
                # The first leaves a watch on what is there and on what is not.
                _, found = await self._read(
                    [
                        partial(self._client.exists_async, place, bell.on_event),
                        partial(self._client.get_async, place),
                    ]
                )
                node = _node(found)
                if node != seen:
                    seen = node
                    yield node
                await rung.wait()  # Ended by a change, a lost connection or a lost session.

    async def watch_children(self, path: str) -> AsyncIterator[list[str]]:
        place = self._place(path)
        seen: object = self
        with self._listening(place) as (bell, rung):
            while True:
                rung.clear()
                _, found = await self._read(
                    [
                        partial(self._client.exists_async, place, bell.on_event),
                        partial(self._client.get_children_async, place, bell.on_event),
                    ]
                )
                names = _names(found)
                if names != seen:
                    seen = names
                    yield names
                await rung.wait()  # Ended by a change, a lost connection or a lost session.

    def is_reliable(self, for_ms: int) -> bool:
        return self._session.is_reliable(for_ms)

    async def session_lost(self) -> None:
        await self._ended.wait()  # Ended by `close` or by the loss of the session.

    async def close(self) -> None:
        self._session.close()
        await self._ended.wait()  # The session's last words, said whatever happens to it.

    def _place(self, path: str) -> str:
        """Where ZooKeeper has `path`."""
        assert is_well_formed(path)
        if path == ROOT:
            return self._chroot or ROOT
        return self._chroot + path

    async def _children(self, places: Sequence[str]) -> list[list[str]]:
        requests = [partial(self._client.get_children_async, place) for place in places]
        return [_names(outcome) for outcome in await self._read(requests)]

    async def _tree_below(self, path: str) -> list[str]:
        """`path` and what is below it, children before their parents; nothing if it is absent."""
        if await self.get(path) is None:
            return []
        found = level = [path]
        while level:
            lists = await self._children([self._place(parent) for parent in level])
            level = [
                join(parent, name)
                for parent, names in zip(level, lists, strict=True)
                for name in names
            ]
            found = level + found
        return found

    async def _make_absent(self, places: Sequence[str]) -> None:
        """Create those of `places` that are not there, in this order."""
        outcomes = await self._read([partial(self._client.exists_async, each) for each in places])
        absent = [each for each, stat in zip(places, outcomes, strict=True) if stat is None]
        requests = [partial(self._client.create_async, each, b"") for each in absent]
        for place, outcome in zip(absent, await self._write(requests), strict=True):
            # Somebody else may have been quicker.
            if not isinstance(outcome, kazoo_errors.NodeExistsError):
                _require_done(place, outcome)

    def _add(self, transaction: Any, operation: Operation) -> None:
        place = self._place(operation.path)
        match operation:
            case Create(_, value, ephemeral):
                transaction.create(place, value, ephemeral=ephemeral)
            case Set(_, value, expected_version):
                version = _ANY_VERSION if expected_version is None else expected_version
                transaction.set_data(place, value, version)
            case Delete(_, expected_version):
                version = _ANY_VERSION if expected_version is None else expected_version
                transaction.delete(place, version)
            case Check(_, expected_version):
                transaction.check(place, expected_version)
            case _:
                assert_never(operation)

    def _require_small(self, operations: Sequence[Operation]) -> None:
        size_bytes = sum(
            _OPERATION_OVERHEAD_BYTES
            + len(self._chroot)
            + len(operation.path)
            + (len(operation.value) if isinstance(operation, Create | Set) else 0)
            for operation in operations
        )
        if size_bytes > REQUEST_BYTES_MAX:
            raise CoordinatorUnavailable(
                f"nothing was written: {len(operations)} operations take about {size_bytes} bytes "
                f"and ZooKeeper takes {REQUEST_BYTES_MAX} at once"
            )

    @contextmanager
    def _listening(self, place: str) -> Iterator[tuple["_Bell", asyncio.Event]]:
        self._admit()
        bell = self._bells.get(place)
        if bell is None:
            bell = self._bells[place] = _Bell(lambda: self._post_or_end(partial(self._ring, place)))
        rung = asyncio.Event()
        bell.listeners.add(rung)
        try:
            yield bell, rung
        finally:
            bell.listeners.discard(rung)

    def _ring(self, place: str) -> None:
        bell = self._bells.get(place)
        if bell is None:
            return
        if not bell.listeners:
            del self._bells[place]
        for rung in bell.listeners:
            rung.set()

    async def _read(self, requests: Sequence[Request]) -> list[Outcome]:
        """What is there now, or was at some time since the call (K1)."""
        sync = partial(self._client.sync_async, ROOT)
        while True:  # Ends with an answer or with the session.
            connection_number = self._session.connection_number
            outcomes = await self._ask([sync, *requests])
            if _is_cut_off(outcomes):
                await self._reconnected(connection_number)
            # The sync of one connection says nothing about the server at the end of the next.
            elif connection_number == self._session.connection_number:
                break
        for outcome in outcomes:
            if isinstance(outcome, Exception) and type(outcome) is not kazoo_errors.NoNodeError:
                raise _unavailable(outcome)
        return outcomes[1:]

    async def _write(self, requests: Sequence[Request]) -> list[Outcome]:
        connection_number = self._session.connection_number
        outcomes = await self._ask(requests)
        if _is_cut_off(outcomes):
            await self._reconnected(connection_number)
            raise CoordinatorUnavailable(
                "the connection to ZooKeeper was lost before it answered a write"
            )
        return outcomes

    async def _reconnected(self, lost_number: int) -> None:
        """Return once there is a later connection than number `lost_number`.

        What is asked earlier than that may be asked too early: kazoo, which is about to fail all
        that waits, would fail it too, and so on for ever.
        """
        while self._session.connection_number == lost_number:
            self._admit()
            await self._connection_news.wait()  # Ended by a connection or the session's end.
        self._admit()

    async def _ask(self, requests: Sequence[Request]) -> list[Outcome]:
        """One outcome for each request. They are sent in order and not one by one."""
        self._admit()
        if not requests:
            return []
        future: asyncio.Future[list[Outcome]] = self._loop.create_future()
        answers = _Answers(
            len(requests),
            lambda outcomes: self._post_or_end(partial(_settle, future, outcomes)),
        )
        self._unanswered.add(future)
        try:
            for index, request in enumerate(requests):
                if index % SUBMIT_GROUP_MAX == SUBMIT_GROUP_MAX - 1:
                    await asyncio.sleep(0)
                answers.expect(index, request())
            outcomes = await future  # Ended by kazoo's answers or by the loss of the session.
        finally:
            self._unanswered.discard(future)
        self._admit()
        return outcomes

    def _admit(self) -> None:
        if self._session.is_over():
            raise self._loss()

    def _post(self, callback: Callback | None) -> None:
        """Called on the session's threads."""
        if self._loop.is_closed():
            raise LoopClosed
        if callback is None:
            return
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError as error:  # Closed since we asked.
            raise LoopClosed from error

    def _post_or_end(self, callback: Callback) -> None:
        try:
            self._post(callback)
        except LoopClosed:
            self._session.close()

    def _on_connected(self) -> None:
        self._connection_news.set()
        self._connection_news = asyncio.Event()

    def _on_joined(self) -> None:
        _settle(self._joined, None)

    def _on_ended(self) -> None:
        self._ended.set()
        self._on_connected()
        _fail(self._joined, self._loss())
        for future in self._unanswered:
            _fail(future, self._loss())
        for place in list(self._bells):
            self._ring(place)

    def _loss(self) -> SessionLost:
        return SessionLost(f"session {self.session_id:#x} has ended")


class _Bell:
    """Rung when something at a place may have changed, for all who watch it.

    kazoo keeps each callback once, so however often a place is watched, it keeps one.
    """

    __slots__ = ("_ring", "listeners")

    def __init__(self, ring: Callback) -> None:
        self.listeners: set[asyncio.Event] = set()
        self._ring = ring

    def on_event(self, _event: object) -> None:
        """On the connection's thread."""
        self._ring()


class _Answers:
    """Collects the outcomes of requests that were sent together, and delivers them together."""

    __slots__ = ("_deliver", "_lock", "_missing", "_outcomes")

    def __init__(self, count: int, deliver: Callable[[list[Outcome]], None]) -> None:
        self._outcomes: list[Outcome] = [None] * count
        self._missing = set(range(count))
        self._deliver = deliver
        self._lock = threading.Lock()

    def expect(self, index: int, result: Any) -> None:
        result.rawlink(partial(self._take, index))

    def _take(self, index: int, result: Any) -> None:
        """On the connection's thread, or on the loop's if there is no connection any more."""
        with self._lock:
            if index not in self._missing:
                return  # kazoo may fail a request twice while it closes.
            self._missing.remove(index)
            self._outcomes[index] = result.value if result.successful() else result.exception
            is_last = not self._missing
        if is_last:
            self._deliver(self._outcomes)


def _is_cut_off(outcomes: Sequence[Outcome]) -> bool:
    return any(isinstance(outcome, _CONNECTION_LOST) for outcome in outcomes)


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if not future.done():  # Done already: whoever asked was cancelled.
        future.set_result(outcome)


def _fail(future: asyncio.Future[Any], error: TidelogError) -> None:
    if not future.done():
        future.set_exception(error)


def _node(outcome: Outcome) -> Node | None:
    if isinstance(outcome, kazoo_errors.NoNodeError):
        return None
    value, stat = outcome
    # None where another program made the node without a value.
    return Node(value or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner or None)


def _names(outcome: Outcome) -> list[str]:
    return [] if isinstance(outcome, kazoo_errors.NoNodeError) else sorted(outcome)


def _require_done(path: str, outcome: Outcome) -> None:
    if isinstance(outcome, Exception):
        raise _failure(path, outcome)


def _failure(path: str, error: Exception) -> TidelogError:
    refusal = _REFUSALS.get(type(error))
    return refusal(path) if refusal is not None else _unavailable(error)


def _unavailable(error: Exception) -> CoordinatorUnavailable:
    said = str(error) or type(error).__name__
    return CoordinatorUnavailable(f"ZooKeeper answered with an error: {said}")
