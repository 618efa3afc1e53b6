"""Requests wait while nobody can say whether this broker is still a member of the cluster (C6).

A process that was stopped - SIGSTOP, a frozen container - does not know that it was. When it goes
on, requests lie in its sockets, and it finds them sooner than any thread has looked at the lease.
Meanwhile others may lead what it led. So before a request is handled the clock is asked:

    lease ahead ──▶ handled
    lease past  ──▶ kept ──┬─ the coordinator says that the session lives ──▶ handled
                           └─ it is lost, all roles are dropped ──▶ handled: refused

What this costs a request is a look at the clock; the session is asked every SURE_FOR_MS at most,
whether it may be relied on for as long.
"""

import asyncio
from collections.abc import Callable

from tidelog.base.ports import Clock

SURE_FOR_MS = 20
LOOK_INTERVAL_S = 0.005

IsReliable = Callable[[int], bool]
"""Whether the claims of this broker may be acted upon for so many milliseconds."""


class SessionGate:
    """One for all connections."""

    __slots__ = ("_clock", "_loop", "_sure_until_ms", "_waiting", "is_reliable")

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._sure_until_ms = 0
        self._waiting: list[Callable[[], None]] = []
        self.is_reliable: IsReliable = _nothing_is_claimed

    def is_open(self) -> bool:
        """Whether a request may be handled now."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._sure_until_ms:
            return True
        if not self.is_reliable(SURE_FOR_MS):
            return False
        self._sure_until_ms = now_ms + SURE_FOR_MS
        return True

    def when_open(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once requests may be handled; whoever has gone by then ignores it."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            self._loop.call_later(LOOK_INTERVAL_S, self._look_again)

    def _look_again(self) -> None:
        if not self.is_open():
            self._loop.call_later(LOOK_INTERVAL_S, self._look_again)
            return
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()


def _nothing_is_claimed(_for_ms: int) -> bool:
    """Until a session says otherwise."""
    return True
