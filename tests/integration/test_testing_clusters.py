"""Clusters for tests, as plain code and unittest use them, and what a test can do to them (O4)."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

import tidelog.testing
from tests.support.server_process import wait_until
from tidelog.base.errors import ConfigError
from tidelog.lab.errors import LabError
from tidelog.lab.processes import identify
from tidelog.testing import CLIENTS, Broker, Cluster

WITHIN_S = 30.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where clusters that this test starts have their folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_block_has_a_cluster_of_which_nothing_is_left(temporary: Path) -> None:
    with tidelog.testing.cluster(2) as cluster:
        assert cluster.broker_ids == (1, 2)
        assert len(cluster.bootstrap.split(",")) == 2
        assert cluster.folder.parent == temporary
        pids = [cluster.pid_of(broker_id) for broker_id in cluster.broker_ids]
        assert all(identify(pid) is not None for pid in pids)
    assert [identify(pid) for pid in pids] == [None, None]
    assert list(temporary.iterdir()) == []


def test_blocks_within_each_other_know_nothing_of_each_other() -> None:
    with tidelog.testing.broker() as one, tidelog.testing.broker() as other:
        one.create_topic("mine")
        assert one.bootstrap != other.bootstrap
        assert "mine" in one.topics()
        assert "mine" not in other.topics()


@pytest.mark.parametrize("keeps", [False, True])
def test_data_of_a_block_that_failed_is_kept_for_who_asks(temporary: Path, *, keeps: bool) -> None:
    block = tidelog.testing.broker(keep_data=keeps)
    broker = block.__enter__()
    pid, failure = broker.pid_of(1), ZeroDivisionError()
    assert not block.__exit__(type(failure), failure, None), "it is not for us to swallow"
    assert identify(pid) is None
    assert list(temporary.iterdir()) == ([broker.folder] if keeps else [])
    notes = getattr(failure, "__notes__", [])
    assert notes == ([f"the brokers' data is in {broker.folder}"] if keeps else [])


def test_setting_that_no_broker_takes_is_refused_and_leaves_nothing(temporary: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"num\.partitions"),
        tidelog.testing.broker(settings={"num.partitions": "many"}),
    ):
        pytest.fail("a broker took it")
    assert list(temporary.iterdir()) == []


UNITTEST = """
import unittest

import tidelog.testing


