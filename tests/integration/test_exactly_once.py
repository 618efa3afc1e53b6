"""`tidelog lab exactly-once`: transactions under faults, and the verdict (D3, B3).

A few faults of several kinds; a hundred thousand records and thirty faults are for whoever has some
minutes.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import environment, objects, tidelog

RUN_TIMEOUT_S = 400
# Seeds whose first faults hit the applications, both coordinators and leaders, with a long pause.
RUNS = [("classic", 116702), ("consumer", 116702)]


@pytest.mark.parametrize(("protocol", "seed"), RUNS)
def test_every_record_comes_through_once_and_in_order(
    protocol: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "tidelog", "lab", "exactly-once", "--json"),
            *("--records", "12000", "--faults", "7", "--seed", str(seed)),
            *("--protocol", protocol, "--data", str(tmp_path / "data")),
        ],
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        env=environment(),
    )
    (outcome,) = objects(done.stdout)
    assert (done.returncode, outcome["problems"], done.stderr) == (0, [], b""), outcome
    assert outcome["good"]
    assert sum(each["found"] for each in outcome["partitions"]) == 12_000
    assert len(outcome["faults"]) == 7
    with capsys.disabled():
        print(f"\nexactly once, {protocol}: {outcome['took_s']:.0f} s")  # noqa: T201


def test_wrong_usage_is_refused() -> None:
    done = tidelog("lab", "exactly-once", "--brokers", "2")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
