"""Runs simulated processes in one virtual time, from one seed.

Always the earliest thing of any process is next. A process whose moment has come does all it can
do at that moment; then it is the next one's turn, and when nobody has anything to do, time passes.
The order matters to nobody: processes hear of each other only through messages, which take time.

    with World(seed=7, lines_max=10_000) as world:
        server = world.spawn("server", serve)
        world.run_for(10.0)
        server.kill()

Everything that is left to chance draws from `random_for(what)`, a generator for each thing, so that
one more draw here does not change what is drawn there.

While a world runs, Python's garbage collector runs only when the world says so: the end of an
object can do something (asyncio reports exceptions that nobody looked at), and must not come at a
time that depends on what else this interpreter has done.
"""

import gc
import logging
import sys
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from math import inf
from random import Random
from types import TracebackType
from typing import TypeVar

from tidelog.sim.agenda import Agenda, Entry
from tidelog.sim.loop import ProcessLoop
from tidelog.sim.process import Process
from tidelog.sim.trace import WORLD, Trace

T = TypeVar("T")

Main = Callable[[Process], Coroutine[object, object, object]]
Observer = Callable[[Process], None]

_COLLECT_EVERY_CALLBACKS = 250_000


class NeverHappened(AssertionError):
    """What the simulation was run for did not come about."""


class World:
    """See the module docstring."""

    def __init__(self, seed: int, *, lines_max: int) -> None:
        """`lines_max` bounds the history that is kept; 0 keeps none."""
        self.seed = seed
        self.agenda = Agenda()
        self.trace = Trace(lambda: self.agenda.now_s, lines_max=lines_max)
        self.processes: list[Process] = []
        """All that there ever were, in the order of their beginning."""
        self.callback_count = 0
        self._by_loop: dict[ProcessLoop, Process] = {}
        self._numbers = count()
        self._observers: list[Observer] = []
        self._current: Process | None = None
        self._running_loop: ProcessLoop | None = None
        self._collect_at = _COLLECT_EVERY_CALLBACKS

    def __enter__(self) -> "World":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- what there is ---------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.agenda.now_s

    @property
    def current(self) -> Process | None:
        """Whose code runs now; None if it is nobody's but the world's."""
        return self._current

    def random_for(self, what: str) -> Random:
        """Chance for one thing, decided by the seed and its name."""
        return Random(f"{self.seed}/{what}")

    def spawn(self, name: str, main: Main) -> Process:
        """Begin a process that ends when `main` returns. It runs from this moment on."""
        process = self.process(name)
        process.start(main(process))
        return process

    def process(self, name: str) -> Process:
        """Begin a process that has nothing to do yet."""
        number = len(self.processes)
        process = Process(
            name,
            number,
            self.agenda,
            random=self.random_for(f"process {number} {name}"),
            numbers=self._numbers,
            trace=self.trace,
        )
        self.processes.append(process)
        self._by_loop[process.loop] = process
        self.trace.note(name, "process started", {})
        return process

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Entry:
        """Have the world do something, outside of all processes."""
        return self.agenda.call_later(delay_s, callback, *args)

    def observe(self, observer: Observer) -> None:
        """Call `observer` with the process after each of its turns; what it raises ends the run."""
        self._observers.append(observer)

    def capturing_logs(self, level: int) -> AbstractContextManager[None]:
        """While this lasts, what processes log is part of the history, and goes nowhere else."""
        return self.trace.capturing_logs(level, self._writer)

    def _writer(self) -> str | None:
        if self._current is None:
            return WORLD
        return self._current.name if self._current.is_alive else None

    # -- time ------------------------------------------------------------------------------------

    def run_for(self, duration_s: float) -> None:
        """Let time pass."""
        self._run(self.agenda.now_s + duration_s, _never)

    def run_until(self, holds: Callable[[], bool], *, within_s: float) -> None:
        """Let time pass until `holds`, which is asked after everything that happens.

        Raises NeverHappened if it does not within that time.
        """
        if not self._run(self.agenda.now_s + within_s, holds):
            raise NeverHappened(f"not within {within_s} s of simulated time")

    def run(self, name: str, main: Callable[[Process], Coroutine[object, object, T]]) -> T:
        """Run `main` as a process to its end; return what it returns, raise what it raises."""
        results: list[T] = []

        async def keep_result(process: Process) -> None:
            results.append(await main(process))

        process = self.spawn(name, keep_result)
        if not self._run(inf, lambda: not process.is_alive):
            raise NeverHappened(f"{name} waits for something that will never happen")
        if process.failure is not None:
            raise process.failure
        if not results:
            raise NeverHappened(f"{name} was killed")
        return results[0]

    def close(self) -> None:
        """End every process and take all of them apart. The trace stays as it is."""
        disabled_before = logging.root.manager.disable
        logging.disable()  # What is left of a dead process has nothing to say.
        self._current = None
        try:
            for process in self.processes:
                process.end_with_world()
            for process in self.processes:
                process.dispose()
        finally:
            logging.disable(disabled_before)
        self._by_loop.clear()

    def _run(self, end_s: float, holds: Callable[[], bool]) -> bool:
        """Run until `holds` or until `end_s`, which is then the time. Whether it holds."""
        agenda = self.agenda
        runnable = agenda.runnable
        with self._running():
            while True:
                while runnable:
                    self._turn(runnable.popleft())
                    if holds():
                        return True
                moment_s = agenda.next_moment_s()
                if moment_s is None or moment_s > end_s:
                    if end_s < inf:
                        agenda.now_s = end_s
                    return holds()
                agenda.begin(moment_s)
                if not runnable and holds():
                    return True

    def _turn(self, loop: ProcessLoop) -> None:
        process = self._by_loop[loop]
        self._current = process
        if loop is not self._running_loop:
            # asyncio asks the system for the process id here, which takes longer than a callback.
            # So the loop of the last turn stays, for the world's own code has no use for any.
            self._running_loop = loop
            events._set_running_loop(loop)
            sys.set_asyncgen_hooks(finalizer=loop.finish_generator)
        try:
            callback_count = loop.run_until_idle()
        finally:
            self._current = None
        self.callback_count += callback_count
        self.trace.on_turn(self.agenda.now_s, process.number, callback_count)
        if self._observers:
            for observer in self._observers:
                observer(process)
        if self.callback_count >= self._collect_at:
            self._collect_at += _COLLECT_EVERY_CALLBACKS
            gc.collect(1)

    @contextmanager
    def _running(self) -> Iterator[None]:
        """See the module docstring on garbage."""
        collects = gc.isenabled()
        hooks = sys.get_asyncgen_hooks()
        # One of ours if whoever is asked whether to go on lets the world run meanwhile.
        loop_before, known_before = events._get_running_loop(), self._running_loop
        gc.disable()
        self._running_loop = None
        try:
            yield
        finally:
            events._set_running_loop(loop_before)
            self._running_loop = known_before
            sys.set_asyncgen_hooks(firstiter=hooks.firstiter, finalizer=hooks.finalizer)
            if collects:
                gc.enable()


def _never() -> bool:
    return False
