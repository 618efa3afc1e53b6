"""What a cluster for tests is to be: how many brokers, with which settings, with which network.

Light on purpose: pytest loads this whenever it starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_BROKER_COUNT: Final = 3

# A test waits for these where a person would not: for the second member of a group that has one,
# and for a broker that hangs or is cut off to be noticed (9 s and 30 s by default).
TEST_SETTINGS: Final[Mapping[str, str]] = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "4000",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Clusters of equal shapes are as good as each other. `settings` are those that were given."""

    broker_count: int
    settings: tuple[tuple[str, str], ...]
    has_network: bool

    @classmethod
    def of(
        cls, broker_count: int, settings: Mapping[str, object] | None, *, has_network: bool
    ) -> "Shape":
        """Values may be numbers and booleans, as they are written in Python."""
        given = {name: _text(value) for name, value in (settings or {}).items()}
        return cls(broker_count, tuple(sorted(given.items())), has_network)

    def all_settings(self) -> dict[str, str]:
        """Those that were given, on top of what tests want."""
        return {**TEST_SETTINGS, **dict(self.settings)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
