"""T4: one 100 B record at a time, acks=all, three replicas, alone and beside a bulk producer.

Latency is from `produce` to the delivery report: the record has gone to the leader, both followers
have it, and the leader knows. The bulk producer sends 1 KB records in batches to another topic of
the same brokers as fast as they take them, with acks=all as well, from a process of its own.
"""

import sys

from benchmarks.clients import (
    in_turn,
    replicated_topic,
    run_latency,
    running_bulk,
    wait_until_removed,
)
from benchmarks.harness import Bench, Turn, run_script
from benchmarks.load import BulkTask, Latencies, LatencyTask
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, Cluster

QUESTION = "How long does one record at a time take with three replicas? (T4)"
VALUE_SIZE_BYTES = 100
BULK_VALUE_SIZE_BYTES = 1_024
BULK_PARTITION_COUNT = 12
RECORD_COUNT = 2_000
# Fewer: meanwhile the bulk producer fills the disk three times over.
RECORD_COUNT_BESIDE_BULK = 500
TOPIC = "single"
HALF_OF_KAFKA = Target(requirement="T4", of=TIDELOG, against=KAFKA, at_most=0.5)


def measure(bench: Bench) -> None:
    clusters = bench.start_clusters(bench.subjects)
    for cluster in clusters.values():
        cluster.create(TOPIC, *in_turn(1))
        cluster.wait_whole(TOPIC)
    p50 = bench.metric(Metric("alone, acks=all, p50", "ms", (HALF_OF_KAFKA,)))
    p99 = bench.metric(Metric("alone, acks=all, p99", "ms", (HALF_OF_KAFKA,)))
    for turn in bench.turns("alone, acks=all", list(clusters)):
        result = _latencies(clusters[turn.name], bench.count(RECORD_COUNT))
        turn.record(p50, result.p50_ms)
        turn.record(p99, result.p99_ms)
    p50 = bench.metric(Metric("beside a bulk producer, acks=all, p50", "ms"))
    p99 = bench.metric(Metric("beside a bulk producer, acks=all, p99", "ms", (HALF_OF_KAFKA,)))
    for turn in bench.turns("beside a bulk producer", list(clusters)):
        result = _beside_bulk(bench, turn, clusters[turn.name])
        turn.record(p50, result.p50_ms)
        turn.record(p99, result.p99_ms)


def _latencies(cluster: Cluster, record_count: int) -> Latencies:
    task = LatencyTask(record_count=record_count, value_size_bytes=VALUE_SIZE_BYTES, acks="all")
    return run_latency(cluster.bootstrap, TOPIC, task)


def _beside_bulk(bench: Bench, turn: Turn, cluster: Cluster) -> Latencies:
    topic = f"bulk-{turn.label}"
    bulk = BulkTask(value_size_bytes=BULK_VALUE_SIZE_BYTES, acks="all")
    with (
        replicated_topic(cluster, topic, partition_count=BULK_PARTITION_COUNT),
        running_bulk(cluster.bootstrap, topic, bulk),
    ):
        result = _latencies(cluster, bench.count(RECORD_COUNT_BESIDE_BULK))
    for broker in cluster.brokers.values():
        wait_until_removed(broker.data_folder, topic)
    return result


if __name__ == "__main__":
    sys.exit(run_script("one_at_a_time_replicated", QUESTION, measure, (TIDELOG, KAFKA)))