class OneForAll(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = cls.enterClassContext(tidelog.testing.broker())

    def test_round_trip(self):
        topic = self.broker.create_topic()
        self.broker.send(topic, "x")
        self.assertEqual([b"x"], [each.value for each in self.broker.records(topic)])


class OneForEach(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(tidelog.testing.cluster(2))

    def test_round_trip(self):
        self.assertEqual((1, 2), self.cluster.broker_ids)
"""


def test_unittest_has_clusters_of_classes_and_of_tests(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNITTEST, "utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "unittest", "test_it"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "Ran 2 tests" in run.stderr
    assert list(tmp_path.glob("tidelog-test-*")) == []


# -- what a test does to a cluster ---------------------------------------------------------------


def test_records_are_read_as_they_were_sent(tidelog_broker: Broker) -> None:
    topic = tidelog_broker.create_topic(partitions=2)
    tidelog_broker.send(topic, "a", None, partition=1, key="k", headers={"h": b"v"})
    tidelog_broker.send(topic, b"b", partition=0)
    read = [
        (one.partition, one.offset, one.key, one.value) for one in tidelog_broker.records(topic)
    ]
    assert read == [(0, 0, None, b"b"), (1, 0, b"k", b"a"), (1, 1, b"k", None)]
    assert tidelog_broker.records(topic)[1].headers == (("h", b"v"),)
    assert tidelog_broker.end_offsets(topic) == {0: 1, 1: 2}


def test_killed_leader_is_replaced_and_comes_back_in_sync(
    tidelog_cluster: Cluster, tidelog_topic: str
) -> None:
    tidelog_cluster.send(tidelog_topic, "before")
    killed = tidelog_cluster.leader_of(tidelog_topic)
    tidelog_cluster.kill_broker(killed)
    assert not tidelog_cluster.is_running(killed)
    assert tidelog_cluster.leader_of(tidelog_topic) != killed
    tidelog_cluster.send(tidelog_topic, "after")
    tidelog_cluster.restart_broker(killed)
    tidelog_cluster.wait_in_sync(tidelog_topic)
    assert set(tidelog_cluster.isr_of(tidelog_topic)) == {1, 2, 3}
    assert [one.value for one in tidelog_cluster.records(tidelog_topic)] == [b"before", b"after"]


def test_stopped_broker_gives_its_leaderships_away_first(tidelog_cluster: Cluster) -> None:
    topic = tidelog_cluster.create_topic(placement=[[2, 1, 3]])
    assert tidelog_cluster.leader_of(topic) == 2
    tidelog_cluster.stop_broker(2)
    assert tidelog_cluster.leader_of(topic) in {1, 3}
    tidelog_cluster.restart_broker(2)
    assert "last stop was not clean" not in tidelog_cluster.log_of(2).splitlines()[-1]
    tidelog_cluster.wait_in_sync(topic)


def test_paused_broker_leaves_the_isr_and_returns(tidelog_cluster: Cluster) -> None:
    topic = tidelog_cluster.create_topic(placement=[[1, 2, 3]])
    tidelog_cluster.pause_broker(3)
    wait_until(
        lambda: 3 not in tidelog_cluster.isr_of(topic),
        within_s=WITHIN_S,
        what="a paused broker leaves the isr",
    )
    with pytest.raises(LabError, match="broker 3 is down or paused"):
        tidelog_cluster.wait_in_sync(topic)
    tidelog_cluster.resume_broker(3)
    tidelog_cluster.wait_in_sync(topic)


@pytest.mark.tidelog(network=True)
def test_follower_that_is_cut_off_leaves_the_isr_until_healed(tidelog_cluster: Cluster) -> None:
    # Not the controller: the coordinator's file goes through no network, so that one stays in
    # office, where no leader can reach it to have an isr changed.
    controller = tidelog_cluster.controller()
    follower, other = (each for each in tidelog_cluster.broker_ids if each != controller)
    topic = tidelog_cluster.create_topic(placement=[[controller, other, follower]])
    with tidelog_cluster.partition_network(follower, [controller, other]):
        # Who has all there is stays in the isr; this is acknowledged when who lacks it has left.
        tidelog_cluster.send(topic, "x")
        wait_until(
            lambda: set(tidelog_cluster.isr_of(topic)) == {controller, other},
            within_s=WITHIN_S,
            what="who is cut off leaves the isr",
        )
    tidelog_cluster.wait_in_sync(topic)


@pytest.mark.tidelog(network=True)
def test_clients_that_are_cut_off_hear_nothing_until_healed(tidelog_cluster: Cluster) -> None:
    topic = tidelog_cluster.create_topic()
    tidelog_cluster.partition_network(CLIENTS)
    refusals: list[KafkaError | None] = []
    cut_off = Producer(
        {"bootstrap.servers": tidelog_cluster.bootstrap, "message.timeout.ms": 500, "log_level": 0}
    )
    cut_off.produce(topic, b"lost", on_delivery=lambda error, _message: refusals.append(error))
    cut_off.flush(WITHIN_S)
    assert [error and error.code() for error in refusals] == [KafkaError._MSG_TIMED_OUT]
    tidelog_cluster.heal_network()
    tidelog_cluster.send(topic, "kept")
    assert [one.value for one in tidelog_cluster.records(topic)] == [b"kept"]


def test_cluster_without_a_network_says_how_to_have_one(tidelog_broker: Broker) -> None:
    with pytest.raises(LabError, match="network=True"):
        tidelog_broker.partition_network(1)


@pytest.mark.tidelog(network=True)
def test_partition_between_nobody_is_refused(tidelog_cluster: Cluster) -> None:
    with pytest.raises(LabError, match="there is no 4"):
        tidelog_cluster.partition_network(4)
    with pytest.raises(LabError, match="on both sides"):
        tidelog_cluster.partition_network([1, 2], [2, 3])


def test_broker_that_is_not_there_is_named(tidelog_broker: Broker) -> None:
    with pytest.raises(LabError, match="no broker 2 in this cluster, only 1"):
        tidelog_broker.kill_broker(2)


def test_killed_broker_comes_back_with_its_records(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    tidelog_broker.send(tidelog_topic, "kept")
    tidelog_broker.kill()
    tidelog_broker.restart()
    assert [one.value for one in tidelog_broker.records(tidelog_topic)] == [b"kept"]


def test_group_of_one_has_its_partitions_without_delay(
    tidelog_broker: Broker, tidelog_topic: str
) -> None:
    """The setting that would have it wait for a second member is off in tests."""
    tidelog_broker.send(tidelog_topic, "x")
    consumer = Consumer(
        {
            "bootstrap.servers": tidelog_broker.bootstrap,
            "group.id": tidelog_topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([tidelog_topic])
    try:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        assert message.value() == b"x"
    finally:
        consumer.close()
