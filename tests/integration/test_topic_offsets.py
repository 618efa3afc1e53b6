"""Where logs end while partitions get other leaders: librdkafka remembers the old ones."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from tests.support.server_process import wait_until
from tidelog.base.ids import TopicPartition
from tidelog.client.topic_offsets import TopicOffsets
from tidelog.testing import Cluster

ANSWERED_WITHIN_S = 10.0


class OneLog:
    """A partition with three records, and a client that has asked for its end before."""

    def __init__(self, cluster: Cluster, offsets: TopicOffsets, *, replicas: list[int]) -> None:
        self.cluster = cluster
        self.topic = cluster.create_topic(placement=[replicas])
        cluster.send(self.topic, "x", "x", "x")
        self._offsets = offsets
        assert self.end() == 3

    def end(self) -> int:
        partition = TopicPartition(self.topic, 0)
        return self._offsets.ends([partition])[partition]


@pytest.fixture
def offsets(tidelog_cluster: Cluster) -> Iterator[TopicOffsets]:
    with TopicOffsets(
        {"bootstrap.servers": tidelog_cluster.bootstrap, "log_level": "0"},
        is_committed_only=False,
        timeout_s=ANSWERED_WITHIN_S,
    ) as found:
        yield found


@pytest.fixture
def log(tidelog_cluster: Cluster, offsets: TopicOffsets) -> OneLog:
    return OneLog(tidelog_cluster, offsets, replicas=[1, 2, 3])


def test_a_dead_leader_is_given_up_for_the_one_after_it(log: OneLog) -> None:
    log.cluster.kill_broker(log.cluster.leader_of(log.topic))
    assert log.end() == 3


def test_a_log_that_nobody_leads_is_waited_for(
    tidelog_cluster: Cluster, offsets: TopicOffsets
) -> None:
    """As after all of its brokers were away, when they come back one by one."""
    log = OneLog(tidelog_cluster, offsets, replicas=[1])
    tidelog_cluster.kill_broker(1)
    wait_until(
        lambda: not offsets.leaders_of([log.topic]),
        within_s=ANSWERED_WITHIN_S,
        what="nobody leads it",
    )
    with ThreadPoolExecutor() as pool:
        end = pool.submit(log.end)
        tidelog_cluster.restart_broker(1)
        assert end.result() == 3


def test_a_leader_in_a_later_epoch_is_found(log: OneLog) -> None:
    leader = log.cluster.leader_of(log.topic)
    log.cluster.restart_broker(leader)
    log.cluster.wait_in_sync(log.topic)
    admin = AdminClient({"bootstrap.servers": log.cluster.bootstrap, "log_level": 0})
    asked = [ClientPartition(log.topic, 0)]
    answers = admin.elect_leaders(ElectionType.PREFERRED, asked).result(ANSWERED_WITHIN_S)
    assert list(answers.values()) == [None]
    assert log.cluster.leader_of(log.topic) == leader
    assert log.end() == 3
