"""A move of replicas between real brokers goes on to its end through kill -9 (R11)."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient

from tests.support.clients import (
    CLIENT_TIMEOUT_S,
    NewRecord,
    numbered_records,
    read_partition,
    send,
)
from tests.support.server_process import wait_until
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers

RECORDS = 4_000
VALUE_BYTES = 1_000
# One answer of a leader is one MiB, so the copy is under way for a while.
SLOW = "50000"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path_factory.mktemp("moves")) as running:
        yield running


def alter(cluster: ThreeBrokers, kind: ResourceType, name: str, setting: str, value: str) -> None:
    """Set it, or take it away if the value is empty."""
    operation = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
    entry = ConfigEntry(setting, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin = cluster.admin()
    admin.incremental_alter_configs([resource])[resource].result(CLIENT_TIMEOUT_S)


def throttle(cluster: ThreeBrokers, topic: str, rate: str) -> None:
    for broker_id in BROKER_IDS:
        alter(
            cluster,
            ResourceType.BROKER,
            str(broker_id),
            "leader.replication.throttled.rate",
            rate,
        )
    replicas = "*" if rate else ""
    alter(cluster, ResourceType.TOPIC, topic, "leader.replication.throttled.replicas", replicas)


def move(cluster: ThreeBrokers, topic: str, target: list[int]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        one = KafkaPythonPartition(topic, 0)
        assert admin.alter_partition_reassignments({one: target}) == {one: None}
    finally:
        admin.close()


def filled(cluster: ThreeBrokers, topic: str) -> list[NewRecord]:
    """A topic on brokers 1 and 2, led by 1, with some megabytes in it."""
    cluster.create(topic, (1, 2))
    records = numbered_records(RECORDS, value_size_bytes=VALUE_BYTES, seed=topic)
    send(cluster.bootstrap, topic, records, partition=0, settings={"acks": "all"})
    return records


def require_moved(cluster: ThreeBrokers, topic: str, records: list[NewRecord]) -> None:
    cluster.wait_in_sync(topic, 0, (3, 2))
    stored = read_partition(cluster.bootstrap, topic, 0)
    assert [record.value for record in stored] == [record.value for record in records]
    wait_until(
        lambda: not cluster.folder_of(1, topic).exists(),
        within_s=CLIENT_TIMEOUT_S,
        what="the replica that was moved is gone",
    )


@pytest.mark.parametrize("victim", ["controller", "leader", "target", "staying"])
def test_a_move_goes_on_after_kill_9(cluster: ThreeBrokers, victim: str) -> None:
    topic = f"moved-past-{victim}"
    records = filled(cluster, topic)
    throttle(cluster, topic, SLOW)
    move(cluster, topic, [3, 2])
    wait_until(
        lambda: cluster.folder_of(3, topic).exists(),
        within_s=CLIENT_TIMEOUT_S,
        what="the new replica is being filled",
    )
    number = {"leader": 1, "staying": 2, "target": 3}.get(victim) or cluster.controller_id()
    cluster.brokers[number].kill()
    cluster.brokers[number].start()
    state = cluster.partition(topic)
    assert sorted(state.replicas) == [1, 2, 3], "the move was over before anybody was killed"
    throttle(cluster, topic, "")
    require_moved(cluster, topic, records)


def test_all_brokers_may_die_in_the_middle_of_a_move(cluster: ThreeBrokers) -> None:
    topic = "moved-past-everybody"
    records = filled(cluster, topic)
    throttle(cluster, topic, SLOW)
    move(cluster, topic, [3, 2])
    cluster.kill()
    cluster.start()
    throttle(cluster, topic, "")
    require_moved(cluster, topic, records)


def test_a_rolling_restart_does_not_end_a_move(cluster: ThreeBrokers) -> None:
    topic = "moved-while-restarting"
    records = filled(cluster, topic)
    throttle(cluster, topic, SLOW)
    move(cluster, topic, [3, 2])
    for broker in cluster.brokers.values():
        broker.restart()
    throttle(cluster, topic, "")
    require_moved(cluster, topic, records)
