"""Records with an id each, sent by confluent-kafka, and where they are (D5)."""

from collections.abc import Iterable
from functools import partial

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.clients import CLIENT_TIMEOUT_S, DeliveryFailed, Settings

HEADER = "guid"
DEDUP = {"tidelog.dedup.header": HEADER}


def send_ids(
    bootstrap: str, topic: str, ids: Iterable[str], *, settings: Settings, partition: int = 0
) -> list[int]:
    """The offsets that the client was told, or worked out, in the order of `ids`."""
    offsets: dict[int, int] = {}
    failures: list[KafkaError] = []

    def delivered(number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            offset = message.offset()
            assert offset is not None
            offsets[number] = offset

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    for number, one in enumerate(ids):
        producer.produce(
            topic,
            one.encode(),
            partition=partition,
            headers=[(HEADER, one.encode())],
            on_delivery=partial(delivered, number),
        )
    if producer.flush(CLIENT_TIMEOUT_S) != 0 or failures:
        raise DeliveryFailed(str(failures[0]) if failures else "not acknowledged in time")
    return [offsets[number] for number in sorted(offsets)]


def stored_ids(
    bootstrap: str, topic: str, *, partition: int = 0, isolation: str = "read_committed"
) -> list[tuple[int, str]]:
    """(offset, id) of every record, by a consumer that must get past batches without records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: list[tuple[int, str]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(CLIENT_TIMEOUT_S)
            assert message is not None, f"nothing more within {CLIENT_TIMEOUT_S} s, no end either"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            value, offset = message.value(), message.offset()
            assert isinstance(value, bytes)
            assert offset is not None
            found.append((offset, value.decode()))
    finally:
        consumer.close()
