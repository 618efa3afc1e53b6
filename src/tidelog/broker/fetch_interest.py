"""The ear that a fetch has at the partitions it reads.

A session listens to its partitions, so that an incremental fetch need not look at those that have
nothing new. A fetch without a session listens only while it is parked. News is cheap: it marks one
partition and adds up bytes; a parked fetch is looked at again at the end of the read that brought
the news, once, however many batches that had. While nobody is parked, the first news of a partition
is all that a session has to hear: it looks at that partition the next time and listens again from
there. So a session whose client is gone does not cost every append (T8).

A session serves one request at a time. If a newer one arrives, or the session ends, the older one
is answered with nothing: the session's state is not its business any more.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.broker.after_read import AfterRead
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.core.sessions import Fetch, FetchTarget


class FetchAttempt(Protocol):
    """A request that is being worked on."""

    def give_way(self) -> None:
        """Be answered soon, with nothing, and touch the session no more."""
        ...


class Parked(Protocol):
    """A request that waits for news."""

    available_bytes: int

    def on_news(self, appended_bytes: int) -> None: ...
    def cancel(self) -> None: ...


class ParkedFetch:
    """A fetch that waits for `min_bytes`, for its time to be up, or for an error to tell."""

    __slots__ = (
        "_after_read",
        "_is_due",
        "_look_again",
        "_timer",
        "available_bytes",
        "min_bytes",
    )

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        after_read: AfterRead,
        min_bytes: int,
        available_bytes: int,
        timeout_s: float,
        look_again: Callable[[], None],
        expire: Callable[[], None],
    ) -> None:
        self._after_read = after_read
        self.min_bytes = min_bytes
        self.available_bytes = available_bytes
        self._look_again = look_again
        self._timer = loop.call_later(timeout_s, expire)
        self._is_due = False

    def on_news(self, appended_bytes: int) -> None:
        """`appended_bytes` 0 says that something other than data is new."""
        self.available_bytes += appended_bytes
        if self._is_due:
            return
        if appended_bytes == 0 or self.available_bytes >= self.min_bytes:
            self._is_due = True
            self._after_read.call(self._look)

    def cancel(self) -> None:
        self._is_due = True
        self._look_again = _nothing
        self._timer.cancel()

    def _look(self) -> None:
        self._is_due = False
        self._look_again()


class FetchInterest:
    """Connects one fetch machine to the runners of its partitions."""

    __slots__ = (
        "_hurries",
        "_watched",
        "attempt",
        "fetch",
        "is_follower",
        "is_heavy",
        "listener_name",
        "parked",
    )

    def __init__(
        self, fetch: Fetch, *, listener_name: str, is_follower: bool, hurries: bool
    ) -> None:
        """`hurries`: also quiet news end a wait."""
        self.fetch = fetch
        self.listener_name = listener_name
        self.is_follower = is_follower
        self._hurries = hurries
        self.is_heavy = False
        """Whether the last answer was, so that the next one probably is."""
        self.attempt: FetchAttempt | None = None
        self.parked: Parked | None = None
        self._watched: dict[FetchTarget, PartitionRunner] = {}

    def on_news(self, target: FetchTarget, appended_bytes: int) -> bool:
        """Take note; whether to be told of the next news as well."""
        self.fetch.on_news(target)
        if self.parked is None:
            self._watched.pop(target, None)
            return False
        self.parked.on_news(appended_bytes)
        return True

    def on_quiet_news(self, target: FetchTarget) -> None:
        self.fetch.on_news(target)
        if self._hurries and self.parked is not None:
            self.parked.on_news(0)

    def end(self) -> None:
        """The session is no more."""
        if self.attempt is not None:
            self.attempt.give_way()
        self.unwatch_all()

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
