"""Latencies are summed up as the document does."""

from tidelog.bench.measured import CURVE_PERCENTILES
from tidelog.bench.percentiles import latencies_of, percentile


def test_a_percentile_is_a_value_that_was_measured() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert percentile(ordered, 0) == 1
    assert percentile(ordered, 50) == 50
    assert percentile(ordered, 99) == 99
    assert percentile(ordered, 99.99) == 100


def test_nanoseconds_become_milliseconds() -> None:
    found = latencies_of([1_000_000, 3_000_000, 2_000_000])
    assert (found.count, found.avg, found.min, found.max) == (3, 2.0, 1.0, 3.0)
    assert found.p99 == found.p9999 == 3.0
    assert len(found.curve) == len(CURVE_PERCENTILES)
    assert sorted(found.curve) == list(found.curve)
