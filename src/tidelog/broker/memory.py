"""Bounds on the bytes that requests and answers hold while they wait.

Three things are counted, each against a `MemoryBound` of its own:

    frames    first parts of requests whose rest has not arrived. At the bound a connection whose
              request is large is closed. Making it wait could make all wait for each other.
    requests  records that wait for a segment to be rolled or compressed again. At the bound,
              connections stop handling requests; what they wait for needs no connection.
    answers   what clients have not read yet. At the bound, fetches wait: a crowd of consumers
              that stop reading costs the bound and not the broker.

Whoever waits goes on in the order of asking.
"""

from collections import deque
from collections.abc import Callable


class MemoryBound:
    """Counts held bytes; tells those who wait when there is room again."""

    __slots__ = ("_waiting", "bound_bytes", "held_bytes")

    def __init__(self, bound_bytes: int) -> None:
        self.bound_bytes = bound_bytes
        self.held_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_exhausted(self) -> bool:
        return self.held_bytes >= self.bound_bytes

    @property
    def available_bytes(self) -> int:
        return max(0, self.bound_bytes - self.held_bytes)

    def has_room_for(self, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes <= self.bound_bytes

    def hold(self, size_bytes: int) -> None:
        """Count bytes that are held in any case. May pass the bound by one request or answer."""
        self.held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0
        while self._waiting and not self.is_exhausted:
            self._waiting.popleft()()

    def when_available(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the bound is no longer reached, in the order of asking."""
        assert self.is_exhausted
        self._waiting.append(callback)
