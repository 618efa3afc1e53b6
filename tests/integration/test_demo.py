"""`tidelog demo` goes from an empty folder to a verdict, and leaves nothing behind (O6)."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.command_line import environment
from tests.support.server_process import wait_until
from tests.support.spark_job import QUICK_JAVA
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.state import read_state

COMMAND: Final = (sys.executable, "-P", "-m", "tidelog", "demo", "--seconds", "4")
TIMEOUT_S: Final = 180


def test_the_tour_kills_a_leader_and_finds_everything_once(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    done = subprocess.run(
        COMMAND,
        env=environment(**QUICK_JAVA, TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if re.match(r"\d\. ", line)]
    assert [title[0] for title in titles] == list("1234567")
    (victim,) = re.findall(r"Killed broker (\d)\.", done.stdout)
    assert f"broker {victim} is killed" in done.stdout
    assert done.stdout.count("under-replicated") == 3
    assert done.stdout.count("in sync   ") == 3
    assert re.findall(r"longest gap (\d+\.\d\d) s", done.stdout)
    assert "8,000 records sent, 8,000 acknowledged, 0 failed." in done.stdout
    assert "Clean: 8,000 acknowledged, 8,000 stored." in done.stdout
    assert list(tmp_path.glob("tidelog-demo-*")) == []


def test_an_interrupted_tour_leaves_no_broker(tmp_path: Path) -> None:
    with subprocess.Popen(
        COMMAND,
        env=environment(TMPDIR=str(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as tour:
        wait_until(
            lambda: any(tmp_path.glob("tidelog-demo-*/ledger.jsonl")),
            within_s=TIMEOUT_S,
            what="the producer began",
        )
        (folder,) = tmp_path.glob("tidelog-demo-*")
        brokers = read_state(ClusterFolder(folder / "cluster").state_file)
        tour.send_signal(signal.SIGINT)
        _, complaints = tour.communicate(timeout=TIMEOUT_S)
    assert (tour.returncode, complaints) == (130, b"")
    assert len(brokers) == 3
    assert not any(broker.is_alive for broker in brokers)
    assert not folder.exists()
