"""What a figure is worth nothing without: when, where, of what, by which command, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.bench.plan import BROKER_COUNT, VALUE_BYTES, LoadPlan

QUICK: Final = "it shows that everything works, not what the answers are"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts about a run that its results do not hold."""

    date: str
    command: str
    environment: Mapping[str, str]
    plan: LoadPlan
    is_quick: bool

    @property
    def method(self) -> list[str]:
        """How it was measured, as paragraphs."""
        return [
            *([f"A quick run: {QUICK}."] if self.is_quick else []),
            _sync(self.plan),
            f"{BROKER_COUNT} brokers of each system run side by side on one machine, together with "
            f"the client, which is a process of its own. Values are of {VALUE_BYTES:,} bytes, "
            "without a key, sent to the partitions in turn; linger.ms=0, at most 5 requests under "
            "way to a broker, no compression.",
            _turns(self.plan),
            "Figures are the median of the rounds, with the smallest and the largest. A difference "
            "is one if the rounds of one side do not overlap those of the other.",
            _deaths(self.plan),
        ]


def _sync(plan: LoadPlan) -> str:
    return (
        "Sync means: one producer whose senders each wait for the acknowledgement of their record "
        "before they send the next. It is one confluent-kafka producer with at most "
        f"{plan.in_flight} records under way; each acknowledgement makes room for the next one. "
        "The document does not say how many senders it had; its 28,511.3 records a second at 1.7 "
        "ms a record are about 50 under way."
    )


def _turns(plan: LoadPlan) -> str:
    warm_up = plan.warm_up_rounds
    return (
        "Systems are measured in turns, in an order that changes from row to row and round to "
        f"round. {_rounds(plan.rounds)} count{'s' * (plan.rounds == 1)}"
        f"{f', after {_rounds(warm_up)} of warming up' if warm_up else ''}; each load runs for "
        f"{plan.measured_s:g} s ({plan.latency_s:g} s in scenario 6) after a lead-in of "
        f"{plan.lead_in_s:g} s that does not count."
    )


def _deaths(plan: LoadPlan) -> str:
    return (
        f"Scenario 5: {_rounds(plan.death_rounds)}, each with clusters of its own. Brokers are "
        f"killed (kill -9) {plan.before_s:g} s after the load began; where they are restarted, "
        f"that begins {plan.away_s:g} s later, one after the other. The load goes on for "
        f"{plan.after_s:g} s once every partition has taken a record that was sent after the kill. "
        "Then the brokers are stopped and the leaders' folders are read. Broker 1 is never killed: "
        "it is the only controller of Kafka's brokers, and the document's ZooKeeper was not killed "
        "either. Errors that the client retried by itself are counted in its own log."
    )


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"
