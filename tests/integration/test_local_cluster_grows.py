"""A local cluster gets another broker while it runs, and may lose one in good order (B3)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.client.admin import Admin
from tidelog.lab.local_cluster import LocalCluster

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
        admin.create_topic("wide", partitions=1, replication_factor=3, configs={})
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
