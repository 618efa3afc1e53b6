"""A topic becomes Parquet files, each record once, whatever is killed and whenever (X4)."""

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clients import NewRecord, delete_records, read_committed
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tests.support.spark_job import CONF, CORE_COUNT
from tidelog.cli import app
from tidelog.cli.pipeline_running import INTERRUPTED
from tidelog.client.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.client.groups import Groups
from tidelog.pipeline.archive import (
    ArchiveError,
    ArchiveSettings,
    archive_topic,
    archived,
    check_archive,
    open_archive,
    require_archive,
)
from tidelog.pipeline.archive.chunk_writer import run_of
from tidelog.pipeline.archive.errors import ArchiveTaken
from tidelog.pipeline.archive.json_values import with_parsed_values, with_written_values
from tidelog.pipeline.archive.manifest_log import ManifestLog, manifest_of
from tidelog.pipeline.archive.planning import MERGED_COUNT
from tidelog.pipeline.errors import DataLoss, OptionError
from tidelog.pipeline.replay import Replay, replay_archive, replayed
from tidelog.pipeline.running import Progress, RunTerms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
FIRST_MS = 1_763_370_000_000  # 2025-11-17T09:00:00Z
PARTITIONS = 2


def records(count: int, *, first: int = 0) -> list[NewRecord]:
    """Of three hours, mixed; some without key, value or headers."""
    return [
        NewRecord(
            key=None if number % 7 == 0 else f"key-{number % 5}".encode(),
            value=None if number % 11 == 0 else json.dumps({"id": number, "kind": "a"}).encode(),
            timestamp_ms=FIRST_MS + (number % 3) * HOUR_MS + number,
            headers=() if number % 2 else (("guid", str(number).encode()), ("empty", b"")),
        )
        for number in range(first, first + count)
    ]


def filled(topics: ReplicatedTopics, count: int) -> str:
    topic = topics.create(partition_count=PARTITIONS)
    send(topics, topic, count)
    return topic


def send(topics: ReplicatedTopics, topic: str, count: int, *, first: int = 0) -> None:
    for partition in range(PARTITIONS):
        topics.send(topic, records(count, first=first), partition=partition)


def settings(topics: ReplicatedTopics, topic: str, root: Path, **more: Any) -> ArchiveSettings:
    return ArchiveSettings(
        topic=topic,
        root=str(root),
        kafka={"kafka.bootstrap.servers": topics.bootstrap},
        **more,
    )


def places(spark: "SparkSession", root: Path) -> list[tuple[int, int]]:
    frame = archived(spark, str(root))
    assert frame is not None
    return sorted((row["partition"], row["offset"]) for row in frame.collect())


def all_places(count: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(PARTITIONS) for offset in range(count)]


def parquet_files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*.parquet")}


