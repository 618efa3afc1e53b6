"""Folders of partitions that this broker has lost while it was away are set aside, and kept."""

from pathlib import Path

from tests.support.simulated_cluster import DATA_FOLDER, SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.core.controller.requests import TopicReference

TOPIC = "lost"
OTHER_TOPIC = "kept"
AWAY = 3


def stored(cluster: SimulatedCluster) -> None:
    cluster.create(TOPIC, (1, 2, AWAY))
    cluster.create(OTHER_TOPIC, (AWAY, 2))
    assert cluster.produce(TOPIC, 3).error_code == ErrorCode.NONE
    assert cluster.produce(OTHER_TOPIC, 3).error_code == ErrorCode.NONE


def delete(cluster: SimulatedCluster, topic: str) -> None:
    (outcome,) = cluster.ask(lambda asked: asked.delete_topics([TopicReference(name=topic)]))
    assert outcome.error is ErrorCode.NONE


def set_aside(cluster: SimulatedCluster, number: int = AWAY) -> list[Path]:
    disk = cluster.brokers[number].disk.memory
    names = disk.list_folder(DATA_FOLDER)
    return [DATA_FOLDER / name for name in names if name.endswith("-stray")]


def test_a_topic_that_was_deleted_meanwhile() -> None:
    with simulated_cluster(3) as cluster:
        stored(cluster)
        cluster.brokers[AWAY].kill()
        delete(cluster, TOPIC)
        cluster.brokers[AWAY].start()
        cluster.until(lambda: not cluster.has_folder(AWAY, TOPIC))
        (folder,) = set_aside(cluster)
        disk = cluster.brokers[AWAY].disk.memory
        assert disk.size_bytes(folder / "00000000000000000000.log") > 0
        cluster.run_for(120.0)  # Longer than `file.delete.delay.ms`.
        assert set_aside(cluster) == [folder]
        cluster.until(lambda: cluster.is_at(OTHER_TOPIC, 0, AWAY, 2))
        assert cluster.end_offset(AWAY, OTHER_TOPIC) == 3


def test_all_topics_were_deleted_meanwhile() -> None:
    """There is no role to give then, and the broker has to hear that, too."""
    with simulated_cluster(3) as cluster:
        stored(cluster)
        cluster.brokers[AWAY].kill()
        delete(cluster, TOPIC)
        delete(cluster, OTHER_TOPIC)
        cluster.brokers[AWAY].start()
        cluster.until(lambda: len(set_aside(cluster)) == 2)


def test_a_topic_that_was_made_anew_elsewhere() -> None:
    with simulated_cluster(3) as cluster:
        stored(cluster)
        cluster.brokers[AWAY].kill()
        delete(cluster, TOPIC)
        cluster.create(TOPIC, (1, 2))
        cluster.brokers[AWAY].start()
        cluster.until(lambda: not cluster.has_folder(AWAY, TOPIC))
        assert len(set_aside(cluster)) == 1
        assert cluster.is_at(TOPIC, 0, 1, 2)


def test_nothing_is_set_aside_before_a_controller_has_said_so() -> None:
    with simulated_cluster(3) as cluster:
        stored(cluster)
        cluster.brokers[AWAY].kill()
        delete(cluster, TOPIC)
        controller = cluster.controller()
        cluster.network.cut_both(f"broker-{AWAY}", controller.host)
        cluster.brokers[AWAY].start()
        cluster.run_for(20.0)
        assert cluster.has_folder(AWAY, TOPIC)
        cluster.network.heal_all()
        cluster.until(lambda: not cluster.has_folder(AWAY, TOPIC))


def test_a_topic_that_was_deleted_while_the_disk_was_broken() -> None:
    with simulated_cluster(3) as cluster:
        stored(cluster)
        cluster.brokers[AWAY].disk.fill()
        cluster.produce(TOPIC, 1)
        delete(cluster, TOPIC)
        cluster.run_for(5.0)
        cluster.brokers[AWAY].disk.heal()
        cluster.until(lambda: not cluster.has_folder(AWAY, TOPIC))
        cluster.until(lambda: cluster.is_at(OTHER_TOPIC, 0, AWAY, 2))
