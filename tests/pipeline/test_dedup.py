"""Duplicates are dropped, whenever they come, and everything else is kept as it was (X4)."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import begin_earlier, forget
from tests.support.clients import NewRecord, StoredRecord, delete_records, read_committed
from tests.support.replicated_topics import ReplicatedTopics
from tidelog.pipeline.dedup import EventTime, dedup_topic, without_duplicates
from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.record_fields import HeaderField, JsonField, KeyField, RecordField
from tidelog.pipeline.running import Outcome, Progress, RunTerms, topic_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_MS = 1_763_370_000_000
MINUTE_MS = 60_000
PARTITIONS = 2
GUID = HeaderField("guid")


def record(number: int, guid: int | None, *, at_ms: int = FIRST_MS) -> NewRecord:
    headers = () if guid is None else (("guid", str(guid).encode()), ("n", str(number).encode()))
    return NewRecord(b"key", f'{{"id": {guid}}}'.encode(), at_ms + number, headers)


def dedup(
    spark: "SparkSession",
    topics: ReplicatedTopics,
    source: str,
    target: str,
    terms: RunTerms,
    *,
    field: RecordField = GUID,
    event_time: EventTime = EventTime.TIMESTAMP,
    batch_records: int = 1_000,
    allows_loss: bool = False,
) -> Outcome:
    return dedup_topic(
        spark,
        source=source,
        target=target,
        kafka={"kafka.bootstrap.servers": topics.bootstrap},
        field=field,
        watermark="10 minutes",
        terms=terms,
        event_time=event_time,
        keeps_partitions=True,
        batch_records=batch_records,
        allows_loss=allows_loss,
    )


def test_a_job_that_was_overtaken_goes_on_if_it_is_told_to(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = (topics.create(partition_count=PARTITIONS) for _ in range(2))
    terms = RunTerms(checkpoint=str(tmp_path), is_once=True)
    topics.send(source, [record(number, number) for number in range(20)], partition=0)
    dedup(spark, topics, source, target, terms)
    topics.send(source, [record(number, number) for number in range(20, 40)], partition=0)
    delete_records(topics.bootstrap, source, 0, 30)
    with pytest.raises(PipelineError, match=r"offset 20 is gone, .* set failOnDataLoss to false"):
        dedup(spark, topics, source, target, terms)
    assert dedup(spark, topics, source, target, terms, allows_loss=True).row_count == 10
    assert list(map(int, guids(read(topics, target)[0]))) == [*range(20), *range(30, 40)]


def guids(records: list[StoredRecord]) -> list[str]:
    return [dict(each.headers)["guid"].decode() for each in records]


def read(topics: ReplicatedTopics, topic: str) -> list[list[StoredRecord]]:
    return [read_committed(topics.bootstrap, topic, number) for number in range(PARTITIONS)]


def test_duplicates_are_dropped_across_micro_batches_and_restarts(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = (topics.create(partition_count=PARTITIONS) for _ in range(2))
    # 0 to 59 in both partitions; each three times, the last time after a restart.
    for partition in range(PARTITIONS):
        ids = range(partition * 30, partition * 30 + 30)
        twice = [record(number, guid) for number, guid in enumerate([*ids, *ids])]
        topics.send(source, twice, partition=partition)
    topics.send_aborted(source, record(60, 1_000))
    seen: list[Progress] = []
    first = dedup(
        spark,
        topics,
        source,
        target,
        RunTerms(
            checkpoint=str(tmp_path),
            is_once=True,
            on_progress=seen.append,
            is_stopped=lambda: bool(seen),
        ),
        batch_records=50,
    )
    assert first.was_stopped
    assert 0 < first.row_count < 120
    for partition in range(PARTITIONS):
        other = range((1 - partition) * 30, (1 - partition) * 30 + 30)
        again = [record(number, guid) for number, guid in enumerate(other)]
        topics.send(source, again, partition=partition)
    rest = dedup(spark, topics, source, target, RunTerms(checkpoint=str(tmp_path), is_once=True))
    found = read(topics, target)
    assert sorted(map(int, guids(found[0]) + guids(found[1]))) == list(range(60))
    # What was kept is in order, and as it was.
    for stored in found:
        numbers = [int(dict(each.headers)["n"]) for each in stored]
        assert numbers == sorted(numbers)
        assert [each.timestamp_ms - FIRST_MS for each in stored] == numbers
        assert {each.key for each in stored} == {b"key"}
    # The micro-batch that was broken off may be counted by nobody.
    assert rest.counts["duplicates"] <= 120
    # Ids of another kind would all be new.
    with pytest.raises(OptionError, match="id was header:guid, and is key now"):
        dedup(spark, topics, source, target, RunTerms(checkpoint=str(tmp_path)), field=KeyField())


def test_a_micro_batch_of_which_brokers_may_know_nothing_any_more_is_refused(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """As by the sink itself: begun eight days ago; offsets.retention.minutes is a week."""
    source, target = (topics.create(partition_count=PARTITIONS) for _ in range(2))
    topics.send(source, [record(number, number) for number in range(5)])
    terms = RunTerms(checkpoint=str(tmp_path), is_once=True)
    dedup(spark, topics, source, target, terms)
    begin_earlier(tmp_path, days=8)
    forget(tmp_path, "commits")
    with pytest.raises(PipelineError, match=r"micro-batch \d+ of .* was begun 11,52\d minutes ago"):
        dedup(spark, topics, source, target, terms)
    assert len(read(topics, target)[0]) == 5


def test_ids_of_a_data_frame_are_forgotten_when_the_watermark_has_passed(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """However long a job goes on, it keeps those of the watermark and of one micro-batch."""
    hours, ids = 5, 10
    source = topics.create()
    for hour in range(hours):
        at_ms = FIRST_MS + hour * 60 * MINUTE_MS
        records = [record(n, hour * ids + n, at_ms=at_ms) for n in range(ids)]
        # The last of each is there twice.
        topics.send(source, [*records, records[-1]])
    kafka = {"kafka.bootstrap.servers": topics.bootstrap}
    rows = topic_stream(spark, source, kafka, batch_records=ids + 1, group=None, allows_loss=False)
    unique = without_duplicates(rows, GUID, watermark="10 minutes")
    assert unique.columns == rows.columns
    written: list[int] = []
    query = (
        unique.writeStream.foreachBatch(lambda frame, _number: written.append(frame.count()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    operators = [json.loads(each.json)["stateOperators"] for each in query.recentProgress]
    kept = [operator["numRowsTotal"] for [operator] in operators]
    assert written == [ids] * hours + [0]
    assert kept == [ids, *[2 * ids] * (hours - 1), ids]


def test_records_without_an_id_are_kept(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = (topics.create(partition_count=PARTITIONS) for _ in range(2))
    topics.send(source, [record(1, 7), record(2, None), record(3, None), record(4, 7)])
    terms = RunTerms(checkpoint=str(tmp_path), is_once=True)
    outcome = dedup(spark, topics, source, target, terms)
    assert outcome.counts == {"duplicates": 1, "late": 0, "without_id": 2}
    found = read(topics, target)[0]
    assert [each.timestamp_ms - FIRST_MS for each in found] == [1, 2, 3]


@pytest.mark.parametrize(
    ("event_time", "kept", "late"), [(EventTime.TIMESTAMP, 2, 1), (EventTime.ARRIVAL, 3, 0)]
)
def test_what_is_older_than_the_watermark_is_late(
    spark: "SparkSession",
    topics: ReplicatedTopics,
    tmp_path: Path,
    event_time: EventTime,
    kept: int,
    late: int,
) -> None:
    """By timestamps it is dropped and counted; by arrival nothing is late."""
    source, target = (topics.create(partition_count=PARTITIONS) for _ in range(2))
    terms = RunTerms(checkpoint=str(tmp_path), is_once=True)
    topics.send(source, [record(1, 1), record(2, 2, at_ms=FIRST_MS + 60 * MINUTE_MS)])
    dedup(spark, topics, source, target, terms, event_time=event_time)
    topics.send(source, [record(3, 3)])
    outcome = dedup(spark, topics, source, target, terms, event_time=event_time)
    assert outcome.counts["late"] == late
    assert len(read(topics, target)[0]) == kept


def test_an_id_may_be_in_the_value(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = (topics.create(partition_count=PARTITIONS) for _ in range(2))
    topics.send(source, [record(number, number % 3) for number in range(9)])
    terms = RunTerms(checkpoint=str(tmp_path), is_once=True)
    outcome = dedup(spark, topics, source, target, terms, field=JsonField("$.id"))
    assert outcome.counts["duplicates"] == 6
    assert guids(read(topics, target)[0]) == ["0", "1", "2"]


def test_a_topic_that_is_not_there_is_said_in_a_sentence(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    terms = RunTerms(checkpoint=str(tmp_path), is_once=True)
    with pytest.raises(PipelineError, match="nowhere") as caught:
        dedup(spark, topics, "nowhere", "target", terms)
    assert "\n" not in str(caught.value)
