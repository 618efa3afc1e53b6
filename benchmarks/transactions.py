"""D3: what a transaction costs, beside Kafka and beside records that are in none.

Three brokers, three replicas, min.insync.replicas 2, one producer.

    one record each     begin, one record of 100 B, commit, one after the other (librdkafka)
    hundred each        the same with 100 records of 1 KB over twelve partitions
    ten thousand each   what a stream processor does: 1 KB records in transactions of 10,000,
                        as a rate, and that of the same producer without transactions
    Kafka's own tool    ProducerPerformance, 1 KB records in transactions of 200 ms

Read "ten thousand each" with care, it is about librdkafka as much as about brokers. Kafka has it
ask three times before the next transaction may begin; by then all records are queued, and each
broker is sent four requests of nearly 1 MB. Where it begins at once they are sent while more are
queued, in twice as many requests, and librdkafka's threads poll without a pause meanwhile: tens of
thousands of turns per broker and transaction where they are 12 otherwise (`wakeups` of its
statistics), which takes more processor time than the three brokers do. Without transactions they
do so with both.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterable

from confluent_kafka import Producer

from benchmarks.clients import CLIENT_TIMEOUT_S, in_turn
from benchmarks.harness import Bench, run_script
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, running_cluster
from tests.support.kafka_process import java_command

QUESTION = "What do transactions cost? (D3)"
TOPIC = "transacted"
AS_FAST = Target(requirement="D3", of=TIDELOG, against=KAFKA, at_most=1.0)
AS_MANY = Target(requirement="D3", of=TIDELOG, against=KAFKA, at_least=1.0)
PARTITION_COUNT = 12
SMALL = bytes(100)
LARGE = bytes(range(256)) * 4
ONE_COUNT = 300
HUNDRED_COUNT = 60
BULK_SIZE = 10_000
BULK_COUNT = 8
TOOL = "org.apache.kafka.tools.ProducerPerformance"
TOOL_RECORDS = 300_000
TOOL_TRANSACTION_MS = 200
TOOL_TIMEOUT_S = 300.0
TOOL_SAYS = re.compile(r"records sent, ([\d.]+) records/sec")


def measure(bench: Bench) -> None:
    clusters = {}
    for name in bench.subjects:
        bench.say(f"starting three brokers of {name}")
        cluster = bench.running.enter_context(running_cluster(name, bench.folder / name, {}))
        cluster.create(TOPIC, *in_turn(PARTITION_COUNT))
        cluster.wait_whole(TOPIC)
        clusters[name] = cluster.bootstrap
    names = list(clusters)
    cases = (
        ("one record each", ONE_COUNT, 1, SMALL),
        ("hundred records each", HUNDRED_COUNT, 100, LARGE),
    )
    for title, count, size, value in cases:
        p50 = bench.metric(Metric(f"{title}, p50", "ms", (AS_FAST,)))
        p99 = bench.metric(Metric(f"{title}, p99", "ms", (AS_FAST,)))
        for turn in bench.turns(title, names):
            producer = _producer(clusters[turn.name], f"{size}-{turn.label}")
            took = sorted(_transactions(producer, bench.count(count), size, value))
            turn.record(p50, took[len(took) // 2] * 1000)
            turn.record(p99, took[len(took) * 99 // 100] * 1000)
    inside = bench.metric(Metric(f"transactions of {BULK_SIZE:,}", "records/s", (AS_MANY,)))
    outside = bench.metric(Metric("the same without transactions", "records/s"))
    for turn in bench.turns("bulk", names):
        bootstrap, count = clusters[turn.name], bench.count(BULK_COUNT)
        producer = _producer(bootstrap, f"bulk-{turn.label}")
        took_s = sum(_transactions(producer, count, BULK_SIZE, LARGE))
        turn.record(inside, count * BULK_SIZE / took_s)
        plain = Producer(_settings(bootstrap))
        started_s = time.perf_counter()
        for _ in range(count):
            _send(plain, BULK_SIZE, LARGE)
            plain.flush(CLIENT_TIMEOUT_S)
        turn.record(outside, count * BULK_SIZE / (time.perf_counter() - started_s))
    tool = bench.metric(Metric("Kafka's own tool", "records/s", (AS_MANY,)))
    for turn in bench.turns("ProducerPerformance", names):
        turn.record(tool, _performance(clusters[turn.name], turn.label, bench.count(TOOL_RECORDS)))


def _settings(bootstrap: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 1,
        "queue.buffering.max.messages": 2 * BULK_SIZE,
        "log_level": 0,
    }


def _producer(bootstrap: str, label: str) -> Producer:
    producer = Producer({**_settings(bootstrap), "transactional.id": f"bench-{label}"})
    producer.init_transactions(CLIENT_TIMEOUT_S)
    return producer


def _transactions(producer: Producer, count: int, size: int, value: bytes) -> Iterable[float]:
    """How long each took, from its beginning to the end of the commit."""
    for _ in range(count):
        started_s = time.perf_counter()
        producer.begin_transaction()
        _send(producer, size, value)
        producer.commit_transaction(CLIENT_TIMEOUT_S)
        yield time.perf_counter() - started_s


def _send(producer: Producer, count: int, value: bytes) -> None:
    for number in range(count):
        producer.produce(TOPIC, value, partition=number % PARTITION_COUNT)
        if number % 1_000 == 0:
            producer.poll(0)


def _performance(bootstrap: str, label: str, count: int) -> float:
    """Records a second, as the tool says."""
    command = java_command(
        ("-Xmx512m",),
        TOOL,
        *("--topic", TOPIC, "--num-records", str(count), "--record-size", str(len(LARGE))),
        *("--transactional-id", f"tool-{label}", "--throughput", "-1"),
        *("--transaction-duration-ms", str(TOOL_TRANSACTION_MS)),
        *("--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"),
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=True
    )
    said = TOOL_SAYS.findall(done.stdout)
    assert said, done
    return float(said[-1])


if __name__ == "__main__":
    sys.exit(run_script("transactions", QUESTION, measure, (TIDELOG, KAFKA)))
