"""What the members of groups were told: for the checkers (`checkers/groups.py`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Shares = dict[str, tuple[int, ...]]
"""By member: the partitions that are its own."""


class Assigned(NamedTuple):
    """A member was told what is its own, in one generation."""

    group: str
    generation: int
    member: str
    partitions: tuple[int, ...]
    at_s: float


class Commit(NamedTuple):
    """A commit that was acknowledged, and when it was begun."""

    group: str
    generation: int
    member: str
    partition: int
    offset: int
    asked_s: float
    told_s: float


class Fetched(NamedTuple):
    """What a member was told is committed. NO_OFFSET: nothing."""

    group: str
    member: str
    partition: int
    offset: int
    asked_s: float
    told_s: float


@dataclass(slots=True)
class GroupLedger:
    """Everything in the order in which it was told."""

    assigned: list[Assigned] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    fetched: list[Fetched] = field(default_factory=list)
    given: dict[tuple[str, int], list[Shares]] = field(default_factory=dict)
    """By group and generation: what a leader decided to give to each member.

    More than one if a coordinator died with a generation that nobody had been told the shares of:
    the next one uses its number again.
    """

    def give(self, group: str, generation: int, shares: dict[str, Sequence[int]]) -> None:
        """A leader's decision about a generation, which is not always heard."""
        decided = {member: tuple(share) for member, share in shares.items()}
        self.given.setdefault((group, generation), []).append(decided)
