"""T8: the cost of a request does not grow with what else the broker holds.

One system at a time, `small` beside `grown`, in turns and with the raw client: a broker with 1
partition beside one with 2,000; a topic of 1 segment beside one of 1,000; 10 idle connections and
then 1,000. Opening and creating are measured as a whole. Growth is asked of tidelog alone; Kafka
comes in where a requirement compares with it.
"""

import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks.clients import CLIENT_TIMEOUT_S, drop_topic
from benchmarks.harness import Bench, run_script
from benchmarks.raw import (
    RawConnection,
    api_versions_frame,
    batch_of,
    fetch_frame,
    fetched_session,
    middle,
    produce_frame,
    time_exchanges,
)
from benchmarks.results import Metric, Target
from benchmarks.subjects import FLOOR, KAFKA, TIDELOG, Broker, new_broker
from tests.support.clients import create_topic
from tests.support.server_process import wait_until

QUESTION = "Does the cost of a request grow with partitions, segments or connections? (T8)"
SMALL = "small"
GROWN = "grown"
PARTITIONS_GROWN = 2_000
SEGMENTS_GROWN = 1_000
CONNECTIONS = {SMALL: 10, GROWN: 1_000}
CREATED_PARTITIONS = 1_000
REQUEST_COUNT = 2_000
RECORDS_HELD = 1_000
VALUE_SIZE_BYTES = 1_024
FETCH_BYTES = 2_048
OPEN_FILES_NEEDED = 65_536
# Old enough that batches, a second apart, never reach the present.
FIRST_TIMESTAMP_MS = 1_700_000_000_000
REMOVAL_TIMEOUT_S = 300.0
TOPIC = "flat"
CROWD = "crowd"

FLAT = Target(requirement="T8", of=GROWN, against=SMALL, at_most=1.2)
A_MILLISECOND = Target(requirement="T8", of=TIDELOG, against=None, at_most=1.0)
THREE_TIMES_KAFKA = Target(requirement="T8", of=TIDELOG, against=KAFKA, at_most=3.0)


def measure(bench: Bench) -> None:
    _allow_many_files()
    brokers = [name for name in bench.subjects if name != FLOOR]
    # Whoever is measured alone has to be tidelog for the targets to mean anything.
    subject = TIDELOG if bench.has(TIDELOG) else brokers[0]
    bench.remarks.append(f"small and grown are two states of {subject}")
    _partitions(bench, subject)
    _segments(bench, subject)
    _connections(bench, subject)
    _opening(bench, brokers)
    _creating(bench, brokers)


def _partitions(bench: Bench, subject: str) -> None:
    produce = bench.metric(Metric("Produce, 1 or 2,000 partitions", "us", (FLAT,)))
    fetch = bench.metric(Metric("Fetch, 1 or 2,000 partitions", "us", (FLAT,)))
    session = bench.metric(Metric("Fetch in a session of 1 or 2,000 partitions", "us", (FLAT,)))
    with (
        _filled_broker(bench, subject, SMALL) as small,
        _filled_broker(bench, subject, GROWN) as grown,
    ):
        create_topic(grown.bootstrap, CROWD, partition_count=PARTITIONS_GROWN, config={})
        brokers = {SMALL: small, GROWN: grown}
        crowds = {SMALL: 0, GROWN: PARTITIONS_GROWN}
        for turn in bench.turns("partitions", [SMALL, GROWN]):
            with RawConnection(brokers[turn.name].bootstrap) as connection:
                turn.record(produce, _produce_us(bench, connection, TOPIC))
                turn.record(fetch, _fetch_us(bench, connection, TOPIC))
                turn.record(session, _session_fetch_us(bench, connection, crowds[turn.name]))


def _segments(bench: Bench, subject: str) -> None:
    produce = bench.metric(Metric("Produce, 1 or 1,000 segments", "us", (FLAT,)))
    fetch = bench.metric(Metric("Fetch, 1 or 1,000 segments", "us", (FLAT,)))
    with _filled_broker(bench, subject, "segments") as broker:
        for topic, segment_ms in ((SMALL, "604800000000"), (GROWN, "1")):
            config = {"segment.ms": segment_ms, "retention.ms": "-1"}
            create_topic(broker.bootstrap, topic, partition_count=1, config=config)
            _fill(broker.bootstrap, topic, bench.count(SEGMENTS_GROWN))
        _segment_counts_are_right(broker.data_folder, bench.count(SEGMENTS_GROWN))
        for turn in bench.turns("segments", [SMALL, GROWN]):
            with RawConnection(broker.bootstrap) as connection:
                turn.record(fetch, _fetch_us(bench, connection, turn.name))
                turn.record(produce, _produce_us(bench, connection, turn.name))


