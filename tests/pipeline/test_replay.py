"""An archive becomes a topic again: the same records, in order, once (X4)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.clients import NewRecord, StoredRecord, read_committed
from tests.support.command_line import environment
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import die_with_parent, wait_until
from tests.support.spark_job import CONF, CORE_COUNT, ROOT, TIMEOUT_S
from tidelog.pipeline.archive import ArchiveError, ArchiveSettings, archive_topic
from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.offsets import count_between, from_checkpoint
from tidelog.pipeline.replay import Replay, ReplayStreamReader, replay_archive
from tidelog.pipeline.running import Outcome, Progress, RunTerms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
FIRST_MS = 1_763_370_000_000  # 2025-11-17T09:00:00Z
PARTITIONS = 2
COUNT = 60


def records(count: int, *, first: int = 0) -> list[NewRecord]:
    """Of three hours, mixed, so that each chunk has files that have to be put in order."""
    return [
        NewRecord(
            key=None if number % 7 == 0 else f"key-{number % 5}".encode(),
            value=None if number % 11 == 0 else f"value {number} \x00\xff".encode("latin-1"),
            timestamp_ms=FIRST_MS + (number % 3) * HOUR_MS + number,
            headers=() if number % 2 else (("guid", str(number).encode()), ("empty", b"")),
        )
        for number in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def archive(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A topic, and where it was archived, in two runs."""
    topic, root = topics.create(partition_count=PARTITIONS), tmp_path_factory.mktemp("archive")
    for first in (0, COUNT // 2):
        for partition in range(PARTITIONS):
            topics.send(topic, records(COUNT // 2, first=first), partition=partition)
        archive_topic(
            spark,
            ArchiveSettings(
                topic=topic,
                root=str(root),
                kafka={"kafka.bootstrap.servers": topics.bootstrap},
            ),
            is_once=True,
        )
    return topic, root


def replay(
    spark: "SparkSession",
    topics: ReplicatedTopics,
    wanted: Replay,
    target: str,
    terms: RunTerms,
) -> Outcome:
    kafka = {"kafka.bootstrap.servers": topics.bootstrap}
    return replay_archive(spark, wanted, target=target, kafka=kafka, terms=terms)


def contents(topics: ReplicatedTopics, topic: str) -> list[list[tuple[object, ...]]]:
    """All but offsets, of which markers of transactions take some."""
    return [
        [_content(record) for record in read_committed(topics.bootstrap, topic, partition)]
        for partition in range(PARTITIONS)
    ]


def _content(record: StoredRecord) -> tuple[object, ...]:
    return (record.key, record.value, record.timestamp_ms, record.timestamp_type, record.headers)


def test_a_topic_comes_back_as_it_was(
    spark: "SparkSession", topics: ReplicatedTopics, archive: tuple[str, Path], tmp_path: Path
) -> None:
    """Bytes, order, timestamps, headers, partitions; and a second run adds nothing."""
    topic, root = archive
    target = topics.create(partition_count=PARTITIONS)
    terms = RunTerms(checkpoint=str(tmp_path), is_once=True)
    outcome = replay(spark, topics, Replay(root=str(root)), target, terms)
    assert outcome.row_count == PARTITIONS * COUNT
    assert contents(topics, target) == contents(topics, topic)
    assert replay(spark, topics, Replay(root=str(root)), target, terms).row_count == 0
    assert contents(topics, target) == contents(topics, topic)
    # Nothing would be written to it, since all has been.
    with pytest.raises(OptionError, match=f"target was {target}, and is other now"):
        replay(spark, topics, Replay(root=str(root), partitions=(0,)), "other", terms)


def test_a_topic_with_fewer_partitions_is_refused_before_anything_is_written(
    spark: "SparkSession", topics: ReplicatedTopics, archive: tuple[str, Path], tmp_path: Path
) -> None:
    _, root = archive
    terms = RunTerms(checkpoint=str(tmp_path), is_once=True)
    target = topics.create(partition_count=PARTITIONS - 1)
    with pytest.raises(PipelineError, match=f"{target} has .* with --partitions {PARTITIONS}, or "):
        replay(spark, topics, Replay(root=str(root)), target, terms)
    with pytest.raises(PipelineError, match="nowhere does not exist"):
        replay(spark, topics, Replay(root=str(root)), "nowhere", terms)
    fewer = Replay(root=str(root), partitions=(0,))
    assert replay(spark, topics, fewer, target, terms).row_count == COUNT


def test_a_replay_that_was_stopped_goes_on_at_its_rate(
    spark: "SparkSession", topics: ReplicatedTopics, archive: tuple[str, Path], tmp_path: Path
) -> None:
    topic, root = archive
    target = topics.create(partition_count=PARTITIONS)
    # Two micro-batches are not all of it, even if the first has to wait for Spark to get going.
    wanted = Replay(root=str(root), rate_per_s=20.0)
    seen: list[Progress] = []
    stopped = replay(
        spark,
        topics,
        wanted,
        target,
        RunTerms(
            checkpoint=str(tmp_path),
            is_once=True,
            on_progress=seen.append,
            is_stopped=lambda: bool(seen),
        ),
    )
    assert stopped.was_stopped
    assert 0 < stopped.row_count < PARTITIONS * COUNT
    began_s = time.monotonic()
    rest = replay(spark, topics, wanted, target, RunTerms(checkpoint=str(tmp_path), is_once=True))
    # The first turn is free, and a micro-batch may have begun when it was stopped.
    assert time.monotonic() - began_s >= (rest.row_count - 3 * 20) / 20
    assert contents(topics, target) == contents(topics, topic)


def test_a_replay_that_was_killed_writes_each_record_once(
    spark: "SparkSession", topics: ReplicatedTopics, archive: tuple[str, Path], tmp_path: Path
) -> None:
    topic, root = archive
    target = topics.create(partition_count=PARTITIONS)
    command = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "tidelog", "pipeline", "replay", str(root), target),
            *("--checkpoint", str(tmp_path), "--rate", "10/s", "--bootstrap", topics.bootstrap),
            *("--master", f"local[{CORE_COUNT}]", *CONF),
        ],
        cwd=ROOT,
        env=environment(),
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken
    )
    try:
        wait_until(lambda: any(contents(topics, target)), within_s=TIMEOUT_S, what="some is there")
    finally:
        # Its Java too, at whatever both are doing.
        os.killpg(command.pid, signal.SIGKILL)
        command.wait()
    assert sum(map(len, contents(topics, target))) < PARTITIONS * COUNT
    replay(
        spark,
        topics,
        Replay(root=str(root)),
        target,
        RunTerms(checkpoint=str(tmp_path), is_once=True),
    )
    assert contents(topics, target) == contents(topics, topic)


