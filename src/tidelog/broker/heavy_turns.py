"""Megabytes one at a time, so that a small request waits for one of them and not for six.

A broker is one thread. In a turn of its loop every connection may have a megabyte to handle: a
producer's batch to append, an answer for each follower, what each leader has sent. Together those
are milliseconds, and a record that is replicated has to wait for such a turn at each of its hops
(T4). So what is heavy takes turns, and the loop looks for other events after each:

    turn ──▶ one heavy piece ──▶ whatever else has arrived ──▶ turn ──▶ ...

First come, first served. Who has to wait stops reading, so that nothing piles up behind it.

While small records are about, there is a pause after each piece (`tidelog.heavy.pause.ms`). A
broker that is never idle waits for the processor like everybody else, milliseconds where it is
shared; one that was idle a moment ago gets it as soon as something arrives.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

HEAVY_BYTES: Final = 128 * 1024
SMALL_BYTES: Final = 16 * 1024
SMALL_LATELY_S: Final = 0.1


class HeavyTurns:
    """One for all connections of a broker."""

    __slots__ = ("_is_taken", "_loop", "_pause_s", "_waiting", "small_at_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, pause_s: float) -> None:
        self._loop = loop
        self._pause_s = pause_s
        self.small_at_s = -SMALL_LATELY_S
        """When a small batch was appended last, by the loop's time."""
        self._is_taken = False
        self._waiting: OrderedDict[Callable[[], None], None] = OrderedDict()

    def take(self) -> bool:
        """Whether the caller may do its work now; then nobody else may in this turn."""
        if self._is_taken:
            return False
        self._is_taken = True
        if self._pause_s and self._loop.time() - self.small_at_s < SMALL_LATELY_S:
            self._loop.call_later(self._pause_s, self._begin)
        else:
            self._loop.call_soon(self._begin)
        return True

    def note_small(self) -> None:
        """A small batch was appended: whoever sent it may wait for the answer."""
        self.small_at_s = self._loop.time()

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it may take the turn, once however often it was asked for.

        For whom `take` has refused.
        """
        assert self._is_taken
        self._waiting.setdefault(callback)

    def take_or_wait(self, callback: Callable[[], None]) -> bool:
        """`take`; who is refused is called when it may try again."""
        if self.take():
            return True
        self.when_free(callback)
        return False

    def _begin(self) -> None:
        self._is_taken = False
        while self._waiting and not self._is_taken:
            callback, _ = self._waiting.popitem(last=False)
            callback()  # It may have nothing to do any more.
