"""Jobs on a standalone cluster of processes, whose workers have never heard of tidelog (X7)."""

import json
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.jobs.every_pipeline import Report, Targets, Verified
from tests.pipeline.jobs.killed_workers import end_of
from tests.support.clients import numbered_records, read_committed
from tests.support.command_line import environment, objects, tidelog
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import die_with_parent, wait_until
from tests.support.spark_cluster import SparkCluster, python_without
from tests.support.spark_job import CONF, TIMEOUT_S, run_job
from tidelog.pipeline.segments import choose_replicas, find_partitions
from tidelog.records.compiled import compiled

OURS = ("tidelog", "pyspark_tidelog")
PARTITION_COUNT = 3
LARGE_COUNT = 2_000
VERIFIED_COUNT = 500
ANOTHER_VERSION = """\
import collections, sys
version = collections.namedtuple("version", "major minor micro releaselevel serial")
sys.version_info = version(3, 99, 0, "final", 0)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


class Jobs:
    """A topic, and all that a job on the cluster found in it and made of it."""

    def __init__(self, topics: ReplicatedTopics, folder: Path) -> None:
        self._topics = topics
        self._made = folder / "made"
        self._python = str(python_without(folder / "worker", *OURS))
        self.topic = topics.create(partition_count=PARTITION_COUNT)
        self.targets: Targets = {
            "written": topics.create(partition_count=PARTITION_COUNT),
            "unique": topics.create(),
            "replayed": topics.create(partition_count=PARTITION_COUNT),
            "counted": topics.create(),
            "commanded": topics.create(),
            "large": topics.create(partition_count=2),
            "copied": topics.create(partition_count=2),
        }
        self.summary = [
            [partition, count, count - 1, self._fill(self.topic, count, 100, partition)]
            for partition, count in enumerate(range(100, 100 + PARTITION_COUNT))
        ]
        """Of each partition: number, count, last offset, checksum."""
        for partition in range(2):
            self._fill(self.targets["large"], LARGE_COUNT, 1_000, partition)
        self.verified: Verified = {
            "topic": topics.create(partition_count=2),
            "ledger": str(folder / "ledger"),
            "log_dirs": [str(each.data_folder) for each in topics.cluster.brokers.values()],
        }
        self._fill_with_ledger()

    def _fill(self, topic: str, count: int, size_bytes: int, partition: int) -> int:
        records = numbered_records(count, value_size_bytes=size_bytes, seed=str(partition))
        self._topics.send(topic, records, partition=partition)
        return sum(zlib.crc32(record.value or b"") for record in records)

    def _fill_with_ledger(self) -> None:
        """Until all of it is known to be committed by who reads the files alone."""
        topic, log_dirs = self.verified["topic"], self.verified["log_dirs"]
        ledger = Path(self.verified["ledger"])
        ledger.mkdir()
        produced = tidelog(
            *("produce", topic, "--count", str(VERIFIED_COUNT), "--ledger", str(ledger)),
            *("--bootstrap", self._topics.bootstrap),
        )
        assert produced.returncode == 0, produced.stderr

        def is_written_down() -> bool:
            logs = choose_replicas(find_partitions(log_dirs, topics=[topic]))
            return sum(each.high_watermark or 0 for each in logs) == VERIFIED_COUNT

        wait_until(is_written_down, within_s=60, what="high watermarks are in files")

    def run(self, cluster: SparkCluster) -> None:
        self.there: Report = run_job(
            "every_pipeline",
            *(cluster.master, self._topics.bootstrap, self.topic, str(self._made)),
            *(json.dumps(self.targets), json.dumps(self.verified)),
            environment={"PYSPARK_PYTHON": self._python},
        )

    def command(self, cluster: SparkCluster, *arguments: str) -> dict[str, Any]:
        """What a command of the pipeline, on the cluster, says that came of it."""
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "tidelog", "pipeline", *arguments, "--json"),
                *("--master", cluster.master, *CONF, "--bootstrap", self._topics.bootstrap),
                *("--checkpoint", str(self._made / "command")),
            ],
            env=environment(PYSPARK_PYTHON=self._python),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            preexec_fn=die_with_parent,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return objects(done.stdout)[-1]

    def committed(self, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
        records = read_committed(self._topics.bootstrap, topic, partition)
        return [(record.key, record.value) for record in records]

    def end_offset(self, topic: str) -> int:
        return end_of(self._topics.bootstrap, topic)


@pytest.fixture(scope="module")
def jobs(
    cluster: SparkCluster, topics: ReplicatedTopics, tmp_path_factory: pytest.TempPathFactory
) -> Jobs:
    jobs = Jobs(topics, tmp_path_factory.mktemp("jobs"))
    jobs.run(cluster)
    return jobs


def test_a_job_on_a_cluster_finds_what_was_sent(jobs: Jobs) -> None:
    assert jobs.there["summary"]["partitions"] == jobs.summary


def test_workers_run_the_tidelog_that_was_shipped_to_them(
    cluster: SparkCluster, jobs: Jobs
) -> None:
    workers = jobs.there["summary"]["workers"]
    assert len(workers) == len(cluster.workers)
    for worker, (_python, file, is_compiled) in zip(cluster.workers, workers, strict=True):
        assert Path(file).is_relative_to(worker.folder)
        assert is_compiled == (compiled is not None)


def test_batches_and_streams_write_on_a_cluster_what_they_read(jobs: Jobs) -> None:
    for partition in range(PARTITION_COUNT):
        sent = jobs.committed(jobs.topic, partition)
        assert len(sent) == 100 + partition
        for target in (jobs.targets["written"], jobs.targets["replayed"]):
            assert jobs.committed(target, partition) == sent


def test_every_pipeline_runs_on_a_cluster(jobs: Jobs) -> None:
    everything = 100 + 101 + 102
    assert jobs.there["rows"] == dict.fromkeys(
        ("dedup", "archive", "replay", "aggregate", "aggregate to files"), everything
    )
    keys = [key for key, _value in jobs.committed(jobs.targets["unique"])]
    assert sorted(map(int, filter(None, keys))) == [*range(102)]
    [(_key, window)] = jobs.committed(jobs.targets["counted"])
    assert json.loads(window or b"")["count"] == everything
    # The last two records of them all are in one that is not over.
    assert jobs.there["windows"] == [30] * 10


def test_topics_segments_and_replicas_are_verified_on_a_cluster(jobs: Jobs) -> None:
    """X5, X6. Executors read the segments of three brokers."""
    assert jobs.there["verdicts"] == {
        "topic": [True, VERIFIED_COUNT],
        "segments": [True, VERIFIED_COUNT],
        "replicas": [True, 3 * VERIFIED_COUNT],
    }


def test_a_command_runs_on_a_cluster(cluster: SparkCluster, jobs: Jobs) -> None:
    """X4. Its executors have no tidelog either."""
    topic, target = jobs.topic, jobs.targets["commanded"]
    done = jobs.command(cluster, "dedup", topic, target, "--id", "header:n", "--once")
    assert (done["rows"], done["written"]) == (100 + 101 + 102, 102)
    assert len(jobs.committed(target)) == 102


def test_a_task_whose_workers_were_killed_is_run_again_and_each_record_is_there_once(
    jobs: Jobs,
) -> None:
    """X2. What the first attempt had written is in the log, and no part of what counts."""
    killed = jobs.there["killed"]
    first, last = killed["attempts"]
    assert first == 0 < last
    assert killed["killed"] > 0
    assert killed["written_before"] > 0
    for partition in range(2):
        sent = jobs.committed(jobs.targets["large"], partition)
        assert len(sent) == LARGE_COUNT
        assert jobs.committed(jobs.targets["copied"], partition) == sent
    assert jobs.end_offset(jobs.targets["copied"]) >= LARGE_COUNT + killed["written_before"]


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
