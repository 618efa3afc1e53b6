"""The same job through Spark's own Kafka source and through ours.

`TIDELOG` always works; `OFFICIAL` where the connector's jars were fetched (`lab/peers.py`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.lab.peers import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIDELOG = "tidelog"
OFFICIAL = "kafka"


def connector_settings() -> dict[str, str]:
    """For the session."""
    jars = connector_jars()
    return {"spark.jars": ",".join(map(str, jars))} if jars else {}


def why_unavailable() -> str | None:
    if connector_jars():
        return None
    return "Spark's own Kafka connector was not fetched; `make peers` does it"


class TwoSources:
    """Reads topics of one cluster through either."""

    def __init__(self, spark: "SparkSession", bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def frame(self, source: str, **options: str) -> "DataFrame":
        reader = self.spark.read.format(source).option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()

    def rows(self, source: str, **options: str) -> list[tuple[Any, ...]]:
        """Of every column, in order of topics, partitions and offsets."""
        return in_order(self.frame(source, **options))

    def stream(self, source: str, **options: str) -> "DataFrame":
        reader = self.spark.readStream.format(source)
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()


def in_order(frame: "DataFrame") -> list[tuple[Any, ...]]:
    """Every row, of topics, partitions and offsets as they follow."""
    found = [tuple(_plain(row)) for row in frame.collect()]
    topic, partition, offset = map(frame.columns.index, ("topic", "partition", "offset"))
    return sorted(found, key=lambda row: (row[topic], row[partition], row[offset]))


def _plain(row: Any) -> Iterator[Any]:
    """Bytes that can be compared."""
    for value in row:
        if isinstance(value, bytearray):
            yield bytes(value)
        elif isinstance(value, list):
            yield [tuple(_plain(one)) for one in value]
        else:
            yield value
