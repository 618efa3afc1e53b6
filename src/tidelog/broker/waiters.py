"""Requests parked until an offset is reached or time is up.

    ParkedProduce   a Produce of which some partitions are not settled yet: a segment is being
                    rolled, an fsync is under way, or followers still lack the records (acks=all)
    OffsetWaiters   of one partition: who waits for its high watermark to reach an offset
    OffsetFutures   of one partition: who waits for its low watermark, and may stop to

Fetches wait in `broker/fetch_interest.py`, because what they wait for belongs to their session.
"""

import asyncio
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from tidelog.base.ids import Offset

R = TypeVar("R")


class ParkedProduce(Generic[R]):
    """Collects the results of a request's partitions; complete when none is missing.

    `expired` makes the result of a partition that is not settled when the client's time is up.
    """

    __slots__ = ("_complete", "_expired", "_missing", "_results", "_timer")

    def __init__(
        self,
        results: list[R | None],
        *,
        missing: int,
        complete: Callable[[Sequence[R]], None],
        expired: Callable[[int], R],
    ) -> None:
        assert missing > 0
        self._results = results
        self._missing = missing
        self._complete = complete
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None

    def expire_after(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._timer = loop.call_later(timeout_s, self._on_timeout)

    def settle(self, slot: int, result: R) -> None:
        """The partition in `slot` is done. What comes after the time-out is ignored."""
        if self._missing == 0 or self._results[slot] is not None:
            return
        self._results[slot] = result
        self._missing -= 1
        if self._missing == 0:
            self._finish()

    def abandon(self) -> None:
        """Nobody waits any more. The records stay where they are."""
        self._missing = 0
        if self._timer is not None:
            self._timer.cancel()

    def _on_timeout(self) -> None:
        if self._missing == 0:
            return
        self._missing = 0
        for slot, result in enumerate(self._results):
            if result is None:
                self._results[slot] = self._expired(slot)
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        settled = [result for result in self._results if result is not None]
        assert len(settled) == len(self._results)
        self._complete(settled)


class OffsetWaiters:
    """Callbacks ordered by the offset they wait for."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[Offset, int, Callable[[], None]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: Offset, callback: Callable[[], None]) -> None:
        """Call `callback` once `wake` is told of `offset` or beyond."""
        heappush(self._heap, (offset, next(self._order), callback))

    def wake(self, reached: Offset) -> None:
        while self._heap and self._heap[0][0] <= reached:
            heappop(self._heap)[2]()

    def wake_all(self) -> None:
        """The partition is going away: everybody has to look again."""
        heap, self._heap = self._heap, []
        for _offset, _order, callback in heap:
            callback()


class OffsetFutures:
    """Futures that are done once an offset is reached; one that is cancelled is forgotten."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Offset] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: Offset) -> "asyncio.Future[None]":
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = offset
        future.add_done_callback(self._forget)
        return future

    def wake(self, reached: Offset) -> None:
        self._finish([each for each, offset in self._waiting.items() if offset <= reached])

    def wake_all(self) -> None:
        """The partition is going away: everybody has to look again."""
        self._finish(list(self._waiting))

    def _finish(self, futures: Sequence["asyncio.Future[None]"]) -> None:
        for future in futures:
            self._forget(future)
            if not future.done():
                future.set_result(None)

    def _forget(self, future: "asyncio.Future[None]") -> None:
        self._waiting.pop(future, None)
