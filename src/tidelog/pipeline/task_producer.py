"""Writes the rows of one task, at least once or exactly once (X2; decision 0016).

Exactly once, the rows of a task are one transaction, which also commits, to a group that only this
task of this query has, that they were written:

    init_transactions        whoever had this task before is fenced, and what it began is ended
    the group's offset?      n + 1: it had written micro-batch n; if this is that, it is done, and
                             if this is one before, somebody else goes on with the query
    rows, offset, commit     all of it or nothing

So whoever runs it again, whenever the one before died, knows. Kept beside the offset are the count,
the size and a fingerprint of what was written: if Spark comes with other rows for the same task,
they were cut in another way than the first time, nobody can say which of them are missing, and it
is refused. Kept as well is which run of the query wrote it, or has found the same rows there.

Rows of a task that has no mark may be among those of one that has, if they were cut in another way.
So while there are tasks that an earlier run wrote and this one has not found to be the same, nobody
else begins to write (`EarlierTasks`):

    task 0, written by an earlier run      is begun: says so · has the same rows: says so
    task 1, not written                    waits ...................................... writes

Nobody waits for a core that somebody who waits has. Tasks are begun in their order; those before
the last one that was written, and not written themselves, ran beside it when the query died, so
with as many cores as it had one is free for those that were written.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from crc32c import crc32c

from tidelog.client.translation import translated
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.sink_options import SinkOptions

T = TypeVar("T")
Headers = list[tuple[str, str | bytes | None]]
Failure = tuple[KafkaError, str]
"""What was wrong with a row, and its topic."""

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
    # The Java client's: what a topic takes by default can be written.
    "message.max.bytes": "1048576",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "262144",
}
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As long as brokers allow by default. Whoever takes over ends it at once."""
# Else librdkafka connects to one broker at a time, with pauses, and finds a coordinator 20 to 50
# ms, at times 500 ms, after it could. A task is not long in comparison, and writes to most brokers
# anyway. benchmarks/spark_source.py
_AT_ONCE: Final = {"enable.sparse.connections": False}
_CALL_S: Final = 60.0
_RETRY_S: Final = 0.1
_INSIST_S: Final = 120.0
_FINGERPRINT_END: Final = 1 << 64
# Of a group's coordinator, who knows in a moment, and of a broker that has died, whose groups
# another one takes over. librdkafka does not call these retriable.
_PASSING: Final = frozenset(
    {
        "_TIMED_OUT",
        "_TRANSPORT",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "UNSTABLE_OFFSET_COMMIT",
    }
)
# The last is what librdkafka says of one that it has asked for in vain for half a minute.
_NO_TOPIC: Final = frozenset({"TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})


_AGAIN: Final = (
    "Start the query with the code, the options (minPartitions, maxRecordsPerPartition, "
    "spark.sql.shuffle.partitions) and the cores that it had when it was stopped, once; then they "
    "may change. Where rows cannot come again as they were (rand(), uuid()), set deliveryGuarantee "
    "to at-least-once for one start: all of the micro-batch is written once more"
)


class Written(NamedTuple):
    """What a task has written, or found written."""

    row_count: int
    size_bytes: int
    """Of keys and values."""
    fingerprint: int
    """Of keys and values, in whichever order rows come: shuffles on a cluster have none."""


NOTHING: Final = Written(0, 0, 0)


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Which piece of which write this is, the same each time it is run."""

    write: str
    """A query, or one write of a batch."""
    task: int
    number: int
    """Of the micro-batch; 0 of a batch."""
    run: str
    """Another one each time that a query is started. The one thing here that is not the same."""

    @property
    def name(self) -> str:
        """The transactional id, and the group that keeps what was written."""
        return f"{self.write}-{self.task}"


class Mark(NamedTuple):
    """What a task's group keeps."""

    number: int
    """Of the micro-batch that was written last."""
    written: Written
    run: str
    """Which wrote it, or found the same rows."""
    looking: str
    """The last run that began to look whether they are the same."""
    topic: str
    """To which the group's offset belongs."""


@dataclass(frozen=True, slots=True)
class EarlierTasks:
    """Those of a micro-batch that had been written when this run of its query began it."""

    tasks: frozenset[int]
    until_s: float
    """When all of them should have begun; of the wall clock, since other machines read it."""


NONE_EARLIER: Final = EarlierTasks(frozenset(), 0.0)


class TaskResult(NamedTuple):
    """What became of a task."""

    written: Written
    is_first_of_run: bool
    """Whether this run of the query has not seen the task write anything before."""


def write_at_least_once(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Written:
    """Raises ClientError, PipelineError if anything could not be written."""
    failures: list[Failure] = []
    settings = _settings(options)
    settings["on_delivery"] = _noted_in(failures)
    with translated(options.kafka.bootstrap):
        producer = Producer(settings)
        written = _Rows(options, producer).produce(batches)
        while producer.flush(_FLUSH_S):
            pass  # Ends: a record is delivered, or has failed within delivery.timeout.ms.
        if failures:
            raise _refused(*failures[0])
    return written


def write_exactly_once(
    options: SinkOptions,
    identity: TaskIdentity,
    batches: Iterable[pa.RecordBatch],
    earlier: EarlierTasks = NONE_EARLIER,
) -> TaskResult:
    """Raises ClientError, PipelineError; nobody sees any of the rows then."""
    with translated(options.kafka.bootstrap):
        return _Transaction(options, identity, earlier).write(batches)


def settled_mark(client: AdminClient, group: str, topic: str | None) -> Mark | None:
    """What the group of a task keeps, when it is decided. Raises KafkaException, PipelineError.

    That a transaction has ended is known before what it committed to a group is to be seen there:
    Kafka does that later. Who asks for all of a group is not told of a place that had nothing
    before; who asks for the place is. `topic` is where it would be, if that is known.
    """
    places = [None] if topic is None else [None, [TopicPartition(topic, 0)]]
    for each in places:
        mark = _mark(client, ConsumerGroupTopicPartitions(group, each), is_settled=True)
        if mark is not None:
            return mark
    return None


def last_mark(client: AdminClient, group: str) -> Mark | None:
    """The same, without what is not decided: of a task that nobody runs any more."""
    return _mark(client, ConsumerGroupTopicPartitions(group), is_settled=False)


def _mark(
    client: AdminClient, wanted: ConsumerGroupTopicPartitions, *, is_settled: bool
) -> Mark | None:
    """It has an offset for each topic that a micro-batch has ever left its mark with."""
    found = insist(partial(_committed, client, wanted, is_settled=is_settled))
    if not found:
        return None
    last = max(found, key=lambda each: each.offset)
    told = _told(wanted.group_id, last.metadata or "")
    return Mark(last.offset - 1, *told, last.topic)


def _committed(
    client: AdminClient, wanted: ConsumerGroupTopicPartitions, *, is_settled: bool
) -> list[TopicPartition]:
    asked = client.list_consumer_group_offsets(
        [wanted], require_stable=is_settled, request_timeout=_CALL_S
    )
    found = asked[wanted.group_id].result().topic_partitions or []
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return [each for each in found if each.offset > 0]


def _told(group: str, metadata: str) -> tuple[Written, str, str]:
    try:
        row_count, size_bytes, fingerprint, run, looking = json.loads(metadata)
        written = Written(int(row_count), int(size_bytes), int(fingerprint))
        return written, str(run), str(looking)
    except (ValueError, TypeError):
        raise PipelineError(
            f"the group {group} was not written by this sink, or by another version of it: its "
            f"metadata is {metadata!r}. Choose another transactionalIdPrefix"
        ) from None


class _Transaction:
    def __init__(self, options: SinkOptions, identity: TaskIdentity, earlier: EarlierTasks) -> None:
        self._options = options
        self._identity = identity
        self._earlier = earlier
        self._failures: list[Failure] = []
        # Not of `self`: the producer would be kept by itself.
        settings = {**_AT_ONCE, **_settings(options)}
        settings["on_delivery"] = _noted_in(self._failures)
        settings.setdefault("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        self._producer = Producer(
            {**settings, "enable.idempotence": True, "transactional.id": identity.name}
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        insist(partial(self._producer.init_transactions, _CALL_S))
        with AdminClient({**_AT_ONCE, **self._options.kafka.for_client()}) as client:
            mark = settled_mark(client, self._identity.name, self._options.topic)
            is_written = mark is not None and mark.number >= self._identity.number
            if not is_written:
                self._wait_for_earlier(client)
        if mark is not None and is_written:
            self._require_last(mark.number)
            written = self._found_written(mark, batches)
        else:
            written = self._write_anew(batches)
        # Of this micro-batch, an attempt that died before it could tell the driver left a mark.
        is_known = (
            mark is not None
            and mark.run == self._identity.run
            and mark.number < self._identity.number
        )
        # Who has no rows leaves no mark, and would be new for ever.
        return TaskResult(written, is_first_of_run=bool(written.row_count) and not is_known)

    def _wait_for_earlier(self, client: AdminClient) -> None:
        """Until all of them are found to be the same. One that is not ends the job."""
        run, waiting = self._identity.run, self._earlier.tasks
        while True:
            groups = {each: replace(self._identity, task=each).name for each in waiting}
            marks = {each: last_mark(client, group) for each, group in groups.items()}
            others = {each: mark for each, mark in marks.items() if mark and mark.run != run}
            if not others:
                return
            waiting = frozenset(others)
            idle = [each for each, mark in others.items() if mark.looking != run]
            if idle and time.time() > self._earlier.until_s:
                raise PipelineError(
                    f"task {min(idle)} of micro-batch {self._identity.number} was written before, "
                    f"and is not run again: it is not there any more, or waits for a core. {_AGAIN}"
                )
            time.sleep(_RETRY_S)

    def _found_written(self, mark: Mark, batches: Iterable[pa.RecordBatch]) -> Written:
        is_waited_for = (
            self._identity.task in self._earlier.tasks and mark.run != self._identity.run
        )
        if not is_waited_for:
            return self._require_same(mark.written, batches)
        with self._transaction():
            self._commit(mark.written, mark.run, mark.topic)
        written = self._require_same(mark.written, batches)
        with self._transaction():
            self._commit(mark.written, self._identity.run, mark.topic)
        return written

    def _write_anew(self, batches: Iterable[pa.RecordBatch]) -> Written:
        with self._transaction():
            rows = _Rows(self._options, self._producer)
            written = rows.produce(batches)
            self._deliver()
            if rows.a_topic is not None:
                self._commit(written, self._identity.run, rows.a_topic)
        return written

    def _deliver(self) -> None:
        """Before the mark is left, which for a topic that is not there is tried for a minute.

        Of all other failures the commit knows more.
        """
        while self._producer.flush(_FLUSH_S) and not self._failures:
            pass  # Ends: a record is delivered, or has failed within delivery.timeout.ms.
        for error, _topic in self._failures:
            if error.name() in _NO_TOPIC:
                raise KafkaException(error)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._producer.begin_transaction()
        try:
            yield
        except KafkaException as exception:
            # Of a transaction that has failed, librdkafka says only that it did.
            self._producer.poll(_POLL_S)
            self._abort()
            if self._failures and not exception.args[0].fatal():
                raise _refused(*self._failures[0]) from exception
            raise
        except BaseException:
            self._abort()
            raise

    def _commit(self, written: Written, run: str, topic: str) -> None:
        self._say_that_it_was(written, run, topic)
        insist(partial(self._producer.commit_transaction, _CALL_S))

    def _abort(self) -> None:
        """Who comes next would end it otherwise."""
        with suppress(KafkaException):
            self._producer.abort_transaction(_CALL_S)

    def _require_last(self, last: int) -> None:
        """Of what was written before the last micro-batch, nothing is known any more."""
        if last > self._identity.number:
            raise PipelineError(
                f"micro-batch {self._identity.number} comes when micro-batch {last} was written: "
                "the query runs twice, or its checkpoint is an old copy. To write again what was "
                "written since, choose another transactionalIdPrefix"
            )

    def _require_same(self, before: Written, batches: Iterable[pa.RecordBatch]) -> Written:
        now = sum_of(map(_measured, batches))
        if now != before:
            raise PipelineError(
                f"task {self._identity.task} of micro-batch {self._identity.number} was written "
                f"before with {before.row_count} rows of {before.size_bytes} bytes, and now has "
                f"{_difference(now, before)}. {_AGAIN}"
            )
        return before

    def _say_that_it_was(self, written: Written, run: str, topic: str) -> None:
        """Any partition will do, of a topic that exists."""
        told = json.dumps([*written, run, self._identity.run])
        done = TopicPartition(topic, 0, self._identity.number + 1, metadata=told)
        group = Consumer({**self._options.kafka.for_client(), "group.id": self._identity.name})
        try:
            metadata = group.consumer_group_metadata()
        finally:
            group.close()
        insist(partial(self._producer.send_offsets_to_transaction, [done], metadata, _CALL_S))


class _Rows:
    """Hands rows to librdkafka, in order."""

    def __init__(self, options: SinkOptions, producer: Producer) -> None:
        self._options = options
        self._producer = producer
        self._partition_counts: dict[str, int] = {}
        self.a_topic: str | None = None
        """One that was written to."""

    def produce(self, batches: Iterable[pa.RecordBatch]) -> Written:
        written = NOTHING
        for batch in batches:
            for topic, value, key, *others in self._each(batch):
                self._queue(topic, value, key, *others)
            written = sum_of((written, _measured(batch)))
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
                timestamps_ms(found.get("timestamp"), count),
                headers_of(found.get("headers"), count),
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
            except KafkaException as exception:
                raise _refused(exception.args[0], topic) from exception
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


def timestamps_ms(column: pa.Array | None, count: int) -> list[int]:
    """0: the time at which it is sent, where none is given.

    librdkafka cannot be told to write 0 itself; 1 is as near as can be.
    """
    if column is None:
        return [0] * count
    milliseconds = pc.divide(column.cast(pa.int64()), 1000)
    milliseconds = pc.if_else(pc.equal(milliseconds, 0), 1, milliseconds)
    return pc.fill_null(milliseconds, 0).to_pylist()  # type: ignore[no-any-return]


def headers_of(column: pa.Array | None, count: int) -> list[Headers | None]:
    """Raises PipelineError."""
    if column is None:
        return [None] * count
    return [
        None if headers is None else list(map(_header, headers)) for headers in column.to_pylist()
    ]


def _header(header: dict[str, Any] | None) -> tuple[str, bytes | None]:
    """confluent-kafka would call one without a name "None"."""
    if header is None or header["key"] is None:
        raise PipelineError("a row has a header without a name: its key has to be text")
    return header["key"], header["value"]


def _measured(batch: pa.RecordBatch) -> Written:
    """Of rows, what has to be the same when they come again."""
    key, value = (_bytes(batch, name) for name in ("key", "value"))
    sizes = [pc.sum(pc.binary_length(column)).as_py() or 0 for column in (key, value)]
    # Null and empty are told alike: rows that come again do not turn one into the other.
    keys, values = (pc.fill_null(column, b"").to_pylist() for column in (key, value))
    fingerprint = sum(map(crc32c, values, map(crc32c, keys))) % _FINGERPRINT_END
    return Written(batch.num_rows, sum(sizes), fingerprint)


def _bytes(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.binary())
    return batch.column(name).cast(pa.binary())


def sum_of(parts: Iterable[Written]) -> Written:
    """Of rows that came in several parts."""
    total = NOTHING
    for part in parts:
        total = Written(
            total.row_count + part.row_count,
            total.size_bytes + part.size_bytes,
            (total.fingerprint + part.fingerprint) % _FINGERPRINT_END,
        )
    return total


def _difference(now: Written, before: Written) -> str:
    if now[:2] == before[:2]:
        return "as many, but others"
    return f"{now.row_count} of {now.size_bytes}"


def _noted_in(failures: list[Failure]) -> Callable[[KafkaError, Message], None]:
    return lambda error, message: failures.append((error, str(message.topic())))


def _refused(error: KafkaError, topic: str) -> Exception:
    """Why a row was not written, with the name of what decides on it."""
    if error.name() in _NO_TOPIC:
        return PipelineError(
            f"a row is for the topic {topic!r}, which does not exist and was not created: "
            f"{error.str()}"
        )
    if error.name() == "INVALID_TIMESTAMP":
        return PipelineError(
            "a row has a timestamp that its topic does not take: message.timestamp.before.max.ms "
            "and message.timestamp.after.max.ms of a topic are how far from now it may be"
        )
    if error.name() != "MSG_SIZE_TOO_LARGE":
        return KafkaException(error)
    return PipelineError(
        "a row, or a batch of them (kafka.batch.size), is too large: kafka.message.max.bytes is "
        "how large this sends one, and max.message.bytes of a topic how large it takes one"
    )


def _settings(options: SinkOptions) -> dict[str, Any]:
    return {
        **_DEFAULTS,
        **dict(options.kafka.values),
        "log_level": 0,
        "delivery.report.only.error": True,
    }


def insist(call: Callable[[], T]) -> T:
    """Again and again while it may help."""
    give_up_at = time.monotonic() + _INSIST_S
    while True:
        try:
            return call()
        except KafkaException as exception:
            error = exception.args[0]
            is_passing = error.retriable() or error.name() in _PASSING
            if not is_passing or time.monotonic() > give_up_at:
                raise
            time.sleep(_RETRY_S)
