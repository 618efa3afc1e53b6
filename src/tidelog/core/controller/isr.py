"""Changes of in-sync sets that leaders propose (AlterPartition: KIP-497, KIP-841, KIP-903).

The leader knows who has caught up, the controller knows who is alive. So the leader proposes a
whole isr against the state it knows, and the controller takes it if that is the state there is and
every member may be one. Error codes and the order in which faults are looked for are Kafka's.

    code                          the leader
    NONE                          goes on with the state in the answer
    NEW_LEADER_ELECTED            waits for its new role: the proposal also ended a move of replicas
    FENCED_LEADER_EPOCH           is not leader any more, and will hear of it
    INVALID_UPDATE_VERSION        knows an old state, and will hear of the newer one
    INELIGIBLE_REPLICA            tries again later, or without the member that may not be one
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST    gives up
    NOT_CONTROLLER                knows a newer state than the controller: there must be another one

A proposal that was taken, and whose answer was lost, is taken again and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.election import Candidates, NextState
from tidelog.core.controller.image import ClusterImage, PartitionImage
from tidelog.core.controller.reassignment import finish

ANY_BROKER_EPOCH = -1
"""In a proposal: the leader does not know under which registration the member caught up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """`isr` are pairs of a broker and the broker epoch under which it has caught up."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]

    @property
    def members(self) -> tuple[BrokerId, ...]:
        return tuple(broker_id for broker_id, _epoch in self.isr)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrOutcome:
    """The answer for one partition. `state` is what it is now, or None after an error."""

    topic_id: TopicId
    partition: int
    error: ErrorCode
    message: str | None
    state: PartitionImage | None

    def refused(self, code: ErrorCode, message: str) -> "IsrOutcome":
        """The same part of the request, refused after all."""
        return replace(self, error=code, message=message, state=None)


def alter_partitions(
    image: ClusterImage,
    proposals: Sequence[IsrProposal],
    candidates: Candidates,
    *,
    sender: BrokerId,
    sender_epoch: int,
) -> Decision[IsrOutcome]:
    """Take each proposal of `sender` that may be taken; one outcome for each, in order.

    A change that ends a move of replicas must be written to the topic's node as well, in the same
    transaction. Raises RequestRefused(STALE_BROKER_EPOCH) if `sender` does not speak for the
    registration that is known of it.
    """
    candidates.require_registered(sender, sender_epoch)
    decision: Decision[IsrOutcome] = Decision([], [])
    altered: dict[TopicPartition, PartitionImage] = {}
    for proposal in proposals:
        try:
            outcome = _altered(image, altered, proposal, candidates, sender, decision)
        except RequestRefused as refusal:
            outcome = _outcome(proposal, refusal.code, refusal.message, None)
        decision.outcomes.append(outcome)
    return decision


def _altered(
    image: ClusterImage,
    altered: dict[TopicPartition, PartitionImage],
    proposal: IsrProposal,
    candidates: Candidates,
    sender: BrokerId,
    decision: Decision[IsrOutcome],
) -> IsrOutcome:
    topic_partition, state = _find(image, altered, proposal)
    if _is_taken_already(proposal, state, sender):
        return _outcome(proposal, ErrorCode.NONE, None, state)
    _require_current(proposal, state, sender)
    _require_valid(proposal, state, sender)
    _require_eligible(proposal, topic_partition, candidates, sender)
    isr = state.isr if set(proposal.members) == set(state.isr) else proposal.members
    wanted = NextState(replace(state, isr=isr), False, False)
    after = finish(wanted, topic_partition, candidates).after(state)
    if after is None:
        return _outcome(proposal, ErrorCode.NONE, None, state)
    altered[topic_partition] = after
    decision.changes.append(PartitionChanged(*topic_partition, after))
    if after.leader_epoch != state.leader_epoch:
        return _outcome(proposal, ErrorCode.NEW_LEADER_ELECTED, "the replicas have moved", None)
    return _outcome(proposal, ErrorCode.NONE, None, after)


def _outcome(
    proposal: IsrProposal, error: ErrorCode, message: str | None, state: PartitionImage | None
) -> IsrOutcome:
    return IsrOutcome(
        topic_id=proposal.topic_id,
        partition=proposal.partition,
        error=error,
        message=message,
        state=state,
    )


def _find(
    image: ClusterImage, altered: dict[TopicPartition, PartitionImage], proposal: IsrProposal
) -> tuple[TopicPartition, PartitionImage]:
    topic = image.topic_by_id(proposal.topic_id)
    if topic is None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {proposal.topic_id}"
        )
    topic_partition = TopicPartition(topic.name, proposal.partition)
    state = altered.get(topic_partition) or image.partition(*topic_partition)
    if state is None:
        raise RequestRefused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}"
        )
    return topic_partition, state


def _is_taken_already(proposal: IsrProposal, state: PartitionImage, sender: BrokerId) -> bool:
    return (
        state.leader == sender
        and state.leader_epoch == proposal.leader_epoch
        and state.partition_epoch == proposal.partition_epoch + 1
        and set(state.isr) == set(proposal.members)
    )


def _require_current(proposal: IsrProposal, state: PartitionImage, sender: BrokerId) -> None:
    """A proposal counts only if it was made by the leader of the state there is."""
    if (
        proposal.leader_epoch > state.leader_epoch
        or proposal.partition_epoch > state.partition_epoch
    ):
        raise RequestRefused(
            ErrorCode.NOT_CONTROLLER, "the leader knows a newer state than this controller"
        )
    if proposal.leader_epoch < state.leader_epoch:
        raise RequestRefused(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {proposal.leader_epoch} has ended; it is {state.leader_epoch} now",
        )
    if state.leader != sender:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"broker {sender} does not lead, {state.leader} does"
        )
    if proposal.partition_epoch < state.partition_epoch:
        raise RequestRefused(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"partition epoch {proposal.partition_epoch} has ended; "
            f"it is {state.partition_epoch} now",
        )


def _require_valid(proposal: IsrProposal, state: PartitionImage, sender: BrokerId) -> None:
    members = proposal.members
    if len(set(members)) < len(members) or not set(members) <= set(state.replicas):
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"an isr is some of {list(state.replicas)}, each once, not {list(members)}",
        )
    if sender not in members:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"the isr {list(members)} lacks the leader {sender}"
        )


def _require_eligible(
    proposal: IsrProposal,
    topic_partition: TopicPartition,
    candidates: Candidates,
    sender: BrokerId,
) -> None:
    """A member must be alive, under the registration it caught up with, and not about to stop.

    A leader that is about to stop may propose all the same, so that somebody can take over.
    """
    live, staying = candidates.fit(topic_partition)
    for member, broker_epoch in proposal.isr:
        if member not in live:
            raise _ineligible(member, "is not alive")
        if broker_epoch not in {ANY_BROKER_EPOCH, candidates.brokers[member].broker_epoch}:
            raise _ineligible(member, f"is not registered under the broker epoch {broker_epoch}")
        if member not in staying and member != sender:
            raise _ineligible(member, "is shutting down")


def _ineligible(member: BrokerId, reason: str) -> RequestRefused:
    return RequestRefused(ErrorCode.INELIGIBLE_REPLICA, f"broker {member} {reason}")
