"""A simulated process: one event loop, alive, stopped or dead.

                 pause           kill, exit, failure
    running ◀────────────▶ paused ─────────────▶ dead
       └───────────────────────────────────────────▲

A process that is killed simply does not run any more, whatever it was about to do, and not one
`finally` of it runs (`kill -9`). One that is paused runs nothing until it is resumed, and then
finds everything that came meanwhile (`SIGSTOP`). What belongs to it outside - connections, locks -
asks to hear of its end by `at_end`.

Its tasks are kept until the world is closed, because Python closes a coroutine that nobody has any
more, which runs its `finally`. `dispose` then does that where it has no effect.
"""

import asyncio
import sys
from asyncio import events
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from itertools import count
from random import Random

from tidelog.sim.agenda import Agenda
from tidelog.sim.loop import ProcessLoop
from tidelog.sim.trace import Trace

# A coroutine may await in its `finally`, which takes one more `close` each time.
_CLOSES_MAX = 20


class ProcessState(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """See the module docstring. Made by `World.spawn`."""

    def __init__(
        self,
        name: str,
        number: int,
        agenda: Agenda,
        *,
        random: Random,
        numbers: "count[int]",
        trace: Trace,
    ) -> None:
        """`number` tells it from others, also from earlier ones of the same name."""
        self.name = name
        self.number = number
        self.state = ProcessState.RUNNING
        self.failure: BaseException | None = None
        """Why it ended, if it was neither killed nor done."""
        self.random = random
        """Chance for what this process does."""
        # Sockets, signals and subprocesses of asyncio's interface are not served.
        self.loop = ProcessLoop(  # type: ignore[abstract]
            agenda, random=random, numbers=numbers, on_failure=self.fail
        )
        self._trace = trace
        self._at_end: list[Callable[[], None]] = []
        # asyncio does not keep a task alive that waits for something nobody else has.
        self._main: asyncio.Task[object] | None = None
        self._remains: list[asyncio.Task[object]] = []

    def __repr__(self) -> str:
        return f"<process {self.name} #{self.number} {self.state.value}>"

    @property
    def is_alive(self) -> bool:
        return self.state is not ProcessState.DEAD

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call back at once when this process has ended, however."""
        assert self.is_alive
        self._at_end.append(callback)

    def start(self, main: Coroutine[object, object, object]) -> None:
        """Run `main`, and end the process with it."""
        assert self._main is None
        self._main = self.loop.create_task(main)
        self._main.add_done_callback(self._on_main_done)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED
            self.loop.stop_for_now()
            self._trace.note(self.name, "process paused", {})

    def resume(self) -> None:
        """SIGCONT."""
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            self._trace.note(self.name, "process resumed", {})
            self.loop.go_on()

    def kill(self) -> None:
        """SIGKILL. Works on itself too: what it does until it returns to its loop has no effect."""
        self._end("process killed")

    def fail(self, error: BaseException) -> None:
        """End it as an assertion that does not hold does."""
        if self.is_alive:
            self.failure = error
            self._end("process failed")

    def end_with_world(self) -> None:
        """Nothing is simulated any more. Nobody hears of it."""
        self._at_end.clear()
        if self.is_alive:
            self._stop_running()

    def _on_main_done(self, main: asyncio.Task[object]) -> None:
        error = None if main.cancelled() else main.exception()
        if error is None:
            self._end("process done")
        else:
            self.fail(error)

    def _end(self, phrase: str) -> None:
        if not self.is_alive:
            return
        self._stop_running()
        reason = {} if self.failure is None else {"reason": repr(self.failure)}
        self._trace.note(self.name, phrase, reason)
        for callback in self._at_end:
            callback()
        self._at_end.clear()

    def _stop_running(self) -> None:
        self.state = ProcessState.DEAD
        self.loop.end()
        self._remains = list(asyncio.all_tasks(self.loop))

    def dispose(self) -> None:
        """Take a dead process apart. Its coroutines are closed; whatever they try is refused."""
        assert not self.is_alive
        remains, self._remains = self._remains, []
        self._main = None
        hook_before, sys.unraisablehook = sys.unraisablehook, _nothing
        loop_before = events._get_running_loop()
        events._set_running_loop(self.loop)
        try:
            for task in remains:
                _close(task)
            remains.clear()
            self.loop.forget()
        finally:
            events._set_running_loop(loop_before)
            sys.unraisablehook = hook_before


def _close(task: asyncio.Task[object]) -> None:
    coroutine = task.get_coro()
    assert asyncio.iscoroutine(coroutine)
    for _ in range(_CLOSES_MAX):
        # Whatever a `finally` of a dead process raises interests nobody.
        with suppress(BaseException):
            coroutine.close()
            return


def _nothing(_unraisable: object) -> None:
    """What a dead process cannot raise is not reported."""
