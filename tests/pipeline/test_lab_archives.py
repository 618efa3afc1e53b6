"""What the lab finds in an archive is what is in it, damage included (X4, B3)."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
import pytest

from tests.support.clients import NewRecord
from tests.support.replicated_topics import ReplicatedTopics
from tidelog.lab.errors import LabError
from tidelog.lab.exactly_once_verdict import judge_transform
from tidelog.lab.pipeline_run import read_archived
from tidelog.pipeline.archive import ArchiveSettings, archive_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENT_MS: Final = 1_763_370_000_000
LETTERS: Final = [b"a", b"b", b"c", b"d", b"e"]


def archived_letters(spark: "SparkSession", topics: ReplicatedTopics, root: Path) -> Path:
    """An archive of five records, and its file."""
    topic = topics.create(partition_count=1)
    letters = [NewRecord(None, letter, SENT_MS, ()) for letter in LETTERS]
    topics.send(topic, letters, partition=0)
    kafka = {"kafka.bootstrap.servers": topics.bootstrap}
    settings = ArchiveSettings(topic=topic, root=str(root), kafka=kafka)
    archive_topic(spark, settings, is_once=True)
    (path,) = root.rglob("*.parquet")
    return path


@pytest.mark.parametrize(
    ("places", "damage"),
    [
        ([0, 1, 2, 3, 4], (0, 0, 0)),
        ([0, 1, 2, 3, 4, 2], (0, 1, 0)),
        ([0, 2, 3, 4], (1, 0, 0)),
    ],
)
def test_damage_to_an_archive_is_the_verdict(
    places: list[int],
    damage: tuple[int, int, int],
    spark: "SparkSession",
    topics: ReplicatedTopics,
    tmp_path: Path,
) -> None:
    path = archived_letters(spark, topics, tmp_path)
    pq.write_table(pq.read_table(path).take(places), path)
    verdict = judge_transform(0, expected=LETTERS, found=read_archived(tmp_path, 0))
    assert (verdict.lost, verdict.repeated, verdict.unexpected + verdict.reordered) == damage


def test_an_archive_with_a_damaged_file_is_named(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    path = archived_letters(spark, topics, tmp_path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(LabError, match="the archive cannot be read"):
        read_archived(tmp_path, 0)
    path.unlink()
    with pytest.raises(LabError, match=path.name):
        read_archived(tmp_path, 0)
