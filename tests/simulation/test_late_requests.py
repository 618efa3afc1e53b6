"""What a coordinator finds in its sockets after a pause, it does not decide upon what is now (D3).

A producer ends a transaction, or does any other step of it, while its coordinator is paused. What
it asked lies in a socket there, and whoever closes a connection does not take back what was sent:

    producer      asks ── waits ── asks another, ends the first, begins the second ─────▶ ends it
    coordinator        paused ........................................ goes on, leads again
                          └ the first question is in its socket          └ and finds the question

The second transaction is open when the coordinator leads again, and lacks a record. In the end both
have to be as they were asked to be, and P19 to P23 hold. Without epochs of producers that grow with
every transaction (before version 2) nothing in the question says that it is an old one.

Every request is left in a socket once; `HYPOTHESIS_PROFILE=nightly` pauses at all other steps, too.
Who does what is in `transaction_story.py`.
"""

import os

import pytest

from tests.simulation.planted_transactions import decide_late_requests
from tests.simulation.transaction_story import ASSIGNMENTS, KINDS, Hold, Kind, prepared
from tests.support.commit_steps import Moment
from tests.support.simulated_cluster import SimulatedCluster
from tidelog.base.ids import TopicPartition
from tidelog.broker.coordinators import TAKING_OFFICE_MAX_S
from tidelog.core.controller.preferred import ElectionType
from tidelog.sim.transaction_ledger import Outcome

TRANSACTION_COORDINATOR = 2
GROUP_COORDINATOR = 4
ELECT_EVERY_S = 0.02
DECIDED_WITHIN_S = 1.0
BROKEN_OFF = "a producer that was well could not go on"
FIRST_END = "producer is answered END_TXN by broker-2"

END = "producer sends END_TXN to broker-2"
BEGIN = "producer sends INIT_PRODUCER_ID to broker-2"
OFFSETS = "producer sends TXN_OFFSET_COMMIT to broker-4"


def steps_of(kind: Kind) -> list[str]:
    """Those of an undisturbed producer, until the first transaction has ended for it."""
    with prepared(kind) as (cluster, steps, story):
        hold = Hold()
        story.produce_twice(is_commit=kind.is_commit, hold=hold)
        cluster.until(lambda: hold.is_reached)
        return steps.taken[: steps.taken.index(FIRST_END) + 1]


def run(kind: Kind, number: int, victim: int) -> None:
    """Pause `victim` before the step with this number, until the second transaction is open."""
    with prepared(kind) as (cluster, steps, story):
        hold = Hold()
        producer = story.produce_twice(is_commit=kind.is_commit, hold=hold)
        process = cluster.brokers[victim].process
        assert process is not None
        steps.strike_at(number, Moment.BEFORE, process.pause)
        cluster.until(lambda: hold.is_reached)
        process.resume()
        assert lead_again(cluster, victim) < TAKING_OFFICE_MAX_S
        cluster.run_for(DECIDED_WITHIN_S)
        hold.let_go()
        story.settle(producer)
        story.checker.at_end()
        first, second = story.ledger.transactions
        assert first.outcome is (Outcome.COMMITTED if kind.is_commit else Outcome.ABORTED)
        assert second.outcome is Outcome.COMMITTED, f"{BROKEN_OFF}: {story.ledger.refused}"


def lead_again(cluster: SimulatedCluster, victim: int) -> float:
    """Have `victim` lead what it led in the beginning; how many seconds that took."""
    since_s = cluster.world.now_s
    wanted = [
        TopicPartition(topic, number)
        for topic, assigned in ASSIGNMENTS.items()
        for number, replicas in enumerate(assigned)
        if replicas[0] == victim
    ]

    def leads() -> bool:
        return all(cluster.state(*one).leader == victim and cluster.is_led(*one) for one in wanted)

    while not leads():
        cluster.ask(lambda requests: requests.elect_leaders(ElectionType.PREFERRED, wanted))
        cluster.run_for(ELECT_EVERY_S)
    return cluster.world.now_s - since_s


def is_chosen(step: str, victim: int) -> bool:
    if os.environ.get("HYPOTHESIS_PROFILE") == "nightly":
        return True
    return " sends " in step and step.endswith(f" to broker-{victim}")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_request_that_was_left_in_a_socket_changes_nothing(kind: Kind) -> None:
    steps = steps_of(kind)
    chosen = [
        (number, victim)
        for number, step in enumerate(steps)
        for victim in (TRANSACTION_COORDINATOR, GROUP_COORDINATOR)
        if is_chosen(step, victim)
    ]
    assert {BEGIN, END, OFFSETS} <= {steps[number] for number, _ in chosen}
    for number, victim in chosen:
        try:
            run(kind, number, victim)
        except BaseException as error:
            error.add_note(f"{kind}: broker-{victim} is paused before {number}, {steps[number]}")
            raise


@pytest.mark.parametrize(
    ("kind", "step", "promise"),
    [
        (Kind(is_commit=True, is_version_2=False), END, "what is aborted is not read"),
        (Kind(is_commit=False, is_version_2=False), END, BROKEN_OFF),
        (Kind(is_commit=True, is_version_2=False), BEGIN, BROKEN_OFF),
        (Kind(is_commit=True, is_version_2=True), BEGIN, BROKEN_OFF),
    ],
)
def test_a_coordinator_that_decides_them_in_another_epoch_is_found_out(
    kind: Kind, step: str, promise: str
) -> None:
    with decide_late_requests():
        number = steps_of(kind).index(step)
        with pytest.raises(AssertionError, match=promise):
            run(kind, number, TRANSACTION_COORDINATOR)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_epoch_for_each_transaction_tells_an_old_end_from_a_new_one(is_commit: bool) -> None:
    """KIP-890: the coordinator could decide it, and nothing would come of it."""
    kind = Kind(is_commit=is_commit, is_version_2=True)
    with decide_late_requests():
        run(kind, steps_of(kind).index(END), TRANSACTION_COORDINATOR)
