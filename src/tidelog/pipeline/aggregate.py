"""Counts, sums and percentiles of a topic's records in windows of time (X4).

A row for each window and group:

    window_start, window_end    of event time, in UTC
    group                       what records are grouped by, if by anything
    count                       of records
    sum, min, max, avg          of the number that is measured, if one is
    approx_p50, approx_p99      of the same, approximate as their names say: Spark's
                                `percentile_approx`, whose rank is wrong by 1 in `ACCURACY` at most

Records that come after the watermark has passed their window are late. They are in no row, and are
counted, each one (`late_records`). With windows that overlap, a record is late as soon as one of
its windows is over; it is in the rows of the others.

Records whose value is no number are in `count` and in none of the measures, and are counted too.

Written to a topic, a row is JSON with the group as key. Two ways:

    update    a row each time it has changed; who reads takes the last of each window and group
    append    a row once, when the watermark has passed the end of its window and it cannot change

Parquet files are written by `append` alone: a file cannot be taken back.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.aggregation import Aggregation, Mode, Output
from tidelog.pipeline.checkpoint_job import require_same_job
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.late_records import late_watermark_ms
from tidelog.pipeline.micro_batches import cut_by, topic_writer
from tidelog.pipeline.record_fields import as_number, as_text
from tidelog.pipeline.running import (
    Outcome,
    RunTerms,
    observed_count,
    run_stream,
    state_count,
    topic_stream,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BATCH_RECORDS: Final = 500_000
ACCURACY: Final = 10_000
OBSERVATION: Final = "tidelog_aggregate"

# To the end of the year 9999. What is beyond is no time in milliseconds, and Spark stops at it.
_TIME_MAX_MS: Final = 253_402_300_799_999
_EVENT_TIME: Final = "_tidelog_time"
_MEASURED: Final = "_tidelog_measured"
_IS_LATE: Final = "_tidelog_is_late"
_GROUP: Final = "group"


def aggregate_topic(
    spark: "SparkSession",
    *,
    source: str,
    target: str,
    kafka: Mapping[str, str],
    wanted: Aggregation,
    terms: RunTerms,
    output: Output = Output.TOPIC,
    mode: Mode = Mode.APPEND,
    batch_records: int = BATCH_RECORDS,
    group: str | None = None,
    allows_loss: bool = False,
) -> Outcome:
    """Write the rows of a topic's windows, exactly once. Raises OptionError, PipelineError.

    `group` is a consumer group that is told how far the job is, so that its lag shows.
    """
    if output is Output.PARQUET and mode is Mode.UPDATE:
        raise OptionError("rows of Parquet files cannot change: the mode has to be append")
    job = {"pipeline": "aggregate", "topic": source, "target": target, "to": output.value}
    require_same_job(terms.checkpoint, {**job, "mode": mode.value, **wanted.described()})
    records = topic_stream(
        spark,
        source,
        kafka,
        batch_records=batch_records,
        group=group,
        allows_loss=allows_loss,
    )
    watermark_ms = late_watermark_ms(spark, terms.checkpoint)
    rows = _grouped(_with_fields(records, wanted, watermark_ms), wanted)
    if output is Output.TOPIC:
        write = topic_writer(spark, {**kafka, "topic": target}, as_records, terms.checkpoint)
        writer = rows.writeStream.foreachBatch(write)
    else:
        # A file for each micro-batch that ends a window, rather than one for each of its tasks.
        writer = rows.coalesce(1).writeStream.format("parquet").option("path", target)
    return run_stream(writer.outputMode(mode.value), terms, aggregate_counts)


def aggregated(rows: "DataFrame", wanted: Aggregation) -> "DataFrame":
    """A row for each window and group; `rows` are of a stream or of a batch."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    return _grouped(_with_fields(rows, wanted, f.lit(None).cast("bigint")), wanted)


