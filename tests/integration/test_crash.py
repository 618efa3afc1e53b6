"""kill -9 under load: what was acknowledged is there, once and in order (S6, D2, G4).

A process that is killed leaves its writes in the page cache, so acks=1 is enough to survive it. The
loop kills the broker at a random moment of the load, over and over, on the same data.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, Message, Producer

from tests.integration.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic, read_partition
from tests.support.server_process import wait_until

KILL_COUNT = 50
PARTITION_COUNT = 3
TOPIC = "crash"


class Ledger:
    """What a producer sent and what it believes to be stored, per partition and in order."""

    def __init__(self) -> None:
        self.next_number = 0
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = {
            partition: [] for partition in range(PARTITION_COUNT)
        }

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            self.acknowledged[partition].append((offset, value))


@contextmanager
def load(broker: BrokerProcess, ledger: Ledger, *, acks: int) -> Iterator[None]:
    """Send numbered records as fast as they go until the block ends."""
    stop = threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": acks,
            "enable.idempotence": acks == -1,
            "linger.ms": 1,
            "batch.num.messages": 100,
            "message.timeout.ms": 60_000,
            "socket.timeout.ms": 5_000,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 5,
            "max.in.flight.requests.per.connection": 5 if acks == -1 else 1,
            "log_level": 0,
        }
    )

    def run() -> None:
        while not stop.is_set():
            value = str(ledger.next_number).encode()
            try:
                producer.produce(
                    TOPIC,
                    value,
                    partition=ledger.next_number % PARTITION_COUNT,
                    on_delivery=ledger.on_delivery,
                )
                ledger.next_number += 1
            except BufferError:
                pass
            producer.poll(0 if ledger.next_number % 100 else 0.001)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        broker_is_back = broker.is_running
        if broker_is_back:
            assert producer.flush(30) == 0


def crash_repeatedly(broker: BrokerProcess, ledger: Ledger, *, acks: int) -> None:
    chance = random.Random(20)
    with load(broker, ledger, acks=acks):
        for _ in range(KILL_COUNT):
            before = ledger.acknowledged_count
            enough = chance.randrange(1, 2_000)
            wait_until(
                lambda: ledger.acknowledged_count >= before + enough,  # noqa: B023 - used at once
                within_s=60,
                what=f"{enough} more records are acknowledged",
            )
            broker.kill()
            broker.start()


def test_every_acknowledged_record_survives_fifty_kills(start_broker: StartBroker) -> None:
    """acks=1: each acknowledged record is at the offset it was acknowledged with."""
    broker = start_broker({"log.flush.offset.checkpoint.interval.ms": "500"})
    create_topic(
        broker.bootstrap,
        TOPIC,
        partition_count=PARTITION_COUNT,
        config={"internal.segment.bytes": "200000"},
    )
    ledger = Ledger()
    crash_repeatedly(broker, ledger, acks=1)
    for partition, acknowledged in ledger.acknowledged.items():
        stored = read_partition(broker.bootstrap, TOPIC, partition)
        values = {record.offset: record.value for record in stored}
        assert [record.offset for record in stored] == list(range(len(stored)))
        for offset, value in acknowledged:
            assert values[offset] == value


def test_an_idempotent_producer_leaves_no_duplicate_and_no_gap_over_fifty_kills(
    start_broker: StartBroker,
) -> None:
    """acks=all with idempotence: each record once, in the order of sending (D2)."""
    broker = start_broker({"log.flush.offset.checkpoint.interval.ms": "500"})
    create_topic(
        broker.bootstrap,
        TOPIC,
        partition_count=PARTITION_COUNT,
        config={"internal.segment.bytes": "200000"},
    )
    ledger = Ledger()
    crash_repeatedly(broker, ledger, acks=-1)
    assert ledger.acknowledged_count == ledger.next_number
    for partition in range(PARTITION_COUNT):
        stored = read_partition(broker.bootstrap, TOPIC, partition)
        expected = range(partition, ledger.next_number, PARTITION_COUNT)
        assert [int(record.value or b"-1") for record in stored] == list(expected)
