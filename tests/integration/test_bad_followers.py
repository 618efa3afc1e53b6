"""A slow or hostile follower does not slow the others, and does not decide what is committed."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import numbered_records, read_partition, send
from tests.support.raw_client import FetchFrom, RawClient, Topic
from tests.support.server_process import wait_until
from tests.support.three_brokers import ThreeBrokers
from tidelog.base.errors import ErrorCode

TOPIC = "t"
LEADER, FOLLOWER, BAD = 1, 2, 3
RECORD_COUNT = 30_000
VALUE_SIZE_BYTES = 1_000
WITHIN_S = 30.0
UNUSED_ID = uuid.UUID(int=0)  # These versions name topics.


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeBrokers]:
    # However long a test takes, nobody is sent away for standing still.
    settings = {"replica.lag.time.max.ms": "120000", "broker.session.timeout.ms": "120000"}
    with ThreeBrokers(tmp_path, settings) as cluster:
        cluster.create(TOPIC, (LEADER, FOLLOWER, BAD))
        cluster.wait_in_sync(TOPIC, 0, (LEADER, FOLLOWER, BAD))
        yield cluster


def log_bytes(cluster: ThreeBrokers, node_id: int) -> int:
    return sum(file.stat().st_size for file in cluster.folder_of(node_id, TOPIC).glob("*.log"))


def test_follower_that_stands_still_does_not_hold_up_the_other(cluster: ThreeBrokers) -> None:
    """It is asked for nothing and reads nothing; its answers fill the leader's buffers."""
    records = numbered_records(RECORD_COUNT, value_size_bytes=VALUE_SIZE_BYTES, seed="slow")
    cluster.brokers[BAD].pause()
    try:
        bootstrap = cluster.brokers[LEADER].bootstrap
        send(bootstrap, TOPIC, records, partition=0, settings={"acks": "1"})
        wait_until(
            lambda: log_bytes(cluster, FOLLOWER) == log_bytes(cluster, LEADER) > RECORD_COUNT,
            within_s=WITHIN_S,
            what="the other follower has everything",
        )
        assert log_bytes(cluster, BAD) < log_bytes(cluster, LEADER)
        assert sorted(cluster.partition(TOPIC).isrs) == [LEADER, FOLLOWER, BAD]
    finally:
        cluster.brokers[BAD].resume()
    wait_until(
        lambda: len(read_partition(cluster.bootstrap, TOPIC, 0)) == RECORD_COUNT,
        within_s=WITHIN_S,
        what="everything is committed",
    )


@pytest.mark.parametrize("version", [4, 12])
def test_who_only_says_that_it_is_a_follower_commits_nothing(
    cluster: ThreeBrokers, version: int
) -> None:
    """Records of which two replicas have no copy stay uncommitted, whatever somebody claims."""
    for node_id in (FOLLOWER, BAD):
        cluster.brokers[node_id].pause()
    try:
        leader = cluster.brokers[LEADER]
        records = numbered_records(10, value_size_bytes=100, seed="claimed")
        send(leader.bootstrap, TOPIC, records, partition=0, settings={"acks": "1", "linger.ms": 50})
        with RawClient(leader.port) as client:
            claimed = FetchFrom(topic=Topic(TOPIC, UNUSED_ID), offset=10)
            for node_id in (FOLLOWER, BAD):
                answer = client.fetch(claimed, version=version, replica_id=node_id)
                (partition,) = answer.partitions.values()
                assert partition.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert client.list_offsets(TOPIC, -1) == (ErrorCode.NONE, 0, -1)
    finally:
        for node_id in (FOLLOWER, BAD):
            cluster.brokers[node_id].resume()
    wait_until(
        lambda: len(read_partition(cluster.bootstrap, TOPIC, 0)) == 10,
        within_s=WITHIN_S,
        what="everything is committed",
    )
