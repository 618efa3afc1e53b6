"""T2: resident memory of a broker, idle and under load.

Each round starts a fresh process. Idle is read after its first acknowledged record and a quiet
moment; under load is the largest value seen while 1 KB records are produced in batches to twelve
partitions and consumed again. Kafka has the heap of its own start script, 1 GB. The floor is a
Python interpreter with uvloop that has done nothing yet. Of three brokers with three replicas the
one that holds most counts.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.clients import in_turn, run_consume, run_produce
from benchmarks.harness import Bench, run_script
from benchmarks.load import ConsumeTask, ProduceTask
from benchmarks.results import Metric, Target
from benchmarks.subjects import FLOOR, KAFKA, TIDELOG, new_broker, new_cluster
from tests.support.clients import create_topic, numbered_records, send
from tidelog.bench.process_stats import ResidentPeak, resident_mib

QUESTION = "How much memory does a broker hold, idle and under load? (T2)"
TOPIC = "memory"
VALUE_SIZE_BYTES = 1_024
PARTITION_COUNT = 12
RECORD_COUNT = 500_000
QUIET_S = 2.0
IDLE = Target(requirement="T2", of=TIDELOG, against=KAFKA, at_most=0.2)
LOADED = Target(requirement="T2", of=TIDELOG, against=KAFKA, at_most=0.25)
BARE_PYTHON = "import uvloop, sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"


def measure(bench: Bench) -> None:
    bench.warm_up_rounds = 0
    _one(bench)
    _three(bench)


def _one(bench: Bench) -> None:
    idle = bench.metric(Metric("idle", "MiB", (IDLE,)))
    loaded = bench.metric(Metric("under load, largest", "MiB", (LOADED,)))
    after = bench.metric(Metric("after load", "MiB", (LOADED,)))
    for turn in bench.turns("filling memory", bench.subjects):
        if turn.name == FLOOR:
            turn.record(idle, _bare_python_mib())
            continue
        with new_broker(turn.name, bench.folder / turn.label, {}) as broker:
            create_topic(broker.bootstrap, TOPIC, partition_count=PARTITION_COUNT, config={})
            turn.record(idle, _idle_mib(broker.bootstrap, [broker.pid]))
            turn.record(loaded, _peak_under_load_mib(bench, broker.bootstrap, [broker.pid]))
            turn.record(after, resident_mib(broker.pid))


def _three(bench: Bench) -> None:
    idle = bench.metric(Metric("one of three, idle", "MiB", (IDLE,)))
    loaded = bench.metric(Metric("one of three, under load, largest", "MiB", (LOADED,)))
    after = bench.metric(Metric("one of three, after load", "MiB", (LOADED,)))
    names = [name for name in bench.subjects if name != FLOOR]
    for turn in bench.turns("filling memory of three", names):
        with new_cluster(turn.name, bench.folder / f"{turn.label}-three", {}) as cluster:
            cluster.create(TOPIC, *in_turn(PARTITION_COUNT))
            turn.record(idle, _idle_mib(cluster.bootstrap, cluster.pids))
            turn.record(loaded, _peak_under_load_mib(bench, cluster.bootstrap, cluster.pids))
            turn.record(after, max(map(resident_mib, cluster.pids)))


def _idle_mib(bootstrap: str, pids: Sequence[int]) -> float:
    record = numbered_records(1, value_size_bytes=100, seed="idle")
    send(bootstrap, TOPIC, record, partition=0, settings={})
    time.sleep(QUIET_S)
    return max(map(resident_mib, pids))


def _peak_under_load_mib(bench: Bench, bootstrap: str, pids: Sequence[int]) -> float:
    record_count = bench.count(RECORD_COUNT)
    produce = ProduceTask(
        record_count=record_count, value_size_bytes=VALUE_SIZE_BYTES, acks="1", in_batches=False
    )
    consume = ConsumeTask(partition_count=PARTITION_COUNT, record_count=record_count)
    with ExitStack() as watching:
        peaks = [watching.enter_context(ResidentPeak(pid)) for pid in pids]
        run_produce(bootstrap, TOPIC, produce)
        run_consume(bootstrap, TOPIC, consume)
    return max(peak.mib for peak in peaks)


def _bare_python_mib() -> float:
    with subprocess.Popen(
        [sys.executable, "-c", BARE_PYTHON], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as python:
        assert python.stdout is not None
        python.stdout.read(1)
        return resident_mib(python.pid)


if __name__ == "__main__":
    sys.exit(run_script("memory", QUESTION, measure))
