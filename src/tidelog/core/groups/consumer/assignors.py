"""Who gets which partitions: the assignors that the coordinator has, `uniform` and `range`.

An assignor is a function of the group's members, of what each subscribes to and of what each had.
It keeps what it can: whatever moves costs its consumers their place for a while.

    A1  Each partition of a subscribed topic is given to exactly one of those who subscribe to it.
    A2  `uniform`: no partition can be given to another subscriber so that the two are closer.
        Where all members subscribe to the same, none has two partitions more than another.
    A3  `range`: of each topic no subscriber has two partitions more than another. Topics with as
        many partitions and the same subscribers are dealt out alike, so that whoever has number 3
        of one has number 3 of all: their records can be joined.
    A4  What balances already is left as it is. A partition whose member has left moves alone.
    A5  The same group gives the same assignment, in whatever order it is described.

Kafka's assignors keep the same promises; which of several balanced assignments one ends with is
not part of them.

Where all members subscribe to the same, which is usual, both take as long as there are members and
partitions, and `uniform` does most of it in operations on whole sets. Otherwise an assignment may
take seconds: `group.py` says who waits for it.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from types import MappingProxyType
from typing import Final

from tidelog.base.ids import TopicId, TopicIdPartition
from tidelog.records.consumer_groups import NO_PARTITIONS, Partitions

Subscriptions = Mapping[str, frozenset[TopicId]]
"""The topics of each member, by its id. All of them exist."""

PartitionCounts = Mapping[TopicId, int]
Assignments = Mapping[str, Partitions]
Assignor = Callable[[Subscriptions, PartitionCounts, Assignments], dict[str, Partitions]]


def uniform(
    subscriptions: Subscriptions, counts: PartitionCounts, previous: Assignments
) -> dict[str, Partitions]:
    """As many partitions for each member as its subscriptions allow. A2, A4"""
    if len(set(subscriptions.values())) == 1:
        return _shares(subscriptions, counts, previous)
    dealing = _Dealing(subscriptions, counts)
    dealing.keep(previous)
    dealing.deal_out()
    dealing.level()
    return dealing.result()


def assign_ranges(
    subscriptions: Subscriptions, counts: PartitionCounts, previous: Assignments
) -> dict[str, Partitions]:
    """The same numbers of all topics that are alike, to the same members. A3, A4"""
    owned: dict[str, set[TopicIdPartition]] = {member: set() for member in subscriptions}
    for (kind, count), topics in _alike(subscriptions, counts).items():
        for number, owner in _numbers(kind.members, count, topics, previous).items():
            owned[owner].update(TopicIdPartition(topic_id, number) for topic_id in topics)
    return {member: frozenset(partitions) for member, partitions in owned.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {"uniform": uniform, "range": assign_ranges}
)


def _shares(
    subscriptions: Subscriptions, counts: PartitionCounts, previous: Assignments
) -> dict[str, Partitions]:
    """`uniform` among members who subscribe to the same: each keeps what it had, up to its share.

    Free partitions go to whoever has least, in turn.
    """
    members = sorted(subscriptions)
    wanted = [
        TopicIdPartition(topic_id, number)
        for topic_id in sorted(subscriptions[members[0]])
        for number in range(counts[topic_id])
    ]
    kept, free = _kept_and_free(members, frozenset(wanted), previous)
    quota, extra_count = divmod(len(wanted), len(members))
    seats: list[tuple[int, str]] = []
    # Who has most gets what cannot be divided: so least moves. A4
    for rank, member in enumerate(sorted(members, key=lambda member: -len(kept[member]))):
        share = quota + (rank < extra_count)
        surplus = sorted(kept[member], key=_order)[share:] if len(kept[member]) > share else []
        kept[member] = kept[member].difference(surplus)
        free.update(surplus)
        seats += [(load, member) for load in range(len(kept[member]), share)]
    given: dict[str, list[TopicIdPartition]] = {}
    ordered = sorted(free, key=_order) if len(free) < len(wanted) else wanted
    for (_, member), partition in zip(sorted(seats), ordered, strict=True):
        given.setdefault(member, []).append(partition)
    return {member: kept[member].union(given.get(member, ())) for member in members}


def _kept_and_free(
    members: Iterable[str], wanted: Partitions, previous: Assignments
) -> tuple[dict[str, Partitions], set[TopicIdPartition]]:
    """What of `wanted` each had, unless somebody before it had the same, and what nobody had."""
    free = set(wanted)
    kept: dict[str, Partitions] = {}
    for member in members:
        kept[member] = previous.get(member, NO_PARTITIONS) & free
        free -= kept[member]
    return kept, free


def _order(partition: TopicIdPartition) -> tuple[int, int]:
    """The same as that of partitions themselves, but found faster."""
    return partition.topic_id.int, partition.partition


class _Kind:
    """Topics with the same subscribers, whom it lists in order. There is one of each kind."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[str, ...]) -> None:
        self.members = members


