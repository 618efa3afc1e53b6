"""An event loop whose time passes only while nobody has anything to do."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import ParamSpec

P = ParamSpec("P")


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Runs unchanged broker code in virtual time. Sockets and threads are not served."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(_TimeSkippingSelector(self))

    def time(self) -> float:
        return self.now_s


class _TimeSkippingSelector(selectors.DefaultSelector):
    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits for every other"
        self._loop.now_s += max(timeout, 0.0)
        return []


def in_virtual_time(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run an asynchronous test on a simulated loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
