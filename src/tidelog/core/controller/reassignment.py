"""Moving partitions to other brokers (KIP-455).

    stable ──▶ moving ──▶ stable
                 │
                 └─ cancelled: the original replicas again

While a partition moves its replicas are the target's, in their order, and behind them those that
will go. `adding_replicas` were not there before, `removing_replicas` will not be there afterwards.
All of them hold copies, count for the isr and may lead. When the whole target is in sync, those
that go are dropped, and if the leader is one of them the first of the target takes over. A target
that is in sync already is reached with the request itself.

Rules:

    M1  A move ends with the replicas of the target, in its order, and an isr of all of them.
    M2  A leadership begins anew when replicas go: who has been dropped must not be followed, nor
        its word taken, in the epoch in which it counted.
    M3  The last member of an isr is not dropped, neither by a move nor by taking one back.

A change of `replicas`, `adding_replicas` or `removing_replicas` is in two nodes, the topic's and
the partition's state, and whoever stores it must write both in one transaction.
"""

from collections.abc import Iterable
from dataclasses import replace

from tidelog.base.ids import NO_BROKER, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.election import Candidates, Elections, NextState, choose_leader
from tidelog.core.controller.image import ClusterImage, PartitionImage
from tidelog.core.controller.placement import Replicas


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
