"""Replicas that are being filled take no more than they may (KIP-73)."""

from collections.abc import Mapping

from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.core.controller.requests import ConfigAlteration, ConfigResource, ResourceType

TOPIC = "filled"
SET, DELETE = 0, 1
BATCH_RECORDS = 100
BATCHES = 200
# A throttle cannot be finer than what one fetch brings.
SMALL_FETCHES = {"replica.fetch.max.bytes": "8192"}


def alter(
    cluster: SimulatedCluster, kind: ResourceType, name: str, settings: Mapping[str, str | None]
) -> None:
    """Set these, or take away those that are None."""
    steps = tuple(
        ConfigAlteration(key, DELETE if value is None else SET, value)
        for key, value in settings.items()
    )
    (outcome,) = cluster.ask(
        lambda requests: requests.incremental_alter_configs(
            [(ConfigResource(kind, name), steps)], validate_only=False
        )
    )
    assert outcome.error is ErrorCode.NONE, outcome


def fill(cluster: SimulatedCluster) -> int:
    """A topic on broker 1 with some records; how many bytes they take."""
    cluster.create(TOPIC, (1,))
    for _ in range(BATCHES):
        assert cluster.produce(TOPIC, BATCH_RECORDS).error_code == ErrorCode.NONE
    runner = cluster.runner(1, TOPIC)
    assert runner is not None
    return sum(segment.size_bytes for segment in runner.log.segments)


def seconds_to_copy(cluster: SimulatedCluster) -> float:
    began_s = cluster.world.now_s
    cluster.move(TOPIC, 0, 1, 2)
    cluster.until(lambda: cluster.is_at(TOPIC, 0, 1, 2))
    return cluster.world.now_s - began_s


def test_without_a_throttle_a_copy_takes_no_time() -> None:
    with simulated_cluster(2, SMALL_FETCHES) as cluster:
        fill(cluster)
        assert seconds_to_copy(cluster) < 2


def test_a_throttled_leader_sends_no_faster_than_it_may() -> None:
    with simulated_cluster(2, SMALL_FETCHES) as cluster:
        size_bytes = fill(cluster)
        alter(
            cluster,
            ResourceType.BROKER,
            "1",
            {"leader.replication.throttled.rate": str(size_bytes // 20)},
        )
        alter(cluster, ResourceType.TOPIC, TOPIC, {"leader.replication.throttled.replicas": "0:1"})
        assert 12 < seconds_to_copy(cluster) < 28


def test_a_throttled_follower_fetches_no_faster_than_it_may() -> None:
    with simulated_cluster(2, SMALL_FETCHES) as cluster:
        size_bytes = fill(cluster)
        alter(
            cluster,
            ResourceType.BROKER,
            "2",
            {"follower.replication.throttled.rate": str(size_bytes // 20)},
        )
        alter(cluster, ResourceType.TOPIC, TOPIC, {"follower.replication.throttled.replicas": "*"})
        assert 12 < seconds_to_copy(cluster) < 28


def test_who_is_in_sync_is_not_held_back() -> None:
    with simulated_cluster(2, SMALL_FETCHES) as cluster:
        cluster.create(TOPIC, (1, 2))
        for broker in ("1", "2"):
            alter(
                cluster,
                ResourceType.BROKER,
                broker,
                {
                    "leader.replication.throttled.rate": "1",
                    "follower.replication.throttled.rate": "1",
                },
            )
        alter(
            cluster,
            ResourceType.TOPIC,
            TOPIC,
            {
                "leader.replication.throttled.replicas": "*",
                "follower.replication.throttled.replicas": "*",
            },
        )
        began_s = cluster.world.now_s
        for _ in range(20):
            assert cluster.produce(TOPIC, 100).error_code == ErrorCode.NONE
        assert cluster.world.now_s - began_s < 10
        assert sorted(cluster.state(TOPIC).isr) == [1, 2]


def test_a_throttle_that_is_taken_away_holds_back_no_more() -> None:
    with simulated_cluster(2, SMALL_FETCHES) as cluster:
        fill(cluster)
        rates = {
            "leader.replication.throttled.rate": "10",
            "follower.replication.throttled.rate": "10",
        }
        replicas = {
            "leader.replication.throttled.replicas": "0:1",
            "follower.replication.throttled.replicas": "0:2",
        }
        for broker in ("1", "2"):
            alter(cluster, ResourceType.BROKER, broker, rates)
        alter(cluster, ResourceType.TOPIC, TOPIC, replicas)
        cluster.move(TOPIC, 0, 1, 2)
        cluster.run_for(20)
        assert cluster.state(TOPIC).isr == (1,)
        alter(cluster, ResourceType.TOPIC, TOPIC, dict.fromkeys(replicas))
        began_s = cluster.world.now_s
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 1, 2))
        assert cluster.world.now_s - began_s < 5
