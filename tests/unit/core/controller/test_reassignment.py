"""Moving partitions to other brokers (KIP-455)."""

from dataclasses import replace

import pytest

from tests.unit.core.controller.clusters import brokers, cluster, ids, known, partition, topic
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.election import Candidates, UncleanElection, unclean_elections
from tidelog.core.controller.image import PartitionImage
from tidelog.core.controller.reassignment import (
    Reassignment,
    ReassignmentOutcome,
    alter_reassignments,
    completed,
    list_reassignments,
)

TP = TopicPartition("t", 0)
EVERYBODY = known(brokers(1, 2, 3, 4, 5))


def moving(
    *replicas: int,
    adding: tuple[int, ...],
    removing: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...],
    epoch: int = 0,
) -> PartitionImage:
    state = partition(*replicas, leader=leader, isr=isr, epoch=epoch)
    return replace(state, adding_replicas=ids(*adding), removing_replicas=ids(*removing))


def move(
    state: PartitionImage,
    *targets: tuple[int, ...] | None,
    candidates: Candidates = EVERYBODY,
    allow_replication_factor_change: bool = True,
) -> Decision[ReassignmentOutcome]:
    image = cluster(dict(candidates.brokers), topic("t", 1, state))
    requested = [
        Reassignment("t", 0, None if target is None else ids(*target)) for target in targets
    ]
    return alter_reassignments(
        image,
        requested,
        candidates,
        allow_replication_factor_change=allow_replication_factor_change,
    )


def moved(
    state: PartitionImage, target: tuple[int, ...] | None, candidates: Candidates = EVERYBODY
) -> PartitionImage | None:
    decision = move(state, target, candidates=candidates)
    assert [outcome.error for outcome in decision.outcomes] == [ErrorCode.NONE]
    if not decision.changes:
        return None
    (change,) = decision.changes
    assert isinstance(change, PartitionChanged)
    return change.state


def epochs(state: PartitionImage, *, leader: int, partition: int) -> PartitionImage:
    return replace(state, leader_epoch=LeaderEpoch(leader), partition_epoch=partition)


UNDER_WAY = moving(3, 4, 1, 2, adding=(4,), removing=(1, 2), leader=1, isr=(1, 2, 3), epoch=5)


def test_a_move_begins_with_the_target_and_behind_it_those_that_go() -> None:
    after = moved(partition(1, 2, 3, epoch=5), (3, 4))
    assert after == epochs(UNDER_WAY, leader=5, partition=6)


def test_a_target_that_is_in_sync_is_reached_at_once() -> None:
    assert moved(partition(1, 2, 3), (3, 2)) == partition(3, 2, leader=3, isr=(2, 3), epoch=1)


def test_a_move_without_its_leader_leaves_the_others_out_of_sync_as_they_were() -> None:
    after = moved(partition(1, 2, 3, isr=(1, 2)), (3,))
    expected = moving(3, 1, 2, adding=(), removing=(1, 2), leader=1, isr=(1, 2))
    assert after == epochs(expected, leader=0, partition=1)


def test_another_order_of_the_same_replicas_is_no_move_and_no_election() -> None:
    after = moved(partition(1, 2, 3), (3, 1, 2))
    expected = partition(3, 1, 2, leader=1, isr=(1, 2, 3))
    assert after == epochs(expected, leader=0, partition=1)


def test_a_target_that_is_there_already_changes_nothing() -> None:
    assert moved(partition(1, 2), (1, 2)) is None
    assert moved(UNDER_WAY, (3, 4)) is None


def test_a_replica_that_is_only_added_costs_no_election() -> None:
    state = moved(partition(1, 2), (1, 2, 3))
    assert state == epochs(
        moving(1, 2, 3, adding=(3,), removing=(), leader=1, isr=(1, 2)), leader=0, partition=1
    )


def test_a_move_that_is_taken_back_leaves_the_original_replicas() -> None:
    assert moved(UNDER_WAY, None) == partition(3, 1, 2, leader=1, isr=(1, 2, 3), epoch=6)


def test_who_led_for_a_move_that_is_taken_back_leads_no_more() -> None:
    state = replace(UNDER_WAY, leader=BrokerId(4), isr=ids(4, 2))
    assert moved(state, None) == partition(3, 1, 2, leader=2, isr=(2,), epoch=6)


def test_a_new_target_takes_the_place_of_the_old_one() -> None:
    after = moved(UNDER_WAY, (5, 1))
    assert after == moving(
        5, 1, 3, 2, adding=(5,), removing=(3, 2), leader=1, isr=(1, 2, 3), epoch=6
    )
    assert moved(UNDER_WAY, (1, 2, 3)) == partition(1, 2, 3, leader=1, isr=(1, 2, 3), epoch=6)


def test_the_last_in_sync_replica_is_not_dropped() -> None:
    state = replace(UNDER_WAY, leader=BrokerId(4), isr=ids(4))
    for target in (None, (1, 5)):
        decision = move(state, target)
        assert decision.outcomes[0].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert decision.changes == []


