"""Sums a topic up, partition by partition, and says with which tidelog the tasks ran."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypedDict

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


class Summary(TypedDict):
    """Of each partition: number, count, last offset, checksum. Of each worker: what it runs."""

    partitions: list[list[int]]
    workers: list[tuple[str, str, bool]]


def summarise(spark: SparkSession, bootstrap: str, topic: str) -> Summary:
    # Within, since workers do not have this module: a task gets the function itself.
    def describe_worker(_numbers: Iterable[int]) -> Iterator[tuple[str, str, bool]]:
        import tidelog  # noqa: PLC0415 - the worker's
        from tidelog.records.compiled import compiled  # noqa: PLC0415

        yield sys.executable, tidelog.__file__, compiled is not None

    records = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
    )
    partitions = (
        records.groupBy("partition")
        .agg(f.count("*"), f.max("offset"), f.sum(f.crc32("value")))
        .orderBy("partition")
    )
    numbers = spark.sparkContext.parallelize(range(2), 2)
    return {
        "partitions": [list(row) for row in partitions.collect()],
        "workers": sorted(set(numbers.mapPartitions(describe_worker).collect())),
    }
