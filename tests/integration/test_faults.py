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
from tidelog.base.ids import TopicPartition
from tidelog.lab.faults import LEDGER_FOLDER, TOPIC
from tidelog.lab.processes import identify
from tidelog.lab.small_disks import why_no_small_disks
from tidelog.lab.state import read_state
from tidelog.lab.zookeeper import why_unavailable
from tidelog.storage.checkpoints import read_offsets
from tidelog.storage.disk import RealDisk
from tidelog.storage.layout import HIGH_WATERMARK_CHECKPOINT

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


def test_what_is_lost_is_found_by_the_lab_and_by_its_ledger(tmp_path: Path) -> None:
    """With acks=1 a leader that nobody hears takes records, and dies with them.

    It dies before it could take the others out of the in-sync set: one of them leads next.
    X5. `pipeline verify` comes to the same numbers by the ledger that the lab's producers kept.
    """
    pytest.importorskip("pyspark")
    data = tmp_path / "data"
    exit_code, printed, _ = run_lab(
        *("run", "cut leader from others for 2s\nat 1500ms kill leader for 4s"),
        *("--acks", "1", "--min-insync", "1", "--partitions", "1"),
        *("--data", str(data)),
    )
    outcome = printed[-1]
    assert exit_code == 1, outcome
    assert outcome["lost"] > 0
    assert not outcome["good"]

    verified = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "tidelog", "pipeline", "verify", TOPIC, "--json"),
            *("--ledger", str(data / LEDGER_FOLDER), "--path", str(_most_committed(data))),
        ],
        capture_output=True,
        timeout=FAULTS_TIMEOUT_S,
        check=False,
        env=environment(),
    )
    assert verified.returncode == 1, verified.stderr
    [report] = objects(verified.stdout)
    [partition] = outcome["partitions"]
    # The lab looks at the offset that was acknowledged, verify for the id anywhere in the log.
    assert report["lost"] + report["moved"] == outcome["lost"]
    for name in ("stored", "acknowledged", "duplicated", "reordered", "unexpected"):
        assert report[name] == partition[name], name


def _most_committed(data: Path) -> Path:
    """The logs of a replica that knew all of it to be committed: verify reads no further."""

    def committed(log_dir: Path) -> int:
        offsets = read_offsets(RealDisk(), log_dir / HIGH_WATERMARK_CHECKPOINT) or {}
        return offsets[TopicPartition(TOPIC, 0)]

    return max((data / f"broker-{each}" / "logs" for each in (1, 2, 3)), key=committed)


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
