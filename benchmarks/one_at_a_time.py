"""T4 for one broker: one 100 B record at a time, alone and beside a bulk producer.

Latency is from `produce` to the delivery report. The bulk producer sends 1 KB records in batches
to another topic of the same broker as fast as it can, from a process of its own.
"""

import sys
from functools import partial

from benchmarks.clients import drop_topic, running_bulk
from benchmarks.harness import Bench, Turn, run_script
from benchmarks.latency_case import (
    BULK_PARTITION_COUNT,
    BULK_VALUE_SIZE_BYTES,
    HALF_OF_KAFKA,
    TOPIC,
    latencies,
    measure_latency,
)
from benchmarks.load import BulkTask, Latencies
from benchmarks.results import Metric, figure_text
from benchmarks.subjects import FLOOR, KAFKA, Subject
from tests.support.clients import create_topic

QUESTION = "How long does one record at a time take, alone and beside a bulk producer? (T4)"
RECORD_COUNT = 3_000


def measure(bench: Bench) -> None:
    subjects = bench.start_subjects()
    for name, subject in subjects.items():
        if name != FLOOR:
            create_topic(subject.bootstrap, TOPIC, partition_count=1, config={})
    for acks in ("1", "all"):
        measured = measure_latency(
            bench,
            f"alone, acks={acks}",
            list(subjects),
            partial(_alone, bench, subjects, acks),
            median_targets=(HALF_OF_KAFKA,),
        )
        for metric in measured:
            _remark_on_floor(bench, metric)
    measure_latency(
        bench,
        "beside a bulk producer, acks=all",
        list(subjects),
        lambda turn: _beside_bulk(bench, turn, subjects[turn.name]),
        median_targets=(),
    )


def _alone(bench: Bench, subjects: dict[str, Subject], acks: str, turn: Turn) -> Latencies:
    return latencies(
        subjects[turn.name].bootstrap, record_count=bench.count(RECORD_COUNT), acks=acks
    )


def _remark_on_floor(bench: Bench, metric: Metric) -> None:
    """Most of such a trip is the client and the waking of cores: how much is left to a server?"""
    floor, kafka = metric.median(FLOOR), metric.median(KAFKA)
    if floor and kafka:
        share = figure_text(floor / kafka)
        bench.remarks.append(f"{metric.name}: the floor takes {share} of what kafka takes")


def _beside_bulk(bench: Bench, turn: Turn, subject: Subject) -> Latencies:
    bulk_topic = f"bulk-{turn.label}"
    if turn.name != FLOOR:
        create_topic(subject.bootstrap, bulk_topic, partition_count=BULK_PARTITION_COUNT, config={})
    bulk = BulkTask(value_size_bytes=BULK_VALUE_SIZE_BYTES, acks="1")
    with running_bulk(subject.bootstrap, bulk_topic, bulk):
        result = latencies(subject.bootstrap, record_count=bench.count(RECORD_COUNT), acks="all")
    if turn.name != FLOOR:
        drop_topic(subject.bootstrap, bulk_topic)
    return result


if __name__ == "__main__":
    sys.exit(run_script("one_at_a_time", QUESTION, measure))
