"""The two threads of a log directory, without threads.

As in `broker/disk_executor.py` there are two lanes, each first come, first served. A piece of work
takes a time that the disk says; within that time it is done whole, at a moment left to chance, and
whoever waits for it hears of it at the end.

      handed in        begins ──────── done, whole ──────────── ends: the future is settled
          └─ the lane is busy ─┘   killed here: nothing   killed here: it is done,
                                   of it was done         and nobody was told

That is what a thread looks like from outside: what it changed can be there before its caller knows,
and the event loop may have changed things since the work was handed in. Two lanes are never within
the same piece of work at once; the order of their pieces is chance.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import ParamSpec, TypeVar

from tidelog.broker.disk_executor import DiskExecutor
from tidelog.sim.disk import SimulatedDisk
from tidelog.sim.process import Process

P = ParamSpec("P")
T = TypeVar("T")


class _Lane(Enum):
    URGENT = "urgent"
    BACKGROUND = "background"


class _Piece:
    """Some work. `do` returns how to tell the one who waits for it."""

    def __init__(self, do: Callable[[], Callable[[], None]]) -> None:
        self._do = do
        self._tell: Callable[[], None] | None = None

    def do(self) -> None:
        """Once, however often it is asked for."""
        if self._tell is None:
            self._tell = self._do()

    def tell(self) -> None:
        assert self._tell is not None
        self._tell()


class SimulatedExecutor(DiskExecutor):
    """See the module docstring."""

    def __init__(self, process: Process, disk: SimulatedDisk) -> None:
        """Starts no threads, so the parent is not asked to."""
        self._loop = process.loop
        self._disk = disk
        self._lanes: dict[_Lane, deque[_Piece]] = {lane: deque() for lane in _Lane}

    def urgent(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]":
        return self._hand_in(_Lane.URGENT, lambda: work(*args, **kwargs))

    def background(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]":
        return self._hand_in(_Lane.BACKGROUND, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Do everything that was handed in, at once: the process ends."""
        for pieces in self._lanes.values():
            for piece in pieces:
                piece.do()

    def _hand_in(self, lane: _Lane, work: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self._loop.create_future()
        pieces = self._lanes[lane]
        pieces.append(_Piece(partial(_outcome, future, work)))
        if len(pieces) == 1:
            self._begin(lane)
        return future

    def _begin(self, lane: _Lane) -> None:
        """Begin with the first piece of a lane."""
        if self._disk.is_hanging(lambda: self._begin(lane)):
            return
        piece = self._lanes[lane][0]
        work_s = self._disk.work_s()
        self._loop.call_later(self._disk.moment_of(work_s), piece.do)
        self._loop.call_later(work_s, self._end, lane)

    def _end(self, lane: _Lane) -> None:
        pieces = self._lanes[lane]
        pieces.popleft().tell()
        if pieces:
            self._begin(lane)


def _outcome(future: "asyncio.Future[T]", work: Callable[[], T]) -> Callable[[], None]:
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 - as an executor does
        return partial(_fail, future, error)
    return partial(_settle, future, result)


def _settle(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():  # Done already: whoever waited was cancelled.
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
