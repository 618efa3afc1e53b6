"""Drops records whose id was there before, within a time (X4).

    record 1   id a  ──▶ kept
    record 2   id b  ──▶ kept
    record 3   id a  ──▶ dropped: a duplicate, counted
    record 4   no id ──▶ kept: nobody can say of what it would be a duplicate, counted
    record 5   older than the watermark ──▶ dropped: its id may be forgotten already, counted

Spark remembers an id for `watermark` of event time, which is what bounds the state. Event time is
the timestamp of a record, or with `arrival` the time at which it was read. By arrival no record is
ever late, and the watermark says how long apart two reads of the same id may be. By timestamps it
says how far apart those may be, and how much out of order a topic may be without loss: the youngest
record of all partitions decides, so give it more than partitions lag behind each other.

What is kept is written as it was - key, value, headers, timestamp, its partition on request - and
in the order of each partition.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.checkpoint_job import require_same_job
from tidelog.pipeline.micro_batches import cut_by, topic_writer
from tidelog.pipeline.record_fields import RecordField, as_bytes
from tidelog.pipeline.running import (
    Outcome,
    RunTerms,
    observed_count,
    run_stream,
    state_count,
    topic_stream,
)
from tidelog.pipeline.target_topic import partition_count, require_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_RECORDS: Final = 200_000
OBSERVATION: Final = "tidelog_dedup"

_ID: Final = "_tidelog_id"
_EVENT_TIME: Final = "_tidelog_time"


class EventTime(Enum):
    """By which an id is forgotten."""

    TIMESTAMP = "timestamp"
    ARRIVAL = "arrival"


def dedup_topic(
    spark: "SparkSession",
    *,
    source: str,
    target: str,
    kafka: Mapping[str, str],
    field: RecordField,
    watermark: str,
    terms: RunTerms,
    event_time: EventTime = EventTime.TIMESTAMP,
    keeps_partitions: bool = False,
    batch_records: int = BATCH_RECORDS,
    group: str | None = None,
    allows_loss: bool = False,
) -> Outcome:
    """Copy a topic without its duplicates, exactly once. Raises PipelineError, ClientError.

    `kafka` are options of the source and the sink: `kafka.bootstrap.servers` and the like. `group`
    is a consumer group that is told how far the job is, so that its lag shows.
    """
    if keeps_partitions:
        count = partition_count(kafka, source)
        require_partitions(kafka, target, count, otherwise="do without --keep-partitions")
    job = {"pipeline": "dedup", "topic": source, "target": target}
    require_same_job(terms.checkpoint, {**job, "id": str(field), "time": event_time.value})
    rows = topic_stream(
        spark,
        source,
        kafka,
        batch_records=batch_records,
        group=group,
        allows_loss=allows_loss,
    )
    unique = without_duplicates(rows, field, watermark=watermark, event_time=event_time)
    write = topic_writer(
        spark,
        {**kafka, "topic": target, "includeTimestamp": "true"},
        lambda batch: in_order(batch, keeps_partitions=keeps_partitions),
        terms.checkpoint,
    )
    return run_stream(unique.writeStream.foreachBatch(write), terms, dedup_counts)


def without_duplicates(
    rows: "DataFrame",
    field: RecordField,
    *,
    watermark: str,
    event_time: EventTime = EventTime.TIMESTAMP,
) -> "DataFrame":
    """The first record of each id, and all without one; a stream, with the columns of `rows`.

    `watermark` is a duration in Spark's words, such as `10 minutes`.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    found = as_bytes(field)
    # Nothing else is like it: the place of a record without an id.
    place = f.concat_ws("-", f.lit("offset"), "partition", "offset")
    # The first letter keeps an id apart from a place that looks the same.
    identity = f.coalesce(f.concat(f.lit("="), f.base64(found)), place)
    moment = f.col("timestamp") if event_time is EventTime.TIMESTAMP else f.current_timestamp()
    return (
        rows.withColumn(_ID, identity)
        .withColumn(_EVENT_TIME, moment)
        .observe(OBSERVATION, f.count_if(found.isNull()).alias("without_id"))
        .withWatermark(_EVENT_TIME, watermark)
        .dropDuplicatesWithinWatermark([_ID])
        .drop(_ID, _EVENT_TIME)
    )


def in_order(rows: "DataFrame", *, keeps_partitions: bool) -> "DataFrame":
    """A micro-batch as it is written: each partition by one task, by offsets."""
    columns = ["key", "value", "headers", "timestamp"]
    ordered = cut_by(rows, "partition").sortWithinPartitions("partition", "offset")
    return ordered.select(*columns, "partition") if keeps_partitions else ordered.select(*columns)


def dedup_counts(progress: Mapping[str, Any]) -> dict[str, int]:
    """What a progress of Spark's says of duplicates."""
    return {
        "duplicates": state_count(progress, "numDroppedDuplicateRows"),
        "late": state_count(progress, "numRowsDroppedByWatermark"),
        "without_id": observed_count(progress, OBSERVATION, "without_id"),
    }
