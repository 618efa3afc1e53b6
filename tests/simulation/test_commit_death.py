"""Whoever dies at whatever step of a transaction, it ends whole, as it was asked to (D3).

A producer writes to two partitions and to the offsets of a group in one transaction, as whoever
consumes, transforms and produces does, and commits it or aborts it. That is done once undisturbed,
which tells the steps that it takes (`tests/support/commit_steps.py`). Then it is done again for
each step and each victim, which is killed just before that step, or just after it, and comes back
later; or stands still from that step on until its session is over, and goes on.

Who does what is in `transaction_story.py`; broker-1, the controller, is never hurt. What is judged
in the end: P19 to P23 of `sim/checkers/transactions.py`; that a producer who goes on asking gets
what it asked for; that nothing is open, in any partition or at the coordinator; and that the
transactional id can go on.

The producer itself is a victim as well, for nobody else leaves a transaction to its time-out.

All of them, some 3,700 runs, take ten minutes, so a share is run, the same one every time;
`HYPOTHESIS_PROFILE=nightly` runs all.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import pytest

from tests.simulation.planted_groups import answer_before_it_is_committed
from tests.simulation.planted_transactions import complete_with_the_first_marker
from tests.simulation.transaction_story import HANGS, KINDS, PRODUCER, Kind, Story, prepared
from tests.support.commit_steps import Moment
from tests.support.simulated_cluster import SimulatedCluster
from tidelog.records.transactions import TransactionState
from tidelog.sim.process import Process
from tidelog.sim.transaction_ledger import Outcome

AWAY_S = 1.5
PAUSED_S = 3.0
"""Longer than a session of `SimulatedCluster`."""

STEPS_MIN = 75
ESSENTIAL = {
    "broker-2 appends to __transaction_state-0",
    "broker-3 appends to __transaction_state-0",
    "broker-3 appends to output-0",
    "broker-1 appends to output-1",
    "broker-4 appends to __consumer_offsets-0",
    "broker-3 sends ADD_PARTITIONS_TO_TXN to broker-2",
    "broker-2 gets END_TXN of producer",
    "broker-2 answers END_TXN of producer",
    "broker-2 sends WRITE_TXN_MARKERS to broker-1",
    "broker-3 answers WRITE_TXN_MARKERS of broker-2",
    "broker-2 is answered WRITE_TXN_MARKERS by broker-4",
}
"""What every kind of producer brings about: if it is not seen, nobody has looked."""

SHARE = 17
"""One of so many is run; prime, so that every victim and every kind of blow gets its turn."""


@dataclass(frozen=True, slots=True)
class Blow:
    """What is done to whom, and when. `victim` is a broker, or None for the producer."""

    number: int
    victim: int | None
    moment: Moment
    is_pause: bool

    def __str__(self) -> str:
        who = PRODUCER if self.victim is None else f"broker-{self.victim}"
        what = "paused" if self.is_pause else "killed"
        return f"{who} is {what} {self.moment.value} step {self.number}"


WAYS: list[tuple[int | None, Moment, bool]] = [
    *((victim, moment, False) for victim in (2, 3, 4, None) for moment in Moment),
    *((victim, Moment.BEFORE, True) for victim in (2, 3, 4)),
]


def run(kind: Kind, blow: Blow | None) -> list[str]:
    """Do it once; the steps that it took."""
    with prepared(kind) as (cluster, steps, story):
        producer = story.produce(is_commit=kind.is_commit, number=0, name=PRODUCER)
        struck: list[Process] = []
        if blow is not None:
            strike = partial(hurt, cluster, producer, blow, struck)
            steps.strike_at(blow.number, blow.moment, strike)
        story.settle(producer)
        assert len(struck) == (blow is not None)
        judge(story, kind, blow)
        taken = list(steps.taken)
        go_on(cluster, story)
        return taken


def hurt(cluster: SimulatedCluster, producer: Process, blow: Blow, struck: list[Process]) -> None:
    process = producer if blow.victim is None else cluster.brokers[blow.victim].process
    assert process is not None
    struck.append(process)
    if blow.is_pause:
        process.pause()
        cluster.world.call_later(PAUSED_S, process.resume)
    elif blow.victim is None:
        producer.kill()
    else:
        broker = cluster.brokers[blow.victim]
        broker.kill()
        cluster.world.call_later(AWAY_S, broker.start)


def judge(story: Story, kind: Kind, blow: Blow | None) -> None:
    story.checker.at_end()
    (transaction,) = story.ledger.transactions
    state = story.state()
    assert state is not None
    if blow is None or blow.victim is not None:
        # Whoever keeps asking is answered in the end, and with what was asked for.
        asked_for = Outcome.COMMITTED if kind.is_commit else Outcome.ABORTED
        assert transaction.outcome is asked_for, story.ledger.refused
        assert state.state is (
            TransactionState.COMPLETE_COMMIT if kind.is_commit else TransactionState.COMPLETE_ABORT
        )


def go_on(cluster: SimulatedCluster, story: Story) -> None:
    """The next producer of the transactional id finds nothing in its way."""
    cluster.until(lambda: all(broker.is_ready for broker in cluster.brokers.values()))
    producer = story.produce(is_commit=True, number=1, name="next-producer")
    story.settle(producer)
    story.checker.at_end()
    assert story.ledger.transactions[-1].outcome is Outcome.COMMITTED


def steps_of(kind: Kind) -> list[str]:
    """Those of an undisturbed run."""
    return run(kind, None)


def blows_of(steps: list[str]) -> list[Blow]:
    return [Blow(number, *way) for number in range(len(steps)) for way in WAYS]


def is_nightly() -> bool:
    return os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_transaction_ends_whole_whoever_dies_at_whatever_step(
    kind: Kind, record_property: Callable[[str, object], None]
) -> None:
    steps = steps_of(kind)
    assert len(steps) >= STEPS_MIN
    assert set(steps) >= ESSENTIAL
    blows = blows_of(steps)
    chosen = blows if is_nightly() else blows[::SHARE]
    assert {(one.victim, one.moment, one.is_pause) for one in chosen} == set(WAYS)
    if is_nightly():
        assert {one.number for one in chosen} == set(range(len(steps)))
    record_property("blows", f"{len(chosen)} of {len(blows)}, at {len(steps)} steps")
    for blow in chosen:
        try:
            run(kind, blow)
        except BaseException as error:
            error.add_note(f"{kind}: {blow}, {steps[blow.number]}")
            raise


@pytest.mark.parametrize(
    ("plant", "victim", "step", "promise"),
    [
        # It dies when the producer knows, and nobody else has the record.
        (
            answer_before_it_is_committed,
            2,
            "broker-2 answers END_TXN of producer",
            "what is committed is read",
        ),
        (complete_with_the_first_marker, 3, "broker-3 gets WRITE_TXN_MARKERS of broker-2", HANGS),
    ],
)
def test_a_bug_that_shows_at_one_step_is_found(
    plant: Callable[[], AbstractContextManager[None]], victim: int, step: str, promise: str
) -> None:
    kind = Kind(is_commit=True, is_version_2=True)
    with plant():
        steps = steps_of(kind)
        blow = Blow(steps.index(step), victim, Moment.AFTER, is_pause=False)
        with pytest.raises(AssertionError, match=promise):
            run(kind, blow)


def test_a_decision_that_is_told_too_early_shows_at_no_other_step() -> None:
    """So it takes all of them to find it."""
    kind = Kind(is_commit=True, is_version_2=True)
    found = []
    with answer_before_it_is_committed():
        steps = steps_of(kind)
        for number in range(steps.index("producer sends END_TXN to broker-2"), len(steps)):
            try:
                run(kind, Blow(number, 2, Moment.AFTER, is_pause=False))
            except AssertionError:
                found.append(steps[number])
    assert found == ["broker-2 answers END_TXN of producer"]