def _with_fields(
    rows: "DataFrame", wanted: Aggregation, late_watermark_ms: "Column"
) -> "DataFrame":
    """What is grouped and measured, and what is to be said of records that are in no row."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    has_no_number = f.col(_MEASURED).isNull() & f.lit(wanted.measured is not None)
    return (
        rows.withColumn(_EVENT_TIME, _event_time(wanted))
        .withColumn(_MEASURED, _measured(wanted))
        # Spark takes no subquery within `observe`.
        .withColumn(_IS_LATE, _first_window_end_us(wanted) <= late_watermark_ms * 1000)
        .observe(
            OBSERVATION,
            f.count_if(f.col(_IS_LATE)).alias("late"),
            f.count_if(f.col(_EVENT_TIME).isNull()).alias("without_time"),
            f.count_if(has_no_number).alias("without_number"),
        )
    )


def _grouped(with_fields: "DataFrame", wanted: Aggregation) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    keys: list[Column] = [f.window(_EVENT_TIME, wanted.window, wanted.slide).alias("window")]
    if wanted.group_by is not None:
        keys.append(f.coalesce(as_text(wanted.group_by), f.lit("")).alias(_GROUP))
    grouped = (
        with_fields.withWatermark(_EVENT_TIME, wanted.watermark)
        .groupBy(*keys)
        .agg(f.count(f.lit(1)).alias("count"), *_measures(wanted))
    )
    return grouped.select(
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
        *(name for name in grouped.columns if name != "window"),
    )


def as_records(rows: "DataFrame") -> "DataFrame":
    """A micro-batch of rows as what is written to a topic."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    key = f.col(_GROUP) if _GROUP in rows.columns else f.lit(None).cast("string")
    options = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
    records = rows.select(
        key.alias("key"), f.to_json(f.struct(*rows.columns), options).alias("value")
    )
    # All of one key by one task, in the same order each time.
    return cut_by(records, "key").sortWithinPartitions("key", "value")


def aggregate_counts(progress: Mapping[str, Any]) -> dict[str, int]:
    """What a progress of Spark's says of records that are in no row, or not measured."""
    return {
        # Spark's own number is of windows and groups, each of which has one at least: it is what is
        # known where tasks could not read the watermark.
        "late": max(
            observed_count(progress, OBSERVATION, "late"),
            state_count(progress, "numRowsDroppedByWatermark"),
        ),
        "without_time": observed_count(progress, OBSERVATION, "without_time"),
        "without_number": observed_count(progress, OBSERVATION, "without_number"),
    }


def percentile_name(percent: float) -> str:
    """`approx_p50`, `approx_p99_9`."""
    return f"approx_p{percent:g}".replace(".", "_")


def _event_time(wanted: Aggregation) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    if wanted.event_time is None:
        return f.timestamp_millis(_within_calendars(f.unix_millis("timestamp")))
    text = as_text(wanted.event_time)
    milliseconds = _within_calendars(text.try_cast("bigint"))
    return f.coalesce(f.timestamp_millis(milliseconds), f.try_to_timestamp(text))


def _first_window_end_us(wanted: Aggregation) -> "Column":
    """When the first of the windows that a record is in is over, in microseconds since 1970."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    at_us = f.unix_micros(f.col(_EVENT_TIME))
    length_us = _microseconds(wanted.window)
    slide_us = length_us if wanted.slide is None else _microseconds(wanted.slide)
    return at_us + slide_us - f.pmod(at_us - length_us, slide_us)


def _microseconds(duration: str) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    epoch = f.timestamp_micros(f.lit(0))
    return f.unix_micros(epoch + f.lit(duration).cast("interval"))


def _within_calendars(milliseconds: "Column") -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    return f.when(milliseconds.between(-_TIME_MAX_MS, _TIME_MAX_MS), milliseconds)


def _measured(wanted: Aggregation) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    if wanted.measured is None:
        return f.lit(None).cast("double")
    number = as_number(wanted.measured)
    # Texts such as NaN and Infinity are doubles; one of them would be the sum of its window.
    return f.when(f.abs(number) < f.lit(float("inf")), number)


def _measures(wanted: Aggregation) -> "list[Column]":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    if wanted.measured is None:
        return []
    return [
        f.sum(_MEASURED).alias("sum"),
        f.min(_MEASURED).alias("min"),
        f.max(_MEASURED).alias("max"),
        f.avg(_MEASURED).alias("avg"),
        *(
            f.percentile_approx(_MEASURED, percent / 100, ACCURACY).alias(percentile_name(percent))
            for percent in wanted.percentiles
        ),
    ]
