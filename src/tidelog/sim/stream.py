"""One direction of a simulated connection: bytes and signals, in order (`in_order.py`).

What is sent to a machine that is off is lost.

`unread_bytes` counts what was sent and not yet read by the process at the other end. It does not
exceed the window, as with TCP: who sends more keeps it (`transport.py`).
"""

from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from tidelog.sim.in_order import InOrder

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


class Stream(InOrder[Item]):
    """See the module docstring."""

    __slots__ = ("_network", "number", "source", "target", "unread_bytes")

    def __init__(
        self,
        network: "SimulatedNetwork",
        source: "SimulatedTransport",
        target: "SimulatedTransport",
    ) -> None:
        super().__init__(network.agenda, network.link(source.local.host, target.local.host))
        self.number = next(network.stream_numbers)
        self.source = source
        self.target = target
        self.unread_bytes = 0
        self._network = network

    @property
    def room_bytes(self) -> int:
        """How much may be sent now."""
        return self._network.window_bytes - self.unread_bytes

    def signal(self, signal: Signal) -> None:
        self.dispatch(signal, 0.0)

    def send(self, data: bytes) -> None:
        size_bytes = len(data)
        self.unread_bytes += size_bytes
        bytes_per_s = self.link.conditions.bytes_per_s
        piece_bytes = self.link.piece_bytes(size_bytes)
        if piece_bytes < size_bytes:
            self.dispatch(data[:piece_bytes], piece_bytes / bytes_per_s)
            data = data[piece_bytes:]
            size_bytes -= piece_bytes
        self.dispatch(data, size_bytes / bytes_per_s)

    def on_read(self, size_bytes: int) -> None:
        """The process at the end has taken some bytes: there is room for more."""
        if not self.source.has_unsent:
            self.unread_bytes -= size_bytes
            return
        # The word of it takes its time, which matters only to somebody who waits for it.
        back = self._network.link(self.link.target, self.link.source)
        self.agenda.call_later(back.latency_s(), self._on_room, size_bytes)

    def _on_room(self, size_bytes: int) -> None:
        back = self._network.link(self.link.target, self.link.source)
        if back.is_cut:
            back.when_healed(lambda after_s: self._later_on_room(after_s, size_bytes))
            return
        self.unread_bytes -= size_bytes
        self.source.on_room()

    def _later_on_room(self, after_s: float, size_bytes: int) -> None:
        self.agenda.call_later(after_s, self._on_room, size_bytes)

    def break_off(self, random: Random) -> None:
        """Lose what is under way, from somewhere on, and reset the connection."""
        under_way = self.under_way
        whole_count = random.randint(0, len(under_way))
        first_lost = under_way[whole_count] if whole_count < len(under_way) else None
        while len(under_way) > whole_count:
            under_way.pop()
        if first_lost is not None and isinstance(first_lost[1], bytes):
            data = first_lost[1]
            if part := data[: random.randrange(len(data))]:
                under_way.append((first_lost[0], part))
        self.signal(Signal.RESET)

    def deliver(self, item: Item) -> None:
        host = self.target.host
        if not host.is_on:
            host.unanswered[self] = None
            return
        data = item if isinstance(item, bytes) else item.value.encode()
        self._network.trace.on_arrival(self.agenda.now_s, self.number, data)
        self.target.on_arrival(item)
