"""Virtual time, and everything that is to happen in it, in one order.

There is one agenda per world. An entry belongs to a process's event loop, which then runs it, or to
nobody: what the world itself does (a packet arrives, a fault begins) runs where it is taken from
the agenda. Entries of the same moment come in the order in which they were made, so a run depends
on nothing but its seed.

Time does not pass while anybody has something to do.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.sim.loop import ProcessLoop

# Timers are seldom waited for: most are cancelled. They are swept out when they are the majority.
_SWEEP_AT_LEAST = 1_000


class Entry(asyncio.TimerHandle):
    """Something to do at a moment. Its creator may cancel it."""

    __slots__ = ("_agenda",)

    def __init__(
        self,
        agenda: "Agenda",
        owner: "ProcessLoop | None",
        when_s: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
    ) -> None:
        """Says all that the parent would, without what that does for debugging."""
        self._agenda = agenda
        self._loop = owner
        self._when = when_s
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._scheduled = True
        self._source_traceback = None
        self._repr = None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = None  # type: ignore[assignment]
            self._args = ()
            self._agenda.on_cancelled()


class Agenda:
    """See the module docstring."""

    __slots__ = ("_cancelled_count", "_context", "_entries", "_numbers", "now_s", "runnable")

    def __init__(self) -> None:
        self.now_s = 0.0
        self.runnable: deque[ProcessLoop] = deque()
        """Loops that have something to do now, each once."""
        self._entries: list[tuple[float, int, Entry]] = []
        self._numbers = count()
        self._context = copy_context()
        self._cancelled_count = 0

    def call_at(self, when_s: float, callback: Callable[..., object], *args: object) -> Entry:
        """Let the world do something at `when_s`, or now if that is over."""
        return self.add(None, max(when_s, self.now_s), callback, args, self._context)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Entry:
        assert delay_s >= 0
        return self.add(None, self.now_s + delay_s, callback, args, self._context)

    def add(
        self,
        owner: "ProcessLoop | None",
        when_s: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
    ) -> Entry:
        entry = Entry(self, owner, when_s, callback, args, context)
        heappush(self._entries, (when_s, next(self._numbers), entry))
        return entry

    def new_entry(self, callback: Callable[[], object]) -> Entry:
        """Something the world does again and again; `put` says when, once at a time."""
        return Entry(self, None, self.now_s, callback, (), self._context)

    def put(self, entry: Entry, when_s: float) -> None:
        """Put an entry of `new_entry` on the agenda."""
        heappush(self._entries, (when_s, next(self._numbers), entry))

    def on_cancelled(self) -> None:
        """An entry that is on the agenda will not be run."""
        self._cancelled_count += 1
        if self._cancelled_count < _SWEEP_AT_LEAST:
            return
        if self._cancelled_count * 2 > len(self._entries):
            self._entries = [each for each in self._entries if not each[2]._cancelled]
            heapify(self._entries)
            self._cancelled_count = 0

    def next_moment_s(self) -> float | None:
        """When the next thing happens; None if nothing ever will."""
        entries = self._entries
        while entries and entries[0][2]._cancelled:
            heappop(entries)
            self._cancelled_count -= 1
        return entries[0][0] if entries else None

    def begin(self, moment_s: float) -> None:
        """Let time pass until `moment_s`, do what the world does then, and wake the loops."""
        assert moment_s >= self.now_s
        self.now_s = moment_s
        while True:
            entries = self._entries  # Sweeping makes a new one.
            if not entries or entries[0][0] > moment_s:
                return
            entry = heappop(entries)[2]
            entry._scheduled = False
            if entry._cancelled:
                self._cancelled_count -= 1
            elif entry._loop is None:
                entry._callback(*entry._args)
            else:
                entry._loop.on_timer(entry)
