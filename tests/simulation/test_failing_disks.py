"""A disk that fails costs its replicas their leaderships and nothing else, for a while (S9)."""

from tests.support.simulated_cluster import DATA_FOLDER, SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER
from tidelog.core.controller.requests import TopicReference

TOPIC = "stored"


def led_by_one(cluster: SimulatedCluster, *replicas: int) -> None:
    cluster.create(TOPIC, replicas)
    assert cluster.produce(TOPIC, 3).error_code == ErrorCode.NONE


def break_disk(cluster: SimulatedCluster, number: int) -> None:
    """Its disk is full, and the broker has found out."""
    cluster.brokers[number].disk.fill()
    runner = cluster.runner(number, TOPIC)
    assert runner is not None
    assert runner.leader is not None
    assert cluster.produce(TOPIC, 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert runner.is_offline


def test_somebody_else_leads_while_the_disk_of_the_leader_is_broken() -> None:
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 1, 2, 3)
        break_disk(cluster, 1)
        cluster.until(lambda: cluster.state(TOPIC).leader == 2 and cluster.is_led(TOPIC))
        assert 1 not in cluster.state(TOPIC).isr
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE


def test_the_replica_follows_and_is_in_sync_again_when_its_disk_works() -> None:
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 1, 2, 3)
        break_disk(cluster, 1)
        cluster.until(lambda: cluster.state(TOPIC).leader == 2 and cluster.is_led(TOPIC))
        cluster.produce(TOPIC, 1)
        cluster.brokers[1].disk.heal()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 1, 2, 3))
        assert cluster.end_offset(1, TOPIC) == 4


def test_a_single_replica_has_no_leader_until_its_disk_works_and_then_a_new_epoch() -> None:
    with simulated_cluster(2) as cluster:
        led_by_one(cluster, 1)
        epoch = cluster.state(TOPIC).leader_epoch
        break_disk(cluster, 1)
        cluster.until(lambda: cluster.state(TOPIC).leader == NO_BROKER)
        cluster.brokers[1].disk.heal()
        cluster.until(lambda: cluster.is_led(TOPIC))
        assert cluster.state(TOPIC).leader_epoch > epoch + 1
        assert cluster.produce(TOPIC, 1).base_offset == 3


def test_a_disk_that_failed_for_a_moment_does_not_lead_in_the_epoch_it_led_in() -> None:
    """Its log may be shorter than what followers have of that epoch."""
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 1, 2, 3)
        epoch = cluster.state(TOPIC).leader_epoch
        cluster.network.cut_both("broker-1", "coordinator")
        cluster.network.cut_both("broker-1", "broker-2")
        break_disk(cluster, 1)
        cluster.brokers[1].disk.heal()
        runner = cluster.runner(1, TOPIC)
        assert runner is not None
        cluster.until(lambda: not runner.is_offline)
        assert runner.leader is None
        cluster.network.heal_all()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 1, 2, 3))
        assert cluster.state(TOPIC).leader_epoch > epoch


def test_a_follower_whose_disk_failed_for_a_moment_leaves_the_isr_first() -> None:
    """What it acknowledged may not be there any more, and it could be elected."""
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 1, 2)
        version = cluster.state(TOPIC).partition_epoch
        cluster.brokers[2].disk.fill()
        cluster.produce(TOPIC, 1)
        cluster.brokers[2].disk.heal()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 1, 2))
        assert cluster.state(TOPIC).partition_epoch >= version + 2


def test_writes_go_on_while_the_disk_of_a_follower_is_full_whenever_it_is_tried_again() -> None:
    """Each waited for that follower until it had lagged for `replica.lag.time.max.ms`."""
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 1, 2, 3)
        cluster.brokers[3].disk.fill()
        waits_s = []
        for _ in range(40):
            began_at_s = cluster.world.now_s
            assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
            waits_s.append(cluster.world.now_s - began_at_s)
            cluster.run_for(0.2)
        assert cluster.state(TOPIC).isr == (1, 2)
        assert max(waits_s) < 5.0


def test_a_topic_that_is_deleted_while_a_disk_is_full_makes_room_there() -> None:
    """Its replica was set aside when the disk could be used again, which stayed as full."""
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 1, 2, 3)
        disk = cluster.brokers[3].disk
        disk.fill()
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
        cluster.until(lambda: cluster.state(TOPIC).isr == (1, 2))
        runner = cluster.runner(3, TOPIC)
        assert runner is not None
        assert runner.is_offline
        cluster.ask(lambda asked: asked.delete_topics([TopicReference(name=TOPIC)]))
        cluster.until(lambda: cluster.runner(3, TOPIC) is None)
        cluster.run_for(2.0)
        names = disk.memory.list_folder(DATA_FOLDER)
        assert [name for name in names if name.startswith(TOPIC)] == []


def test_a_broker_with_a_broken_disk_is_not_elected_by_the_next_controller() -> None:
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 1, 2, 3)
        break_disk(cluster, 1)
        cluster.until(lambda: cluster.state(TOPIC).leader == 2 and cluster.is_led(TOPIC))
        controller = cluster.controller()
        controller.kill()
        cluster.run_for(1.0)
        controller.start()
        cluster.until(lambda: controller.is_ready)
        cluster.until(lambda: cluster.is_led(TOPIC))
        assert cluster.state(TOPIC).leader != 1
        cluster.brokers[1].disk.heal()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 1, 2, 3))


def test_a_replica_that_was_to_be_made_meanwhile_is_made_and_is_in_sync() -> None:
    for seed in range(5):
        with simulated_cluster(3, seed=seed) as cluster:
            led_by_one(cluster, 1, 2)
            break_disk(cluster, 1)
            cluster.create("made", (2, 1))
            cluster.until(lambda: cluster.state("made").isr == (2,))
            cluster.brokers[1].disk.heal()
            cluster.until(lambda: cluster.is_at("made", 0, 2, 1))


def all_say(cluster: SimulatedCluster, *offline: int) -> bool:
    """Whether every broker that runs tells clients that these replicas are offline."""
    images = [one.broker.controller.image for one in cluster.brokers.values() if one.broker]
    return all(sorted(image.offline_replicas(TOPIC, 0)) == [*offline] for image in images)


def test_everybody_knows_of_replicas_on_a_broken_disk() -> None:
    """Though their broker is alive, and also if the controller changes."""
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 2, 1, 3)
        break_disk(cluster, 2)
        cluster.until(lambda: all_say(cluster, 2))
        first = cluster.controller()
        assert first.broker_id != 2
        first.kill()
        offline = sorted((2, first.broker_id))
        cluster.until(lambda: cluster.controller() is not first and all_say(cluster, *offline))
        first.start()
        cluster.brokers[2].disk.heal()
        cluster.until(lambda: cluster.is_at(TOPIC, 0, 2, 1, 3) and all_say(cluster))


def test_a_follower_on_a_broken_disk_is_offline_too() -> None:
    with simulated_cluster(3) as cluster:
        led_by_one(cluster, 1, 2, 3)
        cluster.brokers[3].disk.fill()
        cluster.produce(TOPIC, 1)
        cluster.until(lambda: all_say(cluster, 3))
        cluster.brokers[3].kill()
        cluster.until(lambda: all_say(cluster, 3))
        cluster.brokers[3].disk.heal()
        cluster.brokers[3].start()
        cluster.until(lambda: all_say(cluster))
