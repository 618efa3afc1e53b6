"""Runs of the simulator, as tests begin and judge them."""

from tidelog.sim.simulation import RunPlan, RunResult, simulate

BROKERS = 3
MINUTES = 1.0
HISTORY_LINES_SHOWN = 120


def run(seed: int) -> RunResult:
    """A minute of faults on three brokers."""
    return simulate(RunPlan(seed=seed, broker_count=BROKERS, duration_s=60 * MINUTES))


def told(result: RunResult) -> str:
    """What somebody has to know who is to find out why a run failed."""
    lines = result.history.splitlines()[-HISTORY_LINES_SHOWN:]
    return "\n".join(
        [
            f"seed {result.seed}: {result.failure}",
            *lines,
            f"again, with all of its history: make simulate SEED={result.seed}",
        ]
    )
