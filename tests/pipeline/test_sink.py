"""`df.write.format("tidelog")` and `writeStream`: every row once, whatever is run again (X2)."""

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import begin_earlier, forget
from tests.support.clients import NewRecord, read_committed
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.two_sources import OFFICIAL, TIDELOG, TwoSources, why_unavailable
from tidelog.client.groups import Groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WITHIN_S = 60
AT_MS = 1_700_000_000_000
COLUMNS = "key BINARY, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, n INT"


@pytest.fixture(scope="module")
def sources(spark: "SparkSession", topics: ReplicatedTopics) -> TwoSources:
    return TwoSources(spark, topics.bootstrap)


@pytest.fixture(scope="module")
def frame(spark: "SparkSession") -> "DataFrame":
    rows = [
        (
            None if number % 10 == 9 else b"key %d" % (number % 17),
            None if number % 10 == 8 else f"value {number}",
            [("guid", b"%d" % number), ("none", None)] if number % 2 else None,
            number,
        )
        for number in range(200)
    ]
    return spark.createDataFrame(rows, COLUMNS)


def write(frame: "DataFrame", sink: str, bootstrap: str, **options: str) -> None:
    writer = frame.write.format(sink).mode("append").option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
def test_rows_are_where_sparks_own_sink_puts_them(
    frame: "DataFrame", sources: TwoSources, topics: ReplicatedTopics
) -> None:
    """Keys in the same partitions, headers and nulls as they are."""
    found = []
    for sink in (TIDELOG, OFFICIAL):
        topic = topics.create(partition_count=5)
        write(frame, sink, topics.bootstrap, topic=topic)
        read = sources.rows(
            TIDELOG,
            subscribe=topic,
            includeHeaders="true",
            **{"kafka.isolation.level": "read_committed"},
        )
        assert len(read) == 200
        keyed = [(row[3], row[0], row[1], row[7]) for row in read if row[0] is not None]
        found.append(sorted(map(repr, keyed)))
    assert found[0] == found[1]


def test_topic_and_partition_may_be_columns(
    frame: "DataFrame", sources: TwoSources, topics: ReplicatedTopics
) -> None:
    topic = topics.create(partition_count=3)
    placed = frame.selectExpr("value", f"'{topic}' AS topic", "n % 3 AS partition", "n")
    write(placed, TIDELOG, topics.bootstrap)
    found = sources.rows(TIDELOG, subscribe=topic)
    by_partition = {number: [row[1] for row in found if row[3] == number] for number in range(3)}
    for number in range(3):
        expected = {f"value {n}" for n in range(200) if n % 3 == number and n % 10 != 8}
        assert {value.decode() for value in by_partition[number] if value} == expected


def test_a_partition_that_is_not_there_is_named(
    frame: "DataFrame", topics: ReplicatedTopics
) -> None:
    topic = topics.create()
    placed = frame.selectExpr("value", "7 AS partition")
    with pytest.raises(Exception, match=f"a row has partition 7, which {topic} does not have"):
        write(placed, TIDELOG, topics.bootstrap, topic=topic)
    assert read_committed(topics.bootstrap, topic, 0) == []


def test_timestamps_are_kept_if_asked_for(
    frame: "DataFrame", sources: TwoSources, topics: ReplicatedTopics
) -> None:
    topic = topics.create()
    timed = frame.selectExpr("value", f"timestamp_millis({AT_MS} + n) AS timestamp")
    write(timed, TIDELOG, topics.bootstrap, topic=topic, includeTimestamp="true")
    found = sources.rows(TIDELOG, subscribe=topic)
    times = sorted(round(row[5].timestamp() * 1000) - AT_MS for row in found)
    assert times == [*range(200)]


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["n"], {}, "no column value"),
        (["n AS value"], {}, "the column value is of type int"),
        (["value"], {"topic": ""}, "topic is empty"),
        (["value"], {"deliveryGuarantee": "never"}, "deliveryGuarantee is 'never'"),
        (["value"], {"kafka.acks": "0"}, "kafka.acks is 0, but to write exactly once"),
    ],
)
def test_what_cannot_be_written_is_named_before_anything_is(
    columns: list[str],
    options: dict[str, str],
    said: str,
    frame: "DataFrame",
    topics: ReplicatedTopics,
) -> None:
    with pytest.raises(Exception, match=said):
        write(
            frame.selectExpr(*columns), TIDELOG, topics.bootstrap, **{"topic": "unused", **options}
        )


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
def test_a_batch_without_a_mode_is_refused_before_anything_is_written(
    frame: "DataFrame", topics: ReplicatedTopics
) -> None:
    """By Spark, of every sink in Python; what its own takes that for is in docs/pipeline.md."""
    topic = topics.create()
    writers = {
        sink: frame.select("value")
        .write.format(sink)
        .options(**{"kafka.bootstrap.servers": topics.bootstrap, "topic": topic})
        for sink in (TIDELOG, OFFICIAL)
    }
    with pytest.raises(Exception, match='cannot be written in the "ErrorIfExists" mode'):
        writers[TIDELOG].save()
    assert read_committed(topics.bootstrap, topic, 0) == []
    writers[OFFICIAL].save()
    assert len(read_committed(topics.bootstrap, topic, 0)) == 200


