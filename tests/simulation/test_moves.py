"""A move of replicas goes on to its end, whoever dies meanwhile (R11, KIP-455)."""

from functools import partial

import pytest

from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode

TOPIC = "moved"
RECORDS = 50


def moving_cluster(cluster: SimulatedCluster) -> None:
    """A topic on 1 and 2 whose partition is on its way to 3 and 2."""
    cluster.create(TOPIC, (1, 2))
    for _ in range(RECORDS):
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
    assert cluster.move(TOPIC, 0, 3, 2) is ErrorCode.NONE


def require_moved(cluster: SimulatedCluster) -> None:
    cluster.until(lambda: cluster.is_at(TOPIC, 0, 3, 2))
    cluster.until(lambda: not cluster.has_folder(1, TOPIC))
    assert cluster.runner(1, TOPIC) is None
    assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
    assert cluster.end_offset(3, TOPIC) == RECORDS + 1
    cluster.until(lambda: cluster.end_offset(2, TOPIC) == RECORDS + 1)


def test_a_partition_moves_with_all_its_records() -> None:
    with simulated_cluster(3) as cluster:
        moving_cluster(cluster)
        require_moved(cluster)


@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 20, 40, 80, 160])
@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_broker_that_dies_and_returns_does_not_stop_a_move(victim: int, delay_ms: int) -> None:
    """Among the three are the controller, the leader, who is to go and who is to come."""
    with simulated_cluster(3) as cluster:
        moving_cluster(cluster)
        cluster.run_for(delay_ms / 1_000)
        cluster.brokers[victim].kill()
        cluster.run_for(0.3)
        cluster.brokers[victim].start()
        require_moved(cluster)


@pytest.mark.parametrize("delay_ms", [0, 5, 20, 80])
def test_a_move_goes_on_without_the_controller_that_began_it(delay_ms: int) -> None:
    with simulated_cluster(4) as cluster:
        controller = cluster.controller().broker_id
        others = [number for number in cluster.brokers if number != controller]
        cluster.create(TOPIC, (others[0], others[1]))
        assert cluster.produce(TOPIC, RECORDS).error_code == ErrorCode.NONE
        cluster.move(TOPIC, 0, others[2], others[1])
        cluster.run_for(delay_ms / 1_000)
        cluster.brokers[controller].kill()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, others[2], others[1]))
        cluster.until(lambda: not cluster.has_folder(others[0], TOPIC))


def test_a_replica_that_was_moved_while_its_broker_was_away_is_set_aside_when_it_returns() -> None:
    with simulated_cluster(3) as cluster:
        moving_cluster(cluster)
        cluster.brokers[1].kill()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 3, 2))
        assert cluster.has_folder(1, TOPIC)
        cluster.brokers[1].start()
        cluster.until(lambda: not cluster.has_folder(1, TOPIC))


def test_a_move_that_is_taken_back_leaves_nothing_behind() -> None:
    with simulated_cluster(3) as cluster:
        cluster.create(TOPIC, (1, 2))
        cluster.network.cut_both("broker-3", "broker-1")
        cluster.move(TOPIC, 0, 3, 2)
        cluster.run_for(0.5)
        cluster.network.heal_all()
        cluster.cancel_move(TOPIC, 0)
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 2, 1) or cluster.is_at(TOPIC, 0, 1, 2))
        cluster.until(lambda: not cluster.has_folder(3, TOPIC))
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE


def test_replicas_are_added_and_taken_away() -> None:
    with simulated_cluster(3) as cluster:
        cluster.create(TOPIC, (1,))
        cluster.produce(TOPIC, RECORDS)
        cluster.move(TOPIC, 0, 1, 2, 3)
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 1, 2, 3))
        cluster.move(TOPIC, 0, 2)
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 2))
        assert cluster.end_offset(2, TOPIC) == RECORDS
        cluster.until(lambda: not cluster.has_folder(1, TOPIC))
        cluster.until(lambda: not cluster.has_folder(3, TOPIC))


def test_a_partition_moves_away_and_back() -> None:
    with simulated_cluster(3) as cluster:
        cluster.create(TOPIC, (1, 2))
        for target in [(3, 2), (1, 2), (1, 3), (2, 1), (3, 1), (1, 2)]:
            cluster.produce(TOPIC, 1)
            cluster.move(TOPIC, 0, *target)
            cluster.until(partial(cluster.is_at, TOPIC, 0, *target))
        assert cluster.end_offset(1, TOPIC) == 6
