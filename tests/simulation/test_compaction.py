"""The promises hold where logs are compacted all the time, whatever else happens (S5).

Every record has a key of its own, so none may go: what compaction does to names, segments and
offsets under power cuts, failing disks and truncations shows as a record that is lost or moved.

Coordinators keep what they know in compacted logs, so theirs are compacted and loaded again in one
run, by the same broker: what was left out there must not be missed.
"""

import re

import pytest

from tests.simulation.runs import BROKERS, told
from tidelog.core.controller.names import INTERNAL_TOPICS
from tidelog.sim.guests import Guest
from tidelog.sim.simulation import RunPlan, RunResult, simulate

SEEDS = range(1, 9)
SEEDS_OF_COORDINATORS = range(301, 303)
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.roll.ms": "300",
}


COMPACTED = re.compile(r"^\S* *(broker-\d) +INFO log compacted partition=(\S+)")
LOADED = re.compile(r"^\S* *(broker-\d) +INFO coordinator loaded partition=(\S+)")


def run(seed: int) -> RunResult:
    settings = {**SETTINGS, "log.cleanup.policy": "compact"}
    return simulate(RunPlan(seed=seed, broker_count=BROKERS, duration_s=30.0, settings=settings))


def loaded_after_compaction(history: str) -> set[str]:
    """Partitions that a broker compacted, and loaded as their coordinator later."""
    compacted: set[tuple[str, str]] = set()
    loaded: set[str] = set()
    for line in history.splitlines():
        if found := COMPACTED.match(line.strip()):
            compacted.add((found[1], found[2]))
        elif (found := LOADED.match(line.strip())) and (found[1], found[2]) in compacted:
            loaded.add(found[2])
    return loaded


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_while_logs_are_compacted(seed: int) -> None:
    result = run(seed)
    assert result.failure is None, told(result)
    assert result.acknowledged > 0
    assert "log compacted" in result.history


@pytest.mark.parametrize("seed", SEEDS_OF_COORDINATORS)
def test_coordinators_go_on_from_what_was_compacted(seed: int) -> None:
    guests = (Guest.GROUPS, Guest.TRANSACTIONS)
    plan = RunPlan(
        seed=seed,
        broker_count=BROKERS,
        duration_s=60.0,
        settings=SETTINGS,
        guests=frozenset(guests),
        aims_at_coordinators=True,
    )
    result = simulate(plan)
    assert result.failure is None, told(result, *guests, aims_at_coordinators=True)
    loaded = loaded_after_compaction(result.history)
    assert {name.rpartition("-")[0] for name in loaded} == INTERNAL_TOPICS
