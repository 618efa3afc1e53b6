"""Who leads a partition. Pure functions from what is known to what to do.

A leader epoch is raised whenever somebody begins to lead, also when that is who led before: a
broker that was away may have lost the end of its log, and only a new epoch tells the records it
writes now from the lost ones at the same offsets (KIP-101, KIP-320).
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace

from tidelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.image import BrokerImage, ClusterImage, PartitionImage


@dataclass(frozen=True, slots=True)
class LeaderChoice:
    """`unclean`: the leader is not known to have everything that was acknowledged."""

    leader: BrokerId
    unclean: bool


def choose_leader(
    replicas: tuple[BrokerId, ...],
    isr: Iterable[BrokerId],
    live: Set[BrokerId],
    *,
    allow_unclean: bool,
) -> LeaderChoice | None:
    """The first live in-sync replica in assignment order, or None to stay offline (C4, R9)."""
    in_sync = frozenset(isr)
    assert in_sync <= set(replicas)
    for replica in replicas:
        if replica in in_sync and replica in live:
            return LeaderChoice(replica, unclean=False)
    if allow_unclean:
        for replica in replicas:
            if replica in live:
                return LeaderChoice(replica, unclean=True)
    return None


def is_led(state: PartitionImage, brokers: Mapping[BrokerId, BrokerImage], written_at: int) -> bool:
    """Whether the leader of `state` is alive and was so when the state was written.

    `written_at` comes from the counter that broker epochs are drawn from. A leader that registered
    later has been away since.
    """
    leader = brokers.get(state.leader)
    return leader is not None and leader.broker_epoch < written_at


def elect(
    state: PartitionImage, live: Set[BrokerId], *, allow_unclean: bool
) -> PartitionImage | None:
    """The state after an election, or None if it would change nothing."""
    choice = choose_leader(state.replicas, state.isr, live, allow_unclean=allow_unclean)
    if choice is None and state.leader == NO_BROKER:
        return None
    epochs = replace(
        state,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        partition_epoch=state.partition_epoch + 1,
    )
    if choice is None:
        # The last isr stays: one of its members has what was acknowledged.
        return replace(epochs, leader=NO_BROKER)
    if choice.unclean:
        return replace(epochs, leader=choice.leader, isr=(choice.leader,))
    in_sync = tuple(replica for replica in state.isr if replica in live)
    return replace(epochs, leader=choice.leader, isr=in_sync)


def first_state(replicas: tuple[BrokerId, ...], live: Set[BrokerId]) -> PartitionImage:
    """A partition that has just been made: whoever is alive has all of its nothing."""
    in_sync = tuple(replica for replica in replicas if replica in live)
    return PartitionImage(
        leader=in_sync[0] if in_sync else NO_BROKER,
        leader_epoch=LeaderEpoch(0),
        replicas=replicas,
        isr=in_sync or replicas,
        adding_replicas=(),
        removing_replicas=(),
        partition_epoch=0,
    )


def partitions_led_by(image: ClusterImage, brokers: Set[BrokerId]) -> list[TopicPartition]:
    """Partitions whose leader is one of `brokers`; NO_BROKER stands for those without one."""
    return [
        TopicPartition(name, number)
        for name, topic in image.topics.items()
        for number, state in enumerate(topic.partitions)
        if state.leader in brokers
    ]


def elections(
    image: ClusterImage,
    partitions: Iterable[TopicPartition],
    allow_unclean: Callable[[str], bool],
) -> list[PartitionChanged]:
    """A new leader, or none, for each of `partitions`: one batch, however many there are (C4).

    `allow_unclean` says of a topic whether `unclean.leader.election.enable` is true for it.
    """
    live = image.brokers.keys()
    changes = []
    for name, number in partitions:
        before = image.topics[name].partitions[number]
        after = elect(before, live, allow_unclean=allow_unclean(name))
        if after is not None:
            changes.append(PartitionChanged(name, number, after))
    return changes
