"""T3 for three brokers: 1 KB records in batches into twelve partitions with three replicas.

Two replicas must have a record (`min.insync.replicas`), and with acks=all every one in sync has it
before it is acknowledged. Every round uses a topic of its own, counts afterwards what the leaders
really hold, and drops it. Client and brokers share the machine.
"""

import sys
from dataclasses import dataclass

from benchmarks.clients import replicated_topic, run_produce, stored_record_count
from benchmarks.harness import Bench, Turn, run_script
from benchmarks.load import ProduceTask
from benchmarks.process_stats import cpu_seconds
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, Cluster

QUESTION = "How many 1 KB records a second do three brokers take, with three replicas? (T3)"
VALUE_SIZE_BYTES = 1_024
PARTITION_COUNT = 12
RECORD_COUNT = 150_000
THREE_TIMES_KAFKA = Target(requirement="T3", of=TIDELOG, against=KAFKA, at_least=3.0)


@dataclass(frozen=True, slots=True)
class Case:
    throughput: Metric
    broker_cpu: Metric
    acks: str
    in_batches: bool


def measure(bench: Bench) -> None:
    clusters = bench.start_clusters(bench.subjects)
    for acks, in_batches in (("all", False), ("all", True), ("1", False)):
        call = "produce_batch()" if in_batches else "produce()"
        name = f"acks={acks}, {call}"
        targets = (THREE_TIMES_KAFKA,) if acks == "all" else ()
        case = Case(
            bench.metric(Metric(name, "records/s", targets)),
            bench.metric(Metric(f"{name}, all brokers' processor time", "us/record")),
            acks,
            in_batches,
        )
        for turn in bench.turns(name, list(clusters)):
            _one_turn(bench, case, turn, clusters[turn.name])


def _one_turn(bench: Bench, case: Case, turn: Turn, cluster: Cluster) -> None:
    task = ProduceTask(
        record_count=bench.count(RECORD_COUNT),
        value_size_bytes=VALUE_SIZE_BYTES,
        acks=case.acks,
        in_batches=case.in_batches,
    )
    topic = f"replicated-{case.acks}-{case.in_batches}-{turn.label}".lower()
    with replicated_topic(cluster, topic, partition_count=PARTITION_COUNT):
        cpu_before = _cpu_seconds(cluster)
        result = run_produce(cluster.bootstrap, topic, task)
        cpu_s = _cpu_seconds(cluster) - cpu_before
        if case.acks == "all":
            stored = stored_record_count(cluster.bootstrap, topic, partition_count=PARTITION_COUNT)
            assert stored == task.record_count, f"{turn.name} holds {stored} records"
    turn.record(case.broker_cpu, cpu_s / task.record_count * 1e6)
    turn.record(case.throughput, task.record_count / result.elapsed_s)


def _cpu_seconds(cluster: Cluster) -> float:
    return sum(map(cpu_seconds, cluster.pids))


if __name__ == "__main__":
    sys.exit(run_script("produce_replicated", QUESTION, measure, (TIDELOG, KAFKA)))
