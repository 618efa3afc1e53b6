"""Transactions that Kafka wrote are told apart by the broker that takes its folder over (D3, S6).

Kafka is killed, so that its logs have to be recovered, and its transaction indexes are taken away.
"""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.compatibility.kafka_peer import StartBroker, StartKafka
from tests.support.clients import CLIENT_TIMEOUT_S, create_topic
from tests.support.server_process import wait_until

pytestmark = pytest.mark.one_broker

TOPIC = "transactions"
# Kafka's smallest segment takes four of these, so that transactions span segments.
VALUE_BYTES = 250_000
LONG_WAIT_S = 60.0


def test_recovered_transactions_are_those_that_kafka_knew(
    start_kafka: StartKafka, start_broker: StartBroker, tmp_path: Path
) -> None:
    kafka = start_kafka(tmp_path / "kafka", {})
    create_topic(kafka.bootstrap, TOPIC, partition_count=1, config={"segment.bytes": str(2**20)})
    _write(kafka.bootstrap)
    expected = _committed(kafka.bootstrap)
    kafka.kill()
    shutil.copytree(kafka.data_folder, tmp_path / "broker" / "data")
    folder = tmp_path / "broker" / "data" / f"{TOPIC}-0"
    known = _entries(folder)
    assert sum(map(len, known.values())) == 3 * 34
    for name in known:
        (folder / name).unlink()

    broker = start_broker(tmp_path / "broker", {})
    assert _committed(broker.bootstrap) == expected
    assert _entries(folder) == known
    broker.restart()
    assert _committed(broker.bootstrap) == expected


def test_transaction_that_kafka_left_open_is_ended_by_its_next_coordinator(
    start_kafka: StartKafka, start_broker: StartBroker, tmp_path: Path
) -> None:
    """`__transaction_state` is adopted as well, and what it says goes on."""
    kafka = start_kafka(tmp_path / "kafka", {"transaction.state.log.num.partitions": "3"})
    create_topic(kafka.bootstrap, TOPIC, partition_count=1, config={})
    known = _producer(kafka.bootstrap, "known")
    for _ in range(3):
        known.begin_transaction()
        _send(known, 1)
        known.commit_transaction(CLIENT_TIMEOUT_S)
    left = _producer(kafka.bootstrap, "left", timeout_ms=10_000)
    left.begin_transaction()
    _send(left, 2)
    kafka.kill()
    shutil.copytree(kafka.data_folder, tmp_path / "broker" / "data")

    broker = start_broker(
        tmp_path / "broker",
        {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"},
    )
    later = _producer(broker.bootstrap, "known")
    later.begin_transaction()
    _send(later, 1)
    later.commit_transaction(CLIENT_TIMEOUT_S)
    wait_until(
        lambda: len(_committed(broker.bootstrap)) == 4,
        within_s=LONG_WAIT_S,
        what="the transaction that was left open is aborted",
    )


def _write(bootstrap: str) -> None:
    """Three aborted transactions of two producers, two committed ones, and one left open."""
    first, second = (_producer(bootstrap, name) for name in ("first", "second"))
    first.begin_transaction()
    _send(first, 3)
    second.begin_transaction()
    _send(second, 2)
    first.abort_transaction(CLIENT_TIMEOUT_S)
    _send(second, 3)
    first.begin_transaction()
    _send(first, 5)
    second.commit_transaction(CLIENT_TIMEOUT_S)
    first.commit_transaction(CLIENT_TIMEOUT_S)
    for _ in range(2):
        second.begin_transaction()
        _send(second, 2)
        second.abort_transaction(CLIENT_TIMEOUT_S)
    first.begin_transaction()
    _send(first, 1)


def _producer(bootstrap: str, transactional_id: str, *, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    producer.init_transactions(CLIENT_TIMEOUT_S)
    return producer


def _send(producer: Producer, count: int) -> None:
    for number in range(count):
        producer.produce(TOPIC, value=bytes([number]) * VALUE_BYTES, partition=0)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def _committed(bootstrap: str) -> list[tuple[int | None, bytes | None]]:
    """Offset and value of what a read_committed consumer gets, up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "committed",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    found: list[tuple[int | None, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while True:
            (message,) = consumer.consume(1, timeout=CLIENT_TIMEOUT_S)
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            found.append((message.offset(), message.value()))
    finally:
        consumer.close()


def _entries(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.glob("*.txnindex") if path.stat().st_size
    }
