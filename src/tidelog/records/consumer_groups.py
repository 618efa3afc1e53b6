"""What the log says of a group of the consumer protocol (KIP-848), as values.

A value of None says that what the record is about is gone (a tombstone). The order in which a
member or a group is removed is Kafka's: its assignment, its target, the member, and the group's
epochs last.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from tidelog.base.ids import TopicIdPartition

FIRST_EPOCH: Final = 1
"""Of a group that nobody has written down yet."""
JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2

Partitions = frozenset[TopicIdPartition]
NO_PARTITIONS: Final[Partitions] = frozenset()

OwnedPartitions = Mapping[TopicIdPartition, int]
"""Partitions that a member has, and the epoch in which it was given each."""

NOTHING_OWNED: Final[OwnedPartitions] = MappingProxyType({})


class MemberState(IntEnum):
    """How far a member is with its assignment, numbered as in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class ClassicIdentity:
    """What is known of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names of its assignors, each with the subscription that goes with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Who a member is and what it wants."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    expression: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicIdentity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """What a member has, and what it has yet to give back."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: OwnedPartitions = field(default_factory=lambda: NOTHING_OWNED)
    revoking: OwnedPartitions = field(default_factory=lambda: NOTHING_OWNED)


@dataclass(frozen=True, slots=True)
class ResolvedExpression:
    """The topics that a regular expression stood for, and when."""

    topics: frozenset[str]
    version: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class GroupEpochRecord:
    """Key 3: the group is there, and what it is made of has changed."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0

    @property
    def is_tombstone(self) -> bool:
        return self.epoch is None


@dataclass(frozen=True, slots=True)
class PartitionMetadataRecord:
    """Key 4: what Kafka 4.0 wrote in place of `metadata_hash`. Nobody writes more than its end."""

    group_id: str
    is_there: bool = False

    @property
    def is_tombstone(self) -> bool:
        return not self.is_there


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """Key 5"""

    group_id: str
    member_id: str
    subscription: Subscription | None

    @property
    def is_tombstone(self) -> bool:
        return self.subscription is None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    """Key 6: the target assignment is that of the group's `epoch`."""

    group_id: str
    epoch: int | None
    time_ms: int = 0

    @property
    def is_tombstone(self) -> bool:
        return self.epoch is None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """Key 7: what a member shall have."""

    group_id: str
    member_id: str
    partitions: Partitions | None

    @property
    def is_tombstone(self) -> bool:
        return self.partitions is None


@dataclass(frozen=True, slots=True)
class CurrentAssignmentRecord:
    """Key 8: what a member has."""

    group_id: str
    member_id: str
    current: CurrentAssignment | None

    @property
    def is_tombstone(self) -> bool:
        return self.current is None


@dataclass(frozen=True, slots=True)
class ExpressionRecord:
    """Key 16"""

    group_id: str
    expression: str
    resolved: ResolvedExpression | None

    @property
    def is_tombstone(self) -> bool:
        return self.resolved is None


ConsumerGroupRecord = (
    GroupEpochRecord
    | PartitionMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentAssignmentRecord
    | ExpressionRecord
)
