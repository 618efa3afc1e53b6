"""`tidelog consume --group`, as typed, on three real brokers (O1, P3, D1)."""

import re
import signal
from collections.abc import Iterator

import pytest

from tests.support.command_line import Cluster, objects
from tests.support.server_process import wait_until
from tidelog.client import Producer
from tidelog.client.admin import Admin
from tidelog.client.group_values import GroupDescription
from tidelog.client.groups import Groups

RECORD_COUNT = 30
PARTITIONS = 2
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(
        tmp_path_factory.mktemp("cluster"),
        *("--set", "group.initial.rebalance.delay.ms=0"),
        *("--set", "group.consumer.min.heartbeat.interval.ms=500"),
        *("--set", "group.consumer.heartbeat.interval.ms=500"),
    )
    yield started
    started.down()


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^\w.-]+", ".", request.node.name)[:200]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, partitions=PARTITIONS, configs={})
    produce(cluster, name, range(RECORD_COUNT))
    return name


def produce(cluster: Cluster, topic: str, numbers: range) -> None:
    with Producer(cluster.bootstrap, producer_type="async", queue_buffering_max_ms=5) as producer:
        for number in numbers:
            producer.send(topic, str(number).encode(), partition=number % PARTITIONS)


def committed(cluster: Cluster, group: str) -> int:
    """The sum over partitions."""
    with Groups(cluster.bootstrap) as groups:
        return sum(groups.committed(group).values())


def described(cluster: Cluster, group: str) -> GroupDescription:
    with Groups(cluster.bootstrap) as groups:
        return groups.require(group)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_run_goes_on_where_the_last_one_stopped(
    cluster: Cluster, topic: str, protocol: str
) -> None:
    arguments = ("consume", topic, "--group", topic, "--group-protocol", protocol)
    first = cluster.ok(*arguments, "--max", "10").split()
    assert len(first) == committed(cluster, topic) == 10
    rest = objects(cluster.ok(*arguments, "--json"))
    shown = [int(value) for value in first] + [int(record["value"]) for record in rest]
    assert sorted(shown) == list(range(RECORD_COUNT))
    assert cluster.ok(*arguments) == b""
    assert committed(cluster, topic) == RECORD_COUNT
    assert described(cluster, topic).members == ()


def test_a_new_group_may_begin_at_the_end(cluster: Cluster, topic: str) -> None:
    assert cluster.ok("consume", topic, "--group", topic, "--from", "end") == b""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_that_follow_share_the_topic(cluster: Cluster, topic: str, protocol: str) -> None:
    arguments = ("consume", topic, "--group", topic, "--group-protocol", protocol, "--follow")
    members = [cluster.start(*arguments) for _ in range(2)]
    try:
        wait_until(lambda: is_shared(cluster, topic), within_s=60, what="each has a partition")
        produce(cluster, topic, range(RECORD_COUNT, 2 * RECORD_COUNT))
        wait_until(
            lambda: committed(cluster, topic) == 2 * RECORD_COUNT, within_s=60, what="all is read"
        )
    finally:
        for one in members:
            one.send_signal(signal.SIGINT)
        outputs = [one.communicate(timeout=60) for one in members]
    assert [(one.returncode, error) for one, (_, error) in zip(members, outputs, strict=True)] == [
        (0, b"")
    ] * 2
    shown = {int(line) for output, _ in outputs for line in output.split()}
    assert shown == set(range(2 * RECORD_COUNT))
    assert all(output for output, _ in outputs)


def is_shared(cluster: Cluster, group: str) -> bool:
    with Groups(cluster.bootstrap) as groups:
        known = {listing.group_id for listing in groups.listings()}
        if group not in known:
            return False
        members = groups.require(group).members
    return [len(member.partitions) for member in members] == [1, 1]


@pytest.mark.parametrize("choice", [("--to", "end"), ("--partition", "0"), ("--from", "3")])
def test_a_range_does_not_go_with_a_group(cluster: Cluster, choice: tuple[str, str]) -> None:
    assert "--group" in cluster.no("consume", "t", "--group", "g", *choice, exit_code=2)


def test_a_topic_that_is_not_there_is_said_at_once(cluster: Cluster) -> None:
    assert "nowhere" in cluster.no("consume", "nowhere", "--group", "g", exit_code=1)
