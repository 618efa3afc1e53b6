"""Listens, admits connections up to their limits, and lets them go when the broker stops.

Limits kept here (G5, Kafka's names): `max.connections`, `max.connections.per.ip` with its
overrides, `connections.max.idle.ms`, and the bytes that half-received requests and unread answers
may hold over all connections. A connection over a limit is closed at once and logged once; nobody
else notices. Connections that come faster than `max.connection.creation.rate` wait for their turn.
Neither do logs: connections leave them some of the files that the system lets a
process open, without which a segment could not be rolled.

Cost does not grow with idle connections: they are kept in order of last use, so looking for idle
ones touches only those that are (T8).
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tidelog.base.errors import ConfigError
from tidelog.base.ports import Clock
from tidelog.broker.after_read import AfterRead
from tidelog.broker.connection import Answer, Connection, ConnectionOwner
from tidelog.broker.connection_pace import ConnectionPace
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.memory import MemoryBound
from tidelog.broker.network import Network, Reserved
from tidelog.broker.session_gate import SessionGate
from tidelog.config.listeners import Listener

logger = logging.getLogger(__name__)

SHARED_BUFFER_BYTES = 256 * 1024
SWEEP_INTERVAL_S = 1.0

Dispatch = Callable[[Connection, memoryview], Answer]
ReadsFor = Callable[[Connection, ConnectionOwner], asyncio.BufferedProtocol]
"""What the loop reads into on behalf of a connection: the connection itself, or a shortcut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one server lets its clients use."""

    request_max_bytes: int
    read_budget_bytes: int
    connections_max: int
    connections_max_per_ip: int
    connections_max_per_ip_overrides: Mapping[str, int]
    connections_per_second_max: int
    unpaced_listener: str | None
    """Of other brokers, if clients have another: their connections do not wait."""
    descriptor_max: int
    idle_max_ms: int
    slow_reader_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int


@dataclass(frozen=True, slots=True)
class _Bound:
    """An address of ours, and whose clients come there."""

    listener: Listener
    address: Reserved


class Server:
    """Owns every client connection of the broker."""

    def __init__(
        self,
        *,
        limits: ServerLimits,
        network: Network,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        frame_memory: MemoryBound,
        request_memory: MemoryBound,
        answer_memory: MemoryBound,
        after_read: AfterRead,
        turns: HeavyTurns,
        protocol: ReadsFor,
        dispatch: Dispatch,
    ) -> None:
        self.limits = limits
        self.loop = loop
        self.dispatch = dispatch
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.request_max_bytes = limits.request_max_bytes
        self.read_budget_bytes = limits.read_budget_bytes
        self._network = network
        self._clock = clock
        self.frame_memory = frame_memory
        self.request_memory = request_memory
        self.answer_memory = answer_memory
        self.gate = SessionGate(clock, loop)
        self.after_read = after_read
        self.turns = turns
        self._protocol = protocol
        self._connections: OrderedDict[Connection, None] = OrderedDict()
        self._per_ip: Counter[str] = Counter()
        self._slow: dict[Connection, tuple[int, int]] = {}
        self._bound: list[_Bound] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self.now_ms = clock.monotonic_ms()
        self._pace = ConnectionPace(clock, loop, limits.connections_per_second_max)
        self._drained: asyncio.Event | None = None
        self._is_draining = False

    # -- life ------------------------------------------------------------------------------------

    async def bind(self, listener: Listener, *, backlog: int) -> int:
        """Reserve the address without accepting yet; return its port (port 0 picks one)."""
        try:
            address = await self._network.reserve(listener.host, listener.port, backlog=backlog)
        except OSError as error:
            raise _refused(listener, error) from error
        except UnicodeError as error:
            # What Python says of an empty or overlong part of a name, before anybody is asked.
            raise ConfigError(f"listeners holds {listener}: not the name of a host") from error
        self._bound.append(_Bound(listener, address))
        return address.port

    async def listen(self) -> None:
        """Accept connections."""
        for bound in self._bound:
            try:
                await bound.address.listen(partial(self._accept, bound.listener.name))
            except OSError as error:
                self.stop_listening()
                raise _refused(bound.listener, error) from error
        self._sweep()

    def _accept(self, listener_name: str) -> asyncio.BufferedProtocol:
        return self._protocol(Connection(self, listener_name), self)

    def set_limits(self, limits: ServerLimits) -> None:
        """Apply new limits, to connections that come from now on."""
        self.limits = limits
        self.request_max_bytes = limits.request_max_bytes
        self.read_budget_bytes = limits.read_budget_bytes
        self._pace.set_rate(limits.connections_per_second_max)

    def stop_listening(self) -> None:
        for bound in self._bound:
            bound.address.close()
        self._bound.clear()

    async def drain(self, within_s: float) -> None:
        """Stop accepting and reading, let answers that are on their way leave, close everything."""
        self._is_draining = True
        self.stop_listening()
        self._pace.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if not self._connections:
            return
        self._drained = asyncio.Event()
        for connection in list(self._connections):
            connection.finish()
        try:
            await asyncio.wait_for(self._drained.wait(), timeout=within_s)
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # -- called by connections -------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Whether one more connection fits; it is counted if so."""
        if self._is_draining:
            return False  # Accepted just before the listener closed.
        host = connection.peer_host
        per_ip = self.limits.connections_max_per_ip_overrides.get(
            host, self.limits.connections_max_per_ip
        )
        if len(self._connections) >= self.limits.connections_max:
            self._log_refusal(connection, f"max.connections={self.limits.connections_max}")
            return False
        if self._per_ip[host] >= per_ip:
            self._log_refusal(connection, f"max.connections.per.ip={per_ip}")
            return False
        # The system hands out the smallest that is free, so it tells how many are in use.
        if connection.descriptor > self.limits.descriptor_max:
            self._log_refusal(connection, "open files of a process (ulimit -n)")
            return False
        self._per_ip[host] += 1
        self._connections[connection] = None
        connection.last_used_ms = self.now_ms
        connection.set_buffers(
            send_bytes=self.limits.send_buffer_bytes,
            receive_bytes=self.limits.receive_buffer_bytes,
        )
        if connection.listener_name != self.limits.unpaced_listener:
            self._pace.admit(connection)
        return True

    def forget(self, connection: Connection) -> None:
        self._slow.pop(connection, None)
        self._pace.forget(connection)
        if self._connections.pop(connection, self) is self:
            return
        self._per_ip[connection.peer_host] -= 1
        if not self._per_ip[connection.peer_host]:
            del self._per_ip[connection.peer_host]
        if self._drained is not None and not self._connections:
            self._drained.set()

    def touched(self, connection: Connection) -> None:
        """Called once in a sweep at most: time to that precision is enough."""
        connection.last_used_ms = self.now_ms
        self._connections.move_to_end(connection)

    # -- sweeping --------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self.now_ms = self._clock.monotonic_ms()
        self._close_idle()
        self._close_slow_readers()
        self._sweeper = self.loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    def _close_idle(self) -> None:
        idle: list[Connection] = []
        for connection in self._connections:
            if self.now_ms - connection.last_used_ms < self.limits.idle_max_ms:
                break
            if not connection.closing:
                idle.append(connection)
        for connection in idle:
            logger.info("idle connection closed", extra={"peer": _peer(connection)})
            connection.close()

    def _close_slow_readers(self) -> None:
        """Close whoever has not taken a byte of its answer for too long."""
        if not self.answer_memory.held_bytes:
            self._slow.clear()
            return
        still_slow: dict[Connection, tuple[int, int]] = {}
        for connection in self._connections:
            unread = connection.unread_answer_bytes
            if not unread:
                continue
            since_ms, before = self._slow.get(connection, (self.now_ms, unread))
            if unread != before:
                since_ms = self.now_ms
            still_slow[connection] = (since_ms, unread)
        self._slow = still_slow
        for connection, (since_ms, unread) in list(still_slow.items()):
            if self.now_ms - since_ms >= self.limits.slow_reader_max_ms:
                logger.warning(
                    "connection closed: client does not read its answers",
                    extra={"peer": _peer(connection), "unread_bytes": unread},
                )
                connection.abort()

    def _log_refusal(self, connection: Connection, limit: str) -> None:
        logger.warning("connection refused", extra={"peer": _peer(connection), "limit": limit})


def _peer(connection: Connection) -> str:
    return f"{connection.peer_host}:{connection.peer_port}"


def _refused(listener: Listener, error: OSError) -> ConfigError:
    return ConfigError(f"listeners holds {listener}: {error.strerror or error}")