def test_the_last_in_sync_replica_is_dropped_if_the_topic_allows_it_and_that_is_said() -> None:
    state = replace(UNDER_WAY, leader=BrokerId(4), isr=ids(4))
    candidates = known(brokers(2, 4), allow_unclean=True)
    decision = move(state, None, candidates=candidates)
    expected = partition(3, 1, 2, leader=2, isr=(2,), epoch=6)
    assert decision.changes == [PartitionChanged("t", 0, expected)]
    image = cluster(brokers(2, 4), topic("t", 1, state))
    assert unclean_elections(image, decision.changes) == [UncleanElection(TP, BrokerId(2), ids(4))]


def test_nobody_is_dropped_if_those_left_are_about_to_stop() -> None:
    state = replace(UNDER_WAY, leader=BrokerId(4), isr=ids(4, 1))
    decision = move(state, None, candidates=known(brokers(1, 2, 3, 4), stopping=(1,)))
    assert decision.outcomes[0].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_partition_that_nobody_leads_can_be_moved_and_taken_back() -> None:
    offline = partition(1, 2, leader=NO_BROKER, isr=(1,), epoch=3)
    away = known(brokers(2, 3))
    state = moved(offline, (2, 3), away)
    assert state == epochs(
        moving(2, 3, 1, adding=(3,), removing=(1,), leader=NO_BROKER, isr=(1,)),
        leader=3,
        partition=4,
    )
    assert state is not None
    back = moved(state, None, away)
    assert back == epochs(partition(2, 1, leader=NO_BROKER, isr=(1,)), leader=3, partition=5)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 5), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_wrong_target_is_refused(target: tuple[int, ...] | None, code: ErrorCode) -> None:
    decision = move(
        partition(1, 2), target, candidates=known(brokers(1, 2, 3, 4, 5), stopping=(5,))
    )
    assert [outcome.error for outcome in decision.outcomes] == [code]
    assert decision.changes == []


def test_a_partition_may_stay_with_a_broker_that_is_away() -> None:
    after = moved(partition(1, 2, isr=(1,)), (2, 3), known(brokers(1, 3)))
    assert after is not None
    assert after.adding_replicas == ids(3)


@pytest.mark.parametrize(
    ("state", "target", "code"),
    [
        (partition(1, 2), (1, 3), ErrorCode.NONE),
        (partition(1, 2), (3,), ErrorCode.INVALID_REPLICATION_FACTOR),
        (UNDER_WAY, (1, 5), ErrorCode.NONE),
        (UNDER_WAY, (1, 2, 5), ErrorCode.INVALID_REPLICATION_FACTOR),
        (UNDER_WAY, None, ErrorCode.NONE),
    ],
)
def test_a_target_of_another_size_is_refused_if_that_is_asked_for(
    state: PartitionImage, target: tuple[int, ...] | None, code: ErrorCode
) -> None:
    decision = move(state, target, allow_replication_factor_change=False)
    assert [outcome.error for outcome in decision.outcomes] == [code]


def test_partitions_that_do_not_exist_are_refused_and_their_neighbours_served() -> None:
    image = cluster(brokers(1, 2), topic("t", 1, partition(1)))
    decision = alter_reassignments(
        image,
        [
            Reassignment("t", 1, ids(1)),
            Reassignment("absent", 0, None),
            Reassignment("t", 0, ids(2)),
        ],
        known(brokers(1, 2)),
        allow_replication_factor_change=True,
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error for each in decision.outcomes] == [unknown, unknown, ErrorCode.NONE]
    assert len(decision.changes) == 1
    failed = decision.failed(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    assert [each.error for each in failed] == [unknown, unknown, ErrorCode.REQUEST_TIMED_OUT]


def test_the_second_request_for_a_partition_sees_the_first() -> None:
    decision = move(partition(1, 2), (2, 3), None)
    assert [each.error for each in decision.outcomes] == [ErrorCode.NONE] * 2
    image = cluster(brokers(1, 2, 3), topic("t", 1, partition(1, 2)))
    after = image.apply_all(decision.changes).topics["t"].partitions[0]
    assert after == epochs(partition(2, 1, leader=1, isr=(1, 2)), leader=1, partition=2)


def test_a_move_is_done_when_its_target_is_in_sync_and_can_lead() -> None:
    done = replace(UNDER_WAY, isr=ids(1, 3, 4))
    image = cluster(
        brokers(1, 2, 3, 4), topic("t", 1, done, UNDER_WAY, replace(done, leader=NO_BROKER))
    )
    every = [TopicPartition("t", number) for number in range(3)]
    assert completed(image, every, EVERYBODY) == [
        PartitionChanged("t", 0, partition(3, 4, leader=3, isr=(3, 4), epoch=6))
    ]
    assert completed(image, every, known(brokers(1, 2, 3, 4), stopping=(3, 4))) == []
    stays = completed(image, every, known(brokers(1, 2, 3, 4), stopping=(3,)))
    assert [change.state.leader for change in stays] == [4]


def test_moves_are_listed() -> None:
    image = cluster(brokers(1), topic("a", 1, UNDER_WAY, partition(1)), topic("b", 2, UNDER_WAY))
    a, b = (TopicPartition("a", 0), UNDER_WAY), (TopicPartition("b", 0), UNDER_WAY)
    assert list_reassignments(image, None) == [a, b]
    some = [TopicPartition("b", 0), TopicPartition("a", 1), TopicPartition("c", 0), b[0]]
    assert list_reassignments(image, some) == [b]
    assert list_reassignments(image, []) == []