def _connections(bench: Bench, subject: str) -> None:
    produce = bench.metric(Metric("Produce, 10 or 1,000 idle connections", "us", (FLAT,)))
    fetch = bench.metric(Metric("Fetch, 10 or 1,000 idle connections", "us", (FLAT,)))
    with _filled_broker(bench, subject, "connections") as broker:
        for turn in bench.turns("connections", [SMALL, GROWN]):
            with (
                _idle_connections(broker.bootstrap, CONNECTIONS[turn.name]),
                RawConnection(broker.bootstrap) as connection,
            ):
                turn.record(produce, _produce_us(bench, connection, TOPIC))
                turn.record(fetch, _fetch_us(bench, connection, TOPIC))


def _opening(bench: Bench, names: Sequence[str]) -> None:
    """Ready again after a clean stop: what each partition adds to the start of an empty broker."""
    per_partition = bench.metric(
        Metric("opening after a clean stop, each partition", "ms", (A_MILLISECOND,))
    )
    whole = bench.metric(Metric("opening 2,000 partitions", "s"))
    with ExitStack() as running:
        pairs = {}
        for name in names:
            empty = new_broker(name, bench.folder / f"{name}-empty", {})
            full = new_broker(name, bench.folder / f"{name}-full", {})
            for broker in (empty, full):
                running.enter_context(broker)
            create_topic(full.bootstrap, CROWD, partition_count=PARTITIONS_GROWN, config={})
            pairs[name] = (empty, full)
        for turn in bench.turns("opening", names):
            empty, full = pairs[turn.name]
            opening_s = _restart_seconds(full)
            turn.record(whole, opening_s)
            added_s = opening_s - _restart_seconds(empty)
            turn.record(per_partition, max(0.0, added_s) * 1_000 / PARTITIONS_GROWN)


def _creating(bench: Bench, names: Sequence[str]) -> None:
    """Until every partition has a leader, and until every leader has opened its log and answers."""
    name = "creating a topic of 1,000 partitions"
    led = bench.metric(Metric(f"{name}, until all are led", "s", (THREE_TIMES_KAFKA,)))
    serving = bench.metric(Metric(f"{name}, until all answer", "s", (THREE_TIMES_KAFKA,)))
    with ExitStack() as running:
        brokers = {name: new_broker(name, bench.folder / f"{name}-creating", {}) for name in names}
        for broker in brokers.values():
            running.enter_context(broker)
        for turn in bench.turns("creating", names):
            broker = brokers[turn.name]
            topic = f"created-{turn.round_index}"
            led_s, serving_s = _creation_seconds(broker.bootstrap, topic)
            turn.record(led, led_s)
            turn.record(serving, serving_s)
            drop_topic(broker.bootstrap, topic)
            _wait_until_removed(broker.data_folder, topic)


@contextmanager
def _filled_broker(bench: Bench, subject: str, label: str) -> Iterator[Broker]:
    with new_broker(subject, bench.folder / f"{subject}-{label}", {}) as broker:
        config = {"segment.ms": "604800000000", "retention.ms": "-1"}
        create_topic(broker.bootstrap, TOPIC, partition_count=1, config=config)
        _fill(broker.bootstrap, TOPIC, RECORDS_HELD)
        yield broker


def _fill(bootstrap: str, topic: str, batch_count: int) -> None:
    """Batches of one record, a second apart, so that `segment.ms` decides where segments end."""
    with RawConnection(bootstrap) as connection:
        for n in range(batch_count):
            timestamp_ms = FIRST_TIMESTAMP_MS + n * 1_000
            batch = batch_of(1, VALUE_SIZE_BYTES, timestamp_ms=timestamp_ms)
            connection.exchange(produce_frame(topic, 0, batch, acks=1))


