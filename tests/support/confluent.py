"""confluent-kafka as the compatibility tests use it: one record, one answer, one code at a time."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from tests.support.clients import (
    CLIENT_TIMEOUT_S,
    FIRST_TIMESTAMP_MS,
    NewRecord,
    Settings,
    numbered_records,
    send,
)
from tests.support.topics import new_topic

# Larger than any limit of a broker under test, so that it is the broker who refuses.
MESSAGE_MAX_BYTES = 4_000_000

K = TypeVar("K")
T = TypeVar("T")


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@contextmanager
def new_producer(bootstrap: str, settings: Settings) -> Iterator[Producer]:
    """On the way out everything must be acknowledged, else the first refusal is raised."""
    refusals: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refusals.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "message.max.bytes": MESSAGE_MAX_BYTES,
            "on_delivery": on_delivery,
            **settings,
        }
    )
    yield producer
    if producer.flush(CLIENT_TIMEOUT_S) != 0:
        raise TimeoutError("not everything was acknowledged in time")
    if refusals:
        raise KafkaException(refusals[0])


@contextmanager
def new_consumer(bootstrap: str, settings: Settings) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "no-group",
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def deliver(
    bootstrap: str,
    topic: str,
    record: NewRecord,
    *,
    partition: int = 0,
    settings: Settings | None = None,
) -> Message:
    """Send one record and return its delivery report; raise if it was refused."""
    reports: list[tuple[KafkaError | None, Message]] = []
    with new_producer(bootstrap, settings or {}) as producer:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=partition,
            on_delivery=lambda error, message: reports.append((error, message)),
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    ((error, message),) = reports
    if error is not None:
        raise KafkaException(error)
    return message


def plain_record(value: bytes, *, timestamp_ms: int = FIRST_TIMESTAMP_MS) -> NewRecord:
    return NewRecord(None, value, timestamp_ms, ())


def refusal(bootstrap: str, topic: str, record: NewRecord, settings: Settings | None = None) -> int:
    """The code with which a record is refused; NO_ERROR if it is stored."""
    try:
        deliver(bootstrap, topic, record, settings=settings)
    except KafkaException as refused:
        return code_of(refused)
    return KafkaError.NO_ERROR


def read(consumer: Consumer, record_count: int) -> list[Message]:
    """The next records of what is assigned; raise what the consumer reports in their place."""
    messages: list[Message] = []
    deadline_s = time.monotonic() + CLIENT_TIMEOUT_S
    while len(messages) < record_count:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{len(messages)} of {record_count} records were read")
        for message in consumer.consume(record_count - len(messages), timeout=0.5):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            messages.append(message)
    return messages


def reported_error(consumer: Consumer) -> int:
    """The code of the next thing that the consumer reports, which is not a record."""
    deadline_s = time.monotonic() + CLIENT_TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(0.5)
        if message is not None:
            error = message.error()
            assert error is not None, "a record was read"
            return error.code()
    raise TimeoutError("the consumer reported nothing")


def topic_of_twenty(bootstrap: str) -> str:
    """A topic of one partition with twenty records, a millisecond apart."""
    topic = new_topic(bootstrap)
    records = numbered_records(20, value_size_bytes=50, seed=topic)
    send(bootstrap, topic, records, partition=0, settings={})
    return topic


def exists(bootstrap: str, topic: str) -> bool:
    return topic in admin_client(bootstrap).list_topics(timeout=CLIENT_TIMEOUT_S).topics


def only(futures: Mapping[K, Future[T]]) -> T:
    """The outcome of the one thing that was asked for."""
    (future,) = futures.values()
    return future.result(CLIENT_TIMEOUT_S)


def code_of(exception: KafkaException) -> int:
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error.code()
