"""What the members of groups were told, and what they took for theirs: for the checkers
(`checkers/groups.py`).

A member *holds* a partition from when it was told that it has it until it gives it up, or dies. It
may do so for longer than its group lets it: one that is paused has not heard. For so long as it has
a *lease* it does not: whoever was heard by the coordinator at a time is a member for at least the
shorter of its session and its time to rebalance from then on.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from tidelog.base.ids import TopicPartition

Shares = dict[str, tuple[TopicPartition, ...]]
"""By member: the partitions that are its own."""


class Asked(NamedTuple):
    """When something was asked, and whether of the broker that coordinates the group.

    One that was deposed may not know it yet. What it says binds nobody.
    """

    at_s: float
    is_of_coordinator: bool


class Assigned(NamedTuple):
    """A member was told what is its own, in one generation."""

    group: str
    generation: int
    member: str
    partitions: tuple[TopicPartition, ...]
    at_s: float


class Commit(NamedTuple):
    """A commit that was acknowledged, and when it was begun."""

    group: str
    generation: int
    """Or the epoch of a member of the consumer protocol."""
    member: str
    partition: TopicPartition
    offset: int
    asked_s: float
    told_s: float


class Fetched(NamedTuple):
    """What a member was told is committed. NO_OFFSET: nothing."""

    group: str
    member: str
    partition: TopicPartition
    offset: int
    asked_s: float
    told_s: float


class Gained(NamedTuple):
    """A member was told that a partition is its own now."""

    group: str
    member: str
    partition: TopicPartition
    asked: Asked
    told_s: float


class Epoch(NamedTuple):
    """A member of the consumer protocol was told its epoch by the coordinator."""

    group: str
    member: str
    epoch: int
    is_joining: bool
    asked_s: float
    told_s: float


class Lease(NamedTuple):
    """For so long a member is one, whatever else happens."""

    from_s: float
    until_s: float


@dataclass(slots=True)
class Holding:
    """A member takes a partition for its own."""

    member: str
    partition: TopicPartition
    from_s: float
    until_s: float = inf


@dataclass(slots=True)
class GroupLedger:
    """Everything in the order in which it was told."""

    assigned: list[Assigned] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    gained: list[Gained] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    holdings: dict[str, list[Holding]] = field(default_factory=dict)
    """By group."""
    held: dict[tuple[str, str], dict[TopicPartition, Holding]] = field(default_factory=dict)
    """By group and member: those that last."""
    leases: dict[tuple[str, str], list[Lease]] = field(default_factory=dict)
    """By group and member."""
    given: dict[tuple[str, int], list[Shares]] = field(default_factory=dict)
    """By group and generation: what a leader decided to give to each member.

    More than one if a coordinator died with a generation that nobody had been told the shares of:
    the next one uses its number again.
    """

    def give(
        self, group: str, generation: int, shares: dict[str, Sequence[TopicPartition]]
    ) -> None:
        """A leader's decision about a generation, which is not always heard."""
        decided = {member: tuple(share) for member, share in shares.items()}
        self.given.setdefault((group, generation), []).append(decided)

    def hold(
        self,
        group: str,
        member: str,
        partitions: Collection[TopicPartition],
        asked: Asked,
        now_s: float,
    ) -> None:
        """It was told that these, which it did not hold until now, are its own."""
        held = self.held.setdefault((group, member), {})
        for partition in sorted(partitions):
            held[partition] = Holding(member, partition, now_s)
            self.holdings.setdefault(group, []).append(held[partition])
            self.gained.append(Gained(group, member, partition, asked, now_s))

    def let_go(
        self, group: str, member: str, partitions: Collection[TopicPartition] | None, now_s: float
    ) -> None:
        """It takes these for its own no more; all of them, if None."""
        held = self.held.get((group, member), {})
        for partition in tuple(held) if partitions is None else partitions:
            held.pop(partition).until_s = now_s

    def renew(self, group: str, member: str, asked: Asked, duration_s: float) -> None:
        """It was told that it is a member."""
        if asked.is_of_coordinator:
            lease = Lease(asked.at_s, asked.at_s + duration_s)
            self.leases.setdefault((group, member), []).append(lease)
