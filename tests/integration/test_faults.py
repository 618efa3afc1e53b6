"""`tidelog lab faults` and `lab run`: harm of every kind under load, and the verdict (B3).

A few faults of every kind; a thousand of them are for whoever has an hour.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import environment, objects, tidelog
from tidelog.lab.processes import identify
from tidelog.lab.small_disks import why_no_small_disks
from tidelog.lab.state import read_state
from tidelog.lab.zookeeper import why_unavailable

FAULTS_TIMEOUT_S = 300
FAULT_COUNT = 9
# Seeds whose first nine faults are of nine kinds, and hold every deed (but 'stop', on ZooKeeper).
# Where disks cannot be filled, they mean others.
SEEDS = {"sqlite": 17820, "zookeeper": 5776}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tidelog", "lab", *arguments, "--json"]


def run_lab(*arguments: str) -> tuple[int, list[dict[str, Any]], bytes]:
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        timeout=FAULTS_TIMEOUT_S,
        check=False,
        env=environment(),
    )
    return done.returncode, objects(done.stdout), done.stderr


@pytest.mark.parametrize("coordination", ["sqlite", "zookeeper"])
def test_nothing_is_lost_by_faults_of_every_kind(
    coordination: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if coordination == "zookeeper" and (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    exit_code, printed, complaints = run_lab(
        *("faults", "--count", str(FAULT_COUNT), "--seed", str(SEEDS[coordination])),
        *("--coordination", coordination, "--data", str(tmp_path / "data")),
    )
    *faults, outcome = printed
    assert (exit_code, outcome.get("problems"), complaints) == (0, [], b""), outcome
    assert outcome["good"]
    assert outcome["acknowledged"] == outcome["sent"] > 0
    assert len(faults) == FAULT_COUNT
    if why_no_small_disks() is None:
        assert len({fault["kind"] for fault in faults}) == FAULT_COUNT
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{FAULT_COUNT} faults on {coordination}: {outcome['acknowledged']:,} records, "
            f"longest time without an acknowledgement {outcome['longest_gap_s']:.1f} s"
        )


def test_what_is_lost_is_found(tmp_path: Path) -> None:
    """With acks=1 a leader that nobody hears takes records, and dies with them."""
    exit_code, printed, _ = run_lab(
        *("run", "cut leader from others for 6s\nat 4s kill leader for 2s"),
        *("--acks", "1", "--min-insync", "1", "--partitions", "1"),
        *("--data", str(tmp_path / "data")),
    )
    outcome = printed[-1]
    assert exit_code == 1, outcome
    assert outcome["lost"] > 0
    assert not outcome["good"]


def test_scenarios_are_listed() -> None:
    exit_code, printed, _ = run_lab("run")
    assert exit_code == 0
    assert "leader-killed" in {each["name"] for each in printed}


def test_interrupted_run_leaves_nothing_running(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("faults", "--data", str(tmp_path)), stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["fault"] == 1
        brokers = read_state(tmp_path / "cluster.json")
        assert len(brokers) == 3
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert [identify(broker.pid) for broker in brokers] == [None] * 3
    assert not (tmp_path / "cluster.json").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["faults", "--brokers", "2"], b"brokers"),
        (["faults", "--at-once", "4"], b"--at-once"),
        (["faults", "--data", "/"], b"/"),
        (["run", "nonsense"], b"'nonsense' is no scenario"),
        (["run", "kick leader"], b"'kick' is no deed"),
        (["run", "kill leader", "--engine", "kafka", "--kafka-home", "/"], b"--kafka-home"),
        (["run", "kill leader", "--engine", "kafka", "--coordination", "zookeeper"], b"KRaft"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], word: bytes) -> None:
    done = tidelog("lab", *arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert done.stderr.count(b"\n") == 1
