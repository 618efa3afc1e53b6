"""A range of a partition as rows, fetched by librdkafka: for brokers that want to know who asks.

`range_reader.py` speaks to brokers itself, in plain text; TLS and every way to authenticate are
librdkafka's. Rows are the same, and come slower: it makes an object of each record.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from tidelog.client.errors import ClusterUnreachable
from tidelog.client.range_fetcher import OffsetGone
from tidelog.client.translation import translated
from tidelog.pipeline.kafka_settings import KafkaSettings
from tidelog.pipeline.ranges import OffsetRange
from tidelog.pipeline.rows import schema as schema_of_rows

_CONSUMED_MAX: Final = 10_000
_POLL_S: Final = 0.5
_DEFAULTS: Final = {
    # Nobody is a member of it, but librdkafka wants one.
    "group.id": "tidelog-pipeline",
    "queued.min.messages": "100000",
}
_FIXED: Final = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "check.crcs": True,
}


def read_range(
    kafka: KafkaSettings, wanted: OffsetRange, *, has_headers: bool, timeout_s: float
) -> Iterator[pa.RecordBatch]:
    """Raises OffsetGone, ClientError."""
    with translated(kafka.bootstrap):
        consumer = Consumer({**_DEFAULTS, **kafka.for_client(), **_FIXED})
        try:
            topic, partition = wanted.partition
            consumer.assign([KafkaPartition(topic, partition, wanted.start_offset)])
            yield from _rows(consumer, wanted, has_headers=has_headers, timeout_s=timeout_s)
        finally:
            consumer.close()


def _rows(
    consumer: Consumer, wanted: OffsetRange, *, has_headers: bool, timeout_s: float
) -> Iterator[pa.RecordBatch]:
    next_offset = wanted.start_offset
    give_up_at = time.monotonic() + timeout_s
    while next_offset < wanted.end_offset:
        found = consumer.consume(_CONSUMED_MAX, _POLL_S)
        messages = [each for each in found if each.error() is None]
        if messages:
            give_up_at = time.monotonic() + timeout_s
            next_offset = _offset(messages[-1]) + 1
            inside = [each for each in messages if _offset(each) < wanted.end_offset]
            if inside:
                yield _record_batch(inside, wanted, has_headers=has_headers)
        for event in found:
            error = event.error()
            if error is not None and _is_end(error, wanted, next_offset):
                # Of what may be read. Gaps, such as markers, may be between it and the last record.
                next_offset = max(next_offset, _offset(event))
        if time.monotonic() > give_up_at:
            raise ClusterUnreachable(f"{wanted} could not be read at {next_offset}")


def _is_end(error: KafkaError, wanted: OffsetRange, next_offset: int) -> bool:
    """Raises OffsetGone, and KafkaException for what does not pass by itself."""
    if error.name() == "_PARTITION_EOF":
        return True
    if error.name() in {"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}:
        raise OffsetGone(*wanted.partition, next_offset)
    if error.retriable() or error.name() in {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT"}:
        return False
    raise KafkaException(error)


def _record_batch(
    messages: Sequence[Message], wanted: OffsetRange, *, has_headers: bool
) -> pa.RecordBatch:
    topic, partition = wanted.partition
    times = [message.timestamp() for message in messages]
    columns: list[list[Any]] = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [topic] * len(messages),
        [partition] * len(messages),
        [_offset(message) for message in messages],
        [timestamp_ms * 1000 for _, timestamp_ms in times],
        # librdkafka counts from 1, and has 0 for none at all.
        [kind - 1 for kind, _ in times],
    ]
    if has_headers:
        columns.append([_headers(message) for message in messages])
    schema = schema_of_rows(has_headers=has_headers)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(message: Message) -> list[dict[str, Any]] | None:
    headers = message.headers()
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [{"key": name, "value": value} for name, value in pairs]


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
