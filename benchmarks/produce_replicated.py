"""T3 for three brokers: 1 KB records in batches into twelve partitions with three replicas.

Two replicas must have a record (`min.insync.replicas`), and with acks=all every one in sync has it
before it is acknowledged. Every round uses a topic of its own, counts afterwards what the leaders
really hold, and drops it. Client and brokers share the machine.
"""

import sys
from functools import partial

from benchmarks.clients import replicated_topic
from benchmarks.harness import Bench, run_script
from benchmarks.produce_case import PARTITION_COUNT, ProduceCase
from benchmarks.results import Target
from benchmarks.subjects import KAFKA, TIDELOG

QUESTION = "How many 1 KB records a second do three brokers take, with three replicas? (T3)"
RECORD_COUNT = 400_000
THREE_TIMES_KAFKA = Target(requirement="T3", of=TIDELOG, against=KAFKA, at_least=3.0)


def measure(bench: Bench) -> None:
    clusters = bench.start_clusters(bench.subjects)
    for acks, in_batches in (("all", False), ("all", True), ("1", False)):
        case = ProduceCase.new(
            bench,
            record_count=RECORD_COUNT,
            acks=acks,
            in_batches=in_batches,
            targets=(THREE_TIMES_KAFKA,) if acks == "all" else (),
        )
        for turn in bench.turns(case.name, list(clusters)):
            cluster = clusters[turn.name]
            with_topic = partial(replicated_topic, cluster, partition_count=PARTITION_COUNT)
            case.measure(turn, cluster.bootstrap, cluster.pids, with_topic)


if __name__ == "__main__":
    sys.exit(run_script("produce_replicated", QUESTION, measure, (TIDELOG, KAFKA)))
