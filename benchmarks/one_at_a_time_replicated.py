"""T4: one 100 B record at a time, acks=all, three replicas, alone and beside a bulk producer.

Latency is from `produce` to the delivery report: the record has gone to the leader, both followers
have it, and the leader knows. The bulk producer sends 1 KB records in batches to another topic of
the same brokers as fast as they take them, with acks=all as well, from a process of its own.
"""

import sys
import time
from functools import partial

from benchmarks.clients import (
    in_turn,
    replicated_topic,
    running_bulk,
    stored_record_count,
    wait_until_removed,
)
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
from benchmarks.results import Metric
from benchmarks.subjects import KAFKA, TIDELOG, Cluster

QUESTION = "How long does one record at a time take with three replicas? (T4)"
RECORD_COUNT = 2_000
# Fewer: meanwhile the bulk producer fills the disk three times over.
RECORD_COUNT_BESIDE_BULK = 500


def measure(bench: Bench) -> None:
    clusters = bench.start_clusters(bench.subjects)
    for cluster in clusters.values():
        cluster.create(TOPIC, *in_turn(1))
        cluster.wait_whole(TOPIC)
    measure_latency(
        bench,
        "alone, acks=all",
        list(clusters),
        lambda turn: latencies(
            clusters[turn.name].bootstrap, record_count=bench.count(RECORD_COUNT), acks="all"
        ),
        median_targets=(HALF_OF_KAFKA,),
    )
    bulk_rate = Metric("the bulk producer beside it", "records/s")
    measure_latency(
        bench,
        "beside a bulk producer, acks=all",
        list(clusters),
        lambda turn: _beside_bulk(bench, turn, clusters[turn.name], bulk_rate),
        median_targets=(),
    )
    bench.metric(bulk_rate)


def _beside_bulk(bench: Bench, turn: Turn, cluster: Cluster, bulk_rate: Metric) -> Latencies:
    topic = f"bulk-{turn.label}"
    bulk = BulkTask(value_size_bytes=BULK_VALUE_SIZE_BYTES, acks="all")
    with (
        replicated_topic(cluster, topic, partition_count=BULK_PARTITION_COUNT),
        running_bulk(cluster.bootstrap, topic, bulk),
    ):
        record_count = bench.count(RECORD_COUNT_BESIDE_BULK)
        counted = partial(
            stored_record_count, cluster.bootstrap, topic, partition_count=BULK_PARTITION_COUNT
        )
        before, started_s = counted(), time.monotonic()
        result = latencies(cluster.bootstrap, record_count=record_count, acks="all")
        elapsed_s = time.monotonic() - started_s
        turn.record(bulk_rate, (counted() - before) / elapsed_s)
    for broker in cluster.brokers.values():
        wait_until_removed(broker.data_folder, topic)
    return result


if __name__ == "__main__":
    sys.exit(run_script("one_at_a_time_replicated", QUESTION, measure, (TIDELOG, KAFKA)))
