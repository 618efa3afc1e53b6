"""A session as the simulated coordinator sees it."""

from collections.abc import Container
from dataclasses import dataclass

from tidelog.coordination.memory import MemoryTree
from tidelog.coordination.port import Node
from tidelog.sim.coordinator_wire import Changed, Connection, Lost, State


@dataclass(frozen=True, slots=True)
class WatchedNode:
    path: str


@dataclass(frozen=True, slots=True)
class WatchedChildren:
    path: str


Watched = WatchedNode | WatchedChildren


class ServiceSession:
    """Lives on the tree until the service ends it. Its watches live as long as its connection."""

    def __init__(self, tree: MemoryTree, session_id: int, connection: Connection) -> None:
        self.tree = tree
        self.session_id = session_id
        self.connection = connection
        self.heard_at_s = 0.0
        self.is_lost = False
        self._watches: dict[int, Watched] = {}

    def continue_on(self, connection: Connection) -> None:
        """The client has begun another connection."""
        self.connection = connection
        self._watches.clear()

    def arm(self, watch_number: int, watched: Watched) -> State:
        """Tell the client of changes from now on; return what there is."""
        self._watches[watch_number] = watched
        return self._state(watched)

    def disarm(self, watch_number: int) -> None:
        self._watches.pop(watch_number, None)

    def mark_lost(self) -> None:
        self.is_lost = True
        self.connection.tell(Lost())

    def announce(self, changed: Container[str], parents: Container[str]) -> None:
        for number, watched in self._watches.items():
            if watched.path in (changed if isinstance(watched, WatchedNode) else parents):
                self.connection.tell(Changed(number, self._state(watched)))

    def _state(self, watched: Watched) -> "Node | list[str] | None":
        if isinstance(watched, WatchedNode):
            return self.tree.get(watched.path)
        return self.tree.children(watched.path)
