"""What a cluster says about its groups, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class PartitionKey(NamedTuple):
    """A partition by topic and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as ListGroups names it. `kind` is classic or consumer (KIP-848)."""

    group_id: str
    kind: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A consumer and what it is to read. With `instance_id` it is a static member."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group, its members and who coordinates it. `is_simple`: offsets and nothing else."""

    group_id: str
    kind: str
    state: str
    assignor: str
    is_simple: bool
    coordinator_id: int | None
    members: tuple[GroupMember, ...]

    @property
    def is_dead(self) -> bool:
        """Whether there is no such group."""
        return self.state == "dead"

    @property
    def is_active(self) -> bool:
        """Whether somebody may commit for it: its offsets are not ours to change."""
        return self.state not in {"empty", "dead"}

    @property
    def owners(self) -> Mapping[PartitionKey, GroupMember]:
        return {each: member for member in self.members for each in member.partitions}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """How far a group is in a partition. None is unknown: never committed, or nobody leads it."""

    key: PartitionKey
    committed: int | None
    end_offset: int | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed, 0)
