"""Compaction in a broker under load, that is killed, and read by Kafka's tools (S5).

It is killed at random moments, again and again, while a producer writes a few keys over and over
and small segments are compacted all the time. What is left must be the last value of every key,
wherever in a compaction the kill came.
"""

import random
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.integration.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic, read_committed, read_partition
from tests.support.dump_log_segments import dump_folder
from tests.support.server_process import wait_until
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers

TOPIC = "accounts"
KEY_COUNT = 200
KILL_COUNT = 8
RECORDS_BETWEEN_KILLS_MAX = 4_000
RECORDS_PER_SEGMENT_MAX = 4_000
CLEANING = {"log.cleaner.backoff.ms": "20", "log.flush.offset.checkpoint.interval.ms": "300"}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "40000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "100",
}
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
# Gaps are what compaction is about; the tool mentions each.
GAP_NOTES = ("is followed by", "Non-consecutive offsets")


class Load:
    """Sends numbered records, each of the keys in turn; every ninth is a tombstone."""

    def __init__(self, broker: BrokerProcess, codec: str) -> None:
        self.sent_count = 0
        self.acknowledged_count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 50,
                "log_level": 0,
            }
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.sent_count
            try:
                self._producer.produce(
                    TOPIC, value_of(number), key_of(number), on_delivery=self._on_delivery
                )
                self.sent_count += 1
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0 if number % 50 else 0.002)

    def _on_delivery(self, error: object, _message: object) -> None:
        assert error is None
        self.acknowledged_count += 1

    def newest(self) -> Mapping[bytes, bytes]:
        return newest((key_of(number), value_of(number)) for number in range(self.sent_count))


def newest(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> Mapping[bytes, bytes]:
    """The value of every key at the end; a tombstone takes it away."""
    values: dict[bytes, bytes] = {}
    for key, value in pairs:
        assert key is not None
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


def key_of(number: int) -> bytes:
    return b"key-%d" % (number * 7919 % KEY_COUNT)


def value_of(number: int) -> bytes | None:
    return None if number % 9 == 0 else b"%d-" % number + b"x" * (number % 60)


def is_compacted(broker: BrokerProcess, topic: str, *, up_to: int) -> bool:
    """Whether a compaction has come so far, by the checkpoint on disk."""
    path = broker.data_folder / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    offsets = {line.split(" ")[0]: int(line.split(" ")[2]) for line in lines}
    return offsets.get(topic, 0) >= up_to


def complaints(folder: Path) -> list[str]:
    found = dump_folder(folder).complaints
    return [one for one in found if not any(note in one for note in GAP_NOTES)]


def is_time_to_kill(broker: BrokerProcess, load: Load, enough: int, *, in_the_middle: bool) -> bool:
    if load.acknowledged_count < enough:
        return False
    return has_begun(broker) if in_the_middle else has_finished(broker)


def has_finished(broker: BrokerProcess) -> bool:
    return "log compacted" in broker.log_text_of_this_start()


def has_begun(broker: BrokerProcess) -> bool:
    """Whether a compaction is under way, or was interrupted."""
    names = [path.name for path in (broker.data_folder / f"{TOPIC}-0").iterdir()]
    return any(name.endswith((".cleaned", ".swap")) for name in names)


def test_last_value_of_every_key_survives_kills_during_compaction(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(CLEANING)
    create_topic(broker.bootstrap, TOPIC, partition_count=1, config=COMPACTED)
    load = Load(broker, "lz4")
    chance = random.Random(5)
    began_count = 0
    with load.running():
        for number in range(KILL_COUNT):
            enough = load.acknowledged_count + chance.randrange(1, RECORDS_BETWEEN_KILLS_MAX)
            wait_until(
                partial(is_time_to_kill, broker, load, enough, in_the_middle=number % 2 == 0),
                within_s=60,
                what="more records are acknowledged and compacted",
            )
            broker.kill()
            began_count += has_begun(broker)
            broker.start()
    assert began_count > 1
    wait_until(
        lambda: is_compacted(broker, TOPIC, up_to=load.sent_count - 2 * RECORDS_PER_SEGMENT_MAX),
        within_s=60,
        what="all but the last segment is compacted",
    )
    stored = read_partition(broker.bootstrap, TOPIC, 0)
    assert newest((one.key, one.value) for one in stored) == load.newest()
    offsets = [one.offset for one in stored]
    assert offsets == sorted(set(offsets))
    assert all(value_of(one.offset) == one.value for one in stored)  # Nothing was sent twice.
    assert len(stored) < KEY_COUNT + 3 * RECORDS_PER_SEGMENT_MAX
    assert broker.stop() == 0
    assert complaints(broker.data_folder / f"{TOPIC}-0") == []


def test_transactions_are_what_they_were_after_compaction(start_broker: StartBroker) -> None:
    broker = start_broker({**CLEANING, **ALONE})
    create_topic(
        broker.bootstrap, TOPIC, partition_count=1, config={**COMPACTED, "segment.ms": "50"}
    )
    expected: dict[bytes, bytes] = {}
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "teller", "linger.ms": 0}
    )
    producer.init_transactions(30)
    for number in range(60):
        producer.begin_transaction()
        pairs = {b"key-%d" % (number * 3 % 7): b"%d" % number, b"key-%d" % (number % 5): b"twice"}
        for key, value in pairs.items():
            producer.produce(TOPIC, value, key)
        producer.flush(30)
        if number % 3:
            producer.commit_transaction(30)
            expected.update(pairs)
        else:
            producer.abort_transaction(30)
    # So that what was written before is closed, and may be compacted.
    wait_until(
        lambda: write_and_see(broker, producer, expected),
        within_s=60,
        what="all transactions are compacted",
    )
    stored = read_committed(broker.bootstrap, TOPIC, 0)
    assert {one.key: one.value for one in stored} == expected
    assert len(stored) < 60
    broker.kill()
    broker.start()
    stored = read_committed(broker.bootstrap, TOPIC, 0)
    assert {one.key: one.value for one in stored} == expected
    assert broker.stop() == 0
    assert complaints(broker.data_folder / f"{TOPIC}-0") == []


