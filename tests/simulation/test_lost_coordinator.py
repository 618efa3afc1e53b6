"""What lies on brokers' disks is nobody's to give away because a coordinator does not know it."""

import pytest

from tests.support.simulated_cluster import DATA_FOLDER, SimulatedCluster, simulated_cluster
from tidelog.base.errors import ConfigError, ErrorCode
from tidelog.coordination.memory import MemoryTree
from tidelog.core.controller.requests import TopicReference

TOPIC = "orders"


def forget_everything(cluster: SimulatedCluster) -> None:
    """The ensemble was set up anew, or somebody mistyped the chroot."""
    for broker in cluster.brokers.values():
        broker.kill()
    cluster.run_for(3.0)  # Longer than a session.
    cluster.coordination.tree = MemoryTree()


def start_as_new(cluster: SimulatedCluster, number: int) -> None:
    broker = cluster.brokers[number]
    broker.disk.memory.remove(DATA_FOLDER / "meta.properties")
    broker.start()
    cluster.until(lambda: broker.is_ready)


def test_a_broker_of_a_cluster_that_its_coordinator_does_not_know_does_not_start() -> None:
    """The first to start made topics of its copies, though they lacked what others had."""
    with simulated_cluster(3) as cluster:
        cluster.create(TOPIC, (1, 2, 3))
        assert cluster.produce(TOPIC, 3).error_code == ErrorCode.NONE
        forget_everything(cluster)
        broker = cluster.brokers[2]
        broker.start()
        cluster.world.run_for(5.0)
        assert broker.process is not None
        with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="has forgotten cluster")):
            raise broker.process.failure or AssertionError("it started")
        assert cluster.has_folder(2, TOPIC)


def test_copies_that_nobody_asks_for_are_set_aside_and_not_deleted() -> None:
    """An operator wants a new cluster of what there is; one copy is made topics of, the others
    may be better."""
    with simulated_cluster(2) as cluster:
        cluster.create(TOPIC, (1, 2))
        assert cluster.produce(TOPIC, 3).error_code == ErrorCode.NONE
        forget_everything(cluster)
        start_as_new(cluster, 1)
        start_as_new(cluster, 2)
        assert cluster.state(TOPIC).replicas == (1,)
        assert cluster.end_offset(1, TOPIC) == 3
        disk = cluster.brokers[2].disk.memory
        [aside] = [name for name in disk.list_folder(DATA_FOLDER) if name.endswith("-stray")]
        assert disk.size_bytes(DATA_FOLDER / aside / "00000000000000000000.log") > 0


def test_a_deleted_topic_does_not_come_back_with_a_broker_that_was_away() -> None:
    """Where it had been the last one, its folder was taken for another cluster's and adopted."""
    with simulated_cluster(2) as cluster:
        cluster.create(TOPIC, (1, 2))
        assert cluster.produce(TOPIC, 3).error_code == ErrorCode.NONE
        cluster.brokers[2].kill()
        (outcome,) = cluster.ask(lambda asked: asked.delete_topics([TopicReference(name=TOPIC)]))
        assert outcome.error is ErrorCode.NONE
        cluster.brokers[1].kill()
        cluster.run_for(3.0)
        cluster.brokers[2].start()
        assert cluster.controller().broker_id == 2
        cluster.until(lambda: cluster.brokers[2].is_ready)
        assert cluster.brokers[2].broker is not None
        assert not cluster.brokers[2].broker.controller.image.topics


def test_why_a_broker_cannot_come_back_is_said_once() -> None:
    """It tries again every second, for as long as it takes somebody to find the file."""
    with simulated_cluster(1) as cluster:
        known = cluster.coordination.tree
        cluster.coordination.expire_sessions_of("broker-1")
        cluster.coordination.tree = MemoryTree()
        cluster.run_for(20.0)
        assert cluster.world.trace.history().count("cannot join the cluster again") == 1
        cluster.coordination.tree = known
        cluster.until(lambda: cluster.brokers[1].is_registered)
