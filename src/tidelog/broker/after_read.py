"""What a read has made due, done when the read has been handled.

A Produce wakes the fetches that wait for it. Not in the middle of the append, and once however many
requests one read brings; but not a turn of the loop later either, which costs more than the answer.

    read ──▶ request, request, ... ──▶ answers ──▶ what has become due ──▶ the loop's next event

A shortcut that has handled the only request of a read does not wait for the end: what it has yet to
do is done while the others, in their processes, are at work.
"""

import asyncio
from collections.abc import Callable


class AfterRead:
    """One for all connections of a broker. What is called must not raise."""

    __slots__ = ("_due", "_is_reading", "_loop", "has_one_request")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_reading = False
        self.has_one_request = False
        """Whether the read has brought one request, whole, and nothing else."""
        self._due: list[Callable[[], None]] = []

    def call(self, callback: Callable[[], None]) -> None:
        """At the end of the read that is being handled; if there is none, in the next turn."""
        if self._is_reading:
            self._due.append(callback)
        else:
            self._loop.call_soon(callback)

    def begin(self) -> None:
        self._is_reading = True

    def end(self) -> None:
        """What becomes due by what is called here waits for the next turn: others wait as well."""
        self._is_reading = False
        if self._due:
            self.do()
        self.has_one_request = False

    def do(self) -> None:
        """Call what is due already."""
        self.has_one_request = False  # Others may be handled meanwhile.
        due, self._due = self._due, []
        for callback in due:
            callback()
