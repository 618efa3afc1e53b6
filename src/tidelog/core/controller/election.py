"""Who leads a partition and who is in sync with it (C4, R9, R13). Pure functions.

`Candidates` say who is alive and fit for what. `elect` looks at one partition: the first fit member
of its isr in assignment order leads, the isr shrinks to whom it can count on.

Rules, of every state that comes out:

    E1  The leader is in the isr, and the isr is never empty and never outside the replicas.
    E2  Who begins to lead was in the isr, unless the topic allows an unclean election and nobody
        else was left; that is said (`unclean`), and the isr is the new leader alone.
    E3  The leader epoch rises whenever somebody begins to lead, also when that is who led before: a
        broker that was away may have lost the end of its log, and only a new epoch tells the
        records it writes now from the lost ones at the same offsets (KIP-101, KIP-320). It also
        rises when nobody leads any more, which fences who did. It rises for nothing else: a leader
        that stays keeps its epoch while others leave the isr.
    E4  The partition epoch rises by one with every change and only with one.
    E5  A broker that is shutting down does not begin to lead. It leaves the isr where there is a
        member that is not; while there is none, it leads on.
    E6  Who came back from a stop that may have cost it what was not flushed (LastStop.LOST, R13)
        leaves every isr that has another member, alive or not. Who is left as the last one leads:
        nobody has more than it. Whose process was killed while its machine ran on (KILLED) has
        all it had, like who stopped cleanly: sending it away in favour of a member that only
        seems to be alive could cost the last whole copy.
    E7  Without a leader the last isr stays: one of its members has what was acknowledged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from tidelog.core.controller.changes import Change, PartitionChanged
from tidelog.core.controller.image import BrokerImage, ClusterImage, LastStop, PartitionImage

NOBODY_RETURNED: Mapping[BrokerId, LastStop] = {}


class Fit(NamedTuple):
    """Whose replica of one partition works, and who of them may begin to lead it."""

    live: Set[BrokerId]
    staying: Set[BrokerId]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Who is alive and what is known of them beside the image; made by `of`.

    `staying` are those that are not shutting down. `offline_replicas` are on log directories that
    failed. `allow_unclean` says of a topic whether `unclean.leader.election.enable` is true for it.
    """

    brokers: Mapping[BrokerId, BrokerImage]
    staying: frozenset[BrokerId]
    offline_replicas: Mapping[TopicPartition, Set[BrokerId]]
    allow_unclean: Callable[[str], bool]

    @classmethod
    def of(
        cls,
        brokers: Mapping[BrokerId, BrokerImage],
        *,
        shutting_down: Mapping[BrokerId, int],
        offline_replicas: Mapping[TopicPartition, Set[BrokerId]],
        allow_unclean: Callable[[str], bool],
    ) -> "Candidates":
        """`shutting_down` has the broker epoch under which a broker said that it stops.

        One that has registered anew since is not stopping any more.
        """
        staying = frozenset(
            broker_id
            for broker_id, broker in brokers.items()
            if shutting_down.get(broker_id) != broker.broker_epoch
        )
        return cls(brokers, staying, offline_replicas, allow_unclean)

    def without(self, broker_id: BrokerId) -> "Candidates":
        """The same, but that broker is shutting down."""
        return replace(self, staying=self.staying - {broker_id})

    def require_registered(self, broker_id: BrokerId, broker_epoch: int) -> None:
        """Refuse who does not speak for the registration that is known of it."""
        registered = self.brokers.get(broker_id)
        if registered is None or registered.broker_epoch != broker_epoch:
            raise RequestRefused(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id} is not registered under the broker epoch {broker_epoch}",
            )

    def fit(self, topic_partition: TopicPartition) -> Fit:
        offline = self.offline_replicas.get(topic_partition)
        if not offline:
            return Fit(self.brokers.keys(), self.staying)
        return Fit(self.brokers.keys() - offline, self.staying - offline)


@dataclass(frozen=True, slots=True)
class LeaderChoice:
    """`unclean`: the leader is not known to have everything that was acknowledged."""

    leader: BrokerId
    unclean: bool


