"""Where news of a watched node waits until the watcher's task takes it.

The store offers values, the task takes the newest one: a slow task misses history and never blocks
the store (K4). Everything here happens on the event loop of the session.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from tidelog.base.errors import SessionLost

State = TypeVar("State")


class WatchSlot(Generic[State]):
    """Holds at most one value: the newest that was offered and not yet taken."""

    __slots__ = ("_lost", "_newest", "_wake")

    def __init__(self) -> None:
        self._newest: tuple[State] | None = None
        self._lost = False
        self._wake = asyncio.Event()

    def offer(self, state: State) -> None:
        self._newest = (state,)
        self._wake.set()

    def lose(self) -> None:
        """The session is lost: whoever waits here hears of that and of nothing else."""
        self._lost = True
        self._wake.set()

    async def states(self) -> AsyncIterator[State]:
        """Yield what is offered until the session is lost, which raises SessionLost."""
        while True:
            await self._wake.wait()  # Ended by the next change or by the loss of the session.
            self._wake.clear()
            if self._lost:
                raise SessionLost("the coordination session has ended, and its watches with it")
            newest, self._newest = self._newest, None
            if newest is not None:
                yield newest[0]
