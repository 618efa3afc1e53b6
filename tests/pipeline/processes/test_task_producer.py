"""A task of a sink that is run again, whatever has become of it and of its query (X2)."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from crc32c import crc32c

from tests.support.clients import read_committed
from tests.support.replicated_topics import ReplicatedTopics
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.sink import earlier_tasks, offered_guarantee, write_of
from tidelog.pipeline.sink_options import Guarantee, SinkOptions, sink_options
from tidelog.pipeline.task_producer import (
    EarlierTasks,
    TaskIdentity,
    TaskResult,
    write_at_least_once,
    write_exactly_once,
)
from tidelog.pipeline.written_tasks import written_earlier

WITHIN_S = 30.0
LARGEST_BYTES = 1_048_576 - 128
"""Of a value that the Java client sends and brokers take, both as they are by default."""


class OneTask:
    """The first task of a query, whose rows have a topic each."""

    def __init__(self, topics: ReplicatedTopics, query: str) -> None:
        self._bootstrap = topics.bootstrap
        self._query = query

    def options(self, **kafka: str) -> SinkOptions:
        given = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
        given["kafka.bootstrap.servers"] = self._bootstrap
        return sink_options(given, {"topic": "string", "value": "string"})

    def write(
        self, number: int, rows: Sequence[tuple[str, str]], *, run: str = "run", **kafka: str
    ) -> TaskResult:
        """`rows` are topics and values of a micro-batch."""
        identity = TaskIdentity(self._query, task=0, number=number, run=run)
        return write_exactly_once(self.options(**kafka), identity, [batch_of(rows)])

    def begin(self, number: int, row: tuple[str, str]) -> Producer:
        """A transaction with all that the task writes, which is not decided."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": f"{self._query}-other"}
        )
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        topic, value = row
        producer.produce(topic, value)
        group = Consumer({"bootstrap.servers": self._bootstrap, "group.id": f"{self._query}-0"})
        metadata = group.consumer_group_metadata()
        group.close()
        said = f'[1, {len(value)}, {crc32c(value.encode(), crc32c(b""))}, "before", "before"]'
        done = TopicPartition(topic, 0, number + 1, metadata=said)
        producer.send_offsets_to_transaction([done], metadata, WITHIN_S)
        return producer

    def written(self, topic: str) -> list[bytes | None]:
        return [each.value for each in read_committed(self._bootstrap, topic, 0)]


def batch_of(rows: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "value"])


def test_a_task_that_writes_to_another_topic_each_time_is_not_written_again(
    topics: ReplicatedTopics,
) -> None:
    """Wherever it has left its marks, the last one counts."""
    one, other = topics.create(), topics.create()
    task = OneTask(topics, f"query-{one}")
    micro_batches = [(one, "0"), (other, "1"), (one, "2"), (other, "3")]
    for number, row in enumerate(micro_batches):
        task.write(number, [row])
        task.write(number, [row], run="again")
    assert task.written(one) == [b"0", b"2"]
    assert task.written(other) == [b"1", b"3"]


def test_a_micro_batch_before_the_one_that_was_written_is_refused(
    topics: ReplicatedTopics,
) -> None:
    """A driver that was given up and is still there; a checkpoint of yesterday."""
    topic = topics.create()
    task = OneTask(topics, f"query-{topic}")
    task.write(4, [(topic, "4")], run="given up")
    task.write(5, [(topic, "5")], run="other")
    with pytest.raises(
        PipelineError, match="micro-batch 4 comes when micro-batch 5 was written"
    ) as refused:
        task.write(4, [(topic, "4")], run="given up")
    assert "transactionalIdPrefix" in str(refused.value)
    assert task.written(topic) == [b"4", b"5"]