def choose_leader(
    replicas: Sequence[BrokerId],
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


@dataclass(frozen=True, slots=True)
class NextState:
    """What a partition is to be: `state`, whose epochs are those it has already.

    `begins` if somebody begins to lead, also who led before; `unclean` as in LeaderChoice.
    """

    state: PartitionImage
    begins: bool
    unclean: bool

    def after(self, before: PartitionImage) -> PartitionImage | None:
        """The state with its epochs raised, or None if it is what was before (E3, E4)."""
        wanted = self.state
        begins = self.begins or wanted.leader != before.leader
        if not begins and wanted == before:
            return None
        _assert_sound(wanted)
        return PartitionImage(
            leader=wanted.leader,
            leader_epoch=LeaderEpoch(before.leader_epoch + int(begins)),
            replicas=wanted.replicas,
            isr=wanted.isr,
            adding_replicas=wanted.adding_replicas,
            removing_replicas=wanted.removing_replicas,
            partition_epoch=before.partition_epoch + 1,
        )


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """What was acknowledged may be lost: the leader was not in `last_isr`, or not to be trusted."""

    topic_partition: TopicPartition
    leader: BrokerId
    last_isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class Elections:
    """All consequences of one event, to be written as one batch (C4), and what they may cost (R9).

    A change whose `replicas` or `adding_replicas` or `removing_replicas` differ from before ends a
    reassignment and belongs into two nodes, the topic's and the state's, in the same transaction.
    """

    changes: list[PartitionChanged]
    unclean: list[UncleanElection]

    def add(
        self, topic_partition: TopicPartition, before: PartitionImage, wanted: NextState
    ) -> None:
        after = wanted.after(before)
        if after is None:
            return
        self.changes.append(PartitionChanged(*topic_partition, after))
        if wanted.unclean:
            self.unclean.append(UncleanElection(topic_partition, after.leader, before.isr))


def elect(
    state: PartitionImage,
    topic_partition: TopicPartition,
    candidates: Candidates,
    returned: Mapping[BrokerId, LastStop],
) -> NextState:
    """Who leads `state` and is in sync with it from now on.

    `returned` are brokers that have registered since the state was written, and how they had
    stopped. They lead no more, but may begin to.
    """
    fit = candidates.fit(topic_partition)
    trusted = _trusted(state, fit, returned) if returned else state.isr
    sound = [each for each in trusted if each in fit.live and _is_steady(each, returned)]
    leads_on = state.leader in fit.live and state.leader not in returned
    assert not leads_on or state.leader in sound
    if leads_on and state.leader in fit.staying:
        return _led(state, state.leader, _staying(sound, fit), begins=False, unclean=False)
    choice = choose_leader(state.replicas, sound, fit.staying, allow_unclean=False)
    if choice is not None:
        return _led(state, choice.leader, _staying(sound, fit), begins=True, unclean=False)
    if leads_on:
        return _led(state, state.leader, tuple(sound), begins=False, unclean=False)
    # Members that stopped uncleanly count only now that no other is left (E6).
    choice = choose_leader(state.replicas, trusted, fit.staying, allow_unclean=False)
    if choice is None and candidates.allow_unclean(topic_partition.topic):
        # Who is being added may have nothing yet: the last to lose everything to.
        by_age = sorted(state.replicas, key=lambda each: each in state.adding_replicas)
        choice = choose_leader(by_age, trusted, fit.staying, allow_unclean=True)
    if choice is None:
        return _led(state, NO_BROKER, trusted, begins=False, unclean=False)
    return _led(state, choice.leader, (choice.leader,), begins=True, unclean=choice.unclean)


def _trusted(
    state: PartitionImage, fit: Fit, returned: Mapping[BrokerId, LastStop]
) -> tuple[BrokerId, ...]:
    """The isr without those whose disks may have lost something; one of them if they are all."""
    trusted = tuple(each for each in state.isr if returned.get(each) is not LastStop.LOST)
    if trusted:
        return trusted
    in_order = [each for each in state.replicas if each in state.isr]
    fit_first = sorted(in_order, key=lambda each: (each not in fit.staying, each not in fit.live))
    return (fit_first[0],)


def _is_steady(member: BrokerId, returned: Mapping[BrokerId, LastStop]) -> bool:
    return returned.get(member, LastStop.CLEAN) is not LastStop.LOST


def _staying(members: Sequence[BrokerId], fit: Fit) -> tuple[BrokerId, ...]:
    return tuple(each for each in members if each in fit.staying)


def _led(
    state: PartitionImage,
    leader: BrokerId,
    isr: tuple[BrokerId, ...],
    *,
    begins: bool,
    unclean: bool,
) -> NextState:
    led = PartitionImage(
        leader=leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=isr,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        partition_epoch=state.partition_epoch,
    )
    return NextState(led, begins, unclean)


def _assert_sound(state: PartitionImage) -> None:
    assert state.isr  # E1
    assert set(state.isr) <= set(state.replicas)  # E1
    assert state.leader == NO_BROKER or state.leader in state.isr  # E1


def unclean_elections(image: ClusterImage, changes: Iterable[Change]) -> list[UncleanElection]:
    """Those of `changes`, made on request in `image`, by which somebody out of sync leads.

    Not for what `membership.py` finds: it also distrusts members that came back, and says so.
    """
    found = []
    for change in changes:
        if isinstance(change, PartitionChanged) and change.state.leader != NO_BROKER:
            before = image.topics[change.topic].partitions[change.partition]
            if change.state.leader not in before.isr:
                where = TopicPartition(change.topic, change.partition)
                found.append(UncleanElection(where, change.state.leader, before.isr))
    return found


def is_led(state: PartitionImage, brokers: Mapping[BrokerId, BrokerImage], written_at: int) -> bool:
    """Whether the leader of `state` is alive and was so when the state was written.

    `written_at` comes from the counter that broker epochs are drawn from. A leader that registered
    later has been away since.
    """
    leader = brokers.get(state.leader)
    return leader is not None and leader.broker_epoch < written_at


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
    """A new leader, or none, for each of `partitions`, whose leaders have been away."""
    candidates = Candidates.of(
        image.brokers, shutting_down={}, offline_replicas={}, allow_unclean=allow_unclean
    )
    elected = Elections([], [])
    for each in partitions:
        state = image.topics[each.topic].partitions[each.partition]
        elected.add(each, state, elect(state, each, candidates, {state.leader: LastStop.CLEAN}))
    return elected.changes
