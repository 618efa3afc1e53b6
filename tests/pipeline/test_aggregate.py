"""Windows of a topic: counts, sums and percentiles, and what came too late (X4)."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clients import NewRecord, read_committed
from tests.support.replicated_topics import ReplicatedTopics
from tidelog.pipeline.aggregate import aggregate_topic
from tidelog.pipeline.aggregation import Aggregation, Mode, Output
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.record_fields import JsonField, KeyField
from tidelog.pipeline.running import Outcome, RunTerms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_MS = 1_763_370_000_000  # 2025-11-17T09:00:00Z
LAST_MS = (1 << 63) - 1
MINUTE_MS = 60_000
BY_KEY = Aggregation(
    window="10 minutes",
    slide=None,
    watermark="1 minute",
    group_by=KeyField(),
    measured=JsonField("$.amount"),
    event_time=None,
    percentiles=(50.0, 99.0),
)


def order(minute: int, key: str, amount: int) -> NewRecord:
    at_ms = FIRST_MS + minute * MINUTE_MS
    value = json.dumps({"amount": amount, "at": at_ms}).encode()
    return NewRecord(key.encode(), value, at_ms, ())


def aggregate(
    spark: "SparkSession",
    topics: ReplicatedTopics,
    source: str,
    target: str,
    checkpoint: Path,
    *,
    wanted: Aggregation = BY_KEY,
    output: Output = Output.TOPIC,
    mode: Mode = Mode.APPEND,
) -> Outcome:
    return aggregate_topic(
        spark,
        source=source,
        target=target,
        kafka={"kafka.bootstrap.servers": topics.bootstrap},
        wanted=wanted,
        terms=RunTerms(checkpoint=str(checkpoint), is_once=True),
        output=output,
        mode=mode,
    )


def rows(topics: ReplicatedTopics, topic: str) -> list[dict[str, Any]]:
    return [
        json.loads(record.value or b"") for record in read_committed(topics.bootstrap, topic, 0)
    ]


def test_a_window_is_written_once_when_it_is_over_and_late_records_are_counted(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    topics.send(source, [order(1, "a", amount) for amount in range(1, 101)])
    topics.send(source, [order(2, "b", 7), order(15, "a", 1)])
    assert aggregate(spark, topics, source, target, tmp_path).counts["late"] == 0
    window = {
        "window_start": "2025-11-17T09:00:00.000Z",
        "window_end": "2025-11-17T09:10:00.000Z",
    }
    found = rows(topics, target)
    assert [each for each in found if each["group"] == "a"] == [
        {
            **window,
            **{"group": "a", "count": 100, "sum": 5050.0, "min": 1.0, "max": 100.0, "avg": 50.5},
            **{"approx_p50": 50.0, "approx_p99": 99.0},
        }
    ]
    assert [each["count"] for each in found if each["group"] == "b"] == [1]
    # Its window is over.
    topics.send(source, [order(3, "a", 1)])
    assert aggregate(spark, topics, source, target, tmp_path).counts["late"] == 1
    assert len(rows(topics, target)) == len(found) == 2


def test_a_window_is_written_each_time_it_changes(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source = topics.create(config={"message.timestamp.after.max.ms": str(LAST_MS)})
    target = topics.create()
    # Of a time that no calendar has: it is in no window, and ends no job.
    topics.send(source, [NewRecord(b"a", b"{}", LAST_MS, ())])
    for amount, without_time in ((3, 1), (4, 0)):
        topics.send(source, [order(1, "a", amount)])
        outcome = aggregate(spark, topics, source, target, tmp_path, mode=Mode.UPDATE)
        assert outcome.counts["without_time"] == without_time
    assert [(each["count"], each["sum"]) for each in rows(topics, target)] == [(1, 3.0), (2, 7.0)]


def test_rows_become_parquet_and_time_may_be_a_field(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = topics.create(), tmp_path / "rows"
    wanted = Aggregation(
        window="10 minutes",
        slide=None,
        watermark="0 seconds",
        group_by=None,
        measured=None,
        event_time=JsonField("$.at"),
        percentiles=(),
    )
    # None, and those of another unit: nanoseconds are beyond all calendars.
    without_time = [
        NewRecord(None, value, FIRST_MS, ())
        for value in (b"{}", b'{"at": 1763370000000000000}', b'{"at": -9223372036854775808}')
    ]
    topics.send(source, [order(1, "a", 1), order(2, "b", 1), order(12, "c", 1), *without_time])
    outcome = aggregate(
        spark,
        topics,
        source,
        str(target),
        tmp_path / "checkpoint",
        wanted=wanted,
        output=Output.PARQUET,
    )
    assert outcome.counts["without_time"] == 3
    [row] = spark.read.parquet(str(target)).collect()
    assert (row["window_start"].timestamp(), row["count"]) == (FIRST_MS / 1000, 2)


def test_rows_of_files_cannot_change(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match="the mode has to be append"):
        aggregate(spark, topics, "source", "x", tmp_path, output=Output.PARQUET, mode=Mode.UPDATE)
