"""Settings of single groups, on three real brokers (P1, P3)."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from tests.support.broker_process import BrokerProcess
from tests.support.message_client import MessageClient
from tests.support.server_process import wait_until
from tests.support.three_brokers import ThreeBrokers
from tidelog.client.admin import Admin
from tidelog.client.errors import RequestFailed
from tidelog.client.groups import Groups
from tidelog.client.values import GroupResource

SETTINGS = {"offsets.topic.replication.factor": "3", "default.replication.factor": "3"}
HEARTBEAT = "consumer.heartbeat.interval.ms"
ODD = "a/b..%2E é<default>"
"""A group may be called anything; a node of the coordinator's tree may not."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path, SETTINGS) as running:
        running.create("t", [1, 2, 3])
        yield running


def coordinator(cluster: ThreeBrokers, group: str) -> BrokerProcess:
    with Groups(cluster.bootstrap) as groups:
        found = groups.describe([group])[0].coordinator_id
    assert found is not None
    return cluster.brokers[found]


def beat(client: MessageClient, group: str, epoch: int) -> tuple[int, timedelta]:
    """Epoch and interval that a member is told."""
    answer = client.ask(
        ConsumerGroupHeartbeatRequest(
            group_id=GroupId(group),
            member_id="anna",
            member_epoch=i32(epoch),
            rebalance_timeout=i32Timedelta.parse(timedelta(seconds=60)),
            subscribed_topic_names=(TopicName("t"),),
            topic_partitions=() if epoch == 0 else None,
        )
    )
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    assert not answer.error_code, answer
    return answer.member_epoch, answer.heartbeat_interval


@pytest.mark.parametrize("group", ["g", ODD])
def test_a_setting_of_a_group_counts_from_the_next_heartbeat_on_and_outlives_a_restart(
    cluster: ThreeBrokers, group: str
) -> None:
    broker = coordinator(cluster, group)
    with MessageClient("127.0.0.1", broker.port) as client:
        epoch, interval = beat(client, group, 0)
        assert interval == timedelta(seconds=5)
        with Admin(cluster.bootstrap) as admin:
            admin.alter_configs(GroupResource(group), set_values={HEARTBEAT: "7000"}, deleted=[])
            with pytest.raises(RequestFailed, match=HEARTBEAT):
                admin.alter_configs(GroupResource(group), set_values={HEARTBEAT: "1"}, deleted=[])
        wait_until(
            lambda: beat(client, group, epoch)[1] == timedelta(seconds=7),
            within_s=10,
            what="the member is told of the new interval",
        )
        other = beat(client, "other", 0) if coordinator(cluster, "other") is broker else None
        assert other is None or other[1] == timedelta(seconds=5)
    cluster.restart()
    with Admin(cluster.bootstrap) as admin:
        values = {value.name: value for value in admin.configs(GroupResource(group))}
        assert (values[HEARTBEAT].value, values[HEARTBEAT].source) == ("7000", "group")
        assert values["consumer.session.timeout.ms"].is_default
    broker = coordinator(cluster, group)
    with MessageClient("127.0.0.1", broker.port) as client:
        assert beat(client, group, 0)[1] == timedelta(seconds=7)
        with Admin(cluster.bootstrap) as admin:
            admin.alter_configs(GroupResource(group), set_values={}, deleted=[HEARTBEAT])
        wait_until(
            lambda: beat(client, group, 0)[1] == timedelta(seconds=5),
            within_s=10,
            what="the member is told of the old interval",
        )