def test_a_rate_below_the_number_of_partitions_holds(archive: tuple[str, Path]) -> None:
    """Each turn has a record of each partition, so turns are further apart."""
    _topic, root = archive
    reader = ReplayStreamReader(Replay(root=str(root), rate_per_s=1.0), ())
    start = reader.initialOffset()
    began_s = time.monotonic()
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    took_s = time.monotonic() - began_s
    taken = count_between(from_checkpoint(first), from_checkpoint(second))
    assert taken == PARTITIONS
    assert took_s >= taken / 1.0


def test_times_and_offsets_choose_records(
    spark: "SparkSession", topics: ReplicatedTopics, archive: tuple[str, Path], tmp_path: Path
) -> None:
    topic, root = archive
    target = topics.create(partition_count=PARTITIONS)
    wanted = Replay(
        root=str(root),
        partitions=(1,),
        start_offset=6,
        end_offset=40,
        start_ms=FIRST_MS + HOUR_MS,
        end_ms=FIRST_MS + 2 * HOUR_MS,
    )
    replay(spark, topics, wanted, target, RunTerms(checkpoint=str(tmp_path), is_once=True))
    expected = [
        _content(record)
        for record in read_committed(topics.bootstrap, topic, 1)
        if 6 <= record.offset < 40
        and FIRST_MS + HOUR_MS <= record.timestamp_ms < FIRST_MS + 2 * HOUR_MS
    ]
    assert expected
    assert contents(topics, target) == [[], expected]


def test_json_comes_back_as_json(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic, target = topics.create(), topics.create(partition_count=PARTITIONS)
    values = [b'{ "id": 1 }', b"not json", None]
    topics.send(topic, [NewRecord(None, value, FIRST_MS, ()) for value in values])
    kafka = {"kafka.bootstrap.servers": topics.bootstrap}
    root = str(tmp_path / "archive")
    archive_topic(
        spark,
        ArchiveSettings(topic=topic, root=root, kafka=kafka, value_schema="id INT"),
        is_once=True,
    )
    terms = RunTerms(checkpoint=str(tmp_path / "checkpoint"), is_once=True)
    replay(spark, topics, Replay(root=root), target, terms)
    found = [record.value for record in read_committed(topics.bootstrap, target, 0)]
    assert found == [b'{"id":1}', b"not json", None]


def test_where_there_is_no_archive_it_is_said(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    terms = RunTerms(checkpoint=str(tmp_path / "checkpoint"), is_once=True)
    with pytest.raises(ArchiveError, match="there is no archive in"):
        replay(spark, topics, Replay(root=str(tmp_path)), "target", terms)


def test_a_partition_that_was_never_archived_is_no_empty_one(
    spark: "SparkSession", topics: ReplicatedTopics, archive: tuple[str, Path], tmp_path: Path
) -> None:
    topic, root = archive
    wanted = Replay(root=str(root), partitions=(0, 7))
    with pytest.raises(PipelineError, match=f"has no partition 7 of {topic}: it has 0, 1$"):
        replay(spark, topics, wanted, "target", RunTerms(checkpoint=str(tmp_path), is_once=True))
