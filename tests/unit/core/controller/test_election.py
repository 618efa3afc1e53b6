"""Who leads a partition (C4, R9, R13)."""

from collections.abc import Iterable
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
from tidelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.election import (
    Candidates,
    LeaderChoice,
    choose_leader,
    elect,
    elections,
    first_state,
    is_led,
    partitions_led_by,
)
from tidelog.core.controller.image import LastStop, PartitionImage


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


TP = TopicPartition("t", 0)


def candidates(
    *live: int,
    stopping: Iterable[int] = (),
    offline: Iterable[int] = (),
    allow_unclean: bool = False,
) -> Candidates:
    return known(
        brokers(*live),
        stopping=stopping,
        offline={TP: ids(*offline)},
        allow_unclean=allow_unclean,
    )


def elected(
    state: PartitionImage, among: Candidates, **returned: LastStop
) -> PartitionImage | None:
    """The state after an election; `returned` are called b1, b2 and so on."""
    stops = {BrokerId(int(name[1:])): stop for name, stop in returned.items()}
    return elect(state, TP, among, stops).after(state)


def test_a_clean_election_drops_the_dead_from_the_isr_and_raises_both_epochs() -> None:
    after = elected(partition(1, 2, 3, epoch=4), candidates(2, 3))
    assert after == partition(1, 2, 3, leader=2, isr=(2, 3), epoch=5)


def test_a_leader_that_stays_keeps_its_epoch_when_a_dead_follower_leaves_the_isr() -> None:
    after = elected(partition(1, 2, 3, epoch=4), candidates(1, 3))
    assert after == replace(partition(1, 2, 3, isr=(1, 3), epoch=4), partition_epoch=5)


def test_a_partition_in_which_all_is_well_is_left_alone() -> None:
    assert elected(partition(1, 2, epoch=4), candidates(1, 2, 3)) is None


def test_whoever_led_before_leads_again_in_a_new_epoch() -> None:
    after = elected(partition(1, epoch=4), candidates(1), b1=LastStop.CLEAN)
    assert after == partition(1, epoch=5)


def test_without_a_live_member_the_partition_is_offline_and_keeps_its_isr() -> None:
    after = elected(partition(1, 2, 3, isr=(1,)), candidates(2, 3))
    assert after == partition(1, 2, 3, leader=NO_BROKER, isr=(1,), epoch=1)


def test_an_offline_partition_that_stays_offline_is_left_alone() -> None:
    offline = partition(1, 2, leader=NO_BROKER, isr=(1,), epoch=7)
    assert elected(offline, candidates(2)) is None


def test_an_unclean_leader_is_alone_in_sync_and_that_is_said() -> None:
    state = partition(1, 2, 3, isr=(1,))
    wanted = elect(state, TP, candidates(2, 3, allow_unclean=True), {})
    assert wanted.after(state) == partition(1, 2, 3, leader=2, isr=(2,), epoch=1)
    assert wanted.unclean


def test_an_unclean_leader_is_not_one_that_is_being_added_if_there_is_another() -> None:
    state = replace(partition(3, 2, 1, leader=1, isr=(1,)), adding_replicas=ids(3))
    after = elected(state, candidates(2, 3, allow_unclean=True))
    assert after is not None
    assert after.leader == 2
    after = elected(state, candidates(3, allow_unclean=True))
    assert after is not None
    assert after.leader == 3


def test_a_replica_on_a_broken_disk_is_as_good_as_dead() -> None:
    after = elected(partition(1, 2, 3), candidates(1, 2, 3, offline=(1,)))
    assert after == partition(1, 2, 3, leader=2, isr=(2, 3), epoch=1)


def test_a_broker_that_stops_gives_way_to_one_that_does_not() -> None:
    after = elected(partition(1, 2, 3), candidates(1, 2, 3, stopping=(1, 2)))
    assert after == partition(1, 2, 3, leader=3, isr=(3,), epoch=1)


def test_a_broker_that_stops_leads_on_while_nobody_else_can() -> None:
    assert elected(partition(1, 2, isr=(1,)), candidates(1, 2, stopping=(1,))) is None


def test_a_broker_that_stops_does_not_begin_to_lead() -> None:
    after = elected(partition(1, 2), candidates(2, stopping=(2,)))
    assert after == partition(1, 2, leader=NO_BROKER, epoch=1)


def test_a_broker_that_registered_anew_is_not_stopping_any_more() -> None:
    anew = Candidates.of(
        {BrokerId(1): broker(1, broker_epoch=9)},
        shutting_down={BrokerId(1): 8},
        offline_replicas={},
        allow_unclean=lambda _topic: False,
    )
    assert anew.fit(TP).staying == {1}


def test_lost_power_costs_a_leadership_where_another_member_lives() -> None:
    after = elected(partition(1, 2), candidates(1, 2), b1=LastStop.LOST)
    assert after == partition(1, 2, leader=2, isr=(2,), epoch=1)


def test_lost_power_costs_a_followers_place_but_no_leader_epoch() -> None:
    after = elected(partition(1, 2, epoch=4), candidates(1, 2), b2=LastStop.LOST)
    assert after == replace(partition(1, 2, isr=(1,), epoch=4), partition_epoch=5)


@pytest.mark.parametrize("stop", [LastStop.CLEAN, LastStop.KILLED])
def test_a_stop_that_lost_nothing_costs_nothing_but_the_leadership(stop: LastStop) -> None:
    """The other member may only seem to be alive; without this one the last copy could be lost."""
    after = elected(partition(1, 2), candidates(1, 2), b1=stop, b2=stop)
    assert after == partition(1, 2, epoch=1)


def test_the_first_of_killed_members_to_return_may_lead() -> None:
    offline = partition(1, 2, 3, leader=NO_BROKER, isr=(1, 2))
    after = elected(offline, candidates(2, 3), b2=LastStop.KILLED)
    assert after == partition(1, 2, 3, leader=2, isr=(2,), epoch=1)


def test_a_member_that_lost_power_waits_for_one_that_did_not() -> None:
    offline = partition(1, 2, leader=NO_BROKER, isr=(1, 2), epoch=3)
    after = elected(offline, candidates(1), b1=LastStop.LOST)
    assert after == replace(offline, isr=ids(2), partition_epoch=4)
    assert after is not None
    assert elected(after, candidates(1, 2), b2=LastStop.CLEAN) == replace(
        after, leader=BrokerId(2), leader_epoch=LeaderEpoch(4), partition_epoch=5
    )


def test_a_last_member_that_lost_power_leads() -> None:
    after = elected(partition(1, 2, isr=(1,)), candidates(1, 2), b1=LastStop.LOST)
    assert after == partition(1, 2, isr=(1,), epoch=1)


def test_of_members_that_all_lost_power_one_leads() -> None:
    everybody = {"b1": LastStop.LOST, "b2": LastStop.LOST}
    after = elected(partition(1, 2), candidates(1, 2, offline=(1,)), **everybody)
    assert after == partition(1, 2, leader=2, isr=(2,), epoch=1)


def test_a_member_that_lost_power_leads_uncleanly_if_that_is_allowed() -> None:
    state = partition(1, 2, leader=NO_BROKER)
    wanted = elect(state, TP, candidates(1, allow_unclean=True), {BrokerId(1): LastStop.LOST})
    assert wanted.after(state) == partition(1, 2, isr=(1,), epoch=1)
    assert wanted.unclean


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
