"""Writes the rows of one task, at least once or exactly once (X2; decision 0016).

Exactly once, the rows of a task are one transaction, which also commits, to a group that only this
task of this query has, that they were written:

    init_transactions        whoever had this task before is fenced, and what it began is ended
    the group's offset?      n + 1: it had written micro-batch n; if this is that, it is done
    rows, offset, commit     all of it or nothing

So whoever runs it again, whenever the one before died, knows. The count and the size of what was
written are kept beside the offset. If Spark comes with other rows for the same task, they were cut
in another way than the first time; which of them are missing nobody can say, and it is refused.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tidelog.client.translation import translated
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.sink_options import SinkOptions

T = TypeVar("T")
Headers = list[tuple[str, str | bytes | None]]

_ANY_PARTITION: Final = -1
_POLL_S: Final = 0.1
_FLUSH_S: Final = 1.0
_DEFAULTS: Final = {
    "acks": "all",
    # Keys go where the Java client and Spark's own sink would send them.
    "partitioner": "murmur2_random",
    "linger.ms": "20",
    "batch.size": "1000000",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "262144",
}
# As long as brokers allow by default. Whoever takes over ends it at once.
_TRANSACTION_TIMEOUT_MS: Final = 900_000
_CALL_S: Final = 60.0
_RETRY_S: Final = 0.1
_INSIST_S: Final = 120.0


class Written(NamedTuple):
    """What a task has written, or found written."""

    row_count: int
    size_bytes: int
    """Of keys and values."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Which piece of which write this is, the same each time it is run."""

    write: str
    """A query, or one write of a batch."""
    task: int
    number: int
    """Of the micro-batch; 0 of a batch."""

    @property
    def name(self) -> str:
        """The transactional id, and the group that keeps what was written."""
        return f"{self.write}-{self.task}"


