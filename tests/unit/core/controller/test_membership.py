"""What follows for partitions from brokers that come and go (C4, R9, R10, R13)."""

from dataclasses import replace

import pytest

from tests.unit.core.controller.clusters import (
    broker,
    brokers,
    cluster,
    ids,
    known,
    partition,
    topic,
)
from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.election import Elections, UncleanElection
from tidelog.core.controller.image import BrokerImage, ClusterImage, LastStop, PartitionImage
from tidelog.core.controller.membership import (
    on_brokers_changed,
    on_loaded,
    on_replicas_changed,
)

TP = TopicPartition("t", 0)


def returned(number: int, stop: LastStop, *, broker_epoch: int = 2) -> dict[BrokerId, BrokerImage]:
    return {BrokerId(number): replace(broker(number, broker_epoch=broker_epoch), stop=stop)}


def states(elected: Elections) -> dict[TopicPartition, PartitionImage]:
    return {TopicPartition(each.topic, each.partition): each.state for each in elected.changes}


def test_a_broker_that_dies_loses_everything_in_one_batch() -> None:
    image = cluster(
        brokers(1, 2, 3),
        topic("a", 1, partition(1, 2), partition(2, 1), partition(2, 3)),
        topic("b", 2, partition(1)),
    )
    assert on_brokers_changed(image, known(brokers(2, 3))).changes == [
        PartitionChanged("a", 0, partition(1, 2, leader=2, isr=(2,), epoch=1)),
        PartitionChanged("a", 1, replace(partition(2, 1, isr=(2,)), partition_epoch=1)),
        PartitionChanged("b", 0, partition(1, leader=NO_BROKER, epoch=1)),
    ]


def test_nothing_follows_if_nobody_came_or_went() -> None:
    image = cluster(brokers(1), topic("t", 1, partition(1, 2, leader=NO_BROKER, isr=(2,))))
    assert on_brokers_changed(image, known(brokers(1))) == Elections([], [])


@pytest.mark.parametrize("stop", [LastStop.CLEAN, LastStop.KILLED])
def test_a_broker_that_is_back_before_it_was_missed_leads_in_a_new_epoch(stop: LastStop) -> None:
    image = cluster(brokers(1, 2), topic("t", 1, partition(1, 2)))
    elected = on_brokers_changed(image, known({**brokers(2), **returned(1, stop)}))
    assert states(elected) == {TP: partition(1, 2, epoch=1)}


def test_a_broker_that_lost_power_is_replaced_before_it_is_back_in_sync() -> None:
    image = cluster(brokers(1, 2), topic("t", 1, partition(1, 2)))
    elected = on_brokers_changed(image, known({**brokers(2), **returned(1, LastStop.LOST)}))
    assert states(elected) == {TP: partition(1, 2, leader=2, isr=(2,), epoch=1)}


def test_an_unclean_election_is_reported() -> None:
    image = cluster(brokers(1, 2), topic("t", 1, partition(1, 2, isr=(1,))))
    elected = on_brokers_changed(image, known(brokers(2), allow_unclean=True))
    assert states(elected) == {TP: partition(1, 2, leader=2, isr=(2,), epoch=1)}
    assert elected.unclean == [UncleanElection(TP, BrokerId(2), ids(1))]


# -- document 003, section 3.6: AR = 0,1,2; ISR = 0,1 ----------------------------------------------

SCENE = cluster(brokers(0, 1, 2), topic("t", 1, partition(0, 1, 2, isr=(0, 1))))


def after(image: ClusterImage, live: dict[BrokerId, BrokerImage]) -> ClusterImage:
    elected = on_brokers_changed(image, known(live))
    assert not elected.unclean
    return replace(image.apply_all(elected.changes), brokers=live)


def leader_and_isr(image: ClusterImage) -> tuple[int, tuple[int, ...]]:
    state = image.topics["t"].partitions[0]
    return state.leader, state.isr


def test_replica_0_crashes_and_1_leads_alone() -> None:
    assert leader_and_isr(after(SCENE, brokers(1, 2))) == (1, (1,))


