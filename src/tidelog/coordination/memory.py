"""A coordinator that lives in one process, for unit tests and the simulator.

`MemoryTree` is what ZooKeeper's servers or SQLite's file are elsewhere; each `connect` is a
session on it. Nothing survives the process. Sessions end by `close` or by `MemoryTree.expire`,
never by time: the simulator decides when.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol, TypeVar, assert_never

from tidelog.base.errors import SessionLost
from tidelog.coordination.paths import ROOT, ancestors, join, split
from tidelog.coordination.port import (
    BadVersion,
    Check,
    CoordinatorRefused,
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
from tidelog.coordination.watches import WatchSlot

_ROOT_NODE = Node(b"", version=0, creation_id=0, modification_id=0, owner_session=None)


class TreeSession(Protocol):
    """What a tree tells each session on it."""

    def mark_lost(self) -> None:
        """The tree has let go of this session."""
        ...

    def announce(self, changed: Container[str], parents: Container[str]) -> None:
        """Nodes `changed`, and the lists of children of `parents`."""
        ...


Session = TypeVar("Session", bound=TreeSession)


class MemoryTree:
    """The nodes and the sessions that share them."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {ROOT: _ROOT_NODE}
        self._children: dict[str, set[str]] = {ROOT: set()}
        self._sessions: dict[int, TreeSession] = {}
        self._session_ids = count(1)
        self._last_write_id = 0

    def connect(self) -> "MemoryCoordinator":
        return self.join(lambda session_id: MemoryCoordinator(self, session_id))

    def join(self, new_session: Callable[[int], Session]) -> Session:
        """Begin a session, under an id of its own."""
        session_id = next(self._session_ids)
        session = new_session(session_id)
        self._sessions[session_id] = session
        return session

    def has_session(self, session_id: int) -> bool:
        return session_id in self._sessions

    def expire(self, session_id: int) -> None:
        """End a session the way a coordinator does when it has not heard from it for too long."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.mark_lost()
        owned = [path for path, node in self._nodes.items() if node.owner_session == session_id]
        self.transact([Delete(path) for path in owned], session_id)

    def get(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def descendants(self, path: str) -> list[str]:
        """Everything below `path`, parents before their children."""
        found = [path] if path in self._nodes else []
        for parent in found:
            found.extend(join(parent, name) for name in self.children(parent))
        return found[1:]

    def transact(self, operations: Sequence[Operation], session_id: int) -> None:
        self._last_write_id += 1
        done: list[tuple[str, Node | None]] = []
        try:
            for operation in operations:
                path, node = self._outcome(operation, session_id)
                done.append((path, self._nodes.get(path)))
                self._put(path, node)
        except CoordinatorRefused:
            for path, node_before in reversed(done):
                self._put(path, node_before)
            raise
        # Of several steps on one path the first knew what was there before.
        self._announce(dict(reversed(done)))

    def set(self, path: str, value: bytes, expected_version: int | None, session_id: int) -> int:
        """The new version."""
        self.transact([Set(path, value, expected_version)], session_id)
        return self._nodes[path].version

    def ensure(self, path: str, session_id: int) -> None:
        absent = [step for step in (*ancestors(path), path) if self.get(step) is None]
        self.transact([Create(step, b"") for step in absent], session_id)

    def delete_tree(self, path: str, session_id: int) -> None:
        if self.get(path) is not None:
            steps = (*reversed(self.descendants(path)), path)
            self.transact([Delete(step) for step in steps], session_id)

    def _outcome(self, operation: Operation, session_id: int) -> tuple[str, Node | None]:
        """What `operation` leaves at its path, if it is allowed."""
        write_id = self._last_write_id
        match operation:
            case Create(path, value, ephemeral):
                self._require_creatable(path)
                return path, Node(value, 0, write_id, write_id, session_id if ephemeral else None)
            case Set(path, value, expected_version):
                node = self._require(path, expected_version)
                version = node.version + 1
                return path, replace(node, value=value, version=version, modification_id=write_id)
            case Delete(path, expected_version):
                self._require(path, expected_version)
                if self._children[path]:
                    raise NotEmpty(path)
                return path, None
            case Check(path, expected_version):
                return path, self._require(path, expected_version)
            case _:
                assert_never(operation)

    def _require(self, path: str, expected_version: int | None) -> Node:
        node = self.get(path)
        if node is None:
            raise NoNode(path)
        if expected_version is not None and node.version != expected_version:
            raise BadVersion(path)
        return node

    def _require_creatable(self, path: str) -> None:
        parent, _name = split(path)
        if parent not in self._nodes:
            raise NoNode(path)
        if self._nodes[parent].owner_session is not None:
            raise NoChildrenForEphemerals(path)
        if path in self._nodes:
            raise NodeExists(path)

    def _put(self, path: str, node: Node | None) -> None:
        parent, name = split(path)
        if node is None:
            del self._nodes[path]
            del self._children[path]
            self._children[parent].remove(name)
        else:
            self._nodes[path] = node
            self._children.setdefault(path, set())
            self._children[parent].add(name)

    def _announce(self, before: Mapping[str, Node | None]) -> None:
        changed = {path for path, node in before.items() if node != self._nodes.get(path)}
        parents = {
            split(path)[0]
            for path in changed
            if (before[path] is None) != (path not in self._nodes)
        }
        for session in self._sessions.values():
            session.announce(changed, parents)


class MemoryCoordinator:
    """One session on a MemoryTree.

    Each call lets other tasks run before it acts, as a call to a store elsewhere would: code that
    counts on nothing happening in between fails here too.
    """

    def __init__(self, tree: MemoryTree, session_id: int) -> None:
        self._tree = tree
        self._session_id = session_id
        self._lost = asyncio.Event()
        self.is_doubtful = False
        """For tests: as if the process had been stopped for longer than the lease."""
        self._node_slots: dict[WatchSlot[Node | None], str] = {}
        self._children_slots: dict[WatchSlot[list[str]], str] = {}

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str) -> Node | None:
        await self._admit()
        return self._tree.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        await self._admit()
        return [self._tree.get(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        await self._admit()
        return self._tree.children(path)

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        await self.transact([Create(path, value, ephemeral)])

    async def ensure(self, path: str) -> None:
        await self._admit()
        self._tree.ensure(path, self._session_id)

    async def set(self, path: str, value: bytes, *, expected_version: int | None = None) -> int:
        await self._admit()
        return self._tree.set(path, value, expected_version, self._session_id)

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        await self.transact([Delete(path, expected_version)])

    async def delete_tree(self, path: str) -> None:
        await self._admit()
        self._tree.delete_tree(path, self._session_id)

    async def transact(self, operations: Sequence[Operation]) -> None:
        await self._admit()
        self._tree.transact(operations, self._session_id)

    async def watch(self, path: str) -> AsyncIterator[Node | None]:
        await self._admit()
        slot: WatchSlot[Node | None] = WatchSlot()
        slot.offer(self._tree.get(path))
        self._node_slots[slot] = path
        try:
            async for node in slot.states():
                yield node
        finally:
            del self._node_slots[slot]

    async def watch_children(self, path: str) -> AsyncIterator[list[str]]:
        await self._admit()
        slot: WatchSlot[list[str]] = WatchSlot()
        slot.offer(self._tree.children(path))
        self._children_slots[slot] = path
        try:
            async for names in slot.states():
                yield names
        finally:
            del self._children_slots[slot]

    def is_reliable(self, for_ms: int) -> bool:
        return not self._lost.is_set() and not self.is_doubtful

    async def session_lost(self) -> None:
        await self._lost.wait()  # Ended by `close` or by the tree's `expire`.

    async def close(self) -> None:
        self._tree.expire(self._session_id)

    def mark_lost(self) -> None:
        self._lost.set()
        for node_slot in self._node_slots:
            node_slot.lose()
        for children_slot in self._children_slots:
            children_slot.lose()

    def announce(self, changed: Container[str], parents: Container[str]) -> None:
        for node_slot, path in self._node_slots.items():
            if path in changed:
                node_slot.offer(self._tree.get(path))
        for children_slot, path in self._children_slots.items():
            if path in parents:
                children_slot.offer(self._tree.children(path))

    async def _admit(self) -> None:
        await asyncio.sleep(0)
        if self._lost.is_set():
            raise SessionLost(f"session {self._session_id} has ended")
