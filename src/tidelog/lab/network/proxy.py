"""The proxies of one network: a listener for each route, and all connections that came by them.

    caller ──▶ listener of the route ──▶ Connection ──▶ target of the route
                                            ▲
       Callers (whose socket is it?) ───────┤
       Links (what is between the two?) ────┘

Everything happens on the event loop but the question who calls, which takes milliseconds and is
asked in a thread, for all connections at once that were accepted since it was asked last. A
connection waits meanwhile; those that are open go on.

Not here: what links there are to be, and who says so (`process.py`).

Invariants:

    I1  At most `connections_max` connections are held, whatever their callers do; who comes then is
        reset, as by a machine that has no memory left.
    I2  When a method that changes links returns, nothing passes that should not any more.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Final

from tidelog.lab.errors import PortInUse
from tidelog.lab.network.connection import Connection, Stage, Target, Traffic
from tidelog.lab.network.direction import READ_BYTES
from tidelog.lab.network.errors import NetworkError
from tidelog.lab.network.links import Links
from tidelog.lab.network.parties import Party
from tidelog.lab.network.routes import LISTEN_HOST, Route
from tidelog.lab.network.socket_inodes import Caller
from tidelog.lab.network.status import PairStatus

# Connections of a link that is cut pile up, as often as their callers try again.
CONNECTIONS_MAX: Final = 8_192
_BACKLOG: Final = 1_024
_ACCEPTS_PER_TURN: Final = 64

Identify = Callable[[Sequence[Caller]], Sequence[Party]]


class Proxy:
    """Forwards what comes in by `routes`, as `links` says, while `run` runs."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        routes: Sequence[Route],
        identify: Identify,
        executor: Executor,
        connections_max: int,
    ) -> None:
        self.routes = tuple(routes)
        self.links = Links()
        self.refused_count = 0
        self._loop = loop
        self._identify = identify
        self._executor = executor
        self._connections_max = connections_max
        self._listeners: dict[Route, socket.socket] = {}
        self._connections: set[Connection] = set()
        self._nameless: list[tuple[Caller, Connection]] = []
        self._has_nameless = asyncio.Event()
        self._traffic: dict[tuple[Party, Party], Traffic] = {}
        self._buffer = memoryview(bytearray(READ_BYTES))

    def open(self) -> None:
        """Listen at every route's port; PortInUse names one that somebody has."""
        for route in self.routes:
            self._listen(route, _resolve(route, flags=0))

    def add(self, route: Route) -> None:
        """Listen at one more port; PortInUse, or NetworkError for a host that is no address."""
        # A name might take seconds to look up, for which nothing would be forwarded.
        self._listen(route, _resolve(route, flags=socket.AI_NUMERICHOST))
        self.routes = (*self.routes, route)

    def remove(self, party: Party) -> None:
        """Lead to `party` no more: nobody listens for it, and connections to it are reset."""
        for route in self.routes:
            if route.party == party:
                self._stop_listening(self._listeners.pop(route))
        self.routes = tuple(route for route in self.routes if route.party != party)
        for connection in list(self._connections):
            if connection.target.party == party:
                connection.reset()

    def close(self) -> None:
        """Reset every connection and listen no more."""
        for listener in self._listeners.values():
            self._stop_listening(listener)
        self._listeners.clear()
        for connection in list(self._connections):
            connection.reset()

    async def run(self) -> None:
        """Find out who calls, until it is cancelled."""
        while True:
            await self._has_nameless.wait()  # Ended by a new connection, or cancelled.
            self._has_nameless.clear()
            asked, self._nameless = self._nameless, []
            callers = [caller for caller, _ in asked]
            parties = await self._loop.run_in_executor(self._executor, self._identify, callers)
            for (_, connection), party in zip(asked, parties, strict=True):
                self._on_identified(connection, party)

    def on_links_changed(self) -> None:
        """Let every connection do as its link says now."""
        for connection in list(self._connections):
            if connection.caller is not None:
                link = self.links.link(connection.caller, connection.target.party)
                connection.on_link_changed(link)

    def pairs(self) -> Iterable[PairStatus]:
        """What was and is carried, by who called whom."""
        stages = Counter(
            (connection.caller, connection.target.party, connection.stage is Stage.OPEN)
            for connection in self._connections
        )
        return [
            PairStatus(
                caller=caller,
                target=target,
                open_count=stages[caller, target, True],
                waiting_count=stages[caller, target, False],
                sent_bytes=traffic.sent_bytes,
                received_bytes=traffic.received_bytes,
            )
            for (caller, target), traffic in sorted(self._traffic.items())
        ]

    def _listen(self, route: Route, target: Target) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LISTEN_HOST, route.port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise PortInUse(LISTEN_HOST, route.port) from error
        self._listeners[route] = listener
        self._loop.add_reader(listener, partial(self._on_acceptable, listener, target))

    def _stop_listening(self, listener: socket.socket) -> None:
        self._loop.remove_reader(listener)
        listener.close()

    def _on_acceptable(self, listener: socket.socket, target: Target) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, (host, port) = listener.accept()
            except OSError:
                return  # Nobody is left, or the one that was has gone.
            accepted.setblocking(False)
            with suppress(OSError):  # macOS says so if it was reset already.
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(
                loop=self._loop,
                caller_socket=accepted,
                target=target,
                buffer=self._buffer,
                on_closed=self._connections.discard,
            )
            if len(self._connections) >= self._connections_max:  # I1
                self.refused_count += 1
                connection.reset()
                continue
            self._connections.add(connection)
            self._nameless.append((Caller(host, port, *accepted.getsockname()), connection))
            self._has_nameless.set()

    def _on_identified(self, connection: Connection, party: Party) -> None:
        target = connection.target.party
        traffic = self._traffic.setdefault((party, target), Traffic())
        connection.on_identified(party, self.links.link(party, target), traffic)


def _resolve(route: Route, *, flags: int) -> Target:
    host, port = route.target_host, route.target_port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except OSError as error:
        raise NetworkError(f"{route.target_host} is no host that is known here") from error
    # The first is the one that most would take; brokers of a local cluster have one only.
    family, _kind, _protocol, _name, address = found[0]
    assert isinstance(address[0], str)
    return Target(family, address, route.party)
