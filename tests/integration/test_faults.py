"""`tidelog lab faults`: brokers killed, paused and restarted under load, and the verdict (B3).

A few faults of every kind; two hundred of them are for whoever has ten minutes.
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
from tidelog.lab.state import read_state
from tidelog.lab.zookeeper import why_unavailable

FAULTS_TIMEOUT_S = 300
FAULT_COUNT = 9
# Seeds whose first nine faults are of nine kinds, with short pauses among them and a long one.
SEEDS = {"sqlite": 1125, "zookeeper": 1643}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "tidelog", "lab", "faults", "--json", *arguments]


def run_faults(*arguments: str) -> tuple[int, list[dict[str, Any]], bytes]:
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
    exit_code, printed, complaints = run_faults(
        *("--count", str(FAULT_COUNT), "--seed", str(SEEDS[coordination])),
        *("--coordination", coordination, "--data", str(tmp_path / "data")),
    )
    *faults, outcome = printed
    assert (exit_code, outcome["problems"], complaints) == (0, [], b""), outcome
    assert outcome["good"]
    assert outcome["acknowledged"] == outcome["sent"] > 0
    assert len({fault["kind"] for fault in faults}) == FAULT_COUNT
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{FAULT_COUNT} faults on {coordination}: {outcome['acknowledged']:,} records, "
            f"longest time without an acknowledgement {outcome['longest_gap_s']:.1f} s"
        )


def test_interrupted_run_leaves_nothing_running(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("--data", str(tmp_path)), stdout=subprocess.PIPE, env=environment()
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
    [(["--brokers", "2"], b"brokers"), (["--at-once", "4"], b"--at-once"), (["--data", "/"], b"/")],
)
def test_wrong_usage_is_refused(arguments: list[str], word: bytes) -> None:
    done = tidelog("lab", "faults", *arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert done.stderr.count(b"\n") == 1
