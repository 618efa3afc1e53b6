"""`tidelog bench --peer kafka` measures Apache Kafka beside tidelog, with the same client (B2)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import environment, objects

pytestmark = pytest.mark.one_broker  # It starts clusters of its own.
# Four JVMs on a busy machine.
TIMEOUT_S = 400


def test_kafka_is_measured_in_turns_with_tidelog(kafka_jars: None, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "tidelog", "bench", "6", "--peer", "kafka", "--quick"),
            *("--rounds", "1", "--kafka-heap", "256", "--json", "--report", str(report)),
        ],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    scenario, run = objects(done.stdout)
    (row,) = scenario["rows"]
    for subject in ("tidelog", "kafka"):
        assert row[subject]["producer_avg_ms"]["median"] > 0
        assert row[subject]["resident_mib"]["median"] > 0
    assert row["ratios"]["producer_avg_ms"]["median"] > 0
    assert run["environment"]["kafka"].startswith("kafka_")
    assert "tidelog beside kafka" in report.read_text("utf-8")
