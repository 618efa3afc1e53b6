"""How rough a run is: drawn from its seed."""

from dataclasses import dataclass
from random import Random

from tidelog.core.controller.names import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """`down_at_once` brokers may be unwell at a time.

    Most runs have one at a time: what a cluster of three has to bear without a pause. In some it
    is two, or all of them: nothing may be lost even so (`excuses.py`).
    """

    down_at_once: int
    pause_between_max_s: float
    duration_max_s: float
    session_timeout_s: float
    replica_lag_time_max_s: float
    cuts_power: bool
    """Otherwise nothing that was written is ever gone, on any topic."""
    aimed_topics: tuple[str, ...]
    """Whose leaders are aimed at, of partitions that there are."""

    @property
    def aims_at_coordinators(self) -> bool:
        return not INTERNAL_TOPICS.isdisjoint(self.aimed_topics)

    @classmethod
    def draw(
        cls,
        random: Random,
        broker_count: int,
        *,
        session_timeout_s: float,
        replica_lag_time_max_s: float,
        cuts_power: bool,
        aimed_topics: tuple[str, ...],
    ) -> "FaultPlan":
        return cls(
            down_at_once=random.choice([1, 1, 1, 1, 2, broker_count]),
            pause_between_max_s=random.choice([1.5, 3.0, 6.0]),
            duration_max_s=random.choice([1.0, 4.0, 8.0]),
            session_timeout_s=session_timeout_s,
            replica_lag_time_max_s=replica_lag_time_max_s,
            cuts_power=cuts_power,
            aimed_topics=aimed_topics,
        )
