"""One direction of a simulated connection: bytes and signals under way, in order.

What is sent arrives after the latency of its link, never before what was sent earlier. While the
link is cut, or the machine at its end is off, nothing arrives; cut, it arrives after healing.

`unread_bytes` counts what was sent and not yet read by the process at the other end. It does not
exceed the window, as with TCP: who sends more keeps it (`transport.py`).
"""

from collections import deque
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.sim.network import SimulatedNetwork
    from tidelog.sim.transport import SimulatedTransport


class Signal(Enum):
    """What travels beside bytes."""

    CONNECT = "connect"
    ACCEPT = "accept"
    END = "end"
    RESET = "reset"


Item = bytes | Signal


class Stream:
    """See the module docstring."""

    __slots__ = (
        "_agenda",
        "_arrives_s",
        "_is_scheduled",
        "_link",
        "_network",
        "_under_way",
        "number",
        "source",
        "target",
        "unread_bytes",
    )

    def __init__(
        self,
        network: "SimulatedNetwork",
        source: "SimulatedTransport",
        target: "SimulatedTransport",
    ) -> None:
        self.number = next(network.stream_numbers)
        self.source = source
        self.target = target
        self.unread_bytes = 0
        self._network = network
        self._agenda = network.agenda
        self._link = network.link(source.local.host, target.local.host)
        self._under_way: deque[tuple[float, Item]] = deque()
        self._arrives_s = 0.0
        self._is_scheduled = False

    @property
    def room_bytes(self) -> int:
        """How much may be sent now."""
        return self._network.window_bytes - self.unread_bytes

    def send(self, item: Item) -> None:
        link = self._link
        if isinstance(item, bytes):
            self.unread_bytes += len(item)
            piece_bytes = link.piece_bytes(len(item))
            if piece_bytes < len(item):
                self._dispatch(item[:piece_bytes])
                item = item[piece_bytes:]
        self._dispatch(item)

    def _dispatch(self, item: Item) -> None:
        link = self._link
        arrives_s = self._agenda.now_s + link.latency_s()
        arrives_s = max(arrives_s, self._arrives_s)
        if isinstance(item, bytes):
            arrives_s += len(item) / link.conditions.bytes_per_s
        self._arrives_s = arrives_s
        self._under_way.append((arrives_s, item))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._agenda.call_at(arrives_s, self._arrive)

    def on_read(self, size_bytes: int) -> None:
        """The process at the end has taken some bytes: there is room for more."""
        if not self.source.has_unsent:
            self.unread_bytes -= size_bytes
            return
        # The word of it takes its time, which matters only to somebody who waits for it.
        back = self._network.link(self._link.target, self._link.source)
        self._agenda.call_later(back.latency_s(), self._on_room, size_bytes)

    def _on_room(self, size_bytes: int) -> None:
        back = self._network.link(self._link.target, self._link.source)
        if back.is_cut:
            back.when_healed(lambda after_s: self._later_on_room(after_s, size_bytes))
            return
        self.unread_bytes -= size_bytes
        self.source.on_room()

    def _later_on_room(self, after_s: float, size_bytes: int) -> None:
        self._agenda.call_later(after_s, self._on_room, size_bytes)

    def break_off(self, random: Random) -> None:
        """Lose what is under way, from somewhere on, and reset the connection."""
        under_way = list(self._under_way)
        whole_count = random.randint(0, len(under_way))
        self._under_way = deque(under_way[:whole_count])
        for arrives_s, item in under_way[whole_count : whole_count + 1]:
            if isinstance(item, bytes) and (part := item[: random.randrange(len(item))]):
                self._under_way.append((arrives_s, part))
        self._dispatch(Signal.RESET)

    def _arrive(self) -> None:
        """The first thing that is under way is due."""
        if self._link.is_cut:
            self._link.when_healed(self._after_healing)
            return
        agenda = self._agenda
        now_s = agenda.now_s
        under_way = self._under_way
        while under_way and under_way[0][0] <= now_s:
            item = under_way.popleft()[1]
            self._deliver(item)
            under_way = self._under_way  # A delivery may break the connection.
        if under_way:
            agenda.call_at(under_way[0][0], self._arrive)
        else:
            self._is_scheduled = False

    def _after_healing(self, after_s: float) -> None:
        self._arrives_s = max(self._arrives_s, self._agenda.now_s + after_s)
        self._agenda.call_later(after_s, self._arrive)

    def _deliver(self, item: Item) -> None:
        host = self.target.host
        if not host.is_on:
            host.unanswered[self] = None
            return
        data = item if isinstance(item, bytes) else item.value.encode()
        self._network.trace.on_arrival(self._agenda.now_s, self.number, data)
        self.target.on_arrival(item)
