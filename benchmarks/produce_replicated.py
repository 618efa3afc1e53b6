"""T3 for three brokers: 1 KB records in batches into twelve partitions with three replicas.

Two replicas must have a record (`min.insync.replicas`), and with acks=all every one in sync has it
before it is acknowledged. Every round uses a topic of its own, counts afterwards what the leaders
really hold, and drops it. Client and brokers share the machine.

The floor is three processes of floor.c that write a batch three times and know nothing of it, sent
by a raw client, one batch at a time. No Kafka client can speak to it, so its records a second are
not measured but what the processors have time for: their number, divided by the processor time of a
record in those three and in the client. For the others the same figure says how near they came.
"""

import sys
from collections.abc import Mapping
from functools import partial

from benchmarks.clients import replicated_topic
from benchmarks.harness import Bench, run_script
from benchmarks.large_batches import large_exchanges, processor_time_us
from benchmarks.produce_case import PARTITION_COUNT, ProduceCase
from benchmarks.raw import RawConnection
from benchmarks.results import Metric, Target
from benchmarks.subjects import FLOOR, KAFKA, TIDELOG, Cluster, NoCompiler, new_copying_floor

QUESTION = "How many 1 KB records a second do three brokers take, with three replicas? (T3)"
RECORD_COUNT = 400_000
FLOOR_BATCHES = 100
FLOOR_ANSWER_BYTES = 64
THREE_TIMES_KAFKA = Target(requirement="T3", of=TIDELOG, against=KAFKA, at_least=3.0)


def measure(bench: Bench) -> None:
    clusters = bench.start_clusters([name for name in bench.subjects if name != FLOOR])
    cases = [
        _measure_case(bench, clusters, acks=acks, in_batches=in_batches)
        for acks, in_batches in (("all", False), ("all", True), ("1", False))
    ]
    floor_us = _measure_floor(bench) if bench.has(FLOOR) else []
    for case in cases:
        if case.task.acks == "all":
            _say_room(bench, case, floor_us)


def _measure_case(
    bench: Bench, clusters: Mapping[str, Cluster], *, acks: str, in_batches: bool
) -> ProduceCase:
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
    return case


def _measure_floor(bench: Bench) -> list[float]:
    """The processor time of a record in the three that only copy, round by round."""
    metric = Metric("three C servers that copy, processor time", "us/record")
    try:
        floors = new_copying_floor(bench.running, bench.folder / FLOOR, FLOOR_ANSWER_BYTES)
    except NoCompiler as error:
        bench.remarks.append(str(error))
        return []
    pids = [floor.pid for floor in floors]
    with RawConnection(floors[0].bootstrap) as connection:
        exchanges = large_exchanges(connection, "floor", bench.count(FLOOR_BATCHES))
        for turn in bench.turns(metric.name, [FLOOR]):
            turn.record(metric, processor_time_us(pids, exchanges))
    return bench.metric(metric).values[FLOOR]


def _say_room(bench: Bench, case: ProduceCase, floor_us: list[float]) -> None:
    metric = bench.metric(Metric(f"{case.name}, what processors have time for", "records/s"))
    processor_us = len(bench.cores) * 1e6
    for name, clients_us in case.client_cpu.values.items():
        for client_us, brokers_us in zip(clients_us, case.broker_cpu.values[name], strict=True):
            metric.record(name, processor_us / (client_us + brokers_us))
    medians_us = [case.client_cpu.median(name) for name in case.client_cpu.values]
    cheapest_us = min((each for each in medians_us if each is not None), default=0.0)
    for each_us in floor_us:
        metric.record(FLOOR, processor_us / (cheapest_us + each_us))


if __name__ == "__main__":
    sys.exit(run_script("produce_replicated", QUESTION, measure))
