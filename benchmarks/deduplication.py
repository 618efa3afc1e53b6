"""D5: what it costs to drop records that were sent before, and how much memory an id takes.

One broker and two topics, one that looks for duplicates and one that does not. Every record has an
id of its own in a header, so nothing is dropped and all of it is remembered.

    produce()      1 KB records by librdkafka, as an application sends them, into twelve partitions
    lz4            the same, compressed: the broker has to decompress every batch to read the ids
    full batches   megabytes over a bare socket, where the client costs nothing
    duplicates     the same batches again: nothing is stored
    memory         of a million ids in one partition's index
    copies         what one id costs an index that is told of it again and again, in as many
                   different ids
"""

import os
import secrets
import sys
import time
import uuid
from collections.abc import Sequence

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.clients import CLIENT_TIMEOUT_S, topic_for_a_while
from benchmarks.harness import Bench, run_script
from benchmarks.raw import Exchanges, RawConnection, now_ms, produce_frame, time_in_turns
from benchmarks.results import Metric, Target
from benchmarks.subjects import TIDELOG, Subject
from tidelog.bench.process_stats import cpu_seconds, resident_mib
from tidelog.broker.broker import HASH_KEY_BYTES
from tidelog.records.batch import Codec
from tidelog.records.id_table import new_table
from tidelog.records.ids import ENTRY, fingerprint
from tidelog.records.record import Record, encode_plain_batch

QUESTION = "What does it cost to drop duplicates? (D5)"
WITH, WITHOUT = "with", "without"
HEADER = "guid"
CONFIGS = {
    WITH: {"tidelog.dedup.header": HEADER, "tidelog.dedup.ids.max": "10000000"},
    WITHOUT: {},
}
AT_MOST_HALF_IS_LOST = Target(requirement="D5", of=WITH, against=WITHOUT, at_least=0.5)
BYTES_AN_ID = Target(requirement="D5", of=WITH, against=None, at_most=57)
NO_MORE_THAN_OTHERS = Target(requirement="D5", of=WITH, against=None, at_most=2)
VALUE = (b"%d" * 200)[:512] + uuid.uuid4().bytes * 32
PARTITION_COUNT = 12
RECORD_COUNT = 200_000
BATCH_RECORDS = 900
BATCH_COUNT = 100
ID_COUNT = 1_000_000
COPY_COUNT = 40_000
ACKS = 1


def measure(bench: Bench) -> None:
    broker = bench.start_subjects()[TIDELOG]
    for codec in ("none", "lz4"):
        _measure_client(bench, broker, codec)
    _measure_full_batches(bench, broker)
    _measure_memory(bench)
    _measure_copies(bench)


def _measure_client(bench: Bench, broker: Subject, codec: str) -> None:
    name = "produce()" if codec == "none" else f"produce(), {codec}"
    rate = bench.metric(Metric(name, "records/s", (AT_MOST_HALF_IS_LOST,)))
    cpu = bench.metric(Metric(f"{name}, broker's processor time", "us/record"))
    count = bench.count(RECORD_COUNT)
    for turn in bench.turns(name, [WITHOUT, WITH]):
        topic = f"{codec}-{turn.label}"
        ids = [uuid.uuid4().bytes for _ in range(count)]
        with topic_for_a_while(
            broker.bootstrap, topic, partition_count=PARTITION_COUNT, config=CONFIGS[turn.name]
        ):
            before_s = cpu_seconds(broker.pid)
            elapsed_s = _send(broker.bootstrap, topic, ids, codec)
            turn.record(cpu, (cpu_seconds(broker.pid) - before_s) / count * 1e6)
            turn.record(rate, count / elapsed_s)


