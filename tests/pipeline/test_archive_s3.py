"""An archive in a bucket of S3 holds what one on a disk holds (X4)."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.clients import NewRecord
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.s3_server import BUCKET, s3_server
from tidelog.pipeline.archive import (
    ArchiveSettings,
    archive_topic,
    archived,
    check_archive,
    open_archive,
)
from tidelog.pipeline.archive.chunk_writer import run_of
from tidelog.pipeline.archive.errors import ArchiveTaken
from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.replay import Replay, replayed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_MS = 1_763_370_000_000  # 2025-11-17T09:00:00Z
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_server() as address:
        yield address


def send(topics: ReplicatedTopics, topic: str, numbers: range) -> None:
    records = [
        NewRecord(b"%d" % n, b'{"id": %d}' % n, FIRST_MS + n % 2 * HOUR_MS, (("guid", b"%d" % n),))
        for n in numbers
    ]
    topics.send(topic, records)


def settings(topics: ReplicatedTopics, topic: str, root: str) -> ArchiveSettings:
    kafka = {"kafka.bootstrap.servers": topics.bootstrap}
    return ArchiveSettings(topic=topic, root=root, kafka=kafka, value_schema="id BIGINT")


def found(frame: "DataFrame | None") -> list[tuple[object, ...]]:
    assert frame is not None
    columns = ("offset", "value.id", "key", "headers", "timestamp", "date", "hour")
    return sorted(map(tuple, frame.select(*columns).collect()))


def test_a_bucket_holds_what_a_folder_holds(
    spark: "SparkSession", topics: ReplicatedTopics, bucket: str, tmp_path: Path
) -> None:
    """After several runs, a run that ended before its commit, and a merge."""
    topic, root = topics.create(), bucket.format("whole")
    for number in range(2):
        send(topics, topic, range(10 * number, 10 * number + 10))
        archive_topic(spark, settings(topics, topic, root), is_once=True)
    files = ArchiveFiles(root)
    left_over = f"date=2025-11-17/hour=09/part-00000-{0:020}-abc-def.parquet"
    files.put(left_over, "what a run that died has left")
    archiver = open_archive(spark, settings(topics, topic, root))
    assert archiver.compact() == 2
    assert left_over not in {each.path for each in files.below("")}
    assert check_archive(spark, root).problems == ()
    archive_topic(spark, settings(topics, topic, str(tmp_path)), is_once=True)
    assert found(archived(spark, root)) == found(archived(spark, str(tmp_path)))
    assert len(found(archived(spark, root))) == 20
    [victim, *_] = (each.path for each in archiver.manifest.files())
    files.delete(victim)
    [problem] = check_archive(spark, root).problems
    assert problem.startswith(f"{victim} is missing")
    assert files.full_path(victim) == f"s3://{BUCKET}/whole/{victim}"


def test_it_is_replayed_from_a_bucket(
    spark: "SparkSession", topics: ReplicatedTopics, bucket: str, tmp_path: Path
) -> None:
    topic, root = topics.create(), bucket.format("replayed")
    send(topics, topic, range(10))
    archive_topic(spark, settings(topics, topic, root), is_once=True)
    query = (
        replayed(spark, Replay(root=root))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()
    assert [bytes(row["value"]) for row in rows] == [b'{"id":%d}' % n for n in range(10)]


def test_a_run_that_another_has_followed_cannot_commit_to_a_bucket(
    spark: "SparkSession", topics: ReplicatedTopics, bucket: str
) -> None:
    """One after the other: of two at the very same time nobody can tell."""
    topic, root = topics.create(), bucket.format("followed")
    send(topics, topic, range(10))
    slow = open_archive(spark, settings(topics, topic, root))
    _, archiver = archive_topic(spark, settings(topics, topic, root), is_once=True)
    with pytest.raises(ArchiveTaken):
        slow.step(takes_all=True)
    assert {run_of(each.path) for each in archiver.manifest.files()} == {archiver.manifest.run}
    assert len(found(archived(spark, root))) == 10
