"""Times at which something is due, by name, for machines with many timers.

A machine has no clock: it says when it wants to be asked (`next_ms`) and is told what time it is
(`due`). Setting a time again replaces it, in O(log n) either way; what was replaced stays in the
heap until it comes up or until there is more of that than of the rest.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Which of many names is due next."""

    __slots__ = ("_heap", "_order", "_times")

    def __init__(self) -> None:
        self._times: dict[K, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, name: K) -> bool:
        return name in self._times

    @property
    def next_ms(self) -> int | None:
        """When the first is due; None if nothing is."""
        self._drop_replaced()
        return self._heap[0][0] if self._heap else None

    def set(self, name: K, time_ms: int) -> None:
        """`name` is due at `time_ms`, and no longer at any other time."""
        order = next(self._order)
        self._times[name] = time_ms, order
        heappush(self._heap, (time_ms, order, name))
        if len(self._heap) > 2 * len(self._times) + 16:
            self._heap = [(at, nth, known) for known, (at, nth) in self._times.items()]
            heapify(self._heap)

    def cancel(self, name: K) -> None:
        """`name` is not due any more, if it was."""
        self._times.pop(name, None)

    def due(self, now_ms: int) -> list[K]:
        """Take out everything that is due by `now_ms`, earliest first."""
        names: list[K] = []
        while True:
            self._drop_replaced()
            if not self._heap or self._heap[0][0] > now_ms:
                return names
            name = heappop(self._heap)[2]
            del self._times[name]
            names.append(name)

    def first_due(self, now_ms: int) -> K | None:
        """Take out the earliest name that is due by `now_ms`, if any is.

        For machines in which what is due first may cancel what is due next.
        """
        self._drop_replaced()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        name = heappop(self._heap)[2]
        del self._times[name]
        return name

    def _drop_replaced(self) -> None:
        heap = self._heap
        while heap and self._times.get(heap[0][2]) != heap[0][:2]:
            heappop(heap)
