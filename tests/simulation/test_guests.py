"""Groups and transactions hold what they promise, whatever happens to the brokers (P3, D3).

A minute of faults for each seed, with members of both protocols that come and go, transactional
producers that are killed and fenced, or both, or those who repeat each other beside them (D5);
`sim/checkers/groups.py`, `transactions.py` and `duplicates.py` have the promises, P13 to P26.
"""

from unittest.mock import patch

import pytest

from tests.simulation.runs import run_with, told
from tidelog.broker import group_shards
from tidelog.sim.guests import Guest

SEEDS = range(1, 9)
SEEDS_OF_ALL = range(101, 105)
SEEDS_OF_COOPERATIVE = range(201, 205)
SEEDS_AIMED = range(301, 305)
SEEDS_OF_ASIDE = range(1, 3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("guest", [Guest.GROUPS, Guest.TRANSACTIONS])
def test_every_promise_holds(guest: Guest, seed: int) -> None:
    result = run_with(seed, guest)
    assert result.failure is None, told(result, guest)


@pytest.mark.parametrize("seed", SEEDS_OF_COOPERATIVE)
def test_every_promise_holds_with_cooperative_members(seed: int) -> None:
    result = run_with(seed, Guest.COOPERATIVE)
    assert result.failure is None, told(result, Guest.COOPERATIVE)


@pytest.mark.parametrize("seed", SEEDS_OF_ALL)
def test_every_promise_holds_with_all_of_them(seed: int) -> None:
    result = run_with(seed, *Guest)
    assert result.failure is None, told(result, *Guest)


@pytest.mark.parametrize("seed", SEEDS_AIMED)
def test_every_promise_holds_when_coordinators_are_aimed_at(seed: int) -> None:
    guests = (Guest.GROUPS, Guest.TRANSACTIONS)
    result = run_with(seed, *guests, aims_at_coordinators=True)
    assert result.failure is None, told(result, *guests, aims_at_coordinators=True)


@pytest.mark.parametrize("seed", SEEDS_OF_ASIDE)
def test_every_promise_holds_when_assignments_are_made_aside(seed: int) -> None:
    """H6: groups large enough for it would take the simulator too long, so all count as large."""
    with patch.object(group_shards, "ASSIGNED_AT_ONCE_MAX", 0):
        result = run_with(seed, Guest.GROUPS)
    assert result.failure is None, told(result, Guest.GROUPS)
