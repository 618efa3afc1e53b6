"""A local cluster gets another broker while it runs, and may lose one in good order (B3)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import numbered_records, send
from tests.support.server_process import wait_until
from tidelog.client.admin import Admin
from tidelog.lab.errors import LabError
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.network.parties import broker_party

IN_SYNC_WITHIN_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    started = LocalCluster.of_tidelog(tmp_path, "sqlite", lambda: False)
    try:
        started.start(2, {})
        yield started
    finally:
        assert started.stop() == []


def test_a_broker_that_is_added_takes_replicas(cluster: LocalCluster) -> None:
    assert cluster.add_broker() == 3
    assert [broker.id for broker in cluster.brokers] == [1, 2, 3]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("wide", partitions=3, replication_factor=3, configs={})
    cluster.wait_in_sync("wide", 3, within_s=IN_SYNC_WITHIN_S)
    cluster.kill(3)
    cluster.restart(3)
    cluster.wait_in_sync("wide", 3, within_s=IN_SYNC_WITHIN_S)


def test_a_broker_that_was_stopped_has_handed_over_what_it_led(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("led", partitions=4, replication_factor=2, configs={})
    cluster.wait_in_sync("led", 2, within_s=IN_SYNC_WITHIN_S)
    cluster.stop_broker(1)
    assert {each.leader for each in cluster.view("led").partitions} == {2}
    cluster.restart(1)


def test_a_broker_that_is_removed_leaves_its_replicas_to_others(cluster: LocalCluster) -> None:
    cluster.add_broker()
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("moved", partitions=6, replication_factor=2, configs={})
    cluster.wait_in_sync("moved", 2, within_s=IN_SYNC_WITHIN_S)
    for partition in range(6):
        records = numbered_records(10, value_size_bytes=100, seed="moved")
        send(cluster.bootstrap, "moved", records, partition=partition, settings={"acks": "all"})
    cluster.remove_broker(3)
    assert [broker.id for broker in cluster.brokers] == [1, 2]
    cluster.wait_in_sync("moved", 2, within_s=IN_SYNC_WITHIN_S)
    partitions = cluster.view("moved").partitions
    assert {tuple(sorted(each.isr)) for each in partitions} == {(1, 2)}
    with Admin(cluster.bootstrap) as admin:
        bounds = admin.offset_bounds("moved", range(6))
    assert [bounds[each].end_offset for each in range(6)] == [10] * 6
    assert cluster.folder.broker_ids() == [1, 2]
    assert cluster.add_broker() == 3


def test_a_broker_that_nobody_can_replace_is_not_removed(cluster: LocalCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("both", partitions=1, replication_factor=2, configs={})
    cluster.wait_in_sync("both", 2, within_s=IN_SYNC_WITHIN_S)
    with pytest.raises(LabError, match="both-0 has 2 replicas, and only 1 other"):
        cluster.remove_broker(2)
    cluster.wait_in_sync("both", 2, within_s=IN_SYNC_WITHIN_S)


def test_a_broker_that_is_added_is_behind_a_proxy_too(tmp_path: Path) -> None:
    cluster = LocalCluster.of_tidelog(tmp_path, "sqlite", lambda: False, has_network=True)
    try:
        cluster.start(2, {"replica.lag.time.max.ms": "1000"})
        assert cluster.add_broker() == 3
        network = cluster.engine.network
        assert network is not None
        with Admin(cluster.bootstrap) as admin:
            described = admin.describe_cluster()
            admin.create_topic("wide", partitions=3, replication_factor=3, configs={})
        routes = {route.party: route.port for route in network.status().routes}
        assert {broker_party(each.id): each.port for each in described.brokers} == routes
        cluster.wait_in_sync("wide", 3, within_s=IN_SYNC_WITHIN_S)
        network.cut_between([broker_party(3)], [broker_party(1), broker_party(2)])
        # Of what it leads itself it could not tell the controller.
        followed = next(each for each in cluster.view("wide").partitions if each.leader != 3)
        records = numbered_records(1, value_size_bytes=100, seed="wide")
        send(
            cluster.bootstrap, "wide", records, partition=followed.partition, settings={"acks": "1"}
        )
        wait_until(
            lambda: 3 not in cluster.view("wide").partitions[followed.partition].isr,
            within_s=IN_SYNC_WITHIN_S,
            what="the broker that was added is out of sync when it is cut off",
        )
        network.heal_all()
        cluster.wait_in_sync("wide", 3, within_s=IN_SYNC_WITHIN_S)
        with Admin(cluster.bootstrap) as admin:
            admin.delete_topic("wide")
        cluster.remove_broker(3)
        assert [route.party for route in network.status().routes] == [
            broker_party(1),
            broker_party(2),
        ]
    finally:
        assert cluster.stop() == []
