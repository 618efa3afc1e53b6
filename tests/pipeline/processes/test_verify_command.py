"""`tidelog pipeline verify` as a program: what it prints, and how it ends (X5)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import environment, objects, tidelog
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.spark_job import CONF, CORE_COUNT, TIMEOUT_S


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
