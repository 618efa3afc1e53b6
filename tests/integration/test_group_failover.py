"""kill -9 of the coordinator while a group consumes and commits (P3).

Another broker takes over with what was committed: no committed offset goes back, whoever is asked,
and the members go on by themselves until they have read everything.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.server_process import wait_until
from tests.support.three_brokers import ThreeBrokers
from tidelog.core.controller.names import CONSUMER_OFFSETS

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "100",
    "broker.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
# The consumer protocol's are the broker's.
TIME_OUTS = {
    "classic": {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500},
    "consumer": {},
}
TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 6
MEMBERS = 3
KILLS = 3
PROGRESS = 300
"""Records that are read between two kills."""
TIMEOUT_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path, SETTINGS) as running:
        running.create(TOPIC, *([1, 2, 3] for _ in range(PARTITIONS)))
        yield running


class Working(threading.Thread):
    """Does one thing over and over until it is told to stop; what fails it says at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as failure:  # noqa: BLE001 - raised again by `finish`
            self.failure = failure

    def work(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.stopping.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


class Producing(Working):
    """Writes numbers, each once."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self.sent = 0

    def work(self) -> None:
        while not self.stopping.wait(0.002):
            self._producer.produce(TOPIC, b"%d" % self.sent, partition=self.sent % PARTITIONS)
            self._producer.poll(0)
            self.sent += 1
        assert self._producer.flush(TIMEOUT_S) == 0


class Consuming(Working):
    """A member that commits what it has read, and notes which commits were answered."""

    def __init__(self, bootstrap: str, ledger: "Ledger", protocol: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **TIME_OUTS[protocol],
            }
        )
        self._ledger = ledger

    def work(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self.stopping.is_set():
            messages = self._consumer.consume(20, timeout=0.2)
            self._ledger.on_read(
                [int(message.value() or b"") for message in messages if message.error() is None]
            )
            try:
                committed = self._consumer.commit(asynchronous=False) if messages else []
            except KafkaException:
                continue  # The coordinator is gone, or somebody else has the partition by now.
            self._ledger.on_committed([one for one in committed if one.error is None])
        self._consumer.close()


class Asking(Working):
    """Looks again and again how far the group has come."""

    def __init__(self, bootstrap: str, ledger: "Ledger") -> None:
        super().__init__()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0}
        )
        self._ledger = ledger
        self.answers = 0

    def work(self) -> None:
        while not self.stopping.wait(0.02):
            self.look()
        self._consumer.close()

    def look(self) -> None:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        known = self._ledger.known()
        try:
            found = self._consumer.committed(partitions, timeout=5.0)
        except KafkaException:
            return
        self.answers += 1
        for one in found:
            assert one.offset >= known[one.partition], f"{one} although {known} was known before"
        self._ledger.on_committed(found)


class Ledger:
    """What is known to have been committed, by anybody who was told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._committed: dict[int, int] = defaultdict(lambda: -1001)
        self.read: set[int] = set()

    def known(self) -> dict[int, int]:
        with self._lock:
            return {number: self._committed[number] for number in range(PARTITIONS)}

    def on_read(self, numbers: list[int]) -> None:
        with self._lock:
            self.read.update(numbers)

    def on_committed(self, offsets: list[TopicPartition]) -> None:
        """A member that is late may tell of an older commit: what counts is the furthest.

        Commits of one partition are made by one member at a time, each further than the last.
        """
        with self._lock:
            for one in offsets:
                self._committed[one.partition] = max(self._committed[one.partition], one.offset)


@pytest.mark.parametrize("protocol", TIME_OUTS)
def test_committed_offsets_never_go_back_when_coordinators_die(
    cluster: ThreeBrokers, protocol: str
) -> None:
    ledger = Ledger()
    producing = Producing(cluster.bootstrap)
    consuming = [Consuming(cluster.bootstrap, ledger, protocol) for _ in range(MEMBERS)]
    asking = Asking(cluster.bootstrap, ledger)
    for worker in (producing, *consuming, asking):
        worker.start()
    try:
        wait_for_progress(ledger)
        for _ in range(KILLS):
            cluster.wait_whole(CONSUMER_OFFSETS)
            coordinator = cluster.leader(CONSUMER_OFFSETS)
            coordinator.kill()
            wait_for_progress(ledger)
            coordinator.start()
    finally:
        producing.finish()
    wait_until(
        lambda: len(ledger.read) == producing.sent, within_s=TIMEOUT_S, what="everything is read"
    )
    for worker in (*consuming, asking):
        worker.finish()
    assert asking.answers > KILLS


def wait_for_progress(ledger: Ledger) -> None:
    """Members read on, and commit what they have read."""
    count, committed = len(ledger.read), sum(ledger.known().values())
    wait_until(
        lambda: (
            len(ledger.read) >= count + PROGRESS
            and sum(ledger.known().values()) >= committed + PROGRESS
        ),
        within_s=TIMEOUT_S,
        what="members go on",
    )
