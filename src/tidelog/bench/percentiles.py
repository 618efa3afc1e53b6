"""Many durations summed up as the document does, and as a curve for a picture."""

import math
from collections.abc import Iterable, Sequence

from tidelog.bench.measured import CURVE_PERCENTILES, Latencies

_NS_PER_MS = 1_000_000


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed."""
    assert ordered
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def latencies_of(durations_ns: Iterable[int]) -> Latencies:
    """Of at least one duration."""
    ordered = sorted(duration / _NS_PER_MS for duration in durations_ns)
    return Latencies(
        count=len(ordered),
        avg=sum(ordered) / len(ordered),
        min=ordered[0],
        max=ordered[-1],
        p99=percentile(ordered, 99),
        p9999=percentile(ordered, 99.99),
        curve=tuple(percentile(ordered, percent) for percent in CURVE_PERCENTILES),
    )
