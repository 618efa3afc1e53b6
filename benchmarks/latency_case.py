"""One way of producing one record at a time, with what is measured of it (T4)."""

from collections.abc import Callable, Sequence

from benchmarks.clients import run_latency
from benchmarks.harness import Bench, Turn
from benchmarks.load import Latencies, LatencyTask
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG

VALUE_SIZE_BYTES = 100
BULK_VALUE_SIZE_BYTES = 1_024
BULK_PARTITION_COUNT = 12
TOPIC = "single"
HALF_OF_KAFKA = Target(requirement="T4", of=TIDELOG, against=KAFKA, at_most=0.5)


def latencies(bootstrap: str, *, record_count: int, acks: str) -> Latencies:
    task = LatencyTask(record_count=record_count, value_size_bytes=VALUE_SIZE_BYTES, acks=acks)
    return run_latency(bootstrap, TOPIC, task)


def measure_latency(
    bench: Bench,
    name: str,
    subjects: Sequence[str],
    measure: Callable[[Turn], Latencies],
    *,
    median_targets: tuple[Target, ...],
) -> tuple[Metric, Metric]:
    """Its median and its 99th percentile. The latter has a target in every case."""
    p50 = bench.metric(Metric(f"{name}, p50", "ms", median_targets))
    p99 = bench.metric(Metric(f"{name}, p99", "ms", (HALF_OF_KAFKA,)))
    for turn in bench.turns(name, list(subjects)):
        result = measure(turn)
        turn.record(p50, result.p50_ms)
        turn.record(p99, result.p99_ms)
    return p50, p99
