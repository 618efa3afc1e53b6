"""How much is measured: rounds and seconds, as asked for on the command line."""

from dataclasses import dataclass, replace
from typing import Final, Self

IN_FLIGHT: Final = 50
"""What the document's 28,511 records a second at 1.7 ms each make under way at a time."""
VALUE_BYTES: Final = 1_024
BROKER_COUNT: Final = 4
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """All times are seconds; those of scenario 5 have a system's own reaction between them."""

    rounds: int
    warm_up_rounds: int
    """Whole rounds that count for nothing; a JVM needs them, all get them."""
    warm_up_s: float
    """Load on every cluster that was just started, before anything is measured on it."""
    death_rounds: int
    """Of scenario 5, each with clusters of its own."""
    lead_in_s: float
    """At the beginning of each load, not counted: connections, leaders."""
    measured_s: float
    latency_s: float
    before_s: float
    """From the beginning of the load to the kill."""
    away_s: float
    """From the kill to the restart. Kafka misses a dead broker after 9 s."""
    after_s: float
    """Goes on for so long once every partition takes records again."""
    in_flight: int

    @classmethod
    def of(cls, *, is_quick: bool, scale: float, rounds: int | None, in_flight: int) -> Self:
        """The one for these options; `scale` makes every load longer."""
        chosen = cls._quick() if is_quick else cls._full()
        if rounds is not None:
            chosen = replace(chosen, rounds=rounds, death_rounds=rounds)
        return replace(
            chosen,
            warm_up_s=scale * chosen.warm_up_s,
            lead_in_s=scale * chosen.lead_in_s,
            measured_s=scale * chosen.measured_s,
            latency_s=scale * chosen.latency_s,
            before_s=scale * chosen.before_s,
            away_s=scale * chosen.away_s,
            after_s=scale * chosen.after_s,
            in_flight=in_flight,
        )

    @classmethod
    def _full(cls) -> Self:
        return cls(
            rounds=ROUNDS,
            warm_up_rounds=1,
            warm_up_s=10.0,
            death_rounds=ROUNDS,
            lead_in_s=1.0,
            measured_s=5.0,
            latency_s=10.0,
            before_s=8.0,
            away_s=15.0,
            after_s=8.0,
            in_flight=IN_FLIGHT,
        )

    @classmethod
    def _quick(cls) -> Self:
        """Shows that it works, not what the answer is."""
        return cls(
            rounds=2,
            warm_up_rounds=0,
            warm_up_s=1.5,
            death_rounds=1,
            lead_in_s=0.2,
            measured_s=0.5,
            latency_s=2.0,
            before_s=1.5,
            away_s=1.5,
            after_s=1.5,
            in_flight=IN_FLIGHT,
        )