def _kinds(subscriptions: Subscriptions) -> dict[TopicId, _Kind]:
    """The kind of each topic.

    Members who subscribe to the same are looked at together: usually that is all of them.
    """
    sides: dict[frozenset[TopicId], list[str]] = {}
    for member in sorted(subscriptions):
        sides.setdefault(subscriptions[member], []).append(member)
    sides_of: dict[TopicId, list[int]] = {}
    for number, topics in enumerate(sides):
        for topic_id in topics:
            sides_of.setdefault(topic_id, []).append(number)
    members_of = list(sides.values())
    known: dict[tuple[int, ...], _Kind] = {}
    for numbers in map(tuple, sides_of.values()):
        if numbers not in known:
            known[numbers] = _Kind(tuple(sorted(chain(*(members_of[one] for one in numbers)))))
    return {topic_id: known[tuple(numbers)] for topic_id, numbers in sides_of.items()}


class _Dealing:
    """Partitions on their way to members, topics with the same subscribers taken together.

    What a member has of each kind of topics is a list whose end it would part with first: what it
    was given just now comes after what it had.
    """

    def __init__(self, subscriptions: Subscriptions, counts: PartitionCounts) -> None:
        self._members = sorted(subscriptions)
        self._kinds = _kinds(subscriptions)
        self._counts = counts
        self._loads = dict.fromkeys(self._members, 0)
        self._owned: dict[_Kind, dict[str, list[TopicIdPartition]]] = {
            kind: {member: [] for member in kind.members} for kind in set(self._kinds.values())
        }
        self._kept: set[TopicIdPartition] = set()

    def keep(self, previous: Assignments) -> None:
        """Leave to members what they had, if they still subscribe to it and nobody else has it."""
        for member in self._members:
            for partition in sorted(previous.get(member, NO_PARTITIONS)):
                kind = self._kinds.get(partition.topic_id)
                if kind is None or member not in self._owned[kind]:
                    continue
                exists = 0 <= partition.partition < self._counts[partition.topic_id]
                if exists and partition not in self._kept:
                    self._kept.add(partition)
                    self._give(kind, member, partition)

    def deal_out(self) -> None:
        """Give what nobody has to whoever has least. Those with the fewest takers go first."""
        heaps = {
            kind: [(self._loads[member], member) for member in kind.members] for kind in self._owned
        }
        for heap in heaps.values():
            heapify(heap)
        for topic_id in sorted(self._kinds, key=self._order):
            kind = self._kinds[topic_id]
            for number in range(self._counts[topic_id]):
                partition = TopicIdPartition(topic_id, number)
                if partition not in self._kept:
                    member = self._least(heaps[kind])
                    self._give(kind, member, partition)
                    heappush(heaps[kind], (self._loads[member], member))

    def level(self) -> None:
        """Move partitions from those with more to those with less, until no move helps.

        Each move brings two members closer, so there is an end.
        """
        kinds = sorted(self._owned, key=lambda kind: kind.members)
        has_moved = True
        while has_moved:
            moves = [self._level(kind) for kind in kinds]
            has_moved = any(moves)

    def result(self) -> dict[str, Partitions]:
        owned: dict[str, list[TopicIdPartition]] = {member: [] for member in self._members}
        for of_kind in self._owned.values():
            for member, partitions in of_kind.items():
                owned[member] += partitions
        return {member: frozenset(partitions) for member, partitions in owned.items()}

    def _order(self, topic_id: TopicId) -> tuple[int, TopicId]:
        return len(self._kinds[topic_id].members), topic_id

    def _give(self, kind: _Kind, member: str, partition: TopicIdPartition) -> None:
        self._owned[kind][member].append(partition)
        self._loads[member] += 1

    def _least(self, heap: list[tuple[int, str]]) -> str:
        """Take out whoever has least; loads that were noted before they grew are noted again."""
        while True:
            load, member = heappop(heap)
            if load == self._loads[member]:
                return member
            heappush(heap, (self._loads[member], member))

    def _level(self, kind: _Kind) -> bool:
        """Level what members have of the topics of one kind."""
        owned, loads = self._owned[kind], self._loads
        rich = [(-loads[member], member) for member in kind.members if owned[member]]
        poor = [(loads[member], member) for member in kind.members]
        heapify(rich)
        heapify(poor)
        has_moved = False
        while rich:
            load, giver = heappop(rich)
            if -load != loads[giver] or not owned[giver]:
                continue
            taker = self._least(poor)
            if loads[giver] - loads[taker] < 2:
                break
            owned[taker].append(owned[giver].pop())
            loads[giver] -= 1
            loads[taker] += 1
            for member in (giver, taker):
                heappush(rich, (-loads[member], member))
                heappush(poor, (loads[member], member))
            has_moved = True
        return has_moved


