"""Who leads a partition (C4, R9)."""

import pytest

from tests.unit.core.controller.clusters import (
    broker,
    brokers,
    cluster,
    ids,
    partition,
    topic,
)
from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.election import (
    LeaderChoice,
    choose_leader,
    elect,
    elections,
    first_state,
    is_led,
    partitions_led_by,
)


def choice(leader: int, *, unclean: bool) -> LeaderChoice:
    return LeaderChoice(BrokerId(leader), unclean)


@pytest.mark.parametrize(
    ("isr", "live", "allow_unclean", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), False, choice(1, unclean=False)),
        ((3, 2), (2, 3), False, choice(2, unclean=False)),
        ((1,), (2, 3), False, None),
        ((1,), (3, 2), True, choice(2, unclean=True)),
        ((3,), (2, 3), True, choice(3, unclean=False)),
        ((1,), (), True, None),
    ],
)
def test_the_first_live_in_sync_replica_leads(
    isr: tuple[int, ...], live: tuple[int, ...], allow_unclean: bool, expected: LeaderChoice | None
) -> None:
    assert (
        choose_leader(ids(1, 2, 3), ids(*isr), set(ids(*live)), allow_unclean=allow_unclean)
        == expected
    )


def test_a_clean_election_drops_the_dead_from_the_isr_and_raises_both_epochs() -> None:
    after = elect(partition(1, 2, 3, epoch=4), set(ids(2, 3)), allow_unclean=False)
    assert after == partition(1, 2, 3, leader=2, isr=(2, 3), epoch=5)


def test_whoever_led_before_leads_again_in_a_new_epoch() -> None:
    after = elect(partition(1, epoch=4), set(ids(1)), allow_unclean=False)
    assert after == partition(1, epoch=5)


def test_without_a_live_member_the_partition_is_offline_and_keeps_its_isr() -> None:
    after = elect(partition(1, 2, 3, isr=(1,)), set(ids(2, 3)), allow_unclean=False)
    assert after == partition(1, 2, 3, leader=NO_BROKER, isr=(1,), epoch=1)


def test_an_offline_partition_that_stays_offline_is_left_alone() -> None:
    offline = partition(1, 2, leader=NO_BROKER, isr=(1,), epoch=7)
    assert elect(offline, set(ids(2)), allow_unclean=False) is None


def test_an_unclean_leader_is_alone_in_sync() -> None:
    after = elect(partition(1, 2, 3, isr=(1,)), set(ids(2, 3)), allow_unclean=True)
    assert after == partition(1, 2, 3, leader=2, isr=(2,), epoch=1)


def test_a_leader_that_registered_after_the_state_was_written_has_been_away() -> None:
    live = {BrokerId(1): broker(1, broker_epoch=10)}
    assert is_led(partition(1), live, written_at=11)
    assert not is_led(partition(1), live, written_at=9)
    assert not is_led(partition(2), live, written_at=11)
    assert not is_led(partition(1, leader=NO_BROKER), live, written_at=11)


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    assert first_state(ids(1, 2, 3), set(ids(2, 3))) == partition(1, 2, 3, leader=2, isr=(2, 3))
    assert first_state(ids(1, 2), set()) == partition(1, 2, leader=NO_BROKER)


def test_all_partitions_of_a_dead_broker_move_in_one_batch() -> None:
    image = cluster(
        brokers(2, 3),
        topic("a", 1, partition(1, 2), partition(2, 1), partition(1, 3)),
        topic("b", 2, partition(1)),
    )
    leaderless = partitions_led_by(image, {BrokerId(1)})
    assert leaderless == [TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 0)]
    changes = elections(image, leaderless, lambda _topic: False)
    assert changes == [
        PartitionChanged("a", 0, partition(1, 2, leader=2, isr=(2,), epoch=1)),
        PartitionChanged("a", 2, partition(1, 3, leader=3, isr=(3,), epoch=1)),
        PartitionChanged("b", 0, partition(1, leader=NO_BROKER, epoch=1)),
    ]
    assert elections(image.apply_all(changes), [TopicPartition("b", 0)], lambda _: False) == []


def test_unclean_election_is_asked_of_each_topic() -> None:
    image = cluster(
        brokers(2),
        topic("safe", 1, partition(1, 2, isr=(1,))),
        topic("brave", 2, partition(1, 2, isr=(1,))),
    )
    changes = elections(
        image, partitions_led_by(image, {BrokerId(1)}), lambda name: name == "brave"
    )
    assert [change.state.leader for change in changes] == [NO_BROKER, BrokerId(2)]
