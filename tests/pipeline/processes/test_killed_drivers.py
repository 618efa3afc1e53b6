"""A driver that dies at the worst moment: the command that is typed again goes on (X2, X4)."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.clients import NewRecord, read_committed
from tests.support.command_line import environment, objects
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import die_with_parent
from tests.support.spark_job import CONF, CORE_COUNT, ROOT, TIMEOUT_S
from tidelog.pipeline.archive.chunk_writer import run_of
from tidelog.pipeline.archive.manifest_log import manifest_of

FIRST_MS = 1_763_370_000_000
PARTITIONS = 2


def _let_die(job: str, *arguments: str) -> None:
    died = subprocess.run(
        [sys.executable, "-m", f"tests.pipeline.jobs.{job}", *arguments],
        cwd=ROOT,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        preexec_fn=die_with_parent,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr


def _typed(topics: ReplicatedTopics, *arguments: str) -> dict[str, Any]:
    """What a command of the pipeline says that came of it, at its end."""
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "tidelog", "pipeline", *arguments, "--once", "--json"),
            *("--master", f"local[{CORE_COUNT}]", *CONF, "--bootstrap", topics.bootstrap),
        ],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(),
        preexec_fn=die_with_parent,
    )
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)[-1]


def _send(topics: ReplicatedTopics, topic: str, count: int, *, first: int) -> None:
    for partition in range(PARTITIONS):
        records = [
            NewRecord(b"key", json.dumps({"id": each}).encode(), FIRST_MS + each, ())
            for each in range(first, first + count)
        ]
        topics.send(topic, records, partition=partition)


def test_a_killed_archive_has_neither_gap_nor_duplicate(
    topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """With kill -9, just before its second commit, and then just after the next one."""
    topic = topics.create(partition_count=PARTITIONS)
    _send(topics, topic, 300, first=0)
    _let_die("dying_archive", topics.bootstrap, topic, str(tmp_path), "files", "1")
    assert 0 < _archived_count(tmp_path) < PARTITIONS * 300
    _send(topics, topic, 300, first=300)
    _let_die("dying_archive", topics.bootstrap, topic, str(tmp_path), "commit", "0")
    before = _archived_count(tmp_path)
    _send(topics, topic, 10, first=600)
    done = _typed(topics, "archive", topic, str(tmp_path), "--target-size", "20kB")
    assert done["rows"] == PARTITIONS * 610 - before
    manifest = manifest_of(str(tmp_path))
    counting = {each.path for each in manifest.files()}
    places = [
        (row["partition"], row["offset"])
        for path in counting
        for row in pq.ParquetFile(tmp_path / path).read(["partition", "offset"]).to_pylist()
    ]
    assert sorted(places) == [(each, at) for each in range(PARTITIONS) for at in range(610)]
    left = {each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*.parquet")}
    assert {run_of(each) for each in left - counting} <= {manifest.run}


def _archived_count(folder: Path) -> int:
    return sum(each.record_count for each in manifest_of(str(folder)).files())


def test_a_micro_batch_that_was_written_when_its_driver_died_is_not_written_again(
    topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = (topics.create(partition_count=PARTITIONS) for _ in range(2))
    for partition in range(PARTITIONS):
        # The second half of each has the ids of the first half of the other.
        ids = [*range(partition * 30, partition * 30 + 30), *range(30)]
        records = [
            NewRecord(b"key", b"{}", FIRST_MS + number, (("guid", str(guid).encode()),))
            for number, guid in enumerate(ids)
        ]
        topics.send(source, records, partition=partition)
    _let_die("dying_dedup", topics.bootstrap, source, target, str(tmp_path))
    assert 0 < len(_guids(topics, target)) < 60
    _typed(
        topics,
        *("dedup", source, target, "--id", "header:guid", "--checkpoint", str(tmp_path)),
        *("--keep-partitions", "--batch-records", "50"),
    )
    assert sorted(_guids(topics, target)) == list(range(60))


def _guids(topics: ReplicatedTopics, topic: str) -> list[int]:
    return [
        int(dict(record.headers)["guid"])
        for partition in range(PARTITIONS)
        for record in read_committed(topics.bootstrap, topic, partition)
    ]
