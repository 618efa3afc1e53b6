"""Records put into topics and read back, for tests that are about something else.

Every call makes a client of its own and is done with it when it returns: what a test sends with it
is acknowledged by all replicas in sync, what it reads is what committed consumers see.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tidelog.lab.local_cluster import NotInTime

_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.5
_ANY_PARTITION: Final = -1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def send_records(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes | str | None],
    *,
    key: bytes | str | None,
    partition: int | None,
    headers: Mapping[str, bytes | str],
) -> None:
    """Return once all are acknowledged; raises NotInTime if one is not."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": round(1_000 * _WITHIN_S),
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    # Else librdkafka looks for an id before it knows a broker, and again after half a second.
    producer.list_topics(timeout=_WITHIN_S)
    for value in values:
        producer.produce(
            topic,
            value,
            key,
            _ANY_PARTITION if partition is None else partition,
            on_delivery=on_delivery,
            headers=list(headers.items()),
        )
        producer.poll(0)
    unacknowledged = producer.flush(_WITHIN_S + 1)
    if unacknowledged or failures:
        why = str(failures[0]) if failures else f"{unacknowledged} unanswered"
        raise NotInTime(f"{topic} did not take all of {len(values)} records: {why}")


def read_records(bootstrap: str, topic: str, partitions: Sequence[int]) -> list[StoredRecord]:
    """All that is committed now, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tidelog-testing",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            # The end of a partition is told when a fetch finds nothing.
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found = _read_to_ends(consumer, topic, set(partitions))
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition, each.offset))


def _read_to_ends(consumer: Consumer, topic: str, unfinished: set[int]) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    give_up_at = time.monotonic() + _WITHIN_S
    while unfinished:
        message = consumer.poll(_POLL_S)
        error = None if message is None else message.error()
        if message is not None and error is None:
            found.append(_stored(message))
        elif message is not None and error and error.code() == KafkaError._PARTITION_EOF:
            unfinished.discard(_known(message.partition()))
        elif time.monotonic() >= give_up_at:
            raise NotInTime(f"no end of {topic} after {_WITHIN_S:g} s: {error or 'silence'}")
    return found


def _stored(message: Message) -> StoredRecord:
    _kind, timestamp_ms = message.timestamp()
    return StoredRecord(
        topic=_known(message.topic()),
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        key=message.key(),
        value=message.value(),
        headers=tuple(cast(Sequence[tuple[str, bytes | None]], message.headers() or ())),
        timestamp_ms=timestamp_ms,
    )


def _known(value: T | None) -> T:
    """What librdkafka says of every message that came from a partition."""
    assert value is not None
    return value