def _produce_us(bench: Bench, connection: RawConnection, topic: str) -> float:
    # Within the last segment's time, so that appending never rolls.
    batch = batch_of(1, VALUE_SIZE_BYTES, timestamp_ms=FIRST_TIMESTAMP_MS)
    frame = produce_frame(topic, 0, batch, acks=1)
    return middle(time_exchanges(connection, [frame] * bench.count(REQUEST_COUNT)))


def _fetch_us(bench: Bench, connection: RawConnection, topic: str) -> float:
    """From offsets all over the log; the answer is the same size wherever it comes from."""
    held = bench.count(SEGMENTS_GROWN)
    frames = [
        fetch_frame(
            # Steps of a prime visit everything and never the neighbour of the offset before.
            {topic: [(0, n * 7_919 % held)]},
            partition_max_bytes=FETCH_BYTES,
            session_id=0,
            session_epoch=-1,
        )
        for n in range(bench.count(REQUEST_COUNT))
    ]
    return middle(time_exchanges(connection, frames))


def _session_fetch_us(bench: Bench, connection: RawConnection, crowd: int) -> float:
    """An incremental fetch session (KIP-227) in which one partition of many has records."""
    topics = {TOPIC: [(0, 0)], CROWD: [(n, 0) for n in range(crowd)]}
    opening = fetch_frame(
        {topic: pairs for topic, pairs in topics.items() if pairs},
        partition_max_bytes=FETCH_BYTES,
        session_id=0,
        session_epoch=0,
    )
    session_id = fetched_session(connection.exchange(opening))
    assert session_id != 0, "the broker did not open a fetch session"
    frames = [
        fetch_frame(
            {TOPIC: [(0, n % RECORDS_HELD)]},
            partition_max_bytes=FETCH_BYTES,
            session_id=session_id,
            session_epoch=n + 1,
        )
        for n in range(bench.count(REQUEST_COUNT))
    ]
    return middle(time_exchanges(connection, frames))


@contextmanager
def _idle_connections(bootstrap: str, count: int) -> Iterator[None]:
    """Connections that have said hello and nothing since."""
    hello = api_versions_frame()
    with ExitStack() as opened:
        for _connection in range(count):
            opened.enter_context(RawConnection(bootstrap)).exchange(hello)
        yield


def _restart_seconds(broker: Broker) -> float:
    broker.stop()
    started = time.perf_counter()
    broker.start()
    return time.perf_counter() - started


def _creation_seconds(bootstrap: str, topic: str) -> tuple[float, float]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "creation", "log_level": 0})
    consumer.list_topics(timeout=CLIENT_TIMEOUT_S)
    started = time.perf_counter()
    create_topic(bootstrap, topic, partition_count=CREATED_PARTITIONS, config={})
    wait_until(lambda: _is_led(consumer, topic), within_s=CLIENT_TIMEOUT_S, what="all are led")
    led_s = time.perf_counter() - started
    wait_until(lambda: _answers(consumer, topic), within_s=CLIENT_TIMEOUT_S, what="all answer")
    serving_s = time.perf_counter() - started
    consumer.close()
    return led_s, serving_s


def _wait_until_removed(data_folder: Path, topic: str) -> None:
    """Or the next topic would wait for the folders of this one to go."""
    wait_until(
        lambda: not any(data_folder.glob(f"{topic}-*")),
        within_s=REMOVAL_TIMEOUT_S,
        what=f"no folder of {topic} is left",
    )


def _is_led(consumer: Consumer, topic: str) -> bool:
    partitions = consumer.list_topics(topic, timeout=CLIENT_TIMEOUT_S).topics[topic].partitions
    return len(partitions) == CREATED_PARTITIONS and all(
        partition.leader >= 0 for partition in partitions.values()
    )


def _answers(consumer: Consumer, topic: str) -> bool:
    wanted = [TopicPartition(topic, n, 0) for n in range(CREATED_PARTITIONS)]
    answers = consumer.offsets_for_times(wanted, timeout=CLIENT_TIMEOUT_S)
    return all(answer.error is None for answer in answers)


def _segment_counts_are_right(data_folder: Path, segment_count: int) -> None:
    counts = {
        topic: len(list((data_folder / f"{topic}-0").glob("*.log"))) for topic in (SMALL, GROWN)
    }
    assert counts == {SMALL: 1, GROWN: segment_count}, counts


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_NEEDED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_NEEDED, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


if __name__ == "__main__":
    sys.exit(run_script("flat_cost", QUESTION, measure))
