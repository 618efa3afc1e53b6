"""Moving partitions to other brokers (KIP-455).

    stable ──▶ moving ──▶ stable
                 │
                 └─ cancelled: the original replicas again

While a partition moves its replicas are the target's, in their order, and behind them those that
will go. `adding_replicas` were not there before, `removing_replicas` will not be there afterwards.
All of them hold copies, count for the isr and may lead. When the whole target is in sync, those
that go are dropped, and if the leader is one of them the first of the target takes over. A target
that is in sync already is reached with the request itself.

A new target for a partition that moves takes the place of the old one: the original replicas stay
until the new move is done, and who was being added only for the old one is dropped. Taking a move
back drops everybody it was adding. The order of the original replicas is not kept anywhere, so that
afterwards those that the move had in common with it come first.

Rules:

    M1  A move ends with the replicas of the target, in its order, and an isr of all of them.
    M2  A leadership begins anew when replicas go: who has been dropped must not be followed, nor
        its word taken, in the epoch in which it counted.
    M3  The last member of an isr is not dropped, neither by a move nor by taking one back.

A change of `replicas`, `adding_replicas` or `removing_replicas` is in two nodes, the topic's and
the partition's state, and whoever stores it must write both in one transaction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_BROKER, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.election import (
    NOBODY_RETURNED,
    Candidates,
    Elections,
    NextState,
    choose_leader,
    elect,
)
from tidelog.core.controller.image import ClusterImage, PartitionImage
from tidelog.core.controller.placement import Replicas


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition to move to `target`, or to leave where it was if that is None."""

    topic: str
    partition: int
    target: Replicas | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentOutcome:
    """The answer for one partition."""

    topic: str
    partition: int
    error: ErrorCode
    message: str | None

    def refused(self, code: ErrorCode, message: str) -> "ReassignmentOutcome":
        """The same part of the request, refused after all."""
        return replace(self, error=code, message=message)


def alter_reassignments(
    image: ClusterImage,
    requested: Sequence[Reassignment],
    candidates: Candidates,
    *,
    allow_replication_factor_change: bool,
) -> Decision[ReassignmentOutcome]:
    """Begin, replace or take back each move that may be; one outcome for each, in order.

    Every change must be written to the topic's node as well, in the same transaction. A move that
    was taken back where nobody in sync is left of the original replicas is an unclean election
    (`election.unclean_elections`) and refused unless the topic allows that.
    """
    decision: Decision[ReassignmentOutcome] = Decision([], [])
    altered: dict[TopicPartition, PartitionImage] = {}
    for request in requested:
        each = TopicPartition(request.topic, request.partition)
        error, message = ErrorCode.NONE, None
        try:
            state = _find(image, altered, each)
            wanted = _wanted(request, state, candidates, allow_replication_factor_change)
        except RequestRefused as refusal:
            error, message = refusal.code, refusal.message
        else:
            after = finish(wanted, each, candidates).after(state)
            if after is not None:
                altered[each] = after
                decision.changes.append(PartitionChanged(*each, after))
        decision.outcomes.append(
            ReassignmentOutcome(
                topic=request.topic, partition=request.partition, error=error, message=message
            )
        )
    return decision


def _find(
    image: ClusterImage, altered: dict[TopicPartition, PartitionImage], each: TopicPartition
) -> PartitionImage:
    state = altered.get(each) or image.partition(*each)
    if state is None:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {each}")
    return state


def _wanted(
    request: Reassignment,
    state: PartitionImage,
    candidates: Candidates,
    allow_replication_factor_change: bool,
) -> NextState:
    each = TopicPartition(request.topic, request.partition)
    original = tuple(one for one in state.replicas if one not in state.adding_replicas)
    if request.target is None:
        if not is_moving(state):
            raise RequestRefused(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{each} is not being moved"
            )
        return _placed(state, each, candidates, target=original, original=original)
    _require_valid(request.target, original, candidates)
    size = len(target_of(state))
    if not allow_replication_factor_change and len(request.target) != size:
        raise RequestRefused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{each} has {size} replica(s), not {len(request.target)}, and that may not change",
        )
    return _placed(state, each, candidates, target=request.target, original=original)


