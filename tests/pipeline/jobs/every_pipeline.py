"""Everything that there is for topics, in one session; prints what came of it.

Arguments: master, bootstrap, topic, a folder, and the topics to write to: `Targets`, in JSON.
"""

import json
import sys
from pathlib import Path
from typing import TypedDict

from pyspark.sql import SparkSession

from tests.pipeline.jobs.killed_workers import Killed, copy_under_kill
from tests.pipeline.jobs.topic_summary import Summary, summarise
from tests.support.spark_job import SETTINGS
from tidelog.pipeline.aggregate import aggregate_topic
from tidelog.pipeline.aggregation import Aggregation, Mode
from tidelog.pipeline.archive.archiver import ArchiveSettings
from tidelog.pipeline.archive.running import archive_topic
from tidelog.pipeline.dedup import dedup_topic
from tidelog.pipeline.record_fields import HeaderField
from tidelog.pipeline.replay import Replay, replay_archive
from tidelog.pipeline.running import RunTerms
from tidelog.pipeline.session import spark_session

BY_DAY = Aggregation(
    window="1 day",
    slide=None,
    watermark="1 day",
    group_by=None,
    measured=None,
    event_time=None,
    percentiles=(),
)


class Targets(TypedDict):
    """Topics. `large` is what `copied` is copied from, under kill."""

    written: str
    unique: str
    replayed: str
    counted: str
    large: str
    copied: str


class Report(TypedDict):
    """How many rows each pipeline says that it took."""

    summary: Summary
    rows: dict[str, int]
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
    outcomes = {"dedup": unique, "archive": archived, "replay": replayed, "aggregate": counted}
    return {name: outcome.row_count for name, outcome in outcomes.items()}


def main(master: str, bootstrap: str, topic: str, folder: str, written: str) -> None:
    targets: Targets = json.loads(written)
    spark = spark_session(app_name="every-pipeline", master=master, settings=SETTINGS)
    report: Report = {
        "summary": summarise(spark, bootstrap, topic),
        "rows": run_pipelines(spark, bootstrap, topic, Path(folder), targets),
        "killed": copy_under_kill(
            spark, bootstrap, targets["large"], targets["copied"], Path(folder) / "copy"
        ),
    }
    sys.stdout.write(json.dumps(report))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
