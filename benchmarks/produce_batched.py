"""T3: 1 KB records in batches, acks=1 and acks=all, into twelve partitions of one broker.

The client is the limit for a fast broker. So it is measured twice: calling `produce()` for every
record, as applications do, and `produce_batch()`, which leaves more of the machine to the broker.
Every round uses a topic of its own, counts afterwards what the broker really holds, and drops it.
"""

import sys
from dataclasses import dataclass

from benchmarks.clients import run_produce, stored_record_count, topic_for_a_while
from benchmarks.harness import Bench, Turn, run_script
from benchmarks.load import ProduceTask
from benchmarks.process_stats import cpu_seconds
from benchmarks.results import Metric, Target
from benchmarks.subjects import FLOOR, KAFKA, TIDELOG, Subject

QUESTION = "How many 1 KB records a second does one broker take in batches? (T3)"
VALUE_SIZE_BYTES = 1_024
PARTITION_COUNT = 12
RECORD_COUNT = 400_000
AT_LEAST_KAFKA = Target(requirement="T3", of=TIDELOG, against=KAFKA, at_least=1.0)


@dataclass(frozen=True, slots=True)
class Case:
    throughput: Metric
    broker_cpu: Metric
    acks: str
    in_batches: bool


def measure(bench: Bench) -> None:
    subjects = bench.start_subjects()
    for acks in ("1", "all"):
        for in_batches in (False, True):
            call = "produce_batch()" if in_batches else "produce()"
            name = f"acks={acks}, {call}"
            case = Case(
                bench.metric(Metric(name, "records/s", (AT_LEAST_KAFKA,))),
                bench.metric(Metric(f"{name}, broker's processor time", "us/record")),
                acks,
                in_batches,
            )
            for turn in bench.turns(name, list(subjects)):
                _one_turn(bench, case, turn, subjects[turn.name])


def _one_turn(bench: Bench, case: Case, turn: Turn, subject: Subject) -> None:
    task = ProduceTask(
        record_count=bench.count(RECORD_COUNT),
        value_size_bytes=VALUE_SIZE_BYTES,
        acks=case.acks,
        in_batches=case.in_batches,
    )
    topic = f"batched-{case.acks}-{case.in_batches}-{turn.label}".lower()
    if turn.name == FLOOR:
        result = run_produce(subject.bootstrap, topic, task)
    else:
        with topic_for_a_while(subject.bootstrap, topic, partition_count=PARTITION_COUNT):
            cpu_before = cpu_seconds(subject.pid)
            result = run_produce(subject.bootstrap, topic, task)
            cpu_s = cpu_seconds(subject.pid) - cpu_before
            stored = stored_record_count(subject.bootstrap, topic, partition_count=PARTITION_COUNT)
            assert stored == task.record_count, f"{turn.name} holds {stored} records"
        turn.record(case.broker_cpu, cpu_s / task.record_count * 1e6)
    turn.record(case.throughput, task.record_count / result.elapsed_s)


if __name__ == "__main__":
    sys.exit(run_script("produce_batched", QUESTION, measure))