def _require_valid(target: Replicas, original: Replicas, candidates: Candidates) -> None:
    """Only who is added has to be alive: a partition may stay with a broker that is away."""
    if not target:
        raise _bad_target("the target names no replica")
    if len(set(target)) < len(target):
        raise _bad_target(f"the target names a broker twice: {list(target)}")
    for broker_id in target:
        if broker_id < 0:
            raise _bad_target(f"{broker_id} is no broker id")
        if broker_id not in original and broker_id not in candidates.staying:
            raise _bad_target(f"the target names broker {broker_id}, which is not alive")


def _placed(
    state: PartitionImage,
    each: TopicPartition,
    candidates: Candidates,
    *,
    target: Replicas,
    original: Replicas,
) -> NextState:
    """On its way from `original` to `target`; who is in neither is dropped."""
    replicas = tuple(dict.fromkeys((*target, *original)))
    isr = tuple(one for one in state.isr if one in replicas)
    placed = replace(
        state,
        leader=state.leader if state.leader in isr else NO_BROKER,
        replicas=replicas,
        isr=isr,
        adding_replicas=tuple(one for one in target if one not in original),
        removing_replicas=tuple(one for one in original if one not in target),
    )
    wanted = elect(placed, each, candidates, NOBODY_RETURNED)
    if not wanted.state.isr or (state.leader != NO_BROKER and wanted.state.leader == NO_BROKER):
        raise _bad_target(f"only replicas that would be dropped are in sync: {list(state.isr)}")
    drops = not set(state.replicas) <= set(replicas)
    leads = wanted.state.leader != NO_BROKER
    return NextState(wanted.state, wanted.begins or (drops and leads), wanted.unclean)


def _bad_target(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def list_reassignments(
    image: ClusterImage, partitions: Iterable[TopicPartition] | None
) -> list[tuple[TopicPartition, PartitionImage]]:
    """Those of `partitions` that are being moved, or of all if it is None."""
    if partitions is None:
        return [
            (TopicPartition(name, number), state)
            for name, topic in image.topics.items()
            for number, state in enumerate(topic.partitions)
            if is_moving(state)
        ]
    found = ((each, image.partition(*each)) for each in dict.fromkeys(partitions))
    return [(each, state) for each, state in found if state is not None and is_moving(state)]


def target_of(state: PartitionImage) -> Replicas:
    """Where the partition will be when its move is done; where it is if it does not move."""
    return tuple(each for each in state.replicas if each not in state.removing_replicas)


def is_moving(state: PartitionImage) -> bool:
    return bool(state.adding_replicas or state.removing_replicas)


def finish(wanted: NextState, topic_partition: TopicPartition, candidates: Candidates) -> NextState:
    """`wanted`, with its move done if its target is in sync and somebody in it can lead."""
    state = wanted.state
    if not is_moving(state) or state.leader == NO_BROKER:
        return wanted
    target = target_of(state)
    if not target or not set(target) <= set(state.isr):
        return wanted
    isr = tuple(each for each in state.isr if each in target)
    leader = state.leader
    if leader not in target:
        choice = choose_leader(
            target, isr, candidates.fit(topic_partition).staying, allow_unclean=False
        )
        if choice is None:
            return wanted
        leader = choice.leader
    moved = replace(
        state, leader=leader, replicas=target, isr=isr, adding_replicas=(), removing_replicas=()
    )
    return NextState(moved, wanted.begins or bool(state.removing_replicas), wanted.unclean)


def completed(
    image: ClusterImage, partitions: Iterable[TopicPartition], candidates: Candidates
) -> list[PartitionChanged]:
    """The end of each move of `partitions` whose target is in sync."""
    moved = Elections([], [])
    for each in partitions:
        state = image.topics[each.topic].partitions[each.partition]
        moved.add(each, state, finish(NextState(state, False, False), each, candidates))
    return moved.changes