def write_at_least_once(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Written:
    """Raises ClientError, PipelineError if anything could not be written."""
    failures: list[KafkaError] = []
    settings = _settings(options)
    settings["on_delivery"] = lambda error, _message: failures.append(error)
    with translated(options.kafka.bootstrap):
        producer = Producer(settings)
        written = _Rows(options, producer).produce(batches)
        while producer.flush(_FLUSH_S):
            pass  # Ends: a record is delivered, or has failed within delivery.timeout.ms.
        if failures:
            raise KafkaException(failures[0])
    return written


def write_exactly_once(
    options: SinkOptions, identity: TaskIdentity, batches: Iterable[pa.RecordBatch]
) -> Written:
    """Raises ClientError, PipelineError; nobody sees any of the rows then."""
    with translated(options.kafka.bootstrap):
        return _Transaction(options, identity).write(batches)


class _Transaction:
    def __init__(self, options: SinkOptions, identity: TaskIdentity) -> None:
        self._options = options
        self._identity = identity
        settings = _settings(options)
        settings.setdefault("transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS)
        self._producer = Producer(
            {**settings, "enable.idempotence": True, "transactional.id": identity.name}
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        _insist(partial(self._producer.init_transactions, _CALL_S))
        before = self._written_before()
        if before is not None:
            return self._require_same(before, batches)
        self._producer.begin_transaction()
        try:
            rows = _Rows(self._options, self._producer)
            written = rows.produce(batches)
            if rows.a_topic is not None:
                self._say_that_it_was(written, rows.a_topic)
                _insist(partial(self._producer.commit_transaction, _CALL_S))
        except BaseException:
            # Who comes next ends it otherwise.
            with suppress(KafkaException):
                self._producer.abort_transaction(_CALL_S)
            raise
        return written

    def _written_before(self) -> Written | None:
        """What was written by whoever ran this task before, if it was of this micro-batch."""
        with AdminClient({**self._options.kafka.for_client()}) as client:
            committed = _insist(partial(self._committed, client))
        for partition in committed:
            if partition.offset == self._identity.number + 1:
                return Written(*json.loads(partition.metadata or ""))
        return None

    def _committed(self, client: AdminClient) -> list[TopicPartition]:
        name = self._identity.name
        asked = client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], require_stable=True, request_timeout=_CALL_S
        )
        return asked[name].result().topic_partitions or []

    def _require_same(self, before: Written, batches: Iterable[pa.RecordBatch]) -> Written:
        now = _measured(batches)
        if now != before:
            raise PipelineError(
                f"task {self._identity.task} of micro-batch {self._identity.number} was written "
                f"before with {before.row_count} rows of {before.size_bytes} bytes, and now has "
                f"{now.row_count} of {now.size_bytes}: start the query with the code and the "
                "options that it had when it was stopped (minPartitions, maxRecordsPerPartition, "
                "spark.sql.shuffle.partitions), once; then they may change"
            )
        return before

    def _say_that_it_was(self, written: Written, topic: str) -> None:
        """Any partition will do, of a topic that exists."""
        done = TopicPartition(topic, 0, self._identity.number + 1, metadata=json.dumps(written))
        group = Consumer({**self._options.kafka.for_client(), "group.id": self._identity.name})
        try:
            metadata = group.consumer_group_metadata()
        finally:
            group.close()
        _insist(partial(self._producer.send_offsets_to_transaction, [done], metadata, _CALL_S))


class _Rows:
    """Hands rows to librdkafka, in order."""

    def __init__(self, options: SinkOptions, producer: Producer) -> None:
        self._options = options
        self._producer = producer
        self._partition_counts: dict[str, int] = {}
        self.a_topic: str | None = None
        """One that was written to."""

    def produce(self, batches: Iterable[pa.RecordBatch]) -> Written:
        written = Written(0, 0)
        for batch in batches:
            for topic, value, key, *others in self._each(batch):
                self._queue(topic, value, key, *others)
            written = _sum(written, _measured([batch]))
        return written

    def _each(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        count = batch.num_rows
        found = {name: batch.column(name) for name in self._options.columns}
        topic = self._options.topic
        columns = [
            found["topic"].to_pylist() if topic is None else [topic] * count,
            found["value"].to_pylist(),
            found["key"].to_pylist() if "key" in found else [None] * count,
        ]
        if found.keys() & {"partition", "timestamp", "headers"}:
            columns += [
                _partitions(found.get("partition"), count),
                _timestamps_ms(found.get("timestamp"), count),
                _headers(found.get("headers"), count),
            ]
        return zip(*columns, strict=True)

    def _queue(
        self,
        topic: str | None,
        value: bytes | str | None,
        key: bytes | str | None,
        partition: int = _ANY_PARTITION,
        timestamp_ms: int = 0,
        headers: Headers | None = None,
    ) -> None:
        if topic is None:
            raise PipelineError("a row has no topic: set the option topic, or fill the column")
        self.a_topic = topic
        if partition != _ANY_PARTITION and not 0 <= partition < self._partition_count(topic):
            raise PipelineError(
                f"a row has partition {partition}, which {topic} does not have: drop the column "
                "partition, and keys decide"
            )
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, timestamp=timestamp_ms, headers=headers
                )
            except BufferError:
                self._producer.poll(_POLL_S)
            else:
                return

    def _partition_count(self, topic: str) -> int:
        """librdkafka finds out when it has taken the rows, and then does not say which."""
        if topic not in self._partition_counts:
            described = self._producer.list_topics(topic, _CALL_S).topics[topic]
            if described.error is not None:
                raise KafkaException(described.error)
            self._partition_counts[topic] = len(described.partitions)
        return self._partition_counts[topic]


def _partitions(column: pa.Array | None, count: int) -> list[int]:
    if column is None:
        return [_ANY_PARTITION] * count
    return pc.fill_null(column, _ANY_PARTITION).to_pylist()  # type: ignore[no-any-return]


def _timestamps_ms(column: pa.Array | None, count: int) -> list[int]:
    """0: the time at which it is sent."""
    if column is None:
        return [0] * count
    milliseconds = pc.divide(column.cast(pa.int64()), 1000)
    return pc.fill_null(milliseconds, 0).to_pylist()  # type: ignore[no-any-return]


def _headers(column: pa.Array | None, count: int) -> list[Headers | None]:
    if column is None:
        return [None] * count
    return [
        None if headers is None else [(each["key"], each["value"]) for each in headers]
        for headers in column.to_pylist()
    ]


def _measured(batches: Iterable[pa.RecordBatch]) -> Written:
    written = Written(0, 0)
    for batch in batches:
        sizes = [
            pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
            for name in ("key", "value")
            if name in batch.schema.names
        ]
        written = _sum(written, Written(batch.num_rows, sum(sizes)))
    return written


def _sum(one: Written, other: Written) -> Written:
    return Written(one.row_count + other.row_count, one.size_bytes + other.size_bytes)


def _settings(options: SinkOptions) -> dict[str, Any]:
    return {
        **_DEFAULTS,
        **dict(options.kafka.values),
        "log_level": 0,
        "delivery.report.only.error": True,
    }


def _insist(call: Callable[[], T]) -> T:
    """Again and again while librdkafka says that it may help."""
    give_up_at = time.monotonic() + _INSIST_S
    while True:
        try:
            return call()
        except KafkaException as exception:
            if not exception.args[0].retriable() or time.monotonic() > give_up_at:
                raise
            time.sleep(_RETRY_S)
