"""`tidelog pipeline verify` as a program: what it prints, and how it ends (X5)."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import environment, objects, tidelog
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import die_with_parent
from tests.support.spark_job import CONF, CORE_COUNT, TIMEOUT_S
from tests.unit.storage.log_folder import LogFolder, append_records, log_config
from tidelog.storage.disk import RealDisk


def _run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and what was printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tidelog", *arguments, "--json"],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(),
    )
    assert done.returncode in (0, 1), done.stderr
    (printed,) = objects(done.stdout)
    return done.returncode, printed


def test_command_says_no_and_what_is_wrong(topics: ReplicatedTopics, tmp_path: Path) -> None:
    topic, ledger = topics.create(partition_count=2), tmp_path / "ledger"
    ledger.mkdir()
    common = ("--bootstrap", topics.bootstrap)
    code, printed = _run("produce", topic, "--count", "500", "--ledger", str(ledger), *common)
    assert (code, printed["records"]) == (0, 500)
    told = {"topic": topic, "id": "of-nobody", "partition": 0, "offset": 10**6}
    (ledger / "of-nobody.jsonl").write_text(json.dumps(told), "utf-8")
    page = tmp_path / "report.html"
    code, printed = _run(
        *("pipeline", "verify", topic, "--ledger", str(ledger), "--html", str(page)),
        *("--master", f"local[{CORE_COUNT}]", *CONF, *common),
    )
    assert (code, printed["clean"], printed["lost"]) == (1, False, 1)
    assert printed["examples"][0]["id"] == "of-nobody"
    assert "of-nobody" in page.read_text("utf-8")


RECORDS = 50


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Of a broker: one partition with records without ids."""
    path = tmp_path / "broker 1"
    files = LogFolder(RealDisk(), path / "orders-0", log_config())
    log = files.open_log()
    append_records(log, RECORDS)
    files.stop(log)
    return path


def _typed_on_terminal(
    *arguments: str, interrupted_at: bytes | None = None
) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was seen beside it on a terminal.

    `interrupted_at`: what is to be seen there when Ctrl-C is typed.
    """
    terminal, for_command = pty.openpty()
    command = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "tidelog", "pipeline", "verify", *arguments),
            *("--master", f"local[{CORE_COUNT}]", *CONF),
        ],
        env=environment(COLUMNS="120"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=for_command,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken
    )
    os.close(for_command)
    shown = bytearray()

    def read_to_end() -> None:
        is_to_come = interrupted_at is not None
        with suppress(OSError):  # Nobody has the other side open any more.
            while read := os.read(terminal, 65_536):
                shown.extend(read)
                if is_to_come and interrupted_at is not None and interrupted_at in shown:
                    is_to_come = False
                    os.killpg(command.pid, signal.SIGINT)

    reader = threading.Thread(target=read_to_end)
    reader.start()
    try:
        printed, _ = command.communicate(timeout=TIMEOUT_S)
    finally:
        command.kill()
        reader.join()
        os.close(terminal)
    assert b"Traceback" not in shown, shown
    return command.returncode, printed.decode(), shown.decode(errors="replace")


PROGRESS = re.compile(r"verify: \d+ of \d+ tasks  [\d.]+/s  \d of \d stages  \d+ s")


def test_progress_is_seen_while_a_ledger_is_compared(log_dir: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(json.dumps({"topic": "orders", "id": "a", "partition": 0, "offset": 3}))
    code, printed, shown = _typed_on_terminal(
        *("orders", "--path", str(log_dir), "--ledger", str(ledger)),
        *("--allow", "unexpected", "--allow", "lost"),
    )
    assert (code, PROGRESS.search(printed)) == (0, None)
    assert f"Clean: 1 acknowledged, {RECORDS} stored (1 lost, {RECORDS} unexpected" in printed
    assert PROGRESS.search(shown), shown


def test_ctrl_c_ends_it_without_a_word(log_dir: Path, tmp_path: Path) -> None:
    """As soon as there is something to see, which is before Spark has planned anything."""
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(json.dumps({"topic": "orders", "id": "a", "partition": 0, "offset": 3}))
    code, printed, shown = _typed_on_terminal(
        *("orders", "--path", str(log_dir), "--ledger", str(ledger)), interrupted_at=b"verify: "
    )
    assert (code, printed) == (130, "")
    assert "ERROR" not in shown, shown


def test_progress_is_seen_while_replicas_are_compared(log_dir: Path, tmp_path: Path) -> None:
    copy = tmp_path / "broker 2"
    shutil.copytree(log_dir, copy)
    file = copy / "orders-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    code, printed, shown = _typed_on_terminal("--replicas", str(log_dir), str(copy))
    assert code == 1
    assert f"orders-0 differs from offset {RECORDS - 1} on" in printed
    assert "which is wrong" in printed
    assert "Not equal: 1 of 1 partitions" in printed
    assert PROGRESS.search(shown), shown


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--ledger"),
        (["--ledger", "x"], "--path"),
        (["t", "--ledger", "x", "--id", "guid"], "--id"),
        (["t", "--ledger", "x", "--allow", "behind"], "--replicas"),
        (["t", "--ledger", "x", "--html", "/nowhere/page.html"], "--html /nowhere/page.html"),
        (["--replicas"], "--replicas"),
        (["a", "--replicas", "--ledger", "x"], "--ledger"),
        (["a", "--replicas", "--allow", "lost"], "--allow"),
    ],
)
def test_wrong_usage_is_named_before_spark_starts(arguments: list[str], named: str) -> None:
    refused = tidelog("pipeline", "verify", *arguments)
    assert refused.returncode == 2
    assert named in refused.stderr.decode()