def test_what_was_archived_is_what_a_consumer_reads(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = filled(topics, 60)
    topics.send_aborted(topic, NewRecord(b"key", b"taken back", FIRST_MS, ()))
    outcome, _ = archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    assert (outcome.row_count, outcome.lag) == (120, 0)
    frame = archived(spark, str(tmp_path))
    assert frame is not None
    rows = frame.orderBy("partition", "offset").collect()
    for partition in range(PARTITIONS):
        found = [row for row in rows if row["partition"] == partition]
        stored = read_committed(topics.bootstrap, topic, partition)
        assert len(found) == len(stored) == 60
        for row, record in zip(found, stored, strict=True):
            assert (row["key"], row["value"]) == (record.key, record.value)
            assert int(row["timestamp"].timestamp() * 1000) == record.timestamp_ms
            headers = tuple((each["key"], bytes(each["value"])) for each in row["headers"] or ())
            assert (row["offset"], headers) == (record.offset, record.headers)
    folders = {path.rpartition("/")[0] for path in parquet_files(tmp_path)}
    assert folders == {f"date=2025-11-17/hour={hour:02}" for hour in (9, 10, 11)}


def test_a_missing_file_and_a_missing_chunk_are_found(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = filled(topics, 30)
    archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    told: list[tuple[int, int]] = []
    report = check_archive(
        spark, str(tmp_path), on_progress=lambda done, of_all: told.append((done, of_all))
    )
    assert (told[0], told[-1]) == ((0, 6), (6, 6))
    assert report.is_complete
    assert [each.record_count for each in report.partitions] == [30, 30]
    victim, *_ = parquet_files(tmp_path)
    (tmp_path / victim).unlink()
    [problem] = check_archive(spark, str(tmp_path)).problems
    assert problem.startswith(f"{victim} is missing: 10 records of partition")


def test_many_small_runs_leave_few_files(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """A run for every handful of records, as from cron."""
    run_count = MERGED_COUNT + 2
    topic = topics.create()
    written = 0
    for number in range(run_count):
        same_hour = [
            NewRecord(b"k", b"v", FIRST_MS + number, ())
            for number in range(5 * number, 5 * number + 5)
        ]
        topics.send(topic, same_hour)
        outcome, archiver = archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
        written += outcome.row_count
        assert sum(1 for _ in archiver.manifest.files()) <= MERGED_COUNT
    assert written == 5 * run_count
    assert check_archive(spark, str(tmp_path)).is_complete
    assert places(spark, tmp_path) == [(0, offset) for offset in range(5 * run_count)]
    archiver = open_archive(spark, settings(topics, topic, tmp_path))
    small = archiver.small_chunk_count()
    assert archiver.compact(is_stopped=lambda: True) == 0
    told: list[tuple[int, int]] = []
    assert archiver.compact(on_progress=lambda done, of_all: told.append((done, of_all))) == small
    assert told[-1] == (small, small) != (0, 0)
    assert sum(1 for _ in manifest_of(str(tmp_path)).files()) == 1
    assert places(spark, tmp_path) == [(0, offset) for offset in range(5 * run_count)]


def test_files_have_about_the_size_that_was_asked_for(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = topics.create()
    values = [os.urandom(1_000) for _ in range(2_000)]
    topics.send(topic, [NewRecord(None, value, FIRST_MS, ()) for value in values])
    target_bytes = 400_000
    archive_topic(spark, settings(topics, topic, tmp_path, target_bytes=target_bytes), is_once=True)
    sizes = sorted(each.size_bytes for each in manifest_of(str(tmp_path)).files())
    assert len(sizes) <= 8
    assert sizes[-1] < 2 * target_bytes
    assert check_archive(spark, str(tmp_path)).is_complete


def test_little_waits_in_the_topic_until_it_is_old_enough(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = filled(topics, 10)
    now_s = 100.0
    archiver = open_archive(
        spark, settings(topics, topic, tmp_path, max_delay_s=60.0), clock_s=lambda: now_s
    )
    assert archiver.step(takes_all=False) is None
    assert archiver.lag == 20
    now_s += 61
    done = archiver.step(takes_all=False)
    assert done is not None
    assert (done.record_count, archiver.lag) == (20, 0)


def test_offsets_without_any_record_are_archived(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send_aborted(topic, NewRecord(b"key", b"taken back", FIRST_MS, ()))
    outcome, archiver = archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    assert (outcome.row_count, outcome.lag) == (0, 0)
    assert archiver.manifest.next_offsets() == {0: 2}
    assert check_archive(spark, str(tmp_path)).is_complete


SMALL_BYTES = 1_000
"""Files of that size have a few records, so that a run takes more than one step."""


def test_what_is_sent_while_a_run_takes_what_is_there_is_left_to_the_next(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = filled(topics, 20)
    wanted = settings(topics, topic, tmp_path, target_bytes=SMALL_BYTES)
    seen: list[int] = []

    def send_more(_progress: Progress) -> None:
        if len(seen) < 10:
            send(topics, topic, 10)
        seen.append(1)

    outcome, _ = archive_topic(spark, wanted, is_once=True, on_progress=send_more)
    assert len(seen) > 1
    assert (outcome.row_count, outcome.lag, outcome.was_stopped) == (PARTITIONS * 20, 0, False)
    assert places(spark, tmp_path) == all_places(20)
    outcome, _ = archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    assert outcome.row_count == PARTITIONS * 10 * len(seen)
    assert places(spark, tmp_path) == all_places(20 + 10 * len(seen))


@pytest.fixture
def interrupting_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is typed whenever something was archived."""
    commit = ManifestLog.commit

    def interrupted(self: ManifestLog, **arguments: Any) -> Any:
        made = commit(self, **arguments)
        if arguments["added"]:
            os.kill(os.getpid(), signal.SIGINT)
        return made

    monkeypatch.setattr(ManifestLog, "commit", interrupted)


@pytest.mark.usefixtures("spark", "interrupting_commit")
def test_only_a_run_that_has_an_end_is_not_done_when_it_is_interrupted(
    topics: ReplicatedTopics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = filled(topics, 40)
    command = [
        *("pipeline", "archive", topic, str(tmp_path), "--target-size", f"{SMALL_BYTES}"),
        *("--bootstrap", topics.bootstrap, "--master", f"local[{CORE_COUNT}]", *CONF, "--json"),
    ]

    def last_word() -> tuple[bool, bool]:
        done = json.loads(capsys.readouterr().out.splitlines()[-1])
        return done["stopped"], done["lag"] > 0

    assert app.run([*command, "--once"]) == INTERRUPTED
    assert last_word() == (True, True)
    assert app.run([*command, "--max-delay", "0s"]) == 0
    assert last_word() == (True, True)
    # All of it in one step: it is done, whoever has asked for its end meanwhile.
    assert app.run([*command, "--once", "--target-size", "1MB"]) == 0
    assert last_word() == (False, False)


def test_a_group_is_told_how_far_the_archive_is(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """Also of the last files of a run that ends, and of aborted records behind them."""
    topic = filled(topics, 20)
    topics.send_aborted(topic, NewRecord(b"key", b"taken back", FIRST_MS, ()))
    group = f"{topic}-archive"
    wanted = settings(topics, topic, tmp_path, target_bytes=SMALL_BYTES)
    seen: list[dict[int, int | None]] = []
    archive_topic(
        spark,
        wanted,
        is_once=True,
        group=group,
        on_progress=lambda _progress: seen.append(lags(topics, group)),
    )
    assert len(seen) > 1
    assert seen[0] != seen[-1]
    assert lags(topics, group) == dict.fromkeys(range(PARTITIONS), 0)


def lags(topics: ReplicatedTopics, group: str) -> dict[int, int | None]:
    """Of each partition, as `tidelog groups describe` says."""
    with Groups(topics.bootstrap) as groups:
        positions = groups.positions(groups.require(group))
    return {each.key.partition: each.lag for each in positions}


@pytest.fixture
def dying_commit(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As if the driver died before it commits, once for each number that is put in."""
    deaths: list[int] = []
    commit = ManifestLog.commit

    def dying(self: ManifestLog, **arguments: Any) -> Any:
        if deaths and arguments["added"]:
            deaths.pop()
            raise KeyboardInterrupt
        return commit(self, **arguments)

    monkeypatch.setattr(ManifestLog, "commit", dying)
    return deaths


def test_what_was_written_and_not_committed_never_counts(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path, dying_commit: list[int]
) -> None:
    topic = filled(topics, 30)
    dying_commit.append(1)
    with pytest.raises(KeyboardInterrupt):
        archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    left_over = parquet_files(tmp_path)
    assert left_over
    assert archived(spark, str(tmp_path)) is None
    send(topics, topic, 10, first=30)
    archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    assert places(spark, tmp_path) == all_places(40)
    assert check_archive(spark, str(tmp_path)).is_complete
    assert not left_over & parquet_files(tmp_path)


def test_a_merge_that_was_not_committed_changes_nothing(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path, dying_commit: list[int]
) -> None:
    topic = topics.create(partition_count=PARTITIONS)
    for number in range(3):
        send(topics, topic, 6, first=6 * number)
        archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    dying_commit.append(1)
    with pytest.raises(KeyboardInterrupt):
        open_archive(spark, settings(topics, topic, tmp_path)).compact()
    assert places(spark, tmp_path) == all_places(18)
    assert open_archive(spark, settings(topics, topic, tmp_path)).compact() == 6
    assert places(spark, tmp_path) == all_places(18)
    assert check_archive(spark, str(tmp_path)).is_complete


def test_a_run_that_another_has_followed_cannot_commit(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = filled(topics, 20)
    slow = open_archive(spark, settings(topics, topic, tmp_path))
    archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    slow_run = slow.manifest.run
    with pytest.raises(ArchiveTaken):
        slow.step(takes_all=True)
    assert places(spark, tmp_path) == all_places(20)
    archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    assert slow_run not in {run_of(path) for path in parquet_files(tmp_path)}


def test_json_has_columns_and_what_does_not_fit_is_kept(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = topics.create()
    target = topics.create()
    values = [
        b'{"id":1,"name":"a"}',
        b"not json",
        b'{"id":"x"}',
        b'{"id": 2, "more": true}',
        None,
    ]
    topics.send(topic, [NewRecord(None, value, FIRST_MS, ()) for value in values])
    schema, root = "id BIGINT, name STRING", tmp_path / "archive"
    outcome, _ = archive_topic(
        spark, settings(topics, topic, root, value_schema=schema), is_once=True
    )
    assert outcome.counts["unparsed"] == 3
    frame = archived(spark, str(root))
    assert frame is not None
    rows = frame.orderBy("offset").collect()
    parsed = [None if row["value"] is None else tuple(row["value"]) for row in rows]
    assert parsed == [(1, "a"), None, None, (2, None), None]
    unparsed = [None if row["unparsed"] is None else bytes(row["unparsed"]) for row in rows]
    assert unparsed == [None, b"not json", b'{"id":"x"}', b'{"id": 2, "more": true}', None]
    replay_archive(
        spark,
        Replay(root=str(root)),
        target=target,
        kafka={"kafka.bootstrap.servers": topics.bootstrap},
        terms=RunTerms(checkpoint=str(tmp_path / "replayed"), is_once=True),
    )
    assert [each.value for each in read_committed(topics.bootstrap, target, 0)] == values
    with pytest.raises(OptionError, match="has another schema of its own: id BIGINT"):
        open_archive(spark, settings(topics, topic, root, value_schema="id STRING"))


SAID_BY_COLUMNS = [
    b'{"id":1,"amount":1.5}',
    b' { "amount" : 1.5,\n\t"id":1 } ',
    b' { "id" : 1,\r\n\t"amount":1.5 } ',
    b"{}",
    b'{"text":"a b\\n\\"c\\" \xc3\xa9\xf0\x9f\x98\x80"}',
    b'{"items":[{"x":1},null,{"x":2}]}',
    b'{"items":[]}',
    b'{"at":"2026-11-18T00:00:00.000Z"}',
]
NOT_SAID_BY_COLUMNS = [
    b"",
    b"null",
    b'[{"id":1}]',
    b'{"id":1',
    b'{"id":1}{"id":2}',
    b'{"id":1} behind it',
    b'{"id":1},0]',
    b"{'id':1}",
    b'{"id":1,"id":2}',
    b'{"id":2,"id":2}',
    b'{"Id":1}',
    b'{"id":1,"text":null}',
    b'{"id":1.0}',
    b'{"id":12345678901234567890}',
    b'{"amount":1}',
    b'{"amount":1.50}',
    b'{"amount":1e3}',
    b'{"amount":0.12345678901234567890}',
    b'{"amount":%s}' % (b"1234567890" * 5),
    b'{"text":1}',
    b'{"text":"\\u00e9"}',
    b'{"text":"\xff"}',
    b'{"items":[{"x":1,"y":2}]}',
    b'{"items":{"x":1}}',
    b'{"at":"2026-11-18T01:00:00+01:00"}',
]


def test_bytes_are_kept_of_all_that_columns_do_not_say(spark: "SparkSession") -> None:
    """So that what is written back is what was there, but for spaces and the order of fields."""
    values = [*SAID_BY_COLUMNS, *NOT_SAID_BY_COLUMNS, None]
    rows = spark.createDataFrame([(value, value) for value in values], "was BINARY, value BINARY")
    schema = "id BIGINT, amount DOUBLE, text STRING, items ARRAY<STRUCT<x: BIGINT>>, at TIMESTAMP"
    parsed = with_parsed_values(rows, schema)
    kept = parsed.withColumn("is_kept", parsed["unparsed"].isNotNull())
    found = [
        (row["was"], row["is_kept"], row["value"]) for row in with_written_values(kept).collect()
    ]
    assert [was for was, is_kept, _ in found if is_kept] == NOT_SAID_BY_COLUMNS
    for was, is_kept, written in found:
        if is_kept or was is None:
            assert written == was
        else:
            assert json.loads(written) == json.loads(was)


def test_a_schema_is_found_once_and_kept(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, [NewRecord(None, b'{"id": 1}', FIRST_MS, ())])
    wanted = settings(topics, topic, tmp_path, value_schema="infer")
    archive_topic(spark, wanted, is_once=True)
    topics.send(topic, [NewRecord(None, b'{"id": 2, "later": true}', FIRST_MS, ())])
    archive_topic(spark, wanted, is_once=True)
    assert manifest_of(str(tmp_path)).info.value_schema == "id BIGINT"
    frame = archived(spark, str(tmp_path))
    assert frame is not None
    rows = sorted((row["value"]["id"], row["unparsed"]) for row in frame.collect())
    assert rows == [(1, None), (2, b'{"id": 2, "later": true}')]


def test_fields_may_have_any_name(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """Also those that Spark would not take without quotes, however deep."""
    topic = topics.create()
    text = '{"order-id":1,"by":{"first-name":"a","x.y":[{"z z":2,"a":3}]},"at":4}'
    topics.send(topic, [NewRecord(None, text.encode(), FIRST_MS, ())])
    wanted = settings(topics, topic, tmp_path, value_schema="infer")
    archive_topic(spark, wanted, is_once=True)
    frame = archived(spark, str(tmp_path))
    assert frame is not None
    [row] = frame.collect()
    assert row["value"].asDict(recursive=True) == json.loads(text)
    # In the order that they have, so that nothing else is to be kept.
    [written] = with_written_values(frame).collect()
    assert (row["unparsed"], written["value"]) == (None, text.encode())
    assert "value" in replayed(spark, Replay(root=str(tmp_path))).columns


def test_a_topic_that_was_made_anew_is_another_one(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """Although it has more records than were archived, so that offsets would go on."""
    topic = topics.create()
    topics.send(topic, records(5))
    archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    with Admin(topics.bootstrap) as admin:
        admin.delete_topic(topic)
        wait_until(lambda: topic not in admin.topic_names(), within_s=30, what="the topic is gone")
    topics.cluster.create(topic, (1, 2, 3), config={"retention.ms": "-1"})
    topics.cluster.wait_whole(topic)
    topics.send(topic, records(20))
    with pytest.raises(ArchiveError, match=f"is of another topic that was called {topic}"):
        archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    assert places(spark, tmp_path) == [(0, offset) for offset in range(5)]


def test_files_whose_manifest_is_elsewhere_are_not_removed(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic, root = filled(topics, 5), tmp_path / "archive"
    elsewhere = settings(topics, topic, root, manifest_root=str(tmp_path / "manifest"))
    archive_topic(spark, elsewhere, is_once=True)
    written = parquet_files(root)
    assert written
    with pytest.raises(OptionError, match="has files of an archive, and its manifest is not in"):
        archive_topic(spark, settings(topics, topic, root), is_once=True)
    assert parquet_files(root) == written


def test_records_that_retention_took_are_a_reason_to_stop(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, records(10))
    archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    topics.send(topic, records(10, first=10))
    delete_records(topics.bootstrap, topic, 0, 15)
    with pytest.raises(DataLoss, match="begins at 15, but was archived up to 10"):
        archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    archive_topic(spark, settings(topics, topic, tmp_path, allows_loss=True), is_once=True)
    [problem] = check_archive(spark, str(tmp_path)).problems
    assert problem == "partition 0: offsets 10 to 14 were not archived"


def test_records_that_retention_takes_while_they_are_read_end_no_run_that_may_lose_them(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, records(10))
    archive_topic(spark, settings(topics, topic, tmp_path), is_once=True)
    topics.send(topic, records(10, first=10))
    asked: list[float] = []

    def clock_s() -> float:
        """Asked when a step begins, and when it knows where the topic begins."""
        asked.append(0.0)
        if len(asked) == 2:
            delete_records(topics.bootstrap, topic, 0, 15)
        return 0.0

    lossy = settings(topics, topic, tmp_path, allows_loss=True, max_delay_s=0.0)
    done = open_archive(spark, lossy, clock_s=clock_s).step(takes_all=False)
    assert done is not None
    assert done.record_count == 5
    [problem] = check_archive(spark, str(tmp_path)).problems
    assert problem == "partition 0: offsets 10 to 14 were not archived"


def test_an_archive_is_of_one_topic(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic = filled(topics, 1)
    open_archive(spark, settings(topics, topic, tmp_path))
    with pytest.raises(OptionError, match=f"is of the topic {topic}, not of other"):
        open_archive(spark, settings(topics, "other", tmp_path))
    with pytest.raises(OptionError, match=f"is of the topic {topic}, not of other"):
        require_archive("other", str(tmp_path), manifest_root=None)
    require_archive(topic, str(tmp_path), manifest_root=None)


def test_a_topic_that_is_not_there_leaves_no_archive(
    spark: "SparkSession", topics: ReplicatedTopics, tmp_path: Path
) -> None:
    with pytest.raises(ClientError, match="there is no topic nowhere"):
        open_archive(spark, settings(topics, "nowhere", tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArchiveError, match="there is no archive in"):
        require_archive("nowhere", str(tmp_path), manifest_root=None)


def test_where_there_is_no_archive_it_is_said(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no archive in"):
        check_archive(spark, str(tmp_path))
