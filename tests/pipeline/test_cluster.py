"""Jobs on a standalone cluster of processes, whose workers have never heard of tidelog (X7)."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.jobs.topic_summary import Summary, summarise
from tests.support.clients import numbered_records
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.spark_cluster import SparkCluster, python_without
from tests.support.spark_job import run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = ("tidelog", "pyspark_tidelog")
ANOTHER_VERSION = """\
import collections, sys
version = collections.namedtuple("version", "major minor micro releaselevel serial")
sys.version_info = version(3, 99, 0, "final", 0)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def summaries(
    spark: "SparkSession",
    cluster: SparkCluster,
    topics: ReplicatedTopics,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Summary, Summary]:
    """What the same job finds on this machine and on the cluster."""
    python = python_without(tmp_path_factory.mktemp("worker"), *OURS)
    topic = topics.create(partition_count=3)
    for partition in range(3):
        records = numbered_records(100 + partition, value_size_bytes=100, seed=str(partition))
        topics.send(topic, records, partition=partition)
    arguments = (cluster.master, topics.bootstrap, topic)
    there = run_job("topic_summary", *arguments, environment={"PYSPARK_PYTHON": str(python)})
    return summarise(spark, topics.bootstrap, topic), there


def test_a_job_finds_the_same_on_a_cluster(
    summaries: tuple[Summary, Summary],
) -> None:
    here, there = summaries
    assert [row[:3] for row in here["partitions"]] == [[n, 100 + n, 99 + n] for n in range(3)]
    assert there["partitions"] == here["partitions"]


def test_workers_run_the_tidelog_that_was_shipped_to_them(
    cluster: SparkCluster, summaries: tuple[Summary, Summary]
) -> None:
    here, there = summaries
    [(_python, _file, is_compiled_here)] = here["workers"]
    assert len(there["workers"]) == len(cluster.workers)
    for worker, (_python, file, is_compiled) in zip(cluster.workers, there["workers"], strict=True):
        assert Path(file).is_relative_to(worker.folder)
        assert is_compiled == is_compiled_here


@pytest.fixture(scope="module")
def reasons(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Why sessions with these Pythons do not start, and one that wants too much memory."""
    folder = tmp_path_factory.mktemp("unfit")
    poor = python_without(folder / "poor", *OURS, "cramjam", "crc32c")
    other = python_without(folder / "other", *OURS)
    [packages] = (folder / "other").glob("lib/python*/site-packages")
    (packages / "sitecustomize.py").write_text(ANOTHER_VERSION)
    pythons = [str(poor), str(other), str(folder / "nowhere" / "python")]
    answer: list[str] = run_job("unfit_workers", cluster.master, *pythons, environment={})
    return answer


def test_what_workers_lack_is_named_before_a_job_starts(reasons: list[str]) -> None:
    assert "lacks cramjam, crc32c: '" in reasons[0]
    assert "/poor/bin/python -m pip install cramjam crc32c'" in reasons[0]


def test_workers_with_another_python_are_told_apart(reasons: list[str]) -> None:
    assert "Spark's workers run Python 3.99 and the driver 3." in reasons[1]


def test_a_python_that_workers_do_not_have_is_named(reasons: list[str]) -> None:
    assert "/nowhere/python: set PYSPARK_PYTHON" in reasons[2]


def test_a_job_that_no_worker_takes_does_not_wait_for_ever(reasons: list[str]) -> None:
    assert "took a task within 1 s" in reasons[3]
    assert "512g" in reasons[3]
