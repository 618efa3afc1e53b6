"""Both walk-throughs of seeds 002 on production brokers: how a record becomes committed (R3, R4).

The same as in `tests/scenarios/second_fetch_commits.txt` and `parked_fetch_is_woken.txt`, where the
machines are shown alone. Here a leader and a follower talk over a network, and what is compared is
every state that the two of them pass through, in order.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.sim.process import Process

TOPIC = "walked"
LEADER, FOLLOWER = 1, 2
FETCH_WAIT_MAX_S = 0.5


class Step(NamedTuple):
    """LEO, remote LEO and HW of the leader; LEO and HW of the follower."""

    leo: int
    remote_leo: int
    hw: int
    follower_leo: int
    follower_hw: int


BEGINNING = Step(0, 0, 0, 0, 0)
WRITTEN = Step(1, 0, 0, 0, 0)
"""The leader has the record. The smaller of its LEO and the remote LEO is 0, so HW stays."""
COPIED = Step(1, 0, 0, 1, 0)
"""The first fetch asked for 0 and said nothing else. The follower writes; min(1, 0) is its HW."""
COMMITTED = Step(1, 1, 1, 1, 0)
"""The second fetch asks for 1: remote LEO is 1, and so is the smaller of the two."""
KNOWN = Step(1, 1, 1, 1, 1)
"""The answer had no record in it, but the HW."""


class Walk:
    """A topic on two brokers, and every state of it that was different from the one before."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        cluster.create(TOPIC, (LEADER, FOLLOWER))
        cluster.until(lambda: self.now() == BEGINNING)
        self.steps: list[tuple[float, Step]] = [(cluster.world.now_s, BEGINNING)]
        cluster.world.observe(self._look)

    def now(self) -> Step:
        leader = self.cluster.runner(LEADER, TOPIC)
        follower = self.cluster.runner(FOLLOWER, TOPIC)
        assert leader is not None
        assert leader.leader is not None
        assert follower is not None
        return Step(
            leader.leader.log_end_offset,
            leader.leader.followers[BrokerId(FOLLOWER)].log_end_offset,
            leader.high_watermark,
            follower.log.log_end_offset,
            follower.high_watermark,
        )

    def _look(self, _process: Process) -> None:
        step = self.now()
        if step != self.steps[-1][1]:
            self.steps.append((self.cluster.world.now_s, step))

    def moment_of(self, wanted: Step) -> float:
        (moment_s,) = [moment_s for moment_s, step in self.steps if step == wanted]
        return moment_s


@pytest.fixture
def walk() -> Iterator[Walk]:
    with simulated_cluster(2) as cluster:
        yield Walk(cluster)


def test_the_second_fetch_commits(walk: Walk) -> None:
    """The leader has handled the produce request when the follower's fetch comes."""
    cluster = walk.cluster
    follower = cluster.brokers[FOLLOWER].process
    assert follower is not None
    follower.pause()
    cluster.run_for(2 * FETCH_WAIT_MAX_S)  # The fetch that was parked is answered: nothing.
    cluster.world.call_later(0.1, follower.resume)
    assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
    cluster.until(lambda: walk.now() == KNOWN)
    assert [step for _, step in walk.steps] == [BEGINNING, WRITTEN, COPIED, COMMITTED, KNOWN]


def test_a_parked_fetch_is_woken_by_a_record(walk: Walk) -> None:
    """The follower's fetch waits at the leader when the produce request comes."""
    cluster = walk.cluster
    cluster.run_for(0.1)
    assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
    cluster.until(lambda: walk.now() == KNOWN)
    assert [step for _, step in walk.steps] == [BEGINNING, WRITTEN, COPIED, COMMITTED, KNOWN]
    # Not when the wait was over: at once.
    assert walk.moment_of(COMMITTED) - walk.moment_of(WRITTEN) < FETCH_WAIT_MAX_S / 10


def test_a_producer_is_answered_when_the_record_is_committed(walk: Walk) -> None:
    """acks=all: at the second fetch, not when the leader or the follower has written."""
    cluster = walk.cluster
    cluster.produce(TOPIC, 1)
    assert walk.now().hw == 1
    assert walk.steps[-1][1] == COMMITTED
