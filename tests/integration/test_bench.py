"""`tidelog bench` measures, judges and reports, and leaves nothing behind (B1)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import environment, objects
from tidelog.lab.descendants import descendants

TIMEOUT_S = 120
TINY = ("--quick", "--scale", "0.3", "--rounds", "1")


def bench(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "tidelog", "bench", *arguments],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(),
    )


def test_partitions_are_measured_and_told_as_json(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = bench("4", *TINY, "--json", "--data", str(tmp_path / "data"), "--report", str(report))
    assert (done.returncode, done.stderr) == (0, b"")
    scenario, run = objects(done.stdout)
    assert [row["partitions"] for row in scenario["rows"]] == [1, 2, 4, 8, 12]
    for row in scenario["rows"]:
        assert row["tidelog"]["tps"]["median"] > 0
        assert row["tidelog"]["broker_cpu_us"]["median"] > 0
        assert row["tidelog"]["resident_mib"]["median"] > 0
    # One round has no spread, so nothing can be concluded.
    assert {each["verdicts"]["tidelog"]["verdict"] for each in scenario["conclusions"]} == {
        "undecided"
    }
    assert run["load"]["in_flight"] == 50
    assert run["command"].startswith("tidelog bench 4 --quick")
    assert "Scenario 4: partitions" in report.read_text("utf-8")


@pytest.fixture(scope="module")
def deaths() -> dict[str, Any]:
    done = bench("5", *TINY, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return told


def test_nothing_acknowledged_is_missing_from_the_disks_of_killed_brokers(
    deaths: dict[str, Any],
) -> None:
    for row in deaths["rows"]:
        (measured,) = row["tidelog"]
        assert measured["disk"]["acknowledged"] > 0
        assert measured["disk"]["lost"] == 0
        assert measured["disk"]["difference"] is None
        assert measured["whole_after_s"] is not None
        assert measured["isr"]


def test_an_idempotent_client_leaves_no_duplicates(deaths: dict[str, Any]) -> None:
    counts = [
        row["tidelog"][0]["disk"]["duplicated"] for row in deaths["rows"] if row["idempotent"]
    ]
    assert counts == [0, 0]


def test_errors_are_told_without_retries_and_met_with_them(deaths: dict[str, Any]) -> None:
    for row in deaths["rows"]:
        (measured,) = row["tidelog"]
        assert not measured["failures"] or row["retries"] == 0
        assert not measured["retried"] or row["retries"] > 0
    restarted = [row["tidelog"][0]["retried"] for row in deaths["rows"] if row["restarted"]]
    assert all("NOT_ENOUGH_REPLICAS" in errors for errors in restarted)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["7"], "tidelog bench: no such command '7'"),
        (["1", "--peer", "x"], "tidelog bench 1: --peer is 'x' but must be kafka or host:port"),
        (["1", "--kafka-home", "/tmp"], "tidelog bench 1: --kafka-home is given but"),
        (["1", "--rounds", "0"], "tidelog bench 1: invalid value for '--rounds'"),
        (["1", "--report", "/no/such/x.html"], "tidelog bench 1: --report is /no/such/x.html but"),
        (
            ["1", "--peer", "kafka", "--kafka-home", "/no/such"],
            "tidelog bench 1: --kafka-home is /no/such but",
        ),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], complaint: str) -> None:
    done = bench(*arguments)
    sentence = done.stderr.decode()
    # Without java, Kafka's folder is not even looked at.
    if "java is not" not in sentence:
        assert sentence.startswith(complaint)
    assert (done.returncode, done.stdout) == (2, b"")
    assert sentence.count("\n") == 1


def test_an_interrupted_run_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "tidelog", "bench", "2", "--quick"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(TMPDIR=str(tmp_path)),
    )
    give_up_at = time.monotonic() + TIMEOUT_S
    while len(descendants(child.pid)) < 4 and time.monotonic() < give_up_at:
        time.sleep(0.05)
    started = [each.pid for each in descendants(child.pid)]
    child.send_signal(signal.SIGINT)
    _, complaints = child.communicate(timeout=TIMEOUT_S)
    assert (child.returncode, complaints) == (130, b"tidelog bench: interrupted\n")
    assert not [pid for pid in started if _is_alive(pid)]
    assert list(tmp_path.iterdir()) == []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
