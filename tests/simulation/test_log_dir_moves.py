"""Replicas move between log dirs, and nothing is lost whatever happens meanwhile (P27, P28).

Half a minute of faults for each seed, some of them aimed at moves (KIP-113); and bugs planted there
are found.
"""

import pytest

from tests.simulation.planted_log_dirs import PLANTED
from tests.simulation.runs import BROKERS, find, told
from tidelog.sim.guests import Guest
from tidelog.sim.simulation import RunPlan, RunResult, simulate

SEEDS = range(1, 5)
SEEDS_MAX = 60
DURATION_S = 30.0

PLACE = "a replica lies where it was last asked to be"
KEPT = "a replica has what it had when its broker was killed"
READABLE = "a replica can be read"
COMMITTED_STAYS = "what is committed never changes"
REST = "everybody comes to rest"

FOUND_BY = {
    "mark_before_the_rest_is_copied": {KEPT},
    "mark_before_the_copy_is_durable": {READABLE, COMMITTED_STAYS},
    "overlook_cuts": {COMMITTED_STAYS},
    "leave_marked_logs_alone": {KEPT, REST},
    "let_the_first_who_asked_have_its_way": {PLACE},
}
TRIED_FIRST = {
    "mark_before_the_copy_is_durable": 2,
    "overlook_cuts": 20,
    "leave_marked_logs_alone": 6,
}
"""See `find`."""


def run(seed: int, duration_s: float = DURATION_S) -> RunResult:
    plan = RunPlan(
        seed=seed,
        broker_count=BROKERS,
        duration_s=duration_s,
        guests=frozenset({Guest.LOG_DIRS}),
    )
    return simulate(plan)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_while_replicas_move(seed: int) -> None:
    result = run(seed)
    assert result.failure is None, told(result, Guest.LOG_DIRS)
    assert result.faults["moved to another log dir"] > 0


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    find(
        PLANTED[name],
        run,
        FOUND_BY[name],
        seeds_max=SEEDS_MAX,
        tried_first=TRIED_FIRST.get(name),
    )


def test_every_bug_has_a_promise_that_it_breaks() -> None:
    assert FOUND_BY.keys() == PLANTED.keys()


def test_a_run_with_moves_does_the_same_again() -> None:
    assert run(1, 5.0).digest == run(1, 5.0).digest
