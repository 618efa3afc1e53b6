"""Brokers that stop without a word: killed, they are missed at once; paused, after their lease.

A paused process does not know that it was. When it goes on, others may have led for a while, and
what clients have sent to it meanwhile lies in its sockets: it must not acknowledge any of that (C1,
C6). These are the embedded coordinator's figures; ZooKeeper notices both when the session ends.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.support.batches import plain_batch
from tests.support.broker_process import BrokerProcess
from tests.support.confluent import only
from tests.support.raw_client import RawClient
from tests.support.server_process import wait_until
from tests.support.three_brokers import BROKER_IDS, WAIT_TIMEOUT_S, ThreeBrokers
from tidelog.base.errors import ErrorCode
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_topic

TOPIC = "demo"
LEASE_S = 2.0
ANSWER_WITHIN_S = 5.0
# Of requests that were sent to the broker while it was paused, over connections of their own.
WAITING_REQUESTS = 8
# So long that a loaded machine, too, notices a death before the lease would be over.
LONG_LEASE_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path, lease(LEASE_S)) as brokers:
        yield brokers


def lease(seconds: float) -> dict[str, str]:
    return {
        "broker.session.timeout.ms": str(round(1_000 * seconds)),
        "broker.heartbeat.interval.ms": "400",
    }


def new_leader(cluster: ThreeBrokers, *, is_controller: bool) -> BrokerProcess:
    """Who leads a new topic, of which all are in sync."""
    controller_id = cluster.controller_id()
    leads = sorted(BROKER_IDS, key=lambda each: (each == controller_id) != is_controller)
    admin = cluster.admin()
    only(admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[leads])]))
    wait_in_sync(cluster)
    return cluster.brokers[leads[0]]


def wait_in_sync(cluster: ThreeBrokers) -> None:
    wait_until(
        lambda: len(cluster.partition(TOPIC).isrs) == len(BROKER_IDS),
        within_s=WAIT_TIMEOUT_S,
        what="all are in sync",
    )


def leader_as_seen_by(broker: BrokerProcess) -> int | None:
    try:
        view = ask_topic(Address("127.0.0.1", broker.port), TOPIC, timeout_s=ANSWER_WITHIN_S)
    except ClientError:
        return None
    return view.partitions[0].leader if view.partitions else None


def seconds_until_succeeded(cluster: ThreeBrokers, leader: BrokerProcess) -> float:
    """How long it takes from now until somebody else leads, as all others see it."""
    began = time.monotonic()
    (leader_id,) = (each for each, broker in cluster.brokers.items() if broker is leader)
    others = [broker for broker in cluster.brokers.values() if broker is not leader]
    wait_until(
        lambda: all(leader_as_seen_by(each) not in {leader_id, None} for each in others),
        within_s=WAIT_TIMEOUT_S,
        what="another broker leads",
    )
    return time.monotonic() - began


@pytest.mark.parametrize("is_controller", [False, True])
def test_killed_broker_is_missed_long_before_its_lease_is_over(
    tmp_path: Path, is_controller: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with ThreeBrokers(tmp_path, lease(LONG_LEASE_S)) as cluster:
        leader = new_leader(cluster, is_controller=is_controller)
        leader.kill()
        took_s = seconds_until_succeeded(cluster, leader)
    with capsys.disabled():
        who = "leader and controller" if is_controller else "leader"
        print(f"\na killed {who} was succeeded after {1_000 * took_s:.0f} ms")  # noqa: T201
    assert took_s < LONG_LEASE_S / 4


def test_paused_broker_is_missed_when_its_lease_is_over(cluster: ThreeBrokers) -> None:
    leader = new_leader(cluster, is_controller=False)
    leader.pause()
    took_s = seconds_until_succeeded(cluster, leader)
    assert LEASE_S / 2 < took_s < LEASE_S + WAIT_TIMEOUT_S / 4
    leader.resume()
    wait_in_sync(cluster)


@pytest.mark.parametrize("is_controller", [False, True])
def test_paused_leader_acknowledges_nothing_after_others_have_led(
    cluster: ThreeBrokers, is_controller: bool
) -> None:
    leader = new_leader(cluster, is_controller=is_controller)
    with ExitStack() as connections:
        clients = [
            connections.enter_context(RawClient(leader.port)) for _ in range(WAITING_REQUESTS)
        ]
        topic = clients[0].topic(TOPIC)
        assert clients[0].produce(topic, plain_batch()).code == ErrorCode.NONE
        leader.pause()
        seconds_until_succeeded(cluster, leader)
        answers = [client.produce_later(topic, plain_batch()) for client in clients]
        leader.resume()
        assert {answer().code for answer in answers} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        wait_in_sync(cluster)
        assert clients[0].produce(topic, plain_batch()).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
