"""Runs of the simulator, as tests begin and judge them."""

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

import pytest

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


def find(
    plant: Callable[[], AbstractContextManager[None]],
    run_seed: Callable[[int], RunResult],
    promises: Collection[str],
    *,
    seeds_max: int,
    tried_first: int | None,
) -> None:
    """Fail unless one of the first `seeds_max` seeds breaks one of `promises` with the bug planted.

    Only the time that it takes depends on which is tried first: when the code has changed and that
    one finds nothing any more, the others are tried.
    """
    others: Counter[str] = Counter()
    for seed in sorted(range(1, seeds_max + 1), key=lambda one: one != tried_first):
        with plant():
            failure = run_seed(seed).failure
        if failure is None:
            continue
        promise = failure.partition(":")[0]
        if promise in promises:
            return
        others[promise] += 1
    pytest.fail(f"not found in {seeds_max} seeds; what else went wrong: {dict(others)}")
