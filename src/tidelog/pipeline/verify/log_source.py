"""The log that is judged: topics of a cluster, or folders of segments.

Both are read as they are when the job is planned, which is after the ledger was listed. So a ledger
and a log are judged when producers are done: what they send meanwhile is in one and not the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.registration import FORMAT
from tidelog.pipeline.segments import (
    PartitionFolder,
    choose_replicas,
    find_partitions,
    holds_segments,
    readable_range,
)
from tidelog.pipeline.source_cluster import SourceCluster
from tidelog.pipeline.source_options import batch_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ALWAYS: Final = {
    "includeHeaders": "true",
    # Of an aborted transaction nobody was told that it is there.
    "kafka.isolation.level": "read_committed",
}


@dataclass(frozen=True, slots=True)
class JudgedLog:
    """Rows, and where each partition begins."""

    rows: "DataFrame"
    starts: Mapping[TopicPartition, int]


def topics_log(spark: "SparkSession", topics: Sequence[str], kafka: Mapping[str, str]) -> JudgedLog:
    """Topics of the cluster that `kafka.bootstrap.servers` names. Raises OptionError."""
    options = {**_ALWAYS, **kafka, "subscribe": ",".join(topics)}
    cluster = SourceCluster(batch_options(options))
    starts = cluster.starts(cluster.partitions())
    return JudgedLog(spark.read.format(FORMAT).options(**options).load(), starts)


def folders_log(
    spark: "SparkSession", paths: Sequence[str], topics: Sequence[str] | None
) -> JudgedLog:
    """What segment folders hold, of one replica of each partition. Raises OptionError."""
    # Records of segments that are missing are lost, and that is for the report to say.
    options = {**_ALWAYS, "path": ",".join(paths), "failOnDataLoss": "false"}
    if topics:
        options["subscribe"] = ",".join(topics)
    chosen = choose_replicas(find_partitions(paths, topics=topics or None))
    starts = {each.partition: _start(each) for each in chosen}
    return JudgedLog(spark.read.format(FORMAT).options(**options).load(), starts)


def _start(folder: PartitionFolder) -> int:
    if not holds_segments(folder.path):
        return folder.log_start_offset
    return readable_range(folder, is_beyond_high_watermark=False).start_offset
