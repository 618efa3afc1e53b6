"""Ledger and log brought together by id, and what is wrong with each id.

    ledger ──▶ lines ──┐
                       ├─ shuffled by topic and id ──▶ one row for each id ──▶ flags
    log ────▶ rows ────┘                                      │
                                        shuffled by producer and partition ──▶ is it in order?

Numbers alone are aggregated, partition and offset as one (`place_column`), so that Spark keeps them
in hash tables that it can spill. Nothing but a handful of rows reaches the driver.
"""

from collections.abc import Mapping
from enum import IntFlag
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.record_fields import RecordField, as_bytes
from tidelog.pipeline.verify.columns import (
    checksum_column,
    offset_of,
    partition_of,
    place_column,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Flag(IntFlag):
    """What is to be said about an id. Several may be true of one."""

    LOST = 1
    DUPLICATED = 2
    REORDERED = 4
    ALTERED = 8
    MOVED = 16
    UNEXPECTED = 32
    EXPIRED = 64
    UNACKNOWLEDGED = 128
    UNREADABLE = 256


# Windows of rows that are not judged by their order: they go anywhere.
_UNORDERED_WINDOWS: Final = 64


def match(
    ledger: "DataFrame",
    log: "DataFrame",
    *,
    id_field: RecordField,
    log_starts: Mapping[TopicPartition, int],
) -> "DataFrame":
    """A row for each id: `topic, partition, offset, id, copies, is_acknowledged, flags` and where
    it is and was said to be."""
    by_id = _aggregated(_noted(ledger).unionByName(_stored(log, id_field)))
    return _flagged(_with_order(_with_starts(by_id, log_starts)))


def _noted(ledger: "DataFrame") -> "DataFrame":
    nothing = F.lit(None).cast("long")
    return ledger.select(
        "topic",
        "id",
        F.lit(-1).alias("lone_partition"),
        F.lit(1).cast("long").alias("noted"),
        place_column(F.col("partition"), F.col("offset")).alias("told_place"),
        F.col("crc32").alias("noted_crc"),
        F.xxhash64("topic", "producer").alias("producer"),
        F.when(F.col("producer").isNotNull(), F.col("number")).alias("number"),
        nothing.alias("place"),
        nothing.alias("crc"),
    ).withColumn("producer", F.when(F.col("number").isNotNull(), F.col("producer")))


def _stored(log: "DataFrame", id_field: RecordField) -> "DataFrame":
    nothing = F.lit(None).cast("long")
    record_id = as_bytes(id_field)
    return log.select(
        "topic",
        record_id.alias("id"),
        # Records without an id have nothing to do with each other.
        F.when(record_id.isNull(), F.col("partition")).otherwise(-1).alias("lone_partition"),
        F.lit(0).cast("long").alias("noted"),
        nothing.alias("told_place"),
        nothing.alias("noted_crc"),
        nothing.alias("producer"),
        nothing.alias("number"),
        place_column(F.col("partition"), F.col("offset")).alias("place"),
        checksum_column().alias("crc"),
    )


def _aggregated(rows: "DataFrame") -> "DataFrame":
    extremes = [
        extreme(name).alias(f"{prefix}_{name}")
        for name in ("told_place", "noted_crc", "producer", "number", "place", "crc")
        for prefix, extreme in (("first", F.min), ("last", F.max))
    ]
    # Shuffled first: ids differ, so nothing would come of adding up before.
    keys = ("topic", "id", "lone_partition")
    return (
        rows.repartition(*keys)
        .groupBy(*keys)
        .agg(F.sum("noted").alias("noted"), F.count("place").alias("copies"), *extremes)
    )


def _with_starts(by_id: "DataFrame", log_starts: Mapping[TopicPartition, int]) -> "DataFrame":
    starts = [(each.topic, each.partition, start) for each, start in log_starts.items() if start]
    told_partition = partition_of(F.col("last_told_place"))
    if not starts:
        return by_id.withColumn("start_offset", F.lit(0).cast("long"))
    known = by_id.sparkSession.createDataFrame(
        starts, "start_topic STRING, start_partition INT, start_offset BIGINT"
    )
    is_same = (F.col("topic") == F.col("start_topic")) & (
        told_partition == F.col("start_partition")
    )
    return by_id.join(F.broadcast(known), is_same, "left").drop("start_topic", "start_partition")


def _with_order(by_id: "DataFrame") -> "DataFrame":
    """With `is_behind`: a record that the same producer sent later is before it."""
    has_order = (
        F.col("first_told_place").isNotNull()
        & (F.col("copies") > 0)
        & (F.col("first_number") == F.col("last_number"))
        & (F.col("first_producer") == F.col("last_producer"))
    )
    number = F.when(has_order, F.col("first_number"))
    elsewhere = F.pmod(F.xxhash64("id"), F.lit(_UNORDERED_WINDOWS))
    before = (
        Window.partitionBy(
            "topic",
            F.coalesce(partition_of(F.col("first_place")), F.lit(-1)),
            F.when(has_order, F.col("first_producer")).otherwise(elsewhere),
        )
        .orderBy("first_place")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    latest_before = F.max(number).over(before)
    return by_id.withColumn("is_behind", F.coalesce(number < latest_before, F.lit(False)))


def _flagged(rows: "DataFrame") -> "DataFrame":
    is_there, is_told = F.col("copies") > 0, F.col("first_told_place").isNotNull()
    is_line = F.col("topic").isNotNull() & (F.col("id").isNotNull() | is_there)
    is_expired = offset_of(F.col("last_told_place")) < F.coalesce("start_offset", F.lit(0))
    conditions = {
        Flag.LOST: is_told & ~is_there & ~is_expired,
        Flag.EXPIRED: is_told & ~is_there & is_expired,
        Flag.DUPLICATED: (F.col("copies") > 1) & F.col("id").isNotNull(),
        Flag.REORDERED: F.col("is_behind"),
        Flag.ALTERED: is_there & (_is_other("first_crc") | _is_other("last_crc")),
        Flag.MOVED: is_told & is_there & _is_elsewhere(),
        Flag.UNEXPECTED: is_there & (F.col("noted") == 0),
        Flag.UNACKNOWLEDGED: (F.col("noted") > 0) & ~is_told,
    }
    flags: Column = F.lit(0)
    for flag, condition in conditions.items():
        flags = flags + F.when(is_line & condition, int(flag)).otherwise(0)
    place = F.coalesce("first_place", "last_told_place")
    return rows.select(
        "topic",
        partition_of(place).alias("partition"),
        offset_of(place).alias("offset"),
        "id",
        "copies",
        "noted",
        is_told.alias("is_acknowledged"),
        F.when(is_line, flags).otherwise(int(Flag.UNREADABLE)).alias("flags"),
        "first_place",
        "last_place",
        "first_told_place",
        "last_told_place",
        "first_crc",
        "first_noted_crc",
    )


def _is_other(crc: str) -> "Column":
    """Whether a checksum is none of those that were sent under that id."""
    return (F.col(crc) != F.col("first_noted_crc")) & (F.col(crc) != F.col("last_noted_crc"))


def _is_elsewhere() -> "Column":
    """Whether what was told first cannot be true.

    Of more than two copies it is not known where those in between are.
    """
    told = F.col("first_told_place")
    is_outside = (told < F.col("first_place")) | (told > F.col("last_place"))
    is_between = (told > F.col("first_place")) & (told < F.col("last_place"))
    return is_outside | (is_between & (F.col("copies") == 2))
