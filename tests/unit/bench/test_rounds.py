"""Systems take turns, in an order that changes, and warming up counts for nothing (B2)."""

import pytest

from tests.unit.bench.made_up import throughput
from tidelog.bench.measured import Rounds, Throughput
from tidelog.bench.plan import LoadPlan
from tidelog.bench.rounds import turns
from tidelog.bench.runner import step_count


def test_systems_are_interleaved_in_a_rotating_order() -> None:
    taken = list(turns(["A", "B"], row_count=1, rounds=3, warm_up_rounds=0))
    assert "".join(turn.subject for turn in taken) == "ABBAAB"


def test_each_row_is_measured_on_all_systems_before_the_next_row() -> None:
    taken = list(turns(["A", "B"], row_count=2, rounds=1, warm_up_rounds=0))
    assert [(turn.row_index, turn.subject) for turn in taken] == [
        (0, "A"),
        (0, "B"),
        (1, "B"),
        (1, "A"),
    ]


def test_warming_up_comes_first_and_does_not_count() -> None:
    taken = list(turns(["A"], row_count=1, rounds=2, warm_up_rounds=1))
    assert [turn.counts for turn in taken] == [False, True, True]


def test_a_round_that_failed_is_left_out_of_the_ratio() -> None:
    rounds: Rounds[Throughput] = Rounds()
    for index, tps in enumerate((100.0, 200.0, 400.0)):
        rounds.add("A", index, throughput(tps))
    rounds.add("B", 2, throughput(100.0))
    ratio = rounds.ratio("A", "B", lambda each: each.tps)
    assert ratio is not None
    assert ratio.values == (4.0,)
    assert rounds.ratio("A", "C", lambda each: each.tps) is None


def test_records_under_way_follow_from_rate_and_latency() -> None:
    assert throughput(10_000).mean_in_flight == pytest.approx(50)


def test_the_scale_lengthens_every_load() -> None:
    once = LoadPlan.of(is_quick=False, scale=1.0, rounds=None, in_flight=50)
    twice = LoadPlan.of(is_quick=False, scale=2.0, rounds=5, in_flight=7)
    assert (twice.measured_s, twice.away_s) == (2 * once.measured_s, 2 * once.away_s)
    assert (once.rounds, twice.rounds, twice.death_rounds, twice.in_flight) == (3, 5, 5, 7)


def test_steps_of_a_run_are_known_before_it() -> None:
    plan = LoadPlan.of(is_quick=True, scale=1.0, rounds=2, in_flight=50)
    assert step_count([4], 1, plan) == 10
    assert step_count([4, 6], 2, plan) == 24
    assert step_count([5], 2, plan) == 20
