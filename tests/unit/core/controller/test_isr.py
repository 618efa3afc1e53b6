"""Proposals of in-sync sets: what is taken and what is refused, in Kafka's words."""

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
    topic_id,
)
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, LeaderEpoch, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.election import Candidates
from tidelog.core.controller.image import BrokerImage, PartitionImage
from tidelog.core.controller.isr import (
    ANY_BROKER_EPOCH,
    IsrOutcome,
    IsrProposal,
    alter_partitions,
)

STATE = replace(partition(1, 2, 3, isr=(1, 2), epoch=5), partition_epoch=7)


def proposal(
    *members: int,
    leader_epoch: int = 5,
    partition_epoch: int = 7,
    broker_epoch: int = 1,
    number: int = 0,
    topic_number: int = 1,
) -> IsrProposal:
    return IsrProposal(
        topic_id=topic_id(topic_number),
        partition=number,
        leader_epoch=LeaderEpoch(leader_epoch),
        partition_epoch=partition_epoch,
        isr=tuple((BrokerId(member), broker_epoch) for member in members),
    )


def decided(
    *proposals: IsrProposal,
    state: PartitionImage = STATE,
    candidates: Candidates | None = None,
    sender: int = 1,
) -> Decision[IsrOutcome]:
    candidates = candidates or known(brokers(1, 2, 3))
    image = cluster(dict(candidates.brokers), topic("t", 1, state))
    return alter_partitions(image, proposals, candidates, sender=BrokerId(sender), sender_epoch=1)


def test_a_follower_that_has_caught_up_joins() -> None:
    decision = decided(proposal(1, 2, 3))
    after = replace(STATE, isr=ids(1, 2, 3), partition_epoch=8)
    assert decision.changes == [PartitionChanged("t", 0, after)]
    assert [(each.error, each.state) for each in decision.outcomes] == [(ErrorCode.NONE, after)]


def test_a_follower_that_lags_leaves() -> None:
    after = replace(STATE, isr=ids(1), partition_epoch=8)
    assert decided(proposal(1)).changes == [PartitionChanged("t", 0, after)]


def test_a_proposal_whose_answer_was_lost_is_taken_again() -> None:
    decision = decided(proposal(2, 1, partition_epoch=6))
    assert decision.changes == []
    assert [(each.error, each.state) for each in decision.outcomes] == [(ErrorCode.NONE, STATE)]


def test_a_proposal_of_what_is_so_already_changes_nothing() -> None:
    decision = decided(proposal(2, 1))
    assert decision.changes == []
    assert [(each.error, each.state) for each in decision.outcomes] == [(ErrorCode.NONE, STATE)]


@pytest.mark.parametrize(
    ("proposed", "expected"),
    [
        (proposal(1, topic_number=9), ErrorCode.UNKNOWN_TOPIC_ID),
        (proposal(1, number=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(1, number=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(1, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(1, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (proposal(1, partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(1, 2, partition_epoch=5), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(1, partition_epoch=8), ErrorCode.NOT_CONTROLLER),
        (proposal(), ErrorCode.INVALID_REQUEST),
        (proposal(1, 4), ErrorCode.INVALID_REQUEST),
        (proposal(1, 1), ErrorCode.INVALID_REQUEST),
        (proposal(2, 3), ErrorCode.INVALID_REQUEST),
        (proposal(1, 3, broker_epoch=2), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_wrong_proposal_is_refused(proposed: IsrProposal, expected: ErrorCode) -> None:
    decision = decided(proposed)
    assert decision.changes == []
    (outcome,) = decision.outcomes
    assert (outcome.error, outcome.state) == (expected, None)


def test_a_broker_that_does_not_lead_proposes_nothing() -> None:
    assert decided(proposal(1, 2), sender=2).outcomes[0].error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "candidates",
    [
        known(brokers(1, 2)),
        known(brokers(1, 2, 3), stopping=(3,)),
        known(brokers(1, 2, 3), offline={TopicPartition("t", 0): ids(3)}),
        known({**brokers(1, 2), BrokerId(3): broker(3, broker_epoch=2)}),
    ],
)
def test_who_is_not_fit_does_not_join(candidates: Candidates) -> None:
    decision = decided(proposal(1, 2, 3), candidates=candidates)
    assert decision.outcomes[0].error is ErrorCode.INELIGIBLE_REPLICA


def test_a_member_without_a_broker_epoch_is_taken_at_its_leaders_word() -> None:
    decision = decided(proposal(1, 2, 3, broker_epoch=ANY_BROKER_EPOCH))
    assert decision.outcomes[0].error is ErrorCode.NONE


def test_a_leader_that_is_about_to_stop_may_let_others_in() -> None:
    decision = decided(proposal(1, 2, 3), candidates=known(brokers(1, 2, 3), stopping=(1,)))
    assert decision.outcomes[0].error is ErrorCode.NONE


@pytest.mark.parametrize("live", [brokers(2, 3), {BrokerId(1): broker(1, broker_epoch=2)}])
def test_a_sender_that_is_not_registered_is_refused_as_a_whole(
    live: dict[BrokerId, BrokerImage],
) -> None:
    with pytest.raises(RequestRefused) as refusal:
        decided(proposal(1), candidates=known(live))
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_neighbours_of_a_wrong_proposal_are_served_and_a_second_one_sees_the_first() -> None:
    decision = decided(proposal(1, number=9), proposal(1), proposal(1), proposal(1, 2))
    assert [each.error for each in decision.outcomes] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert len(decision.changes) == 1


MOVING = replace(
    partition(3, 4, 1, 2, leader=1, isr=(1, 2, 3), epoch=5),
    partition_epoch=7,
    adding_replicas=ids(3, 4),
    removing_replicas=ids(1, 2),
)


def test_a_move_whose_target_is_in_sync_is_done_and_the_old_leader_hears_of_it() -> None:
    decision = decided(proposal(1, 2, 3, 4), state=MOVING, candidates=known(brokers(1, 2, 3, 4)))
    after = replace(partition(3, 4, leader=3, isr=(3, 4), epoch=6), partition_epoch=8)
    assert decision.changes == [PartitionChanged("t", 0, after)]
    assert decision.outcomes[0].error is ErrorCode.NEW_LEADER_ELECTED
    failed = decision.failed(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    assert failed[0].error is ErrorCode.REQUEST_TIMED_OUT


def test_a_move_that_only_adds_is_done_without_a_new_leader_epoch() -> None:
    adding = replace(
        partition(1, 2, 3, isr=(1, 2), epoch=5), partition_epoch=7, adding_replicas=ids(3)
    )
    decision = decided(proposal(1, 2, 3), state=adding)
    after = replace(partition(1, 2, 3, epoch=5), partition_epoch=8)
    assert decision.changes == [PartitionChanged("t", 0, after)]
    assert decision.outcomes[0].state == after
