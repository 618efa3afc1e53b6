"""The event loop of one simulated process: asyncio without threads, sockets and real time.

Every process has a loop object of its own, so that one process can be killed or stopped by never,
or for a while not, running its loop. All loops share one agenda (`agenda.py`) and thereby one
virtual time; the world (`world.py`) decides whose turn it is. Callbacks take no time.

A run must be the same each time, and asyncio keeps tasks and futures in sets. So both hash by a
number that the agenda of their world gives them, in place of their address in memory.

Invariants:

    I1  A loop is in `agenda.runnable` at most once, and only while it runs (not stopped, not dead).
    I2  Nothing of a dead loop is ever run again.
"""

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tidelog.sim.agenda import Agenda, Entry

if TYPE_CHECKING:
    from concurrent.futures import Executor

T = TypeVar("T")

# A process that does so much without waiting for anything would never let time pass.
CALLBACKS_AT_ONCE_MAX = 1_000_000
# How long a call takes that is moved to a thread.
THREAD_DELAY_MIN_S = 0.000_05
THREAD_DELAY_MAX_S = 0.002

ExceptionContext = dict[str, Any]
ExceptionHandler = Callable[[asyncio.AbstractEventLoop, ExceptionContext], object]
OnFailure = Callable[[BaseException], None]


class Livelock(AssertionError):
    """A process never waits."""


class SimulatedFuture(asyncio.Future[T]):
    """A future whose place in a set is the same in every run."""

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number: int = cast(ProcessLoop, self.get_loop()).next_number()
            return self._number


class SimulatedTask(asyncio.Task[T]):
    """A task whose place in a set is the same in every run."""

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            self._number: int = cast(ProcessLoop, self.get_loop()).next_number()
            return self._number


class Callback(asyncio.Handle):
    """What `call_soon` returns."""

    __slots__ = ()

    def __init__(
        self,
        loop: "ProcessLoop",
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
    ) -> None:
        """Says all that the parent would, without what that does for debugging."""
        self._loop = loop
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._source_traceback = None
        self._repr = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None  # type: ignore[assignment]
        self._args = ()


class ProcessLoop(asyncio.AbstractEventLoop):
    """See the module docstring."""

    def __init__(
        self, agenda: Agenda, *, random: Random, numbers: "count[int]", on_failure: OnFailure
    ) -> None:
        """`on_failure` hears of what asyncio's exception handler would."""
        self.next_number = numbers.__next__
        self._agenda = agenda
        self._random = random
        self._on_failure = on_failure
        self._ready: deque[Callback | Entry] = deque()
        self._rests = True
        """Whether it may run, and has nothing to do: who adds something must wake it."""
        self._runs = True
        self._is_dead = False
        self._threads_free_s: dict[Executor, float] = {}
        self._exception_handler: ExceptionHandler | None = None

    # -- the world's side ------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    def run_until_idle(self) -> int:
        """Do everything there is to do at this moment; return how many callbacks that was."""
        ready = self._ready
        done = 0
        while ready and self._runs:
            handle = ready.popleft()
            if handle._cancelled:
                continue
            done += 1
            try:
                handle._context.run(handle._callback, *handle._args)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - as a loop does
                self.call_exception_handler(
                    {"message": "exception in a callback", "exception": error}
                )
            if done > CALLBACKS_AT_ONCE_MAX:
                raise Livelock(f"more than {done - 1} callbacks without waiting: {handle!r}")
        self._rests = self._runs
        return done

    def on_timer(self, entry: Entry) -> None:
        """The moment of `entry` has come."""
        self._ready.append(entry)
        if self._rests:
            self._wake()

    def stop_for_now(self) -> None:
        """Run nothing until `go_on`; what comes meanwhile waits."""
        assert not self._is_dead
        self._runs = False
        self._rests = False
        if self in self._agenda.runnable:
            self._agenda.runnable.remove(self)

    def go_on(self) -> None:
        assert not self._is_dead
        if self._runs:
            return
        self._runs = True
        self._wake()

    def end(self) -> None:
        """Run nothing any more. I2"""
        if not self._is_dead:
            self.stop_for_now()
            self._is_dead = True

    def forget(self) -> None:
        """Drop what a dead loop was still to do."""
        assert self._is_dead
        self._ready.clear()

    def finish_generator(self, generator: AsyncGenerator[object, object]) -> None:
        """Nobody uses it any more: have it run its `finally`, as asyncio does."""
        if not self._is_dead:
            self.create_task(generator.aclose())

    def _wake(self) -> None:
        self._rests = False
        self._agenda.runnable.append(self)

    # -- asyncio's side --------------------------------------------------------------------------

    def time(self) -> float:
        return self._agenda.now_s

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = Callback(
            self, callback, args, contextvars.copy_context() if context is None else context
        )
        self._ready.append(handle)
        if self._rests:
            self._rests = False
            self._agenda.runnable.append(self)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._agenda.now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        agenda = self._agenda
        return agenda.add(
            self,
            when if when > agenda.now_s else agenda.now_s,
            callback,
            args,
            contextvars.copy_context() if context is None else context,
        )

    def create_future(self) -> asyncio.Future[T]:
        return SimulatedFuture(loop=self)

    def create_task(
        self,
        coro: Coroutine[object, object, T] | Generator[object, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        return SimulatedTask(
            cast(Coroutine[object, object, T], coro),
            loop=self,
            name=None if name is None else str(name),
            context=context,
        )

    def run_in_executor(
        self, executor: "Executor | None", func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        """Run `func` later, whole; in turn with what else was given to the same executor."""
        future: asyncio.Future[T] = self.create_future()
        begin_s = self._agenda.now_s
        if executor is not None:
            begin_s = max(begin_s, self._threads_free_s.get(executor, 0.0))
        end_s = begin_s + self._random.uniform(THREAD_DELAY_MIN_S, THREAD_DELAY_MAX_S)
        if executor is not None:
            self._threads_free_s[executor] = end_s
        self.call_at(end_s, _run_work, future, func, args)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._is_dead

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> ExceptionHandler | None:
        return self._exception_handler

    def call_exception_handler(self, context: ExceptionContext) -> None:
        if self._is_dead:
            return
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: ExceptionContext) -> None:
        """As a broker's does: whoever has seen the impossible goes."""
        error = context.get("exception")
        if not isinstance(error, BaseException):
            error = AssertionError(context.get("message"))
        if not isinstance(error, OSError):
            self._on_failure(error)


def _run_work(future: asyncio.Future[T], func: Callable[..., T], args: tuple[object, ...]) -> None:
    try:
        result = func(*args)
    except Exception as error:  # noqa: BLE001 - as an executor does
        if not future.cancelled():
            future.set_exception(error)
    else:
        if not future.cancelled():
            future.set_result(result)
