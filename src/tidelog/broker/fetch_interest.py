"""The ear that a fetch has at the partitions it reads.

A session listens to its partitions for as long as it lives, so that an incremental fetch need not
look at those that have nothing new. A fetch without a session listens only while it is parked.
Either way news is cheap: it marks one partition and adds up bytes; the fetch is looked at again in
the loop's next turn, once, however many batches arrived until then.
"""

import asyncio
from collections.abc import Callable, Sequence

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.core.sessions import Fetch, FetchTarget


class ParkedFetch:
    """A fetch that waits for `min_bytes`, for its time to be up, or for an error to tell."""

    __slots__ = (
        "_expire",
        "_is_due",
        "_look_again",
        "_loop",
        "_timer",
        "available_bytes",
        "min_bytes",
    )

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        min_bytes: int,
        available_bytes: int,
        timeout_s: float,
        look_again: Callable[[], None],
        expire: Callable[[], None],
    ) -> None:
        self._loop = loop
        self.min_bytes = min_bytes
        self.available_bytes = available_bytes
        self._look_again = look_again
        self._expire = expire
        self._timer = loop.call_later(timeout_s, expire)
        self._is_due = False

    def expire(self) -> None:
        """Answer now, with whatever there is."""
        self._expire()

    def on_news(self, appended_bytes: int) -> None:
        """`appended_bytes` 0 says that something other than data is new."""
        self.available_bytes += appended_bytes
        if self._is_due:
            return
        if appended_bytes == 0 or self.available_bytes >= self.min_bytes:
            self._is_due = True
            self._loop.call_soon(self._look)

    def cancel(self) -> None:
        self._is_due = True
        self._look_again = _nothing
        self._timer.cancel()

    def _look(self) -> None:
        self._is_due = False
        self._look_again()


class FetchInterest:
    """Connects one fetch machine to the runners of its partitions."""

    __slots__ = ("_watched", "fetch", "parked")

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self.parked: ParkedFetch | None = None
        self._watched: dict[FetchTarget, PartitionRunner] = {}

    def on_news(self, target: FetchTarget, appended_bytes: int) -> None:
        self.fetch.on_news(target)
        if self.parked is not None:
            self.parked.on_news(appended_bytes)

    def watch(self, target: FetchTarget, runner: PartitionRunner) -> None:
        """Listen to `runner` for `target`; a topic made anew has another runner than before."""
        watched = self._watched.get(target)
        if watched is runner:
            return
        if watched is not None:
            watched.unwatch(target)
        self._watched[target] = runner
        runner.watch(target, self)

    def unwatch(self, targets: Sequence[FetchTarget]) -> None:
        for target in targets:
            runner = self._watched.pop(target, None)
            if runner is not None:
                runner.unwatch(target)

    def unwatch_all(self) -> None:
        for target, runner in self._watched.items():
            runner.unwatch(target)
        self._watched.clear()


def _nothing() -> None:
    """What a cancelled fetch does when looked at."""
