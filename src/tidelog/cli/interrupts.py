"""Requests to end - Ctrl-C, SIGTERM, a closed terminal - counted instead of raised.

A KeyboardInterrupt can strike between any two lines, for instance just after a broker was started
and just before anybody has noted down that it has to be stopped. Who holds an `Interrupts` looks
at the count where it is safe to act on it.
"""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """How often somebody has asked this process to end. To be used in a `with`."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for ending in _ENDINGS:
            # Under nohup, closing the terminal is not a request to end.
            if signal.getsignal(ending) is not signal.SIG_IGN:
                self._before[ending] = signal.signal(ending, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for ending, handler in self._before.items():
            signal.signal(ending, handler)  # type: ignore[arg-type]

    def at_least(self, count: int) -> Callable[[], bool]:
        """A question to ask again and again: were there so many of them?"""
        return lambda: self.count >= count

    def _on_signal(self, _signal_number: int, _frame: FrameType | None) -> None:
        self.count += 1
