"""The same seed does the same, always: who repeats a failure sees that failure."""

import os
import subprocess
import sys

import pytest

from tests.simulation.runs import BROKERS
from tidelog.sim.simulation import RunPlan, simulate

SECONDS = 20.0
SEEDS = [3, 5, 8]

DIGESTS = f"""
from tidelog.sim.simulation import RunPlan, simulate
for seed in {SEEDS}:
    plan = RunPlan(seed=seed, broker_count={BROKERS}, duration_s={SECONDS})
    print(seed, simulate(plan).digest)
"""


def plan(seed: int) -> RunPlan:
    return RunPlan(seed=seed, broker_count=BROKERS, duration_s=SECONDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_does_the_same_in_one_process(seed: int) -> None:
    first, second = simulate(plan(seed)), simulate(plan(seed))
    assert first.history == second.history
    assert first == second


def test_a_seed_does_the_same_in_another_process() -> None:
    """Python orders sets of strings by a number that it draws when it starts."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert outputs == {"".join(f"{seed} {simulate(plan(seed)).digest}\n" for seed in SEEDS)}


def test_another_seed_does_something_else() -> None:
    assert len({simulate(plan(seed)).digest for seed in SEEDS}) == len(SEEDS)
