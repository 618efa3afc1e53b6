"""What tests need of a client, over confluent-kafka: make a topic, fill it, read it back."""

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.subject import BROKER_COUNT, replicas

CLIENT_TIMEOUT_S = 30.0
CONSUME_BATCH = 1_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000

Settings = Mapping[str, str | int | bool]


class DeliveryFailed(Exception):
    """The broker did not acknowledge a record that it had to acknowledge."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """Everything a consumer can see of a record."""

    offset: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class NewRecord:
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]


def numbered_records(record_count: int, *, value_size_bytes: int, seed: str) -> list[NewRecord]:
    """Records with key, timestamp and header from their number; the same ones for the same seed."""
    source = random.Random(seed)
    return [
        NewRecord(
            key=str(n).encode(),
            # The same digits twice: a client leaves a batch as it is that its codec would not make
            # smaller, and on a busy machine a batch may hold this one record.
            value=_twice(source.randbytes((value_size_bytes + 3) // 4).hex(), value_size_bytes),
            timestamp_ms=FIRST_TIMESTAMP_MS + n,
            headers=(("n", str(n).encode()),),
        )
        for n in range(record_count)
    ]


def _twice(digits: str, size_bytes: int) -> bytes:
    return (digits * 2)[:size_bytes].encode()


def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partition_count: int,
    config: Mapping[str, str],
    led_by: int | None = None,
) -> None:
    """On every broker of the subject, led by one of them or by each in turn: broker 1 is first."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    assigned = replicas(partition_count, led_by=led_by)
    new_topic = (
        NewTopic(topic, partition_count, 1, config=dict(config))
        if BROKER_COUNT == 1
        else NewTopic(topic, partition_count, replica_assignment=assigned, config=dict(config))
    )
    admin.create_topics([new_topic])[topic].result(CLIENT_TIMEOUT_S)


def send(
    bootstrap: str,
    topic: str,
    records: Iterable[NewRecord],
    *,
    partition: int,
    settings: Settings,
) -> None:
    """Return once every record is acknowledged."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=partition,
            on_delivery=on_delivery,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
        producer.poll(0)
    if producer.flush(CLIENT_TIMEOUT_S) != 0 or failures:
        raise DeliveryFailed(str(failures[0]) if failures else "not acknowledged in time")


def send_aborted(bootstrap: str, topic: str, record: NewRecord, *, partition: int) -> None:
    """In a transaction that is aborted when the record is in the log."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "transactional.id": f"aborts-{topic}"}
    )
    producer.init_transactions(CLIENT_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(
        topic,
        record.value,
        record.key,
        partition=partition,
        timestamp=record.timestamp_ms,
        headers=list(record.headers),
    )
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    producer.abort_transaction(CLIENT_TIMEOUT_S)


def read_partition(bootstrap: str, topic: str, partition: int) -> list[StoredRecord]:
    """Every record from the start of the log to the high watermark as it is now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-partition",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        start, end = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=CLIENT_TIMEOUT_S
        )
        consumer.assign([TopicPartition(topic, partition, start)])
        return _read_to(consumer, start, end)
    finally:
        consumer.close()


def read_committed(bootstrap: str, topic: str, partition: int) -> list[StoredRecord]:
    """What a read_committed consumer is given, from the start to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read-committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    records: list[StoredRecord] = []
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                records.append(_stored(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return records
            else:
                raise DeliveryFailed(str(error))
    finally:
        consumer.close()
    raise TimeoutError(f"no end of {topic}-{partition} after {len(records)} records")


def offset_by_timestamp(bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int:
    """The first offset with this timestamp or a later one; -1 if there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "times", "log_level": 0})
    try:
        wanted = TopicPartition(topic, partition, timestamp_ms)
        (found,) = consumer.offsets_for_times([wanted], timeout=CLIENT_TIMEOUT_S)
        if found.error is not None:
            raise KafkaException(found.error)
        return int(found.offset)
    finally:
        consumer.close()


def delete_records(bootstrap: str, topic: str, partition: int, before_offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = TopicPartition(topic, partition, before_offset)
    for deletion in admin.delete_records([wanted]).values():
        deletion.result(CLIENT_TIMEOUT_S)


def topic_id(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (description,) = admin.describe_topics(TopicCollection([topic])).values()
    return str(description.result(CLIENT_TIMEOUT_S).topic_id)


def _read_to(consumer: Consumer, start: int, end: int) -> list[StoredRecord]:
    records: list[StoredRecord] = []
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    while start < end and (not records or records[-1].offset + 1 < end):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(records)} of the records from {start} to {end} were read")
        # Asking for more than there is would wait for the time-out.
        wanted = min(CONSUME_BATCH, end - start - len(records))
        for message in consumer.consume(wanted, timeout=0.5):
            error = message.error()
            if error is not None:
                raise DeliveryFailed(str(error))
            records.append(_stored(message))
    return records


def _stored(message: Message) -> StoredRecord:
    offset = message.offset()
    assert offset is not None
    timestamp_type, timestamp_ms = message.timestamp()
    return StoredRecord(
        offset=offset,
        timestamp_type=timestamp_type,
        timestamp_ms=timestamp_ms,
        key=message.key(),
        value=message.value(),
        headers=tuple(_headers(message)),
    )


def _headers(message: Message) -> Iterable[tuple[str, bytes]]:
    for header in message.headers() or []:
        assert isinstance(header, tuple)
        name, value = header
        assert isinstance(value, bytes)
        yield name, value
