"""Windows of a topic: counts, sums and percentiles, and what came too late (X4)."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checkpoints import forget
from tests.support.clients import NewRecord, read_committed
from tests.support.replicated_topics import ReplicatedTopics
from tidelog.client.groups import Groups
from tidelog.pipeline.aggregate import BATCH_RECORDS, aggregate_topic, aggregated
from tidelog.pipeline.aggregation import Aggregation, Mode, Output
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.record_fields import HeaderField, JsonField, KeyField
from tidelog.pipeline.running import Outcome, Progress, RunTerms

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


def order(minute: int, key: str, amount: int | str) -> NewRecord:
    at_ms = FIRST_MS + minute * MINUTE_MS
    value = json.dumps({"amount": amount, "at": at_ms}).encode()
    return NewRecord(key.encode(), value, at_ms, (("place", key.encode()),))


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
    batch_records: int = BATCH_RECORDS,
    group: str | None = None,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    return aggregate_topic(
        spark,
        source=source,
        target=target,
        kafka={"kafka.bootstrap.servers": topics.bootstrap},
        wanted=wanted,
        terms=RunTerms(
            checkpoint=str(checkpoint),
            is_once=True,
            on_progress=on_progress,
            is_stopped=is_stopped,
        ),
        output=output,
        mode=mode,
        batch_records=batch_records,
        group=group,
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
    # Their windows are over: one of a group that had records, one of a group that had none.
    late = [*[order(3, "a", 1)] * 50, *[order(4, "c", 1)] * 5, order(16, "a", 1)]
    topics.send(source, late)
    outcome = aggregate(spark, topics, source, target, tmp_path, group=source)
    assert outcome.counts == {"late": 55, "without_time": 0, "without_number": 0}
    assert len(rows(topics, target)) == len(found) == 2
    with Groups(topics.bootstrap) as groups:
        assert [*groups.committed(source).values()] == [102 + len(late)]


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


def test_windows_may_overlap_and_be_grouped_by_a_header(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    wanted = replace(BY_KEY, slide="5 minutes", group_by=HeaderField("place"), percentiles=())

    def sums() -> dict[tuple[int, str], tuple[int, float | None]]:
        found = rows(topics, target)
        starts = [datetime.fromisoformat(each["window_start"]).timestamp() for each in found]
        return {
            (int(start - FIRST_MS / 1000) // 60, each["group"]): (each["count"], each.get("sum"))
            for start, each in zip(starts, found, strict=True)
        }

    topics.send(source, [order(1, "FR", 10), order(6, "FR", 20)])
    # A sum with one of these would be none any more.
    no_numbers = [order(7, "DE", text) for text in ("a lot", "NaN", "-Infinity")]
    topics.send(source, [*no_numbers, order(30, "FR", 1)])
    outcome = aggregate(spark, topics, source, target, tmp_path, wanted=wanted)
    assert outcome.counts == {"late": 0, "without_time": 0, "without_number": 3}
    first = {
        (-5, "FR"): (1, 10.0),
        (0, "FR"): (2, 30.0),
        (5, "FR"): (1, 20.0),
        # Counted, and not measured.
        (0, "DE"): (3, None),
        (5, "DE"): (3, None),
    }
    assert sums() == first
    # The watermark is at minute 29. At 23 one of two windows is over by then, at 26 none is.
    topics.send(source, [order(23, "FR", 3), order(26, "FR", 4), *[order(1, "FR", 1)] * 10])
    topics.send(source, [order(60, "FR", 1)])
    outcome = aggregate(spark, topics, source, target, tmp_path, wanted=wanted)
    assert outcome.counts["late"] == 11
    assert sums() == {
        **first,
        (20, "FR"): (2, 7.0),
        (25, "FR"): (2, 5.0),
        (30, "FR"): (1, 1.0),
    }


@pytest.mark.parametrize("output", [Output.TOPIC, Output.PARQUET])
def test_a_window_is_written_once_by_a_job_that_was_stopped_and_one_that_died(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path, output: Output
) -> None:
    source, folder = topics.create(), tmp_path / "rows"
    target = topics.create() if output is Output.TOPIC else str(folder)
    checkpoint = tmp_path / "checkpoint"
    seen: list[Progress] = []

    def run(is_stopped: Callable[[], bool]) -> Outcome:
        return aggregate(
            spark,
            topics,
            source,
            target,
            checkpoint,
            output=output,
            batch_records=12,
            on_progress=seen.append,
            is_stopped=is_stopped,
        )

    topics.send(source, [order(minute, "a", 1) for minute in range(60)])
    # By the third micro-batch windows are over.
    first = run(lambda: len(seen) >= 3)
    assert first.was_stopped
    assert 0 < first.row_count < 60
    # As a driver leaves it that dies when rows are written, and has not noted that down.
    if _count(checkpoint / "offsets") > _count(checkpoint / "commits"):
        forget(checkpoint, "offsets")
    forget(checkpoint, "commits")
    run(lambda: False)
    if output is Output.TOPIC:
        counts = [each["count"] for each in rows(topics, target)]
    else:
        counts = [each["count"] for each in spark.read.parquet(target).collect()]
    assert counts == [10] * 5
    wanted = replace(BY_KEY, window="7 minutes")
    with pytest.raises(OptionError, match="window was 10 minutes, and is 7 minutes now"):
        aggregate(spark, topics, source, target, checkpoint, wanted=wanted, output=output)


def _count(log: Path) -> int:
    return len([*log.glob("[0-9]*")])


def test_rows_of_a_data_frame_are_counted_in_one(spark: "SparkSession") -> None:
    at = [datetime(2025, 11, 17, 9, minute, tzinfo=UTC) for minute in (1, 2, 15)]
    records = spark.createDataFrame(
        [(b"a", b'{"amount": 3}', at[0]), (b"a", b'{"amount": 4}', at[1]), (b"b", b"", at[2])],
        "key BINARY, value BINARY, timestamp TIMESTAMP",
    )
    found = aggregated(records, replace(BY_KEY, percentiles=(50.0,)))
    assert found.columns == [
        *("window_start", "window_end", "group"),
        *("count", "sum", "min", "max", "avg", "approx_p50"),
    ]
    assert sorted(tuple(row)[2:] for row in found.collect()) == [
        ("a", 2, 7.0, 3.0, 4.0, 3.5, 3.0),
        ("b", 1, None, None, None, None, None),
    ]
