"""Leaders by request, and back to where they belong (KIP-460, R11)."""

from dataclasses import replace

import pytest

from tests.unit.core.controller.clusters import brokers, cluster, ids, known, partition, topic
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.election import Candidates, UncleanElection, unclean_elections
from tidelog.core.controller.image import PartitionImage
from tidelog.core.controller.preferred import ElectionType, elect_leaders, rebalance

TP = TopicPartition("t", 0)
LIVE = brokers(1, 2, 3)


def elected(
    election_type: ElectionType, state: PartitionImage, candidates: Candidates | None = None
) -> PartitionImage | ErrorCode:
    candidates = candidates or known(LIVE)
    image = cluster(dict(candidates.brokers), topic("t", 1, state))
    decision = elect_leaders(image, election_type, [TP, TP], candidates)
    (outcome,) = decision.outcomes
    if outcome.error is not ErrorCode.NONE:
        assert decision.changes == []
        return outcome.error
    (change,) = decision.changes
    assert isinstance(change, PartitionChanged)
    return change.state


def test_the_preferred_leader_leads_in_a_new_epoch() -> None:
    assert elected(ElectionType.PREFERRED, partition(1, 2, leader=2)) == partition(1, 2, epoch=1)


@pytest.mark.parametrize(
    ("state", "candidates", "expected"),
    [
        (partition(1, 2), known(LIVE), ErrorCode.ELECTION_NOT_NEEDED),
        (
            partition(1, 2, leader=2, isr=(2,)),
            known(LIVE),
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (
            partition(1, 2, leader=NO_BROKER, isr=(1,)),
            known(brokers(2)),
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (
            partition(1, 2, leader=2),
            known(LIVE, stopping=(1,)),
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (
            partition(1, 2, leader=2),
            known(LIVE, offline={TP: ids(1)}),
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
    ],
)
def test_a_preferred_leader_that_cannot_lead_is_not_elected(
    state: PartitionImage, candidates: Candidates, expected: ErrorCode
) -> None:
    assert elected(ElectionType.PREFERRED, state, candidates) is expected


def test_an_unclean_election_finds_anybody_alive_and_that_is_said() -> None:
    state = partition(1, 2, 3, leader=NO_BROKER, isr=(1,), epoch=2)
    after = partition(1, 2, 3, leader=2, isr=(2,), epoch=3)
    assert elected(ElectionType.UNCLEAN, state, known(brokers(2, 3))) == after
    image = cluster(brokers(2, 3), topic("t", 1, state))
    assert unclean_elections(image, [PartitionChanged("t", 0, after)]) == [
        UncleanElection(TP, BrokerId(2), ids(1))
    ]


def test_an_unclean_election_prefers_who_is_in_sync() -> None:
    state = partition(1, 2, leader=NO_BROKER, isr=(2,))
    assert elected(ElectionType.UNCLEAN, state) == partition(1, 2, leader=2, isr=(2,), epoch=1)


def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    state = partition(1, 2, leader=2)
    assert elected(ElectionType.UNCLEAN, state) is ErrorCode.ELECTION_NOT_NEEDED
    offline = partition(1, 2, leader=NO_BROKER)
    nobody = known(brokers(3))
    assert elected(ElectionType.UNCLEAN, offline, nobody) is (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    )


def test_an_election_for_all_leaves_out_those_that_need_none() -> None:
    image = cluster(
        LIVE, topic("a", 1, partition(1, 2), partition(1, 2, leader=2)), topic("b", 2, partition(9))
    )
    image = image.apply(
        PartitionChanged("b", 0, replace(partition(9, leader=NO_BROKER), partition_epoch=1))
    )
    decision = elect_leaders(image, ElectionType.PREFERRED, None, known(LIVE))
    assert [(each.topic_partition, each.error) for each in decision.outcomes] == [
        (TopicPartition("a", 1), ErrorCode.NONE),
        (TopicPartition("b", 0), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]
    assert [change.state.leader for change in decision.changes] == [1]  # type: ignore[union-attr]


def test_partitions_that_do_not_exist_are_refused() -> None:
    decision = elect_leaders(cluster(LIVE), ElectionType.PREFERRED, [TP], known(LIVE))
    assert [each.error for each in decision.outcomes] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    void = decision.void(ErrorCode.NOT_CONTROLLER, "another")
    assert [each.error for each in void] == [ErrorCode.NOT_CONTROLLER]


TEN = [partition(1, 2)] * 9 + [partition(1, 2, leader=2)]


def test_leaders_go_back_once_more_than_the_allowed_share_is_elsewhere() -> None:
    image = cluster(LIVE, topic("t", 1, *TEN))
    assert rebalance(image, known(LIVE), imbalance_percentage=10) == []
    back = PartitionChanged("t", 9, partition(1, 2, epoch=1))
    assert rebalance(image, known(LIVE), imbalance_percentage=9) == [back]
    assert rebalance(image, known(LIVE), imbalance_percentage=0) == [back]


def test_leaders_go_back_only_to_brokers_that_can_lead() -> None:
    away = partition(1, 2, leader=2)
    image = cluster(
        LIVE,
        topic(
            "t",
            1,
            away,
            replace(away, isr=ids(2)),
            replace(partition(1, 3, 2, leader=2), adding_replicas=ids(3)),
            partition(3, 2, leader=2),
            partition(9, 2, leader=2, isr=(2,)),
        ),
    )
    changes = rebalance(image, known(LIVE, stopping=(3,)), imbalance_percentage=10)
    assert changes == [PartitionChanged("t", 0, partition(1, 2, epoch=1))]
