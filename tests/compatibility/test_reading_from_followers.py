"""librdkafka reads from the follower in its rack, and goes on without it (KIP-392).

Who served a consumer is told by its own statistics: the bytes that came from each broker.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.support.clients import CLIENT_TIMEOUT_S
from tests.support.confluent import new_producer
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers
from tidelog.config.replication import RACK_AWARE_SELECTOR

TOPIC = "near"
LEADER, NEAR, FAR = BROKER_IDS
VALUE_BYTES = 1_000
BATCH_RECORDS = 50
SOME_BYTES = 3_000_000
READ_WITHIN_S = 60.0
POLL_S = 0.2


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[ThreeBrokers]:
    """Three brokers in a rack each, and a topic that the first of them leads."""
    cluster = ThreeBrokers(tmp_path, {"replica.selector.class": RACK_AWARE_SELECTOR})
    for node_id, broker in cluster.brokers.items():
        broker.settings["broker.rack"] = f"rack-{node_id}"
    with cluster:
        admin = cluster.admin()
        new = NewTopic(TOPIC, 1, replica_assignment=[list(BROKER_IDS)])
        admin.create_topics([new])[TOPIC].result(CLIENT_TIMEOUT_S)
        cluster.wait_in_sync(TOPIC, 0, BROKER_IDS)
        yield cluster


class Received:
    """Bytes from each broker, as the consumer's statistics have them."""

    def __init__(self) -> None:
        self.by_broker: dict[int, int] = {}

    @property
    def total_bytes(self) -> int:
        return sum(self.by_broker.values())

    def on_statistics(self, statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            self.by_broker[broker["nodeid"]] = broker["rxbytes"]


class Producing:
    """Sends a batch now and then, from a thread, until it is left."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self._bootstrap = bootstrap
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Producing":
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        with new_producer(self._bootstrap, {"acks": "all", "linger.ms": 5}) as producer:
            while not self._ends.wait(0.02):
                for _ in range(BATCH_RECORDS):
                    value = b"%d" % self.sent
                    producer.produce(TOPIC, value.ljust(VALUE_BYTES), partition=0)
                    self.sent += 1
                producer.poll(0)


class Reading:
    """Reads records, which must be those that were sent, in order."""

    def __init__(self, consumer: Consumer) -> None:
        self.count = 0
        self._consumer = consumer

    def until(self, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + READ_WITHIN_S
        while not holds():
            assert time.monotonic() < deadline_s, f"{self.count} after {READ_WITHIN_S:g} s"
            message = self._consumer.poll(POLL_S)
            if message is not None:
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                assert int(value) == message.offset() == self.count
                self.count += 1


def test_a_consumer_reads_from_the_follower_in_its_rack_and_goes_on_without_it(
    racks: ThreeBrokers,
) -> None:
    received = Received()
    settings = {
        "bootstrap.servers": racks.bootstrap,
        "group.id": "no-group",
        "enable.auto.commit": False,
        "client.rack": f"rack-{NEAR}",
        "statistics.interval.ms": 100,
        "stats_cb": received.on_statistics,
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        reading = Reading(consumer)
        with Producing(racks.bootstrap) as producing:
            reading.until(lambda: received.total_bytes > SOME_BYTES)
            assert received.by_broker[NEAR] > 0.9 * received.total_bytes
            racks.brokers[NEAR].kill()
            reading.until(lambda: received.by_broker[LEADER] > SOME_BYTES)
        reading.until(lambda: reading.count == producing.sent)
