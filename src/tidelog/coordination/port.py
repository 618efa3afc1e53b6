"""The coordinator as the rest of tidelog sees it: ZooKeeper's semantics, nothing more (C1).

A coordinator keeps a tree of small versioned nodes. Claims - "I am alive", "I am the controller" -
are *ephemeral* nodes that vanish with the session that made them. Everything else is changed by
compare-and-set. `memory.py` serves unit tests and the simulator, `sqlite.py` one machine,
`zookeeper.py` many; `tests/contract/test_coordinator.py` runs on each.

Promises:

    K1  A write is durable and visible to every session before its call returns.
    K2  `transact` applies all of its operations or none.
    K3  Versions of a node start at 0 and grow by one with every `set`.
    K4  A watch delivers the newest state after a change, never the history: changes in quick
        succession may arrive as one, so claims carry an epoch.
    K5  After the session is lost every call raises SessionLost, and its ephemeral nodes are gone
        before anybody else can create them again.

A path is `/` or begins with `/` and does not end with it. The root is always there, holds nothing
and cannot be changed.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidelog.base.errors import TidelogError


class CoordinatorUnavailable(TidelogError):
    """The store gave no answer: its disk is full, it is locked, its servers are away.

    The session may well live on. Whether a write happened is not known unless the message says
    so; whoever repeats it must expect to find it done.
    """


class CoordinatorRefused(TidelogError):
    """The tree is not as the caller assumed. Read again and decide again."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NodeExists(CoordinatorRefused):
    """`create` found the node there already."""


class NoNode(CoordinatorRefused):
    """The node, or the parent of a node to create, is absent."""


class BadVersion(CoordinatorRefused):
    """Somebody else changed the node since it was read."""


class NotEmpty(CoordinatorRefused):
    """`delete` found children."""


class NoChildrenForEphemerals(CoordinatorRefused):
    """The parent of the node to create is ephemeral."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a path holds. `owner_session` is set on ephemeral nodes only.

    `creation_id` and `modification_id` are drawn from one counter of the whole tree that grows
    with every write: a node that was deleted and made again has a larger creation id, a broker's
    is its broker epoch, and comparing the ids of two nodes tells which was written later.
    """

    value: bytes
    version: int
    creation_id: int
    modification_id: int
    owner_session: int | None


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """`expected_version` None: whatever the version is."""

    path: str
    value: bytes
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing, but fails the transaction unless the node has this version."""

    path: str
    expected_version: int


Operation = Create | Set | Delete | Check


class Coordinator(Protocol):
    """One session. Calls may come from one event loop only."""

    @property
    def session_id(self) -> int: ...

    async def get(self, path: str) -> Node | None: ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """One round trip for many nodes; not a snapshot across them."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names below `path`, sorted; empty if `path` is absent."""
        ...

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        """Raises NodeExists, NoNode if the parent is absent."""
        ...

    async def ensure(self, path: str) -> None:
        """Create `path` and its parents, empty, where they are absent."""
        ...

    async def set(self, path: str, value: bytes, *, expected_version: int | None = None) -> int:
        """Return the new version. Raises NoNode, BadVersion."""
        ...

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        """Raises NoNode, BadVersion, NotEmpty."""
        ...

    async def delete_tree(self, path: str) -> None:
        """Delete `path` and all below it; absent is fine.

        One transaction where the store allows, so a crash may leave a part of it.
        """
        ...

    async def transact(self, operations: Sequence[Operation]) -> None:
        """All or none. Raises what the first failing operation alone would raise."""
        ...

    def watch(self, path: str) -> AsyncIterator[Node | None]:
        """Yield what `path` holds now, then again after every change; None is absent.

        Raises SessionLost once the session is lost.
        """
        ...

    def watch_children(self, path: str) -> AsyncIterator[list[str]]:
        """Yield the names below `path` now, then again after every change of that list."""
        ...

    def is_reliable(self, for_ms: int) -> bool:
        """Whether claims of the session may be acted upon, now and for `for_ms`, by the clock.

        No, if that is when others may call it dead: this process may have been stopped and be the
        last to know. Whether they did is found out; until then, and once it is lost, no.
        """
        ...

    async def session_lost(self) -> None:
        """Return once the session is lost. Never returns while it lives."""
        ...

    async def close(self) -> None:
        """End the session; its ephemeral nodes vanish at once."""
        ...
