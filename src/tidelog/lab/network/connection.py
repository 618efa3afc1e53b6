"""One connection that somebody made to a party of the network, from its first moment to its last.

    accepted ──▶ who is it? ──▶ link cut? ──heal──▶ opening ──▶ open: two directions ──▶ closed
                                   ▲                  │  │
                                   └── cut meanwhile ─┘  └── target refuses: the caller is reset

Of the caller nothing is read before the target has accepted, so what it says first waits in the
kernel. A caller whose link is cut is accepted all the same and hears nothing: there is no way to
leave a SYN unanswered without being root. A target that refuses makes the caller's connection be
reset at once; to whoever called a dead broker it looks like a broker that died just now.

Invariants:

    I1  Both sockets are closed when the connection is, and `on_closed` is called once.
    I2  One reset makes both be reset; two ends make both be closed.
"""

import asyncio
import errno
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidelog.lab.network.direction import Direction, Over
from tidelog.lab.network.links import Link
from tidelog.lab.network.parties import Party

_MS_PER_S: Final = 1_000
# With no time to linger a closed socket sends a reset.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Stage(Enum):
    """How far a connection is."""

    UNKNOWN = "unknown"
    """Nobody has said yet who calls."""
    WAITING = "waiting"
    """For the link to be healed, or for the delay of a slow one."""
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a party listens."""

    family: int
    address: tuple[str, int] | tuple[str, int, int, int]
    party: Party


@dataclass(slots=True)
class Traffic:
    """Bytes that connections of one party to another have carried, also those that are closed."""

    sent_bytes: int = 0
    received_bytes: int = 0

    def on_sent(self, size_bytes: int) -> None:
        self.sent_bytes += size_bytes

    def on_received(self, size_bytes: int) -> None:
        self.received_bytes += size_bytes


class Connection:
    """A caller, the party it wants, and what passes between them."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        caller_socket: socket.socket,
        target: Target,
        buffer: memoryview,
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self.stage = Stage.UNKNOWN
        self.caller: Party | None = None
        self.target = target
        self._loop = loop
        self._caller_socket = caller_socket
        self._target_socket: socket.socket | None = None
        self._buffer = buffer
        self._on_closed = on_closed
        self._traffic = Traffic()
        self._link = Link(is_cut=True, delay_ms=0)
        self._directions: tuple[Direction, ...] = ()
        self._opening_timer: asyncio.TimerHandle | None = None

    def on_identified(self, caller: Party, link: Link, traffic: Traffic) -> None:
        """Who calls is known; it goes on from here by itself."""
        if self.stage is Stage.CLOSED:
            return
        assert self.stage is Stage.UNKNOWN
        self.caller = caller
        self._traffic = traffic
        self.stage = Stage.WAITING
        self.on_link_changed(link)

    def on_link_changed(self, link: Link) -> None:
        """What is between the two is another link from now on; only for callers that are known."""
        assert self.caller is not None
        self._link = link
        for direction in self._directions:
            direction.set_link(link)
        if self.stage is Stage.WAITING:
            self._wait_for_link()

    def reset(self) -> None:
        """End it for both sides at once, whatever is on its way."""
        for one in (self._caller_socket, self._target_socket):
            if one is not None:
                with suppress(OSError):  # macOS says so if it was reset already.
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._close()

    # -- opening ---------------------------------------------------------------------------------

    def _wait_for_link(self) -> None:
        self._cancel_opening()
        if self._link.is_cut:
            return
        if self._link.delay_ms:
            delay_s = self._link.delay_ms / _MS_PER_S
            self._opening_timer = self._loop.call_later(delay_s, self._open)
        else:
            self._open()

    def _cancel_opening(self) -> None:
        if self._opening_timer is not None:
            self._opening_timer.cancel()
            self._opening_timer = None

    def _open(self) -> None:
        assert self.stage is Stage.WAITING
        self.stage = Stage.OPENING
        self._target_socket = one = socket.socket(self.target.family, socket.SOCK_STREAM)
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        error_number = one.connect_ex(self.target.address)
        if error_number == errno.EINPROGRESS:
            self._loop.add_writer(one, self._on_connected)
        else:
            self._on_connect_ended(one, error_number)

    def _on_connected(self) -> None:
        one = self._target_socket
        assert one is not None
        self._loop.remove_writer(one)
        self._on_connect_ended(one, one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _on_connect_ended(self, one: socket.socket, error_number: int) -> None:
        # Where nobody listens, a connection that was given the same port as its own becomes one to
        # itself, and would keep the broker from listening there again.
        if error_number == 0 and one.getsockname() != self.target.address:
            self._forward(one)
        elif self._link.is_cut:
            one.close()
            self._target_socket = None
            self.stage = Stage.WAITING  # The refusal does not come through either.
        else:
            self.reset()

    def _forward(self, target_socket: socket.socket) -> None:
        self.stage = Stage.OPEN
        ways = (
            (self._caller_socket, target_socket, self._traffic.on_sent),
            (target_socket, self._caller_socket, self._traffic.on_received),
        )
        self._directions = tuple(
            Direction(
                loop=self._loop,
                source=source,
                sink=sink,
                buffer=self._buffer,
                link=self._link,
                on_forwarded=on_forwarded,
                on_over=self._on_over,
            )
            for source, sink, on_forwarded in ways
        )
        for direction in self._directions:
            direction.set_link(self._link)

    # -- ending ----------------------------------------------------------------------------------

    def _on_over(self, direction: Direction, over: Over) -> None:
        forth, back = self._directions
        other = back if direction is forth else forth
        match over:
            case Over.RESET:
                self.reset()  # I2
            case Over.SINK_GONE if other.over is None:
                other.reset_at_end()
            case Over.SINK_GONE:
                self.reset()  # I2
            case Over.ENDED if other.over is not None:
                self._close()  # I2
            case Over.ENDED:
                return  # Half closed.

    def _close(self) -> None:
        if self.stage is Stage.CLOSED:
            return
        if self.stage is Stage.OPENING and self._target_socket is not None:
            self._loop.remove_writer(self._target_socket)
        self.stage = Stage.CLOSED
        self._cancel_opening()
        for direction in self._directions:
            direction.stop()
        self._caller_socket.close()
        if self._target_socket is not None:
            self._target_socket.close()
        self._on_closed(self)  # I1
