"""D5: what is sent twice is stored once, whoever dies meanwhile (P24-P26); and bugs are found."""

import pytest

from tests.simulation.planted_duplicates import PLANTED, SOME_AT_ONCE
from tests.simulation.runs import BROKERS, find, told
from tidelog.broker import deduplication
from tidelog.sim.guests import Guest
from tidelog.sim.simulation import RunPlan, RunResult, simulate

SEEDS = range(1, 9)
SEEDS_ON_A_THREAD = {101: 0, 102: 0, 103: SOME_AT_ONCE, 104: SOME_AT_ONCE}
"""With how many records are few."""
SEEDS_MAX = 100
DURATION_S = 30.0

ONCE = "a record with an id is stored once"
STORED = "an id that was acknowledged is stored"
TOLD = "a duplicate is told where the first copy is"

FOUND_BY = {
    "begin_with_an_empty_index": {ONCE},
    "acknowledge_before_the_first_copy_is_committed": {STORED, TOLD},
    "count_ids_of_aborted_transactions": {STORED},
    "keep_ids_that_were_cut_off": {STORED, TOLD, ONCE},
    "judge_before_many_ids_are_remembered": {ONCE},
}
TRIED_FIRST = {
    "acknowledge_before_the_first_copy_is_committed": 7,
    "keep_ids_that_were_cut_off": 24,
    "judge_before_many_ids_are_remembered": 7,
}
"""See `find`."""


def run(seed: int) -> RunResult:
    plan = RunPlan(
        seed=seed,
        broker_count=BROKERS,
        duration_s=DURATION_S,
        guests=frozenset({Guest.DUPLICATES}),
    )
    return simulate(plan)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_sent_twice_is_stored_once(seed: int) -> None:
    result = run(seed)
    assert result.failure is None, told(result)
    assert result.acknowledged > 0


@pytest.mark.parametrize("seed", SEEDS_ON_A_THREAD)
def test_what_a_thread_judges_and_remembers_is_stored_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if every batch had very many records, or some: leaders change, and logs are cut,
    meanwhile."""
    monkeypatch.setattr(deduplication, "AT_ONCE_RECORDS", SEEDS_ON_A_THREAD[seed])
    result = run(seed)
    assert result.failure is None, told(result)
    assert result.acknowledged > 0


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
