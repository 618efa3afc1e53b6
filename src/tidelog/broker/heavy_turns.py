"""Megabytes one at a time, so that a small request waits for one of them and not for six.

A broker is one thread. In a turn of its loop every connection may have a megabyte to handle: a
producer's batch to append, an answer for each follower, what each leader has sent. Together those
are milliseconds, and a record that is replicated has to wait for such a turn at each of its hops
(T4). So what is heavy takes turns, and the loop looks for other events after each:

    turn ──▶ one heavy piece ──▶ whatever else has arrived ──▶ turn ──▶ ...

First come, first served. Who has to wait stops reading, so that nothing piles up behind it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

HEAVY_BYTES: Final = 128 * 1024


class HeavyTurns:
    """One for all connections of a broker."""

    __slots__ = ("_is_taken", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_taken = False
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self) -> bool:
        """Whether the caller may do its work now; then nobody else may in this turn."""
        if self._is_taken:
            return False
        self._is_taken = True
        self._loop.call_soon(self._begin)
        return True

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it may take the turn. For whom `take` has refused."""
        assert self._is_taken
        self._waiting.append(callback)

    def _begin(self) -> None:
        self._is_taken = False
        while self._waiting and not self._is_taken:
            self._waiting.popleft()()  # It may have nothing to do any more.