def _alike(
    subscriptions: Subscriptions, counts: PartitionCounts
) -> dict[tuple[_Kind, int], list[TopicId]]:
    """Topics by their subscribers and by their number of partitions."""
    alike: dict[tuple[_Kind, int], list[TopicId]] = {}
    kinds = _kinds(subscriptions)
    for topic_id in sorted(kinds):
        alike.setdefault((kinds[topic_id], counts[topic_id]), []).append(topic_id)
    return alike


def _numbers(
    members: tuple[str, ...], count: int, topics: Iterable[TopicId], previous: Assignments
) -> dict[int, str]:
    """Who gets each number of `topics`: at first who has it, then ranges of what is left."""
    quota, extra_count = divmod(count, len(members))
    numbers: dict[int, str] = {}
    had = _numbers_had(members, count, topics, previous)
    wanting: dict[str, int] = {}
    for member in sorted(members, key=lambda member: (-len(had[member]), member)):
        room = quota + (extra_count > 0)
        extra_count -= extra_count > 0
        kept = had[member][:room]
        numbers.update(dict.fromkeys(kept, member))
        wanting[member] = room - len(kept)
    free = iter([number for number in range(count) if number not in numbers])
    for member in members:
        numbers.update((next(free), member) for _ in range(wanting[member]))
    return numbers


def _numbers_had(
    members: tuple[str, ...], count: int, topics: Iterable[TopicId], previous: Assignments
) -> dict[str, list[int]]:
    """The numbers that each member had of `topics`, lowest first, none of them of two members.

    Where topics were dealt out differently, a number belongs to whoever had it of most of them.
    """
    wanted = frozenset(topics)
    votes: dict[int, dict[str, int]] = {}
    for member in members:
        for topic_id, number in previous.get(member, NO_PARTITIONS):
            if topic_id in wanted and 0 <= number < count:
                ballot = votes.setdefault(number, {})
                ballot[member] = ballot.get(member, 0) + 1
    had: dict[str, list[int]] = {member: [] for member in members}
    for number in sorted(votes):
        owner = min(votes[number], key=lambda member: (-votes[number][member], member))
        had[owner].append(number)
    return had
