"""What was measured, as values: of each row of a scenario, by system and by round.

    Results
      throughput[1..4]   rows of `ThroughputRow`, each with rounds of `Throughput`
      deaths             rows of `DeathRow`, each with rounds of `Interruption` (scenario 5)
      latency            rounds of `LatencyPair` (scenario 6)

Nothing here measures, and nothing here words anything: tables, pictures and conclusions are made
of this. A system that could not be measured in some round is missing from it, and `problems` says
why.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from tidelog.bench.figures import Figures, ratios

TIDELOG: Final = "tidelog"
KAFKA: Final = "kafka"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setup:
    """The parameters of one row."""

    acks: int
    replicas: int
    min_insync_replicas: int | None
    """None where the document says N/A: it has no effect with these acks."""
    partitions: int

    @property
    def described(self) -> str:
        """As a sentence names the row: `acks=-1, 4 replicas, min ISR 2`."""
        replicas = "1 replica" if self.replicas == 1 else f"{self.replicas} replicas"
        least = self.min_insync_replicas
        return f"acks={self.acks}, {replicas}" + (f", min ISR {least}" if least else "")

    def to_json(self) -> dict[str, object]:
        return {
            "acks": self.acks,
            "replicas": self.replicas,
            "min.insync.replicas": self.min_insync_replicas,
            "partitions": self.partitions,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a round took; None of brokers that are somebody else's."""

    client_cpu_us: float
    """Processor time of the client for each record."""
    broker_cpu_us: float | None
    """The same of all brokers together."""
    resident_mib: float | None
    """Of all brokers together, behind the load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One round of one row."""

    tps: float
    mean_latency_ms: float
    cost: Cost

    @property
    def mean_in_flight(self) -> float:
        """Records under way at a time, by Little's law."""
        return self.tps * self.mean_latency_ms / 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Of one round, in milliseconds."""

    count: int
    avg: float
    min: float
    max: float
    p99: float
    p9999: float
    curve: tuple[float, ...]
    """At each of `CURVE_PERCENTILES`."""


CURVE_PERCENTILES: Final = (
    0,
    10,
    25,
    50,
    75,
    90,
    95,
    98,
    99,
    99.5,
    99.8,
    99.9,
    99.95,
    99.98,
    99.99,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPair:
    """One round of scenario 6."""

    producer: Latencies
    """From sending to the acknowledgement."""
    consumer: Latencies
    """From sending to the consumer having it."""
    tps: float
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskVerdict:
    """What the client was told against what the leaders' logs hold."""

    sent: int
    acknowledged: int
    failed: int
    """The client was told that they failed."""
    unanswered: int
    """It was told nothing."""
    stored: int
    """Different records in the logs."""
    lost: int
    """Acknowledged, and not in the logs."""
    failed_but_stored: int
    duplicated: int
    """Copies beyond the first."""
    difference: str | None
    """Where replicas in sync differ; None if they are equal byte for byte."""

    @property
    def is_consistent(self) -> bool:
        return not self.lost and self.difference is None


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that was done to brokers, in seconds since the load began."""

    at_s: float
    what: str


@dataclass(frozen=True, slots=True)
class IsrSample:
    """The number of in-sync replicas of each partition, at a time since the load began."""

    at_s: float
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """One round of one row of scenario 5.

    load begins ──before──▶ kill ──during──▶ every partition takes records ──after──▶ stop
    """

    tps_before: float
    tps_during: float
    tps_after: float | None
    """None if not all partitions have taken records again."""
    whole_after_s: float | None
    """From the kill until every partition had taken a record that was sent after it."""
    restarted_after_s: float | None
    """From the kill until so many brokers were back that min ISR can be met."""
    acknowledged_while_down: int
    """Of records sent between the kill and the first restart; with no restart, 0."""
    failures: Mapping[str, int]
    """Records whose sender was told an error, by its name."""
    retried: Mapping[str, int]
    """Batches that the client sent again by itself, by the error that it met."""
    disk: DiskVerdict
    tps_by_time: tuple[float, ...]
    """Acknowledgements a second, in slices of `SLICE_S`."""
    moments: tuple[Moment, ...]
    isr: tuple[IsrSample, ...]

    @property
    def tps(self) -> float | None:
        """Over the whole run, which is what the document has."""
        return sum(self.tps_by_time) / len(self.tps_by_time) if self.tps_by_time else None


SLICE_S: Final = 0.25


class Rounds(Generic[T]):
    """What each round gave, by system."""

    def __init__(self) -> None:
        self._values: dict[str, dict[int, T]] = {}

    def add(self, subject: str, round_index: int, value: T) -> None:
        self._values.setdefault(subject, {})[round_index] = value

    def of(self, subject: str) -> list[T]:
        return list(self._values.get(subject, {}).values())

    def figures(self, subject: str, pick: Callable[[T], float | None]) -> Figures | None:
        """One figure of each round; None if there is none."""
        values = tuple(self._picked(subject, pick).values())
        return Figures(values) if values else None

    def ratio(self, subject: str, peer: str, pick: Callable[[T], float | None]) -> Figures | None:
        """The system's figure over its peer's, round by round."""
        return ratios(self._picked(subject, pick), self._picked(peer, pick))

    def _picked(self, subject: str, pick: Callable[[T], float | None]) -> dict[int, float]:
        picked = {index: pick(each) for index, each in self._values.get(subject, {}).items()}
        return {index: value for index, value in picked.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """A row of scenarios 1 to 4."""

    setup: Setup
    document_tps: float | None
    rounds: Rounds[Throughput] = field(default_factory=Rounds)

    def tps(self, subject: str) -> Figures | None:
        return self.rounds.figures(subject, lambda each: each.tps)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathCase:
    """A row of scenario 5: what is done to brokers, and how the client takes it."""

    killed: tuple[int, ...]
    are_restarted: bool
    retries: int
    is_idempotent: bool

    @property
    def method(self) -> str:
        count = {2: "two", 3: "three"}[len(self.killed)]
        return f"kill {count} brokers" + (", then restart them" if self.are_restarted else "")

    @property
    def described(self) -> str:
        kind = "idempotent" if self.is_idempotent else "not idempotent"
        return f"{self.method}, retries={self.retries}, {kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentDeath:
    """What the document has in such a row."""

    tps: float | None
    on_disk: str
    errors: str


@dataclass(frozen=True, slots=True)
class DeathRow:
    """A row of scenario 5."""

    case: DeathCase
    document: DocumentDeath | None
    """None of an idempotent client, which the document's was not."""
    rounds: Rounds[Interruption] = field(default_factory=Rounds)


@dataclass(slots=True)
class Results:
    """Everything of one run."""

    subjects: tuple[str, ...]
    throughput: dict[int, list[ThroughputRow]] = field(default_factory=dict)
    deaths: list[DeathRow] = field(default_factory=list)
    latency: Rounds[LatencyPair] | None = None
    remarks: list[str] = field(default_factory=list)
    """What whoever reads it should know."""
    problems: list[str] = field(default_factory=list)
    """What could not be measured, and why."""

    @property
    def peer(self) -> str | None:
        """Whom tidelog is measured beside."""
        return next((each for each in self.subjects if each != TIDELOG), None)

    def has(self, scenario: int) -> bool:
        """Whether it was run."""
        if scenario == 5:
            return bool(self.deaths)
        return self.latency is not None if scenario == 6 else scenario in self.throughput
