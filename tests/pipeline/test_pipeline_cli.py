"""`tidelog pipeline` as people type it: tables, JSON, sentences, exit codes (X4, O1)."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.clients import NewRecord, read_committed
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tests.support.spark_job import CONF, CORE_COUNT, TIMEOUT_S
from tidelog.cli import app
from tidelog.client.groups import Groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_MS = 1_763_370_000_000


class Typed:
    """Runs commands in this process, in the session that tests share."""

    def __init__(self, bootstrap: str, capture: pytest.CaptureFixture[str]) -> None:
        self._common = ["--bootstrap", bootstrap, "--master", f"local[{CORE_COUNT}]", *CONF]
        self._capture = capture

    def ok(self, *arguments: str) -> str:
        assert app.run(["pipeline", *arguments, *self._common]) == 0
        printed = self._capture.readouterr()
        assert not printed.err
        return printed.out

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]

    def no(self, *arguments: str, exit_code: int) -> str:
        assert app.run(["pipeline", *arguments, *self._common]) == exit_code
        printed = self._capture.readouterr()
        assert not printed.out
        assert printed.err.count("\n") == 1, printed.err
        return printed.err

    def interrupted(self, *arguments: str, when: Callable[[], bool]) -> int:
        """The exit code of a command in which somebody presses Ctrl-C, as soon as that is so."""

        def interrupt() -> None:
            wait_until(when, within_s=TIMEOUT_S, what="the time for Ctrl-C")
            os.kill(os.getpid(), signal.SIGINT)

        somebody = threading.Thread(target=interrupt)
        somebody.start()
        try:
            return app.run(["pipeline", *arguments, *self._common])
        finally:
            somebody.join()
            self._capture.readouterr()


@pytest.fixture
def typed(
    spark: "SparkSession", topics: ReplicatedTopics, capsys: pytest.CaptureFixture[str]
) -> Typed:
    assert spark is not None
    return Typed(topics.bootstrap, capsys)


def test_ledger_about_something_else_is_no_judge(
    typed: Typed, topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic, other = topics.create(partition_count=1), topics.create(partition_count=1)
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(json.dumps({"topic": topic, "id": "a", "crc32": 1}) + "\n", "utf-8")
    printed = typed.objects("verify", topic, "--ledger", str(ledger))
    assert printed[0]["unacknowledged"] == 1
    refused = typed.no("verify", other, "--ledger", str(ledger), exit_code=2)
    assert f"--ledger {ledger} has no line about what is to be judged" in refused


def orders(count: int) -> list[NewRecord]:
    return [
        NewRecord(
            str(number % 5).encode(), b'{"id": %d}' % (number % 5), FIRST_MS + number * 60_000, ()
        )
        for number in range(count)
    ]


def test_a_topic_is_archived_checked_and_replayed(
    typed: Typed, topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic, copy = topics.create(), topics.create()
    topics.send(topic, orders(100))
    archive = str(tmp_path / "archive")
    table = typed.ok("archive", topic, archive, "--once")
    assert table.splitlines()[0].split() == [
        *("ROWS", "FILES", "MERGED", "BATCHES", "LAG", "ROWS/S", "TIME")
    ]
    assert table.splitlines()[1].split()[:5] == ["100", "2", "0", "1", "0"]
    assert f"{archive} has 100 records of {topic} in 2 files" in table
    partition, done = typed.objects("archive", topic, archive, "--check")
    assert (partition["records"], partition["start_offset"], partition["end_offset"]) == (
        100,
        0,
        100,
    )
    assert done["complete"] is True
    assert "is complete: no gap, no overlap" in typed.ok("archive", topic, archive, "--check")
    batch, done = typed.objects(
        *("replay", archive, copy, "--checkpoint", str(tmp_path / "replayed"))
    )
    assert (batch["rows"], batch["lag"], done["rows"], done["stopped"]) == (100, 0, 100, False)
    stored = [read_committed(topics.bootstrap, each, 0) for each in (topic, copy)]
    assert [each.timestamp_ms for each in stored[0]] == [each.timestamp_ms for each in stored[1]]


def test_a_job_that_is_interrupted_before_it_is_done_says_so_and_goes_on(
    typed: Typed, topics: ReplicatedTopics, tmp_path: Path
) -> None:
    topic, copy = topics.create(), topics.create()
    topics.send(topic, orders(100))
    typed.ok("archive", topic, str(tmp_path / "archive"), "--once")
    replay = ("replay", str(tmp_path / "archive"), copy, "--checkpoint", str(tmp_path / "copied"))

    def copied() -> list[int]:
        return [each.timestamp_ms for each in read_committed(topics.bootstrap, copy, 0)]

    assert typed.interrupted(*replay, "--rate", "5/s", when=lambda: bool(copied())) == 130
    assert len(copied()) < 100
    *_, done = typed.objects(*replay)
    assert done["stopped"] is False
    assert copied() == [FIRST_MS + number * 60_000 for number in range(100)]
    # This one has no end of its own.
    topics.send(topic, orders(1))
    typed.ok("archive", topic, str(tmp_path / "archive"), "--once", "--max-delay", "0s")
    assert typed.interrupted(*replay, "--follow", when=lambda: len(copied()) == 101) == 0


def test_an_archive_that_is_not_complete_is_an_answer_of_no(
    typed: Typed, topics: ReplicatedTopics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    topics.send(topic, orders(3))
    archive = tmp_path / "archive"
    typed.ok("archive", topic, str(archive), "--once")
    for path in archive.rglob("*.parquet"):
        path.unlink()
    arguments = ["archive", topic, str(archive), "--check", "--master", f"local[{CORE_COUNT}]"]
    assert app.run(["pipeline", *arguments, *CONF]) == 1
    assert f"The archive of {topic} is not complete." in capsys.readouterr().out


def test_duplicates_are_counted_for_people_and_for_scripts(
    typed: Typed, topics: ReplicatedTopics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    topics.send(source, orders(20))
    common = ("--id", "key", "--watermark", "1h", "--checkpoint", str(tmp_path), "--once")
    *_, done = typed.objects("dedup", source, target, *common, "--group", f"{source}-unique")
    assert {
        name: done[name] for name in ("rows", "duplicates", "late", "without_id", "written")
    } == {**{"rows": 20, "duplicates": 15, "late": 0, "without_id": 0, "written": 5}}
    with Groups(topics.bootstrap) as groups:
        assert [*groups.committed(f"{source}-unique").values()] == [20]
    # Run again with the same checkpoint there is nothing left to do.
    table = typed.ok("dedup", source, target, *common)
    assert table.splitlines()[1].split()[0] == "0"
    assert len(read_committed(topics.bootstrap, target, 0)) == 5


def test_windows_are_counted(typed: Typed, topics: ReplicatedTopics, tmp_path: Path) -> None:
    source, target = topics.create(), topics.create()
    topics.send(source, orders(20))
    *_, done = typed.objects(
        *("aggregate", source, target, "--window", "10m", "--by", "json:$.id"),
        *("--value", "json:$.id", "--mode", "update", "--checkpoint", str(tmp_path), "--once"),
        *("--guarantee", "at-least-once", "--group", f"{source}-counted"),
    )
    assert (done["rows"], done["late"], done["without_number"]) == (20, 0, 0)
    with Groups(topics.bootstrap) as groups:
        assert [*groups.committed(f"{source}-counted").values()] == [20]
    records = read_committed(topics.bootstrap, target, 0)
    # No transaction has left a marker between them.
    assert [record.offset for record in records] == [*range(len(records))]
    found = [json.loads(each.value or b"") for each in records]
    assert sum(each["count"] for each in found) == 20
    assert {"approx_p50", "approx_p99", "sum", "group", "window_start"} <= found[0].keys()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("dedup", "a", "b", "--id", "x", "--checkpoint", "c"), "--id is 'x' but must be key"),
        (("dedup", "a", "b", "--id", "key"), "missing option '--checkpoint'"),
        (("archive", "a"), "missing argument 'DIR'"),
        (("archive", "a", "b", "--target-size", "huge"), "--target-size is 'huge'"),
        (("archive", "a", "b", "--compact", "--check"), "--compact and --check"),
        (("replay", "a", "b", "--checkpoint", "c", "--rate", "fast"), "--rate is 'fast'"),
        (("replay", "a", "b", "--checkpoint", "c", "--from-time", "9"), "there is no archive"),
        (("replay", "a", "b", "--checkpoint", "c", "--to-time", "soon"), "--to-time is 'soon'"),
        (("aggregate", "a", "b", "--checkpoint", "c", "--window", "long"), "--window is 'long'"),
        (
            ("aggregate", "a", "b", "--checkpoint", "c", "--to", "parquet", "--mode", "update"),
            "--mode is update, but rows of Parquet files cannot change",
        ),
    ],
)
def test_wrong_usage_is_a_sentence_that_names_the_option(
    typed: Typed, arguments: tuple[str, ...], sentence: str
) -> None:
    exit_code = 1 if sentence == "there is no archive" else 2
    said = typed.no(*arguments, exit_code=exit_code)
    assert said.startswith(f"tidelog pipeline {arguments[0]}: ")
    assert sentence in said


def test_a_topic_that_is_not_there_is_an_answer_of_no(typed: Typed, tmp_path: Path) -> None:
    said = typed.no(
        *("dedup", "nowhere", "b", "--id", "key", "--checkpoint", str(tmp_path), "--once"),
        exit_code=1,
    )
    assert "nowhere" in said
