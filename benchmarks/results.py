"""What a benchmark measured, what was asked of it, and whether it was met.

Values of one metric come in *series*: usually one per system (`tidelog`, `kafka`, `floor`), or two
states of one system (`small`, `grown`). Each series has one value per round and is summed up by
its median, because a single disturbed round must not decide. A target compares two medians, or one
with a number. Everything here survives a trip through JSON, so that one process can measure and
another can write the report.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

UNDECIDED = "not measured"
MET = "met"
MISSED = "MISSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`of / against`, or `of` alone, has to lie within the limits."""

    requirement: str
    of: str
    against: str | None
    at_least: float | None = None
    at_most: float | None = None

    def admits(self, figure: float) -> bool:
        if self.at_least is not None and figure < self.at_least:
            return False
        return self.at_most is None or figure <= self.at_most

    def __str__(self) -> str:
        subject = f"{self.of} / {self.against}" if self.against else self.of
        limits = [
            f"{word} {limit:g}"
            for word, limit in (("at least", self.at_least), ("at most", self.at_most))
            if limit is not None
        ]
        return f"{self.requirement}: {subject} {' and '.join(limits)}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the answer."""

    name: str
    unit: str
    targets: tuple[Target, ...] = ()
    values: dict[str, list[float]] = field(default_factory=dict)

    def record(self, series: str, value: float) -> None:
        self.values.setdefault(series, []).append(value)

    def median(self, series: str) -> float | None:
        values = self.values.get(series)
        return statistics.median(values) if values else None

    def figure(self, target: Target) -> float | None:
        """What the target is about: a ratio of medians or a median."""
        of = self.median(target.of)
        if of is None or target.against is None:
            return of
        against = self.median(target.against)
        return None if not against else of / against

    def verdict(self, target: Target) -> str:
        figure = self.figure(target)
        if figure is None:
            return UNDECIDED
        return MET if target.admits(figure) else MISSED


@dataclass(frozen=True, slots=True)
class Answer:
    """All a script found out."""

    script: str
    question: str
    command: str
    date: str
    environment: Mapping[str, str]
    remarks: Sequence[str]
    metrics: Sequence[Metric]

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Answer":
        metrics = data["metrics"]
        assert isinstance(metrics, list)
        fields = {name: value for name, value in data.items() if name != "metrics"}
        return cls(**fields, metrics=[_metric(item) for item in metrics])  # type: ignore[arg-type]


def _metric(data: Mapping[str, object]) -> Metric:
    targets = data["targets"]
    assert isinstance(targets, list)
    fields = {name: value for name, value in data.items() if name != "targets"}
    return Metric(**fields, targets=tuple(Target(**each) for each in targets))  # type: ignore[arg-type]


def figure_text(value: float) -> str:
    """Three digits that matter: 0.0123, 1.23, 12.3, 123, 12,345."""
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}"
