"""Metrics as plain values, and as the text that Prometheus reads.

Whoever has something to tell makes `Family` values when somebody asks, from counts that it keeps
anyway; nothing is registered and nothing is counted twice. Names: Kafka's, as its JMX exporter
writes them, where Kafka has the metric; `tidelog_<noun>_<unit>` otherwise. Labels are bounded:
topics and partitions, never clients.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Kind(Enum):
    """What may happen to the values of a family."""

    COUNTER = "counter"
    """Only grows, but may begin anew at 0 with what it counts for; its name ends in `_total`."""

    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value; `labels` stand for the label names of its family, in their order."""

    value: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name."""

    name: str
    kind: Kind
    documentation: str
    label_names: tuple[str, ...]
    samples: Sequence[Sample]


def exposition(families: Iterable[Family]) -> bytes:
    """`families` in Prometheus' text format."""
    # Late: a broker that does not serve metrics does not load it.
    from prometheus_client import generate_latest  # noqa: PLC0415
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415
    from prometheus_client.registry import Collector, CollectorRegistry  # noqa: PLC0415

    known = [*families]

    class Gathered(Collector):
        def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
            for family in known:
                is_counter = family.kind is Kind.COUNTER
                shape = CounterMetricFamily if is_counter else GaugeMetricFamily
                shown = shape(family.name, family.documentation, labels=family.label_names)
                for sample in family.samples:
                    shown.add_metric(sample.labels, sample.value)
                yield shown

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Gathered())
    return generate_latest(registry)
