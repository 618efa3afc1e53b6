"""Leaders by request, and back to where they belong (ElectLeaders: KIP-460; R11).

The preferred leader of a partition is the first of its replicas. Placement spreads those evenly, so
a cluster in which everybody leads what it is preferred for is balanced. Brokers that die take that
apart; it is put together again by an administrator or, with `auto.leader.rebalance.enable`, from
time to time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.election import NOBODY_RETURNED, Candidates, NextState, elect
from tidelog.core.controller.image import ClusterImage, PartitionImage
from tidelog.core.controller.reassignment import finish, is_moving


class ElectionType(IntEnum):
    """Which leader is asked for, with the protocol's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionOutcome:
    """The answer for one partition."""

    topic_partition: TopicPartition
    error: ErrorCode
    message: str | None

    def refused(self, code: ErrorCode, message: str) -> "ElectionOutcome":
        """The same part of the request, refused after all."""
        return replace(self, error=code, message=message)


def elect_leaders(
    image: ClusterImage,
    election_type: ElectionType,
    partitions: Iterable[TopicPartition] | None,
    candidates: Candidates,
) -> Decision[ElectionOutcome]:
    """Elect a leader for each of `partitions`, or for all if it is None.

    As in Kafka, an election for all does not name those that need none. An unclean one looks for
    a leader in sync first; what it lost is in `election.unclean_elections`.
    """
    decision: Decision[ElectionOutcome] = Decision([], [])
    for each in _all(image) if partitions is None else dict.fromkeys(partitions):
        error, message = ErrorCode.NONE, None
        try:
            decision.changes.append(_elected(image, election_type, each, candidates))
        except RequestRefused as refusal:
            error, message = refusal.code, refusal.message
        if partitions is not None or error is not ErrorCode.ELECTION_NOT_NEEDED:
            outcome = ElectionOutcome(topic_partition=each, error=error, message=message)
            decision.outcomes.append(outcome)
    return decision


def _all(image: ClusterImage) -> Iterator[TopicPartition]:
    for name, topic in image.topics.items():
        for number in range(len(topic.partitions)):
            yield TopicPartition(name, number)


def _elected(
    image: ClusterImage,
    election_type: ElectionType,
    each: TopicPartition,
    candidates: Candidates,
) -> PartitionChanged:
    state = image.partition(*each)
    if state is None:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {each}")
    if election_type is ElectionType.PREFERRED:
        wanted = _preferred(state, each, candidates)
    else:
        wanted = _any(state, each, candidates)
    after = finish(wanted, each, candidates).after(state)
    assert after is not None
    return PartitionChanged(*each, after)


def _preferred(state: PartitionImage, each: TopicPartition, candidates: Candidates) -> NextState:
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise RequestRefused(ErrorCode.ELECTION_NOT_NEEDED, f"{preferred} leads {each} already")
    if not _may_take_over(state, each, candidates):
        raise RequestRefused(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred} is not alive, not in sync or about to stop",
        )
    return NextState(replace(state, leader=preferred), True, False)


def _may_take_over(state: PartitionImage, each: TopicPartition, candidates: Candidates) -> bool:
    preferred = state.replicas[0]
    return preferred in state.isr and preferred in candidates.fit(each).staying


def _any(state: PartitionImage, each: TopicPartition, candidates: Candidates) -> NextState:
    if state.leader != NO_BROKER:
        raise RequestRefused(ErrorCode.ELECTION_NOT_NEEDED, f"{state.leader} leads {each}")
    allowed = replace(candidates, allow_unclean=lambda _topic: True)
    wanted = elect(state, each, allowed, NOBODY_RETURNED)
    if wanted.state.leader == NO_BROKER:
        raise RequestRefused(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of {list(state.replicas)} is alive and staying",
        )
    return wanted


def rebalance(
    image: ClusterImage, candidates: Candidates, *, imbalance_percentage: int
) -> list[PartitionChanged]:
    """Give back what live brokers are preferred for but do not lead: one batch.

    Brokers that lack no more than `leader.imbalance.per.broker.percentage` of it are passed over.
    So are partitions that move: who is to lead them changes with the move.
    """
    preferred_count: dict[BrokerId, int] = defaultdict(int)
    led_by_others: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for name, topic in image.topics.items():
        for number, state in enumerate(topic.partitions):
            preferred = state.replicas[0]
            preferred_count[preferred] += 1
            if state.leader != preferred:
                led_by_others[preferred].append(TopicPartition(name, number))
    changes: list[PartitionChanged] = []
    for broker_id, lacking in led_by_others.items():
        if 100 * len(lacking) > imbalance_percentage * preferred_count[broker_id]:
            changes += _given_back(image, lacking, candidates)
    return changes


def _given_back(
    image: ClusterImage, lacking: Iterable[TopicPartition], candidates: Candidates
) -> Iterator[PartitionChanged]:
    for each in lacking:
        state = image.topics[each.topic].partitions[each.partition]
        if not is_moving(state) and _may_take_over(state, each, candidates):
            after = _preferred(state, each, candidates).after(state)
            assert after is not None
            yield PartitionChanged(*each, after)
