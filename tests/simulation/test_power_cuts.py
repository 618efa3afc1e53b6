"""What a power cut took from a disk does not become the truth, whoever else goes wrong (R13)."""

from pathlib import Path
from random import Random

from tests.support.simulated_cluster import DATA_FOLDER, SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode

TOPIC = "kept"
RECORDS = 10
LONGER_THAN_A_BROKER_WAITS_S = 15.0
CHECKPOINTED_WITHIN_S = 6.0


def cluster_with_records(cluster: SimulatedCluster) -> None:
    cluster.create(TOPIC, (2, 3, 1))
    assert cluster.produce(TOPIC, RECORDS).error_code == ErrorCode.NONE
    cluster.until(lambda: all(cluster.end_offset(one, TOPIC) == RECORDS for one in (1, 2, 3)))


def cut_power_of_the_leader(cluster: SimulatedCluster) -> None:
    """It is back before its session has ended, with an empty log."""
    cluster.brokers[2].power_cut(Random(1))
    cluster.brokers[2].start()


def remove_all(cluster: SimulatedCluster, number: int, folder: Path) -> None:
    disk = cluster.brokers[number].disk.memory
    for name in disk.list_folder(folder):
        path = folder / name
        if disk.is_folder(path):
            remove_all(cluster, number, path)
        else:
            disk.remove(path)
    disk.remove_folder(folder)


def require_no_part_in_the_isr(cluster: SimulatedCluster) -> None:
    cluster.brokers[2].start()
    cluster.until(lambda: cluster.brokers[2].is_ready)
    assert 2 not in cluster.state(TOPIC).isr


def register_unseen(cluster: SimulatedCluster) -> None:
    """The leader's old registration ends and a new one begins, and the controller hears nothing."""
    assert cluster.controller().broker_id == 1
    cluster.run_for(1.0)
    cluster.network.cut("coordinator", "broker-1")
    cluster.until(lambda: cluster.brokers[2].is_registered)
    cluster.run_for(0.01)  # Nobody has answered it by then.


def require_records_are_kept(cluster: SimulatedCluster) -> None:
    cluster.until(lambda: cluster.is_at(TOPIC, 0, 2, 3, 1))
    assert cluster.end_offset(2, TOPIC) == RECORDS


def test_the_first_to_return_does_not_lead_if_it_has_lost_its_records() -> None:
    with simulated_cluster(3) as cluster:
        cluster_with_records(cluster)
        for number in (1, 3):
            cluster.brokers[number].kill()
        cut_power_of_the_leader(cluster)
        cluster.until(lambda: cluster.brokers[2].is_ready)
        assert 2 not in cluster.state(TOPIC).isr
        for number in (1, 3):
            cluster.brokers[number].start()
        require_records_are_kept(cluster)


def test_the_first_to_return_does_not_lead_if_it_has_another_disk() -> None:
    with simulated_cluster(3) as cluster:
        cluster_with_records(cluster)
        for number in (1, 2, 3):
            cluster.brokers[number].kill()
        remove_all(cluster, 2, DATA_FOLDER)
        require_no_part_in_the_isr(cluster)
        for number in (1, 3):
            cluster.brokers[number].start()
        require_records_are_kept(cluster)


def test_the_first_to_return_does_not_lead_if_the_folder_of_a_partition_is_gone() -> None:
    """Nor if it dies before anybody has heard of it, when there is a folder again."""
    with simulated_cluster(3) as cluster:
        cluster_with_records(cluster)
        for number in (1, 2, 3):
            cluster.brokers[number].kill()
        remove_all(cluster, 2, DATA_FOLDER / f"{TOPIC}-0")
        cluster.brokers[2].start()
        cluster.until(lambda: cluster.has_folder(2, TOPIC))
        cluster.brokers[2].kill()
        require_no_part_in_the_isr(cluster)
        for number in (1, 3):
            cluster.brokers[number].start()
        require_records_are_kept(cluster)


def test_the_first_to_return_does_not_lead_if_the_end_of_its_log_is_gone() -> None:
    """Its process was killed and its machine ran on, but its disk has damaged what it had."""
    with simulated_cluster(3) as cluster:
        cluster_with_records(cluster)
        cluster.run_for(CHECKPOINTED_WITHIN_S)
        for number in (1, 2, 3):
            cluster.brokers[number].kill()
        disk = cluster.brokers[2].disk.memory
        file = disk.open_existing(DATA_FOLDER / f"{TOPIC}-0" / "00000000000000000000.log")
        file.truncate(file.size_bytes - 1)
        require_no_part_in_the_isr(cluster)
        for number in (1, 3):
            cluster.brokers[number].start()
        require_records_are_kept(cluster)


def test_who_has_lost_its_records_does_not_lead_though_nobody_saw_it_go() -> None:
    with simulated_cluster(3) as cluster:
        cluster_with_records(cluster)
        cut_power_of_the_leader(cluster)
        register_unseen(cluster)
        cluster.network.heal_all()
        require_records_are_kept(cluster)


def test_a_loss_is_not_forgotten_with_the_session_that_told_of_it() -> None:
    """It registers, and its session ends before any controller has seen that."""
    with simulated_cluster(3) as cluster:
        cluster_with_records(cluster)
        cut_power_of_the_leader(cluster)
        register_unseen(cluster)
        cluster.coordination.expire_sessions_of("broker-2")
        cluster.until(lambda: not cluster.brokers[2].is_registered)
        cluster.until(lambda: cluster.brokers[2].is_registered)
        cluster.network.heal_all()
        require_records_are_kept(cluster)


def test_a_loss_is_not_forgotten_because_nobody_answers() -> None:
    """It waits for a controller in vain, goes on without, and is killed."""
    with simulated_cluster(3) as cluster:
        cluster_with_records(cluster)
        cut_power_of_the_leader(cluster)
        register_unseen(cluster)
        cluster.coordination.go_away()
        cluster.run_for(LONGER_THAN_A_BROKER_WAITS_S)
        cluster.brokers[2].kill()
        cluster.network.heal_all()
        cluster.coordination.come_back()
        cluster.brokers[2].start()
        require_records_are_kept(cluster)
