"""One end of a simulated connection, with the half of the system and the half of the process.

The system's half goes on when the process is paused: bytes arrive and wait, connections are
accepted. The process's half - everything that calls its protocol - runs on its loop only.

    process:  protocol ── write ──▶ unsent ──▶│ system: stream ──▶ the other end
                       ◀── _read ── received ◀│ on_arrival ◀────── the other end

As with TCP and asyncio:

    - What is written waits as `unsent` once the window of the stream is full; `pause_writing` and
      `resume_writing` follow its size.
    - `close` ends the connection when everything unsent has left; `abort` drops it. What has left
      arrives before the end does.
    - Whoever ends a connection with bytes unread, or gets bytes after ending it, resets it. What
      has arrived before a reset is still read, as on Linux.
    - A process that does not read hears of a reset when it writes, and reads no more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tidelog.base.ports import BytesLike
from tidelog.sim.loop import ProcessLoop
from tidelog.sim.process import Process
from tidelog.sim.stream import Item, Signal, Stream

if TYPE_CHECKING:
    from tidelog.broker.network import ProtocolFactory
    from tidelog.sim.network import Host, SimulatedNetwork

HIGH_WATER_BYTES: Final = 64 * 1024
# What one call of `data_received` gets at most.
READ_MAX_BYTES: Final = 256 * 1024


class Address(NamedTuple):
    host: str
    port: int


class SimulatedTransport(asyncio.Transport):
    """See the module docstring."""

    __hash__ = object.__hash__  # Kept in dicts only, which have an order of their own.

    outgoing: Stream
    incoming: Stream
    """To the other end and from there; set by who makes both ends."""

    def __init__(
        self,
        network: "SimulatedNetwork",
        host: "Host",
        process: Process | None,
        *,
        local: Address,
        peer: Address,
    ) -> None:
        """`process` is None at the far end, until somebody accepts there."""
        super().__init__()
        self.host = host
        self.process = process
        self.local = local
        self.peer = peer
        self._network = network
        self._protocol: asyncio.BaseProtocol | None = None
        self._connecting: asyncio.Future[None] | None = None
        self._factory: ProtocolFactory | None = None
        self._awaits_answer = False
        self._is_open = False
        """Whether the system has this connection."""
        self._received: deque[bytes] = deque()
        self._end: Signal | None = None
        """How the other side ended it, once that has arrived."""
        self._is_reading = True
        self._will_read = False
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._high_bytes, self._low_bytes = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._is_write_paused = False
        self._is_closing = False
        self._is_lost = False

    # -- beginning -------------------------------------------------------------------------------

    def connect(self, connected: "asyncio.Future[None]", factory: "ProtocolFactory") -> None:
        """Ask the far end; `connected` is settled when it has answered."""
        self._connecting = connected
        self._awaits_answer = True
        self._factory = factory
        self._is_open = True
        self._network.opened(self)
        self.outgoing.signal(Signal.CONNECT)

    def abandon(self) -> None:
        """Whoever wanted to connect has given up."""
        self._connecting = None
        self._is_closing = True
        self._end_system_half(Signal.RESET)

    def refuse(self) -> None:
        """Nobody listens at this end."""
        self.outgoing.signal(Signal.RESET)

    def accept(self, process: Process, in_process: "Callable[[SimulatedTransport], None]") -> None:
        """The system answers for `process`, which is told when it runs."""
        self.process = process
        self._is_open = True
        self._network.opened(self)
        self.outgoing.signal(Signal.ACCEPT)
        process.loop.call_soon(in_process, self)

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """In the process: bytes go to `protocol` from now on."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._wake_reader()

    # -- the system's half -----------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        return self._unsent_bytes > 0

    def on_arrival(self, item: Item) -> None:
        """Something comes from the other end."""
        if isinstance(item, bytes):
            if self._is_open:
                self._received.append(item)
                self._wake_reader()
            else:
                self.outgoing.signal(Signal.RESET)
        elif item is Signal.CONNECT:
            self._network.on_connect(self)
        elif not self._is_open:
            return
        elif self._awaits_answer:
            self._on_answer(item)
        else:
            self._on_end(item)

    def on_room(self) -> None:
        """The stream takes more."""
        if self._is_open and self._unsent:
            self._loop.call_soon(self._send_unsent)

    def on_process_end(self) -> None:
        """The process is gone, or does not want it: the system ends the connection for it."""
        self._unsent.clear()
        self._unsent_bytes = 0
        self._end_system_half(Signal.END if self._protocol is not None else Signal.RESET)

    def _on_answer(self, item: Signal) -> None:
        self._awaits_answer = False
        self._loop.call_soon(self._connected, item is Signal.ACCEPT)
        if item is not Signal.ACCEPT:
            self._is_open = False
            self._network.closed(self)

    def _on_end(self, signal: Signal) -> None:
        if signal is Signal.RESET:
            self._is_open = False
            self._network.closed(self)
        self._end = signal
        self._wake_reader()

    def _end_system_half(self, signal: Signal) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._network.closed(self)
        if self.host.is_on:
            self.outgoing.signal(Signal.RESET if self._received else signal)

    # -- the process's half: reading -------------------------------------------------------------

    def _connected(self, is_accepted: bool) -> None:
        connecting, self._connecting = self._connecting, None
        if connecting is None or connecting.done():
            return
        if not is_accepted:
            connecting.set_exception(ConnectionRefusedError(f"nobody listens at {self.peer}"))
            return
        assert self._factory is not None
        self.begin(self._factory())
        connecting.set_result(None)

    def _wake_reader(self) -> None:
        if (
            self._is_reading
            and not self._will_read
            and self._protocol is not None
            and (self._received or self._end is not None)
        ):
            self._will_read = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._will_read = False
        if self._is_closing or not self._is_reading:
            return
        if self._received:
            try:
                self._hand_over()
            except OSError as error:
                self._force_close(error)
                return
            if self._received or self._end is not None:
                self._wake_reader()
        elif self._end is Signal.RESET:
            self._force_close(ConnectionResetError("the connection was reset"))
        elif self._end is Signal.END:
            self._is_reading = False
            protocol = cast(asyncio.Protocol, self._protocol)
            if not protocol.eof_received():
                self.close()

    def _hand_over(self) -> None:
        """Give the protocol what has arrived, as much as it takes at once."""
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            data = self._take(READ_MAX_BYTES)
            cast(asyncio.Protocol, protocol).data_received(data)
            return
        received = self._received
        buffer = memoryview(protocol.get_buffer(-1))
        if len(received) == 1 and len(received[0]) <= len(buffer):
            data = received.popleft()
            self.incoming.on_read(len(data))
        else:
            data = self._take(len(buffer))
        buffer[: len(data)] = data
        protocol.buffer_updated(len(data))

    def _take(self, max_bytes: int) -> bytes:
        received = self._received
        taken: list[bytes] = []
        left_bytes = max_bytes
        while received and left_bytes:
            first = received.popleft()
            if len(first) > left_bytes:
                received.appendleft(first[left_bytes:])
                first = first[:left_bytes]
            taken.append(first)
            left_bytes -= len(first)
        self.incoming.on_read(max_bytes - left_bytes)
        return b"".join(taken)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if self._is_closing:
            return
        self._is_reading = True
        self._wake_reader()

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    # -- the process's half: writing -------------------------------------------------------------

    def write(self, data: BytesLike) -> None:
        if self._is_closing or not self._may_act:
            return
        if self._end is Signal.RESET:
            self._force_close(BrokenPipeError("the connection was reset"))
            return
        size_bytes = len(data)
        if not size_bytes:
            return
        if not self._unsent_bytes and size_bytes <= self.outgoing.room_bytes:
            self.outgoing.send(bytes(data))
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += size_bytes
        self._send_unsent()

    def writelines(self, list_of_data: Iterable[BytesLike]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def _send_unsent(self) -> None:
        """Give the stream what it takes, and tell the protocol how much is left."""
        if self._is_lost or not self._may_act:
            return
        unsent = self._unsent
        while unsent and (room_bytes := self.outgoing.room_bytes) > 0:
            first = unsent.popleft()
            if len(first) > room_bytes:
                unsent.appendleft(first[room_bytes:])
                first = first[:room_bytes]
            self._unsent_bytes -= len(first)
            self.outgoing.send(first)
        self._pace_writing()
        if self._is_closing and not unsent:
            self._lose(None)

    def _pace_writing(self) -> None:
        protocol = cast(asyncio.Protocol, self._protocol)
        if not self._is_write_paused and self._unsent_bytes > self._high_bytes:
            self._is_write_paused = True
            protocol.pause_writing()
        elif self._is_write_paused and self._unsent_bytes <= self._low_bytes:
            self._is_write_paused = False
            protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high_bytes = high
        self._low_bytes = high // 4 if low is None else low
        self._pace_writing()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    # -- the process's half: ends ----------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        self._force_close(None)

    def _force_close(self, error: Exception | None) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0
        self._is_closing = True
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost and self._may_act:
            self._is_lost = True
            self._loop.call_soon(self._say_lost, error)

    def _say_lost(self, error: Exception | None) -> None:
        assert self._protocol is not None
        try:
            self._protocol.connection_lost(error)
        finally:
            self._end_system_half(Signal.END)

    # -- about it --------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return tuple(self.peer)
        if name == "sockname":
            return tuple(self.local)
        return default

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    @property
    def _may_act(self) -> bool:
        """Whether its process lives: what a dead one still tries has no effect."""
        return self.process is not None and self.process.is_alive

    @property
    def _loop(self) -> ProcessLoop:
        assert self.process is not None
        return self.process.loop
