"""T4 for one broker: one 100 B record at a time, alone and beside a bulk producer.

Latency is from `produce` to the delivery report. The bulk producer sends 1 KB records in batches
to another topic of the same broker as fast as it can, from a process of its own.
"""

import sys

from benchmarks.clients import drop_topic, run_latency, running_bulk
from benchmarks.harness import Bench, Turn, run_script
from benchmarks.load import BulkTask, Latencies, LatencyTask
from benchmarks.results import Metric, Target, figure_text
from benchmarks.subjects import FLOOR, KAFKA, TIDELOG, Subject
from tests.support.clients import create_topic

QUESTION = "How long does one record at a time take, alone and beside a bulk producer? (T4)"
VALUE_SIZE_BYTES = 100
BULK_VALUE_SIZE_BYTES = 1_024
RECORD_COUNT = 3_000
TOPIC = "single"
HALF_OF_KAFKA = Target(requirement="T4", of=TIDELOG, against=KAFKA, at_most=0.5)


def measure(bench: Bench) -> None:
    subjects = bench.start_subjects()
    for name, subject in subjects.items():
        if name != FLOOR:
            create_topic(subject.bootstrap, TOPIC, partition_count=1, config={})
    for acks in ("1", "all"):
        p50 = bench.metric(Metric(f"alone, acks={acks}, p50", "ms", (HALF_OF_KAFKA,)))
        p99 = bench.metric(Metric(f"alone, acks={acks}, p99", "ms", (HALF_OF_KAFKA,)))
        for turn in bench.turns(f"alone, acks={acks}", list(subjects)):
            result = _latencies(bench, subjects[turn.name], acks)
            turn.record(p50, result.p50_ms)
            turn.record(p99, result.p99_ms)
        _remark_on_floor(bench, p50)
        _remark_on_floor(bench, p99)
    p50 = bench.metric(Metric("beside a bulk producer, acks=all, p50", "ms"))
    p99 = bench.metric(Metric("beside a bulk producer, acks=all, p99", "ms", (HALF_OF_KAFKA,)))
    for turn in bench.turns("beside a bulk producer", list(subjects)):
        result = _beside_bulk(bench, turn, subjects[turn.name])
        turn.record(p50, result.p50_ms)
        turn.record(p99, result.p99_ms)


def _remark_on_floor(bench: Bench, metric: Metric) -> None:
    """Most of such a trip is the client and the waking of cores: how much is left to a server?"""
    floor, kafka = metric.median(FLOOR), metric.median(KAFKA)
    if floor and kafka:
        share = figure_text(floor / kafka)
        bench.remarks.append(f"{metric.name}: the floor takes {share} of what kafka takes")


def _latencies(bench: Bench, subject: Subject, acks: str) -> Latencies:
    task = LatencyTask(
        record_count=bench.count(RECORD_COUNT), value_size_bytes=VALUE_SIZE_BYTES, acks=acks
    )
    return run_latency(subject.bootstrap, TOPIC, task)


def _beside_bulk(bench: Bench, turn: Turn, subject: Subject) -> Latencies:
    bulk_topic = f"bulk-{turn.label}"
    if turn.name != FLOOR:
        create_topic(subject.bootstrap, bulk_topic, partition_count=12, config={})
    bulk = BulkTask(value_size_bytes=BULK_VALUE_SIZE_BYTES, acks="1")
    with running_bulk(subject.bootstrap, bulk_topic, bulk):
        result = _latencies(bench, subject, "all")
    if turn.name != FLOOR:
        drop_topic(subject.bootstrap, bulk_topic)
    return result


if __name__ == "__main__":
    sys.exit(run_script("one_at_a_time", QUESTION, measure))
