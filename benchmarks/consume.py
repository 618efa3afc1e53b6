"""T5: consuming twelve partitions from the page cache.

Every broker holds the same records, written once before the first round. The client's own limits
on what it keeps in memory are raised (`queued.min.messages`), or they would be what is measured.
There is no floor: librdkafka's mock broker keeps too little to be read for long.
"""

import sys

from benchmarks.clients import run_consume, run_produce, stored_record_count
from benchmarks.harness import Bench, run_script
from benchmarks.load import ConsumeTask, ProduceTask
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, Subject
from tests.support.clients import create_topic
from tidelog.bench.process_stats import cpu_seconds

QUESTION = "How many 1 KB records a second does one broker serve from the page cache? (T5)"
TOPIC = "consumed"
VALUE_SIZE_BYTES = 1_024
PARTITION_COUNT = 12
RECORD_COUNT = 600_000
AT_LEAST_KAFKA = Target(requirement="T5", of=TIDELOG, against=KAFKA, at_least=1.0)


def measure(bench: Bench) -> None:
    subjects = bench.start_subjects()
    record_count = bench.count(RECORD_COUNT)
    for subject in subjects.values():
        _fill(subject, record_count)
    throughput = bench.metric(Metric("12 partitions", "records/s", (AT_LEAST_KAFKA,)))
    broker_cpu = bench.metric(Metric("broker's processor time", "us/record"))
    client_cpu = bench.metric(Metric("client's processor time", "us/record"))
    task = ConsumeTask(partition_count=PARTITION_COUNT, record_count=record_count)
    for turn in bench.turns("consuming", list(subjects)):
        subject = subjects[turn.name]
        cpu_before = cpu_seconds(subject.pid)
        result = run_consume(subject.bootstrap, TOPIC, task)
        cpu_s = cpu_seconds(subject.pid) - cpu_before
        turn.record(throughput, record_count / result.elapsed_s)
        turn.record(broker_cpu, cpu_s / record_count * 1e6)
        turn.record(client_cpu, result.client_cpu_s / record_count * 1e6)


def _fill(subject: Subject, record_count: int) -> None:
    create_topic(subject.bootstrap, TOPIC, partition_count=PARTITION_COUNT, config={})
    task = ProduceTask(
        record_count=record_count, value_size_bytes=VALUE_SIZE_BYTES, acks="1", in_batches=True
    )
    run_produce(subject.bootstrap, TOPIC, task)
    stored = stored_record_count(subject.bootstrap, TOPIC, partition_count=PARTITION_COUNT)
    assert stored == record_count, f"{stored} of {record_count} records are stored"


if __name__ == "__main__":
    sys.exit(run_script("consume", QUESTION, measure, (TIDELOG, KAFKA)))