def test_a_wrong_option_of_a_written_stream_is_named(copies: "Copies") -> None:
    copies.fill(1)
    with pytest.raises(Exception, match="OptionError: deliveryGuarantee is 'never'") as told:
        copies.run(guarantee="never")
    assert "Traceback" not in str(told.value)


def test_a_batch_leaves_no_groups_behind(frame: "DataFrame", topics: ReplicatedTopics) -> None:
    topic = topics.create()
    options = {"topic": topic, "transactionalIdPrefix": topic}
    write(frame.select("value").repartition(2), TIDELOG, topics.bootstrap, **options)
    assert len(read_committed(topics.bootstrap, topic, 0)) == 200
    with Groups(topics.bootstrap) as groups:
        left = [each.group_id for each in groups.listings() if topic in each.group_id]
    assert left == []


class Copies:
    """A stream from one topic to another."""

    def __init__(self, sources: TwoSources, topics: ReplicatedTopics, checkpoint: Path) -> None:
        self.sources = sources
        self.topics = topics
        self.checkpoint = checkpoint
        self.place = {"checkpointLocation": str(checkpoint)}
        self.input = topics.create(partition_count=2)
        self.output = topics.create(partition_count=2)
        self.sent = 0

    def fill(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            record = NewRecord(None, b"%d" % number, AT_MS, ())
            self.topics.send(self.input, [record], partition=number % 2)
        self.sent += count

    def run(self, *, where: str = "true", guarantee: str | None = None, **options: str) -> None:
        """Until all that is available was copied."""
        writing = {} if guarantee is None else {"deliveryGuarantee": guarantee}
        read = {"subscribe": self.input, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
        query = (
            self.sources.stream(TIDELOG, **{**read, **options})
            .where(where)
            .select("key", "value")
            .writeStream.format("tidelog")
            .option("kafka.bootstrap.servers", self.topics.bootstrap)
            .option("topic", self.output)
            .options(**self.place)
            .options(**writing)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(WITHIN_S)
        assert not query.isActive

    def copied(self) -> Counter[int]:
        found = [
            record
            for partition in range(2)
            for record in read_committed(self.topics.bootstrap, self.output, partition)
        ]
        return Counter(int(record.value or b"") for record in found)

    def expected(self) -> Counter[int]:
        return Counter(range(self.sent))


@pytest.fixture
def copies(sources: TwoSources, topics: ReplicatedTopics, tmp_path: Path) -> Copies:
    return Copies(sources, topics, tmp_path / "checkpoint")


def test_a_micro_batch_that_is_run_again_is_not_written_again(copies: Copies) -> None:
    copies.fill(20)
    copies.run()
    assert copies.copied() == copies.expected()
    forget(copies.checkpoint, "commits")
    copies.run()
    assert copies.copied() == copies.expected()
    copies.fill(4)
    forget(copies.checkpoint, "commits")
    copies.run()
    assert copies.copied() == copies.expected()


def test_rows_that_were_cut_in_another_way_are_refused(copies: Copies) -> None:
    """Rather than written twice. Both of the tasks that there are now have written others."""
    copies.fill(12)
    copies.run(maxOffsetsPerTrigger="100", minPartitions="6")
    forget(copies.checkpoint, "commits")
    with pytest.raises(Exception, match="was written before with 2 rows") as refused:
        copies.run(maxOffsetsPerTrigger="100")
    assert "minPartitions" in str(refused.value)
    assert copies.copied() == copies.expected()
    copies.run(maxOffsetsPerTrigger="100", minPartitions="6")
    assert copies.copied() == copies.expected()


def test_rows_of_more_tasks_than_before_are_refused_before_any_is_written(copies: Copies) -> None:
    """Of the two tasks the second was written; the first of six has rows and no mark."""
    copies.fill(12)
    second = {"where": "partition = 1", "maxOffsetsPerTrigger": "100"}
    copies.run(**second)
    written = copies.copied()
    assert sum(written.values()) == 6
    forget(copies.checkpoint, "commits")
    with pytest.raises(Exception, match="task 1 of micro-batch 0 was written before with 6 rows"):
        copies.run(maxOffsetsPerTrigger="100", minPartitions="6")
    assert copies.copied() == written
    copies.run(maxOffsetsPerTrigger="100")
    assert copies.copied() == copies.expected()


def test_as_many_other_rows_are_refused(copies: Copies) -> None:
    """Of the same size as those that were written."""
    copies.fill(8)
    copies.run(where="value IN ('0', '1', '2')")
    forget(copies.checkpoint, "commits")
    with pytest.raises(Exception, match="and now has as many, but others"):
        copies.run(where="value IN ('4', '5', '6')")
    assert copies.copied() == Counter((0, 1, 2))


@pytest.fixture
def untold(spark: "SparkSession", copies: Copies) -> Iterator[Copies]:
    """With a checkpoint that the sink is not told of."""
    name = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(name, str(copies.checkpoint.parent))
    copies.place = {"queryName": copies.checkpoint.name}
    yield copies
    spark.conf.unset(name)


def test_rows_of_tasks_that_are_not_there_any_more_are_reported(untold: Copies) -> None:
    """Task 5 of 6 was written; of the 2 tasks now, none asks for it."""
    copies = untold
    copies.fill(12)
    written = {"where": "value IN ('9', '11')", "maxOffsetsPerTrigger": "100"}
    copies.run(**written, minPartitions="6")
    assert copies.copied() == Counter((9, 11))
    forget(copies.checkpoint, "commits")
    said = "2 rows of micro-batch 0 are written twice: it has 2 tasks now, and task 5 was written"
    with pytest.raises(Exception, match=said) as reported:
        copies.run(**written)
    [group] = re.findall(r"delete the group (\S+-5)", str(reported.value))
    with pytest.raises(Exception, match=said):
        copies.run(**written)
    with Groups(copies.topics.bootstrap) as groups:
        groups.delete(group)
    copies.run(**written)
    assert copies.copied() == Counter((9, 11, 9, 11))


def test_a_micro_batch_of_which_brokers_may_know_nothing_any_more_is_refused(
    copies: Copies,
) -> None:
    """Begun eight days ago; offsets.retention.minutes is a week. Until somebody says otherwise."""
    copies.fill(4)
    copies.run()
    begin_earlier(copies.checkpoint, days=8)
    copies.run()  # It is done: when it was begun does not matter.
    forget(copies.checkpoint, "commits")
    with pytest.raises(Exception, match=r"micro-batch 0 of .* was begun 11,52\d minutes ago"):
        copies.run()
    assert copies.copied() == copies.expected()
    copies.run(guarantee="at-least-once")
    assert copies.copied() == copies.expected() + copies.expected()


def test_a_query_that_begins_anew_writes_anew(copies: Copies) -> None:
    """Another checkpoint is another query: it is not taken for the one before."""
    copies.fill(6)
    copies.run()
    shutil.rmtree(copies.checkpoint)
    copies.run()
    assert copies.copied() == copies.expected() + copies.expected()


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
def test_sparks_own_source_and_sink_stream_through_us(
    sources: TwoSources, topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """X3: read and write."""
    topic, output = topics.create(partition_count=2), topics.create(partition_count=2)
    for partition in range(2):
        sent = [NewRecord(b"%d" % n, b"%d" % n, AT_MS, ()) for n in range(50)]
        topics.send(topic, sent, partition=partition)
    query = (
        sources.stream(OFFICIAL, subscribe=topic, startingOffsets="earliest")
        .select("key", "value")
        .writeStream.format(OFFICIAL)
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", output)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(WITHIN_S)
    found = sources.rows(TIDELOG, subscribe=output)
    assert Counter(row[1] for row in found) == Counter({b"%d" % n: 2 for n in range(50)})
