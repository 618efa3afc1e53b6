"""kill -9 under load: what was acknowledged is there, once and in order (S6, D2, G4).

A process that is killed leaves its writes in the page cache, so acks=1 is enough to survive it. The
loop kills the broker at a random moment of the load, over and over, on the same data. Two producers
work at the same time, each on a topic of its own: one with acks=1 and nothing else, which may
repeat records when it tries again, and an idempotent one, which may not.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.integration.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic, read_partition
from tests.support.server_process import wait_until

KILL_COUNT = 50
PARTITION_COUNT = 3
RECORDS_BETWEEN_KILLS_MAX = 2_000
PLAIN, IDEMPOTENT = "plain", "idempotent"


class Load:
    """Sends numbered records as fast as they go and remembers which were acknowledged."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.topic = topic
        self.sent_count = 0
        self.acknowledged: list[tuple[int, int, int]] = []
        """Partition, offset and number, in the order of the acknowledgements."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        idempotent = topic == IDEMPOTENT
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": -1 if idempotent else 1,
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 5 if idempotent else 1,
                "linger.ms": 1,
                "batch.num.messages": 100,
                "message.timeout.ms": 120_000,
                "socket.timeout.ms": 5_000,
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
            try:
                self._producer.produce(
                    self.topic,
                    str(self.sent_count).encode(),
                    partition=self.sent_count % PARTITION_COUNT,
                    on_delivery=self._on_delivery,
                )
                self.sent_count += 1
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0 if self.sent_count % 50 else 0.002)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            self.acknowledged.append((partition, offset, int(value)))


def _has(load: Load, acknowledged_count: int) -> bool:
    return len(load.acknowledged) >= acknowledged_count


@pytest.fixture
def survivor(start_broker: StartBroker) -> tuple[BrokerProcess, dict[str, Load]]:
    """A broker that was killed fifty times, and what its producers believe."""
    broker = start_broker({"log.flush.offset.checkpoint.interval.ms": "300"})
    loads = {}
    with ExitStack() as running:
        for topic in (PLAIN, IDEMPOTENT):
            create_topic(
                broker.bootstrap,
                topic,
                partition_count=PARTITION_COUNT,
                config={"internal.segment.bytes": "100000"},
            )
            loads[topic] = Load(broker, topic)
            running.enter_context(loads[topic].running())
        chance = random.Random(20)
        for _ in range(KILL_COUNT):
            for load in loads.values():
                enough = len(load.acknowledged) + chance.randrange(1, RECORDS_BETWEEN_KILLS_MAX)
                wait_until(
                    partial(_has, load, enough),
                    within_s=60,
                    what="more records are acknowledged",
                )
            broker.kill()
            broker.start()
    return broker, loads


def test_what_was_acknowledged_survives_fifty_kills_once_and_in_order(
    survivor: tuple[BrokerProcess, dict[str, Load]],
) -> None:
    broker, loads = survivor
    for topic, load in loads.items():
        for partition in range(PARTITION_COUNT):
            stored = read_partition(broker.bootstrap, topic, partition)
            assert [record.offset for record in stored] == list(range(len(stored)))
            numbers = [int(record.value or b"-1") for record in stored]
            for acknowledged_in, offset, number in load.acknowledged:
                if acknowledged_in == partition:
                    assert numbers[offset] == number
            if topic == IDEMPOTENT:
                expected = range(partition, load.sent_count, PARTITION_COUNT)
                assert numbers == list(expected)
    assert len(loads[IDEMPOTENT].acknowledged) == loads[IDEMPOTENT].sent_count