def write_and_see(broker: BrokerProcess, producer: Producer, expected: dict[bytes, bytes]) -> bool:
    """Go on writing until the first sixty transactions have been compacted."""
    producer.begin_transaction()
    producer.produce(TOPIC, b"last", b"last")
    producer.commit_transaction(30)
    expected[b"last"] = b"last"
    return is_compacted(broker, TOPIC, up_to=180)


def test_replicas_compact_their_logs_and_whoever_leads_has_every_key(tmp_path: Path) -> None:
    """One is away while the others compact, and copies what is left; then it has to lead."""
    with ThreeBrokers(tmp_path, CLEANING) as cluster:
        admin = cluster.admin()
        admin.create_topics([NewTopic(TOPIC, 1, 3, config=COMPACTED)])[TOPIC].result(30)
        cluster.wait_whole(TOPIC)
        away = cluster.partition(TOPIC).replicas[1]
        pairs: list[tuple[bytes | None, bytes | None]] = []
        write(cluster, pairs, 3_000)
        wait_compacted_everywhere(cluster, up_to=2_000)
        cluster.brokers[away].kill()
        write(cluster, pairs, 12_000)
        others = [one for one in BROKER_IDS if one != away]
        wait_compacted_everywhere(cluster, up_to=10_000, broker_ids=others)
        cluster.brokers[away].start()
        cluster.wait_whole(TOPIC)
        assert newest(read_pairs(cluster)) == newest(pairs)
        for one in others:
            cluster.brokers[one].kill()
        wait_until(
            lambda: cluster.partition(TOPIC).leader == away, within_s=60, what="the third one leads"
        )
        assert newest(read_pairs(cluster)) == newest(pairs)
        offsets = [one.offset for one in read_partition(cluster.bootstrap, TOPIC, 0)]
        assert len(offsets) < 5_000


def write(
    cluster: ThreeBrokers, pairs: list[tuple[bytes | None, bytes | None]], count: int
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1, "log_level": 0})
    for number in range(len(pairs), len(pairs) + count):
        pairs.append((key_of(number), value_of(number)))
        producer.produce(TOPIC, value_of(number), key_of(number), partition=0)
        if number % 100 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0


def read_pairs(cluster: ThreeBrokers) -> list[tuple[bytes | None, bytes | None]]:
    return [(one.key, one.value) for one in read_partition(cluster.bootstrap, TOPIC, 0)]


def wait_compacted_everywhere(
    cluster: ThreeBrokers, *, up_to: int, broker_ids: Sequence[int] = BROKER_IDS
) -> None:
    for one in broker_ids:
        wait_until(
            partial(is_compacted, cluster.brokers[one], TOPIC, up_to=up_to),
            within_s=60,
            what=f"broker {one} has compacted its log",
        )
