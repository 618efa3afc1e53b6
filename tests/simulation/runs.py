"""Runs of the simulator, as tests begin and judge them."""

from tidelog.sim.guests import Guest
from tidelog.sim.simulation import RunPlan, RunResult, simulate

BROKERS = 3
MINUTES = 1.0
HISTORY_LINES_SHOWN = 120


def run(seed: int) -> RunResult:
    """A minute of faults on three brokers."""
    return simulate(RunPlan(seed=seed, broker_count=BROKERS, duration_s=60 * MINUTES))


def run_with(seed: int, *guests: Guest, aims_at_coordinators: bool = False) -> RunResult:
    """The same, with others who use the cluster as well."""
    return simulate(
        RunPlan(
            seed=seed,
            broker_count=BROKERS,
            duration_s=60 * MINUTES,
            guests=frozenset(guests),
            aims_at_coordinators=aims_at_coordinators,
        )
    )


def told(result: RunResult, *guests: Guest, aims_at_coordinators: bool = False) -> str:
    """What somebody has to know who is to find out why a run failed."""
    arguments = [f"--with {guest.value}" for guest in guests]
    if aims_at_coordinators:
        arguments.append("--aim-at-coordinators")
    lines = result.history.splitlines()[-HISTORY_LINES_SHOWN:]
    return "\n".join(
        [
            f"seed {result.seed}: {result.failure}",
            *lines,
            f"again, with all of its history: make simulate SEED={result.seed}"
            + (f" ARGS='{' '.join(arguments)}'" if arguments else ""),
        ]
    )
