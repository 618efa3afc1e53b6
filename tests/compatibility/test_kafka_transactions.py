"""Transactions that Kafka wrote are told apart by the broker that takes its folder over (D3, S6).

Kafka is killed, so that its logs have to be recovered, and its transaction indexes are taken away.
"""

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.compatibility.kafka_peer import StartBroker, StartKafka
from tests.support.clients import CLIENT_TIMEOUT_S, create_topic

pytestmark = pytest.mark.one_broker

TOPIC = "transactions"
# Kafka's smallest segment takes four of these, so that transactions span segments.
VALUE_BYTES = 250_000


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


def _producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
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
