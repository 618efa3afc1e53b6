"""One direction of a connection that passes through the network: bytes from one socket to another.

    source ──recv──▶ shared buffer ──send──▶ sink          the link is whole and the sink has room
                         │              ▲
                         └─▶ HeldBytes ─┘                  it is slow, or the sink has no room

It is asked of the sockets themselves, rather than of a transport, because a transport goes on
writing what it was given: after `set_link` with a link that is cut not a byte leaves, nothing is
read, and an end of either side is not noticed. The kernel keeps what it has, as it does while TCP
repeats itself on a real network. What the sink's socket was given before the cut has arrived.

What ends a direction, in the order in which it happens on the wire:

    source says END    what is held leaves, then the sink is told; the other way goes on
    source is reset    what is held leaves, then the sink is reset
    sink is reset      what is held is dropped; the other way brings what its socket still has, and
                       then the reset (`reset_at_end`)

Invariants:

    I1  Bytes leave in the order in which they were read, none twice, none left out.
    I2  Held are at most `HELD_MAX_BYTES` and one read; `READ_BYTES` if the link is not slow.
    I3  While the link is cut neither socket is watched.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from tidelog.lab.network.held_bytes import Ending, HeldBytes
from tidelog.lab.network.links import Link

READ_BYTES: Final = 256 * 1024
_MS_PER_S: Final = 1_000
# The loop's timers are no finer, and may be early by half of it.
_TIMER_STEP_S: Final = 0.001


class Over(Enum):
    """Why a direction has nothing more to do."""

    ENDED = auto()
    """The sink was told that nothing more comes."""
    RESET = auto()
    """The source was reset, and all that it said before has left: the sink is to be reset."""
    SINK_GONE = auto()
    """The sink takes nothing any more; its owner has gone."""


class Direction:
    """Moves bytes from `source` to `sink`, as the link lets it.

    `on_forwarded` is told how many have left; `on_over` that the end was passed on, or that nobody
    is left to have what comes: once.
    """

    __slots__ = (
        "_buffer",
        "_held",
        "_is_reading",
        "_is_writing",
        "_link",
        "_loop",
        "_on_forwarded",
        "_on_over",
        "_reset_at_end",
        "_sink",
        "_source",
        "_timer",
        "_wake_at_s",
        "over",
    )

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        sink: socket.socket,
        buffer: memoryview,
        link: Link,
        on_forwarded: Callable[[int], None],
        on_over: Callable[["Direction", Over], None],
    ) -> None:
        self._loop = loop
        self._source = source
        self._sink = sink
        self._buffer = buffer
        self._link = link
        self._on_forwarded = on_forwarded
        self._on_over = on_over
        self._held = HeldBytes()
        self._is_reading = False
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at_s: float | None = None
        self._reset_at_end = False
        self.over: Over | None = None

    def set_link(self, link: Link) -> None:
        """Go on, or stop, as the link says from now on."""
        self._link = link
        self._go_on()

    def reset_at_end(self) -> None:
        """The source was reset, as somebody found out who wrote to it."""
        self._reset_at_end = True
        if self._held.ending is not None:
            self._held.end(Ending.RESET, now_s=time.monotonic())
        self._go_on()

    def stop(self) -> None:
        """Watch nothing any more, whatever is called: the sockets may be closed."""
        if self.over is None:
            self.over = Over.RESET
        self._watch(reading=False, writing=False, wake_at_s=None)

    # -- what sockets say ------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            size_bytes = self._source.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._held.end(Ending.RESET, now_s=time.monotonic())
        else:
            if size_bytes:
                self._forward(self._buffer[:size_bytes])
            else:
                ending = Ending.RESET if self._reset_at_end else Ending.END
                self._held.end(ending, now_s=time.monotonic())
        self._go_on()

    def _forward(self, data: memoryview) -> None:
        sent_bytes = 0
        if not self._held.size_bytes and not self._link.delay_ms:
            sent_bytes = self._send([data])
        if self.over is None and sent_bytes < len(data):
            self._held.put(bytes(data[sent_bytes:]), now_s=time.monotonic())

    def _send(self, chunks: list[memoryview]) -> int:
        """How many bytes the sink had room for."""
        try:
            sent_bytes = self._sink.sendmsg(chunks)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._end(Over.SINK_GONE)
            return 0
        self._on_forwarded(sent_bytes)
        return sent_bytes

    # -- what is done next -----------------------------------------------------------------------

    def _go_on(self) -> None:
        """Let go of what may leave, and watch for what has to happen for the rest to."""
        if self.over is not None or self._link.is_cut:
            self._watch(reading=False, writing=False, wake_at_s=None)  # I3
            return
        delay_s = self._link.delay_ms / _MS_PER_S
        has_room = self._send_due(delay_s)
        self._pass_on_ending(delay_s)
        if self.over is not None:
            return
        # On a link that is not slow, what is held waits for room, and nothing more is read.
        may_hold_more = not self._held.is_full if delay_s else not self._held.size_bytes
        self._watch(
            reading=may_hold_more and self._held.ending is None,
            writing=not has_room,
            wake_at_s=self._held.next_due_s(delay_s=delay_s) if has_room else None,
        )

    def _send_due(self, delay_s: float) -> bool:
        """Send what is due; False if the sink has no room for it."""
        if not self._held.size_bytes:
            return True
        now_s = time.monotonic()
        while chunks := self._held.due(now_s=now_s, delay_s=delay_s):
            sent_bytes = self._send(chunks)
            if self.over is not None:
                break
            self._held.take(sent_bytes)
            if sent_bytes < sum(map(len, chunks)):
                return False
        return True

    def _pass_on_ending(self, delay_s: float) -> None:
        if self.over is not None or self._held.ending is None:
            return
        match self._held.due_ending(now_s=time.monotonic(), delay_s=delay_s):
            case None:
                return
            case Ending.RESET:
                self._end(Over.RESET)
            case Ending.END:
                try:
                    self._sink.shutdown(socket.SHUT_WR)
                except OSError:
                    self._end(Over.SINK_GONE)
                else:
                    self._end(Over.ENDED)

    def _end(self, over: Over) -> None:
        assert self.over is None
        self.over = over
        self._held.clear()
        self._watch(reading=False, writing=False, wake_at_s=None)
        self._on_over(self, over)

    def _watch(self, *, reading: bool, writing: bool, wake_at_s: float | None) -> None:
        if reading != self._is_reading:
            self._is_reading = reading
            if reading:
                self._loop.add_reader(self._source, self._on_readable)
            else:
                self._loop.remove_reader(self._source)
        if writing != self._is_writing:
            self._is_writing = writing
            if writing:
                self._loop.add_writer(self._sink, self._go_on)
            else:
                self._loop.remove_writer(self._sink)
        if wake_at_s != self._wake_at_s:
            self._set_timer(wake_at_s)

    def _set_timer(self, wake_at_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wake_at_s = wake_at_s
        self._timer = (
            None
            if wake_at_s is None
            else self._loop.call_later(
                max(_TIMER_STEP_S, wake_at_s - time.monotonic()), self._on_time
            )
        )

    def _on_time(self) -> None:
        self._timer, self._wake_at_s = None, None  # It is set anew if it was early.
        self._go_on()
