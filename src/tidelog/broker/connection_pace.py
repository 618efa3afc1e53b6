"""Lets connections begin no faster than `max.connection.creation.rate`, in the order they came.

Those that wait are connected, but their requests are not looked at. They count as connections, so
`max.connections` bounds how many there are; who hangs up meanwhile takes nobody's turn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from tidelog.base.ports import Clock
from tidelog.broker.connection import Connection
from tidelog.core.connection_rate import ConnectionRate


class ConnectionPace:
    """`per_second` may change at any time; whoever waits then waits for the new rate."""

    __slots__ = ("_clock", "_later", "_rate", "_timer", "_waiting")

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop, per_second: int) -> None:
        self._clock = clock
        self._later: Callable[[float, Callable[[], None]], asyncio.TimerHandle] = loop.call_later
        self._rate = ConnectionRate(per_second)
        self._waiting: OrderedDict[Connection, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def set_rate(self, per_second: int) -> None:
        if per_second != self._rate.per_second:
            self._rate = ConnectionRate(per_second)
            self._let_in()

    def admit(self, connection: Connection) -> None:
        """Let its requests be handled, now or when it is its turn."""
        if not self._waiting and not self._rate.take(self._clock.monotonic_ms()):
            return
        connection.hold()
        self._waiting[connection] = None
        if self._timer is None:
            self._let_in()

    def forget(self, connection: Connection) -> None:
        """It has hung up: `max.connections` does not bound those any more."""
        self._waiting.pop(connection, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()

    def _let_in(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            connection = next(iter(self._waiting))
            if not connection.closing:
                wait_ms = self._rate.take(self._clock.monotonic_ms())
                if wait_ms:
                    self._timer = self._later(wait_ms / 1_000, self._let_in)
                    return
            del self._waiting[connection]
            connection.release()