@pytest.mark.parametrize("stop", LastStop)
def test_0_then_1_crash_and_only_the_last_to_fail_may_lead(stop: LastStop) -> None:
    image = after(after(SCENE, brokers(1, 2)), brokers(2))
    assert leader_and_isr(image) == (NO_BROKER, (1,))
    only_0 = {**brokers(2), **returned(0, stop)}
    assert leader_and_isr(after(image, only_0)) == (NO_BROKER, (1,))
    assert leader_and_isr(after(image, {**only_0, **returned(1, stop)})) == (1, (1,))
    assert leader_and_isr(after(image, {**brokers(2), **returned(1, stop)})) == (1, (1,))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("stop", [LastStop.CLEAN, LastStop.KILLED])
def test_0_and_1_crash_at_once_and_either_may_lead(number: int, stop: LastStop) -> None:
    image = after(SCENE, brokers(2))
    assert leader_and_isr(image) == (NO_BROKER, (0, 1))
    image = after(image, {**brokers(2), **returned(number, stop)})
    assert leader_and_isr(image) == (number, (number,))


@pytest.mark.parametrize("first", [0, 1])
def test_0_and_1_lose_power_at_once_and_the_second_to_return_leads(first: int) -> None:
    second = 1 - first
    image = after(SCENE, brokers(2))
    live = {**brokers(2), **returned(first, LastStop.LOST)}
    image = after(image, live)
    assert leader_and_isr(image) == (NO_BROKER, (second,))
    image = after(image, {**live, **returned(second, LastStop.LOST)})
    assert leader_and_isr(image) == (second, (second,))


# -- a controller that has just loaded -------------------------------------------------------------


def test_a_new_controller_finds_what_happened_while_there_was_none() -> None:
    live = {
        **returned(1, LastStop.CLEAN, broker_epoch=10),
        **returned(2, LastStop.LOST, broker_epoch=10),
    }
    image = cluster(
        live, topic("t", 1, *[partition(1, 2)] * 2, partition(2, 1), partition(3, 1), partition(3))
    )
    written_at = {TopicPartition("t", number): 9 for number in range(5)} | {TP: 11}
    elected = on_loaded(image, written_at, known(live))
    assert states(elected) == {
        TopicPartition("t", 1): partition(1, 2, isr=(1,), epoch=1),
        TopicPartition("t", 2): partition(2, 1, leader=1, isr=(1,), epoch=1),
        TopicPartition("t", 3): partition(3, 1, leader=1, isr=(1,), epoch=1),
        TopicPartition("t", 4): partition(3, leader=NO_BROKER, epoch=1),
    }


def test_a_state_that_was_just_made_has_seen_everybody() -> None:
    live = returned(1, LastStop.LOST, broker_epoch=10)
    assert on_loaded(cluster(live, topic("t", 1, partition(1))), {}, known(live)).changes == []


def test_a_move_ends_when_somebody_in_its_target_can_lead_again() -> None:
    state = replace(
        partition(3, 4, 1, leader=1, isr=(1, 3, 4)),
        adding_replicas=ids(3, 4),
        removing_replicas=ids(1),
    )
    image = cluster(brokers(1, 3, 4), topic("t", 1, state))
    live = {**brokers(1, 4), **returned(3, LastStop.CLEAN)}
    elected = on_brokers_changed(image, known(live, stopping=(4,)))
    # Not yet: broker 4 left the isr because it stops, and the target is not whole.
    (after,) = states(elected).values()
    assert (after.leader, after.isr, after.replicas) == (1, ids(1, 3), ids(3, 4, 1))
    elected = on_brokers_changed(image, known(live))
    assert states(elected) == {TP: partition(3, 4, leader=3, isr=(3, 4), epoch=1)}


def test_a_broken_log_directory_moves_leaderships_and_its_repair_brings_them_back() -> None:
    image = cluster(brokers(1, 2), topic("t", 1, partition(1, 2), partition(2, 1, isr=(2,))))
    broken = known(brokers(1, 2), offline={TopicPartition("t", 1): ids(2), TP: ids(1)})
    both = [TP, TopicPartition("t", 1)]
    elected = on_replicas_changed(image, both, broken)
    assert states(elected) == {
        TP: partition(1, 2, leader=2, isr=(2,), epoch=1),
        TopicPartition("t", 1): partition(2, 1, leader=NO_BROKER, isr=(2,), epoch=1),
    }
    image = image.apply_all(elected.changes)
    assert states(on_replicas_changed(image, both, known(brokers(1, 2)))) == {
        TopicPartition("t", 1): partition(2, 1, isr=(2,), epoch=2)
    }
