"""A run can be repeated: the same seed, the same everything."""

import os
import subprocess
import sys
from pathlib import Path

import tidelog
from tests.unit.sim.echo_workload import run

SOURCE = Path(tidelog.__file__).parents[1]
ROOT = Path(__file__).parents[3]


def test_a_run_with_faults_is_repeated_by_its_seed() -> None:
    first, again, other = run(1), run(1), run(2)
    assert first.trace.digest == again.trace.digest
    assert first.trace.history() == again.trace.history()
    assert first.callback_count == again.callback_count
    assert first.trace.digest != other.trace.digest


def test_a_run_is_the_same_in_another_interpreter() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-m", "tests.unit.sim.echo_workload", "1"],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}",
                "PYTHONHASHSEED": hash_seed,
            },
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {str(run(1).trace.digest)}