def test_a_mark_that_is_not_to_be_seen_yet_is_waited_for(
    topics: ReplicatedTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka shows in a group what a transaction committed some time after it has ended."""
    topic = topics.create()
    task = OneTask(topics, f"query-{topic}")
    task.write(0, [(topic, "0")])
    undecided = [task.begin(1, (topic, "1"))]

    def wait(_seconds: float) -> None:
        while undecided:
            undecided.pop().commit_transaction(WITHIN_S)

    monkeypatch.setattr("tidelog.pipeline.task_producer.time.sleep", wait)
    task.write(1, [(topic, "1")], run="again")
    assert task.written(topic) == [b"0", b"1"]


def test_an_attempt_after_one_that_could_not_tell_the_driver_tells_it(
    topics: ReplicatedTopics,
) -> None:
    """Otherwise nobody looks for tasks that the query had before."""
    topic = topics.create()
    task = OneTask(topics, f"query-{topic}")
    assert task.write(0, [(topic, "0")]).is_first_of_run
    assert task.write(0, [(topic, "0")]).is_first_of_run
    assert not task.write(1, [(topic, "1")]).is_first_of_run


def test_a_task_waits_until_those_written_earlier_are_the_same(topics: ReplicatedTopics) -> None:
    """Of a query that is cut into more tasks now, a new one would write rows of an old one."""
    topic = topics.create()
    query = f"query-{topic}"
    old, new = (TaskIdentity(query, task, number=0, run="old") for task in (1, 0))
    options = OneTask(topics, query).options()
    write_exactly_once(options, old, [batch_of([(topic, "a"), (topic, "b")])])
    earlier = written_earlier(options.kafka, query, 0)
    assert earlier.tasks == {1}
    old, new = replace(old, run="now"), replace(new, run="now")
    with ThreadPoolExecutor() as pool:
        rows = [batch_of([(topic, "b")])]
        waits = pool.submit(write_exactly_once, options, new, rows, earlier)
        with pytest.raises(PipelineError, match="task 1 of micro-batch 0 was written before"):
            write_exactly_once(options, old, [batch_of([(topic, "a")])], earlier)
        assert OneTask(topics, query).written(topic) == [b"a", b"b"]
        assert not waits.done()
        write_exactly_once(options, old, [batch_of([(topic, "a"), (topic, "b")])], earlier)
        assert waits.result(WITHIN_S).written.row_count == 1


def test_who_planned_the_micro_batch_before_asks_who_has_written_this_one(
    topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """Spark plans in several processes in turn, and a query may have gone on elsewhere."""
    topic = topics.create()
    options = OneTask(topics, "").options()
    (tmp_path / "metadata").write_text(json.dumps({"id": topic}), "utf-8")

    def planned_here(number: int) -> frozenset[int]:
        (tmp_path / "offsets").mkdir(exist_ok=True)
        planned = json.dumps({"batchTimestampMs": number})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{planned}\n{{}}\n", "utf-8")
        return earlier_tasks(options, Guarantee.EXACTLY_ONCE, str(tmp_path)).tasks

    assert planned_here(3) == frozenset()
    elsewhere = TaskIdentity(write_of(options, topic), task=2, number=4, run="elsewhere")
    write_exactly_once(options, elsewhere, [batch_of([(topic, "4")])])
    assert planned_here(4) == {2}


def test_a_task_that_was_written_earlier_and_is_not_there_any_more_is_refused(
    topics: ReplicatedTopics,
) -> None:
    """Before another one writes the rows that it had."""
    topic = topics.create()
    options = OneTask(topics, "").options()
    old = TaskIdentity(f"query-{topic}", task=1, number=0, run="old")
    write_exactly_once(options, old, [batch_of([(topic, "1")])])
    new = replace(old, task=0, run="now")
    passed = EarlierTasks(frozenset({1}), time.time())
    with pytest.raises(PipelineError, match=r"task 1 of micro-batch 0 .* is not run again"):
        write_exactly_once(options, new, [batch_of([(topic, "1")])], passed)
    assert OneTask(topics, "").written(topic) == [b"1"]


def test_a_topic_that_is_not_there_and_cannot_be_is_named(topics: ReplicatedTopics) -> None:
    options = OneTask(topics, "").options()
    with pytest.raises(
        PipelineError, match="a row is for the topic 'no/name', which does not exist"
    ):
        write_at_least_once(options, [batch_of([("no/name", "0")])])


def test_a_topic_that_is_not_there_is_not_waited_for(topics: ReplicatedTopics) -> None:
    """It was for a minute, by what leaves the mark."""
    began_s = time.monotonic()
    with pytest.raises(PipelineError, match="a row is for the topic 'no/name', which does not"):
        OneTask(topics, f"query-{topics.create()}").write(0, [("no/name", "0")])
    assert time.monotonic() - began_s < 30


def test_rows_may_be_as_large_as_with_the_java_client(topics: ReplicatedTopics) -> None:
    topic = topics.create()
    task = OneTask(topics, f"query-{topic}")
    task.write(0, [(topic, "x" * LARGEST_BYTES)])
    assert [len(value or b"") for value in task.written(topic)] == [LARGEST_BYTES]


@pytest.mark.parametrize("kafka", [{}, {"max_request_size": "9000000"}])
def test_a_row_that_is_too_large_names_the_settings(
    kafka: dict[str, str], topics: ReplicatedTopics
) -> None:
    """Whether the client does not send it, or the broker does not take it."""
    topic = topics.create()
    task = OneTask(topics, f"query-{topic}")
    rows = [(topic, "small"), (topic, "x" * 3_000_000)]
    said = r"kafka\.message\.max\.bytes .* max\.message\.bytes"
    with pytest.raises(PipelineError, match=said):
        task.write(0, rows, **kafka)
    with pytest.raises(PipelineError, match=said):
        write_at_least_once(task.options(**kafka), [batch_of(rows[1:])])
    task.write(0, [(topic, "other")])
    assert task.written(topic) == [b"other"]


def test_a_timestamp_that_a_topic_does_not_take_names_the_settings(
    topics: ReplicatedTopics,
) -> None:
    topic = topics.create()
    given = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "topic": topic,
        "includeTimestamp": "true",
    }
    options = sink_options(given, {"value": "string", "timestamp": "timestamp"})
    far = pa.array([4_000_000_000_000_000], pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays([pa.array(["x"]), far], names=["value", "timestamp"])
    with pytest.raises(PipelineError, match=r"message\.timestamp\.after\.max\.ms"):
        write_exactly_once(options, TaskIdentity(f"query-{topic}", 0, 0, "run"), [rows])


def test_a_timeout_that_brokers_do_not_allow_is_named_before_anything_is_written(
    topics: ReplicatedTopics,
) -> None:
    options = OneTask(topics, "query").options(transaction_timeout_ms="900001")
    with pytest.raises(PipelineError, match=r"kafka\.transaction\.timeout\.ms"):
        offered_guarantee(options)
