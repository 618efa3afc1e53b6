"""The promises hold where logs are compacted all the time, whatever else happens (S5).

Every record has a key of its own, so none may go: what compaction does to names, segments and
offsets under power cuts, failing disks and truncations shows as a record that is lost or moved.
"""

import pytest

from tests.simulation.runs import BROKERS, told
from tidelog.sim.simulation import RunPlan, RunResult, simulate

SEEDS = range(1, 9)
SETTINGS = {
    "log.cleanup.policy": "compact",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.roll.ms": "300",
}


def run(seed: int) -> RunResult:
    return simulate(RunPlan(seed=seed, broker_count=BROKERS, duration_s=30.0, settings=SETTINGS))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_while_logs_are_compacted(seed: int) -> None:
    result = run(seed)
    assert result.failure is None, told(result)
    assert result.acknowledged > 0
    assert "log compacted" in result.history
