"""Everything that there is for topics, in one session; prints what came of it.

Arguments: master, bootstrap, topic, a folder; in JSON, the topics to write to (`Targets`) and what
is to be verified (`Verified`).
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from pyspark.sql import SparkSession

from tests.pipeline.jobs.killed_workers import Killed, copy_under_kill
from tests.pipeline.jobs.topic_summary import Summary, summarise
from tests.support.spark_job import SETTINGS
from tidelog.pipeline.aggregate import aggregate_topic
from tidelog.pipeline.aggregation import Aggregation, Mode, Output
from tidelog.pipeline.archive.archiver import ArchiveSettings
from tidelog.pipeline.archive.running import archive_topic
from tidelog.pipeline.dedup import dedup_topic
from tidelog.pipeline.record_fields import HeaderField
from tidelog.pipeline.replay import Replay, replay_archive
from tidelog.pipeline.running import RunTerms
from tidelog.pipeline.session import spark_session
from tidelog.pipeline.verify import compare_replicas, read_ledger, verify
from tidelog.pipeline.verify.log_source import folders_log, topics_log

BY_DAY = Aggregation(
    window="1 day",
    slide=None,
    watermark="1 day",
    group_by=None,
    measured=None,
    event_time=None,
    percentiles=(),
)
# Records are a millisecond apart.
BY_TEN = replace(BY_DAY, window="10 milliseconds", watermark="1 millisecond")


class Targets(TypedDict):
    """Topics. `large` is what `copied` is copied from, under kill; a command writes `commanded`."""

    written: str
    unique: str
    replayed: str
    counted: str
    commanded: str
    large: str
    copied: str


class Verified(TypedDict):
    """A topic, the ledger of who filled it, and the log dirs in which its replicas are."""

    topic: str
    ledger: str
    log_dirs: list[str]


class Verdicts(TypedDict):
    """Of a topic, of its segments and of its replicas: whether they are clean, and of how much."""

    topic: list[bool | int]
    segments: list[bool | int]
    replicas: list[bool | int]


class Report(TypedDict):
    """How many rows each pipeline says that it took."""

    summary: Summary
    rows: dict[str, int]
    windows: list[int]
    """Counts in the rows of the aggregate that is in Parquet files."""
    verdicts: Verdicts
    killed: Killed


def run_pipelines(
    spark: SparkSession, bootstrap: str, topic: str, folder: Path, targets: Targets
) -> dict[str, int]:
    kafka = {"kafka.bootstrap.servers": bootstrap}

    def once(name: str) -> RunTerms:
        return RunTerms(checkpoint=str(folder / name), is_once=True)

    rows = spark.read.format("tidelog").options(**kafka, subscribe=topic).load()
    writer = rows.select("key", "value", "partition").write.format("tidelog").mode("append")
    writer.options(**kafka, topic=targets["written"]).save()
    unique = dedup_topic(
        spark,
        source=topic,
        target=targets["unique"],
        kafka=kafka,
        field=HeaderField("n"),
        watermark="1 day",
        terms=once("dedup"),
    )
    root = str(folder / "archive")
    archived, _archiver = archive_topic(
        spark, ArchiveSettings(topic=topic, root=root, kafka=kafka), is_once=True
    )
    replayed = replay_archive(
        spark,
        Replay(root=root),
        target=targets["replayed"],
        kafka=kafka,
        terms=once("replay"),
    )
    counted = aggregate_topic(
        spark,
        source=topic,
        target=targets["counted"],
        kafka=kafka,
        wanted=BY_DAY,
        terms=once("aggregate"),
        mode=Mode.UPDATE,
    )
    filed = aggregate_topic(
        spark,
        source=topic,
        target=str(folder / "windows"),
        kafka=kafka,
        wanted=BY_TEN,
        terms=once("aggregate-to-files"),
        output=Output.PARQUET,
    )
    outcomes = {
        "dedup": unique,
        "archive": archived,
        "replay": replayed,
        "aggregate": counted,
        "aggregate to files": filed,
    }
    return {name: outcome.row_count for name, outcome in outcomes.items()}


def verdicts_on(spark: SparkSession, bootstrap: str, verified: Verified) -> Verdicts:
    ledger = read_ledger(spark, [verified["ledger"]])
    topic, log_dirs = verified["topic"], verified["log_dirs"]
    read = topics_log(spark, [topic], {"kafka.bootstrap.servers": bootstrap})
    of_topic = verify(ledger, read.rows, log_starts=read.starts)
    segments = folders_log(spark, log_dirs, [topic])
    of_segments = verify(ledger, segments.rows, log_starts=segments.starts)
    of_replicas = compare_replicas(spark, log_dirs, topics=[topic])
    return {
        "topic": [of_topic.is_clean, of_topic.stored],
        "segments": [of_segments.is_clean, of_segments.stored],
        "replicas": [
            of_replicas.is_clean,
            sum(len(each.replicas) * each.end_offset for each in of_replicas.partitions),
        ],
    }


def main(
    master: str, bootstrap: str, topic: str, folder: str, written: str, to_verify: str
) -> None:
    targets: Targets = json.loads(written)
    spark = spark_session(app_name="every-pipeline", master=master, settings=SETTINGS)
    report: Report = {
        "summary": summarise(spark, bootstrap, topic),
        "rows": run_pipelines(spark, bootstrap, topic, Path(folder), targets),
        "windows": [
            row[0] for row in spark.read.parquet(f"{folder}/windows").select("count").collect()
        ],
        "verdicts": verdicts_on(spark, bootstrap, json.loads(to_verify)),
        "killed": copy_under_kill(
            spark, bootstrap, targets["large"], targets["copied"], Path(folder) / "copy"
        ),
    }
    sys.stdout.write(json.dumps(report))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
