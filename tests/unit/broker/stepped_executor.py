"""The two threads of a log directory without threads: the test says when each piece of work runs.

Work runs on the event loop, whole, in the order of its lane. By itself it runs in the loop's next
turn; while a lane is held it waits for `step` or `release`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidelog.broker.disk_executor import DiskExecutor

P = ParamSpec("P")
T = TypeVar("T")

URGENT = "urgent"
BACKGROUND = "background"


class SteppedExecutor(DiskExecutor):
    """Executes what it is given when told to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts no threads, so the parent is not asked to."""
        self._turns = loop
        self._lanes: dict[str, deque[Callable[[], None]]] = {URGENT: deque(), BACKGROUND: deque()}
        self._held: set[str] = set()

    def urgent(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]":
        return self._submit(URGENT, lambda: work(*args, **kwargs))

    def background(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]":
        return self._submit(BACKGROUND, lambda: work(*args, **kwargs))

    def close(self) -> None:
        assert not any(self._lanes.values())

    # -- the test's side -------------------------------------------------------------------------

    def hold(self, *lanes: str) -> None:
        """From now on nothing in `lanes` runs by itself."""
        self._held.update(lanes)

    def release(self, *lanes: str) -> None:
        """Run what waits in `lanes`, and what comes later, by itself."""
        self._held.difference_update(lanes)
        for lane in lanes:
            for _ in range(len(self._lanes[lane])):
                self._turns.call_soon(self._run_one, lane)

    def waiting(self, lane: str) -> int:
        return len(self._lanes[lane])

    def step(self, lane: str) -> None:
        """Run the oldest work of `lane`, which is held."""
        assert lane in self._held
        self._lanes[lane].popleft()()

    def _submit(self, lane: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self._turns.create_future()

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - as an executor does
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self._lanes[lane].append(run)
        if lane not in self._held:
            self._turns.call_soon(self._run_one, lane)
        return future

    def _run_one(self, lane: str) -> None:
        if lane not in self._held and self._lanes[lane]:
            self._lanes[lane].popleft()()
