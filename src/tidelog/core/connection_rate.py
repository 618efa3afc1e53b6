"""How many connections may begin in a second (KIP-612): `max.connection.creation.rate`.

Nobody is refused. A second's worth may come at once; whoever comes after that waits, so that over
any longer time no more begin than the rate says.

Nothing here reads a clock or waits: `now_ms` is an argument and must not go back.
"""

_SECOND_MS = 1_000.0


class ConnectionRate:
    """Gives leave to begin, one connection at a time."""

    __slots__ = ("_busy_until_ms", "per_second")

    def __init__(self, per_second: int) -> None:
        assert per_second > 0
        self.per_second = per_second
        self._busy_until_ms = 0.0
        """When all that have begun would have begun one by one, each in its share of a second."""

    def take(self, now_ms: int) -> float:
        """0 if a connection may begin now, which then counts; else the time to wait, in ms."""
        busy_until_ms = max(self._busy_until_ms, float(now_ms))
        after_ms = busy_until_ms + _SECOND_MS / self.per_second
        wait_ms = after_ms - now_ms - _SECOND_MS
        if wait_ms > 1e-6:
            return wait_ms
        self._busy_until_ms = after_ms
        return 0.0
