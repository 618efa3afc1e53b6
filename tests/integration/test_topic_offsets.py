"""Where logs end while partitions get other leaders: librdkafka remembers the old ones."""

from collections.abc import Iterator

import pytest

from tests.support.clients import NewRecord
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.three_brokers import ThreeBrokers, three_brokers
from tidelog.base.ids import TopicPartition
from tidelog.client.topic_offsets import TopicOffsets

__all__ = ["three_brokers"]

ANSWERED_WITHIN_S = 10.0


class OneLog:
    """A partition with three records, and a client that has asked for its end before."""

    def __init__(self, cluster: ThreeBrokers, offsets: TopicOffsets) -> None:
        topics = ReplicatedTopics(cluster)
        self.cluster = cluster
        self.topic = topics.create()
        topics.send(self.topic, [NewRecord(None, b"x", 0, ())] * 3)
        self._offsets = offsets
        assert self.end() == 3

    def end(self) -> int:
        partition = TopicPartition(self.topic, 0)
        return self._offsets.ends([partition])[partition]


@pytest.fixture
def log(three_brokers: ThreeBrokers) -> Iterator[OneLog]:
    with TopicOffsets(
        {"bootstrap.servers": three_brokers.bootstrap, "log_level": "0"},
        is_committed_only=False,
        timeout_s=ANSWERED_WITHIN_S,
    ) as offsets:
        yield OneLog(three_brokers, offsets)
    three_brokers.start()


def test_a_dead_leader_is_given_up_for_the_one_after_it(log: OneLog) -> None:
    log.cluster.leader(log.topic).kill()
    assert log.end() == 3


def test_a_leader_in_a_later_epoch_is_found(log: OneLog) -> None:
    leader = log.cluster.leader(log.topic)
    leader.stop()
    leader.start()
    log.cluster.wait_whole(log.topic)
    log.cluster.elect_preferred(log.topic, partition_count=1)
    assert log.cluster.leader(log.topic) is leader
    assert log.end() == 3