def _send(bootstrap: str, topic: str, ids: Sequence[bytes], codec: str) -> float:
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "acks": ACKS,
            "queue.buffering.max.messages": len(ids) + 1,
            "queue.buffering.max.kbytes": 2_000_000,
            "log_level": 0,
            "on_delivery": on_delivery,
        }
    )
    producer.list_topics(topic, timeout=CLIENT_TIMEOUT_S)
    started_s = time.perf_counter()
    for number, one in enumerate(ids):
        producer.produce(
            topic, VALUE, partition=number // 100 % PARTITION_COUNT, headers=[(HEADER, one)]
        )
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    assert not failures, failures[0]
    return time.perf_counter() - started_s


def _measure_full_batches(bench: Bench, broker: Subject) -> None:
    rate = bench.metric(Metric("full batches", "records/s", (AT_MOST_HALF_IS_LOST,)))
    again = bench.metric(Metric("full batches of duplicates", "records/s"))
    count = bench.count(BATCH_COUNT)
    for turn in bench.turns("full batches", [WITHOUT, WITH]):
        topic = f"full-{turn.label}"
        batches = [_batch() for _ in range(count)]
        frames = [produce_frame(topic, 0, batch, acks=ACKS) for batch in batches]
        with (
            topic_for_a_while(
                broker.bootstrap, topic, partition_count=1, config=CONFIGS[turn.name]
            ),
            RawConnection(broker.bootstrap) as connection,
        ):
            turn.record(rate, _records_a_second(connection, frames))
            turn.record(again, _records_a_second(connection, frames))


def _records_a_second(connection: RawConnection, frames: Sequence[bytes]) -> float:
    elapsed_us = time_in_turns({"": Exchanges(connection, frames)})[""]
    return BATCH_RECORDS * len(frames) / sum(elapsed_us) * 1e6


def _batch() -> bytes:
    at_ms = now_ms()
    return bytes(
        encode_plain_batch(
            [
                Record(number, at_ms, None, VALUE, ((HEADER, uuid.uuid4().bytes),))
                for number in range(BATCH_RECORDS)
            ],
            Codec.NONE,
        )
    )


def _measure_memory(bench: Bench) -> None:
    memory = bench.metric(Metric("memory of an index", "bytes/id", (BYTES_AN_ID,)))
    count = bench.count(ID_COUNT)
    for _ in range(bench.rounds):
        before_bytes = resident_mib(os.getpid()) * 2**20
        table = new_table(secrets.token_bytes(HASH_KEY_BYTES))
        for number in range(count):
            table.add(ENTRY.pack(fingerprint(uuid.uuid4().bytes), 0), number, 0, False)
        grown_bytes = resident_mib(os.getpid()) * 2**20 - before_bytes
        # What an earlier round gave back to the allocator is taken again without growing.
        memory.record(WITH, max(grown_bytes, table.size_bytes) / count)


def _measure_copies(bench: Bench) -> None:
    """As a topic has them that is told to look for duplicates when it is full of them."""
    ratio = bench.metric(Metric("copies of one id", "times different ids", (NO_MORE_THAN_OTHERS,)))
    count = bench.count(COPY_COUNT)
    copies = [fingerprint(b"hot")] * count
    for _ in range(bench.rounds):
        different = [fingerprint(uuid.uuid4().bytes) for _ in range(count)]
        ratio.record(WITH, _cpu_seconds_of_an_index(copies) / _cpu_seconds_of_an_index(different))


def _cpu_seconds_of_an_index(prints: Sequence[bytes]) -> float:
    """That adds them, is asked for all of them, and forgets them."""
    batches = [
        b"".join(
            ENTRY.pack(one, delta) for delta, one in enumerate(prints[at : at + BATCH_RECORDS])
        )
        for at in range(0, len(prints), BATCH_RECORDS)
    ]
    table = new_table(secrets.token_bytes(HASH_KEY_BYTES))
    started_s = time.thread_time()
    for number, batch in enumerate(batches):
        table.add(batch, number * BATCH_RECORDS, 0, False)
    for batch in batches:
        table.find(batch, -1, 0)
    table.forget(0, 0, len(prints))
    return time.thread_time() - started_s


if __name__ == "__main__":
    sys.exit(run_script("deduplication", QUESTION, measure, subjects=(TIDELOG,)))
