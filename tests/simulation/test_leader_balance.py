"""Leaderships go back to who is preferred for them, by themselves (R11)."""

from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster

TOPIC = "balanced"
EVERY_SECOND = {"leader.imbalance.check.interval.seconds": "1"}


def leaders(cluster: SimulatedCluster) -> list[int]:
    return [cluster.state(TOPIC, partition).leader for partition in range(3)]


def one_broker_was_away(cluster: SimulatedCluster) -> None:
    """Broker 2 has returned, and leads nothing."""
    cluster.create(TOPIC, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    cluster.brokers[2].kill()
    cluster.until(lambda: leaders(cluster) == [1, 3, 3])
    cluster.brokers[2].start()
    cluster.until(lambda: all(len(cluster.state(TOPIC, n).isr) == 3 for n in range(3)))


def test_a_broker_that_was_away_leads_again_what_it_is_preferred_for() -> None:
    with simulated_cluster(3, EVERY_SECOND) as cluster:
        one_broker_was_away(cluster)
        cluster.until(lambda: leaders(cluster) == [1, 2, 3])
        cluster.until(lambda: all(cluster.is_led(TOPIC, n) for n in range(3)))


def test_the_next_controller_looks_too() -> None:
    with simulated_cluster(3, EVERY_SECOND) as cluster:
        one_broker_was_away(cluster)
        controller = cluster.controller()
        controller.kill()
        cluster.run_for(0.5)
        controller.start()
        cluster.until(lambda: leaders(cluster) == [1, 2, 3])


def test_leaders_stay_where_they_are_if_it_is_not_asked_for() -> None:
    settings = {**EVERY_SECOND, "auto.leader.rebalance.enable": "false"}
    with simulated_cluster(3, settings) as cluster:
        one_broker_was_away(cluster)
        cluster.run_for(5)
        assert leaders(cluster) == [1, 3, 3]


def test_a_share_that_is_small_enough_is_left_alone() -> None:
    settings = {**EVERY_SECOND, "leader.imbalance.per.broker.percentage": "100"}
    with simulated_cluster(3, settings) as cluster:
        one_broker_was_away(cluster)
        cluster.run_for(5)
        assert leaders(cluster) == [1, 3, 3]
