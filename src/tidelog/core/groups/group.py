"""What a shard asks of a group of any type.

    classic     members choose a leader, and the leader assigns (`classic_group.py`). A group
                without members that only keeps offsets, whoever commits them, is one of these
    consumer    the coordinator assigns (KIP-848)

Whether a group is allowed to do something is said by `require_...`, which raises RequestRefused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicIdPartition
from tidelog.core.groups.context import TimerName
from tidelog.records.groups import CommittedOffset

AgeBase = Callable[[CommittedOffset], int]
"""From when on the age of an offset counts."""


class GroupType(StrEnum):
    """As ListGroups has it (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits offsets, or asks for them: -1, "" and None where it did not say."""

    generation_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    knows_epochs: bool = True
    """Its request is of a version that has heard of the consumer protocol."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in the answer to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: GroupType


class Group(Protocol):
    """One group. Its records and timers are its own; its offsets are the shard's."""

    @property
    def group_id(self) -> str: ...
    @property
    def group_type(self) -> GroupType: ...
    @property
    def is_empty(self) -> bool:
        """No member, so that it may be deleted, or become a group of another type."""
        ...

    def listing(self) -> GroupListing: ...

    def require_commit(self, committer: Committer, *, is_transactional: bool) -> None:
        """May these offsets be committed? ILLEGAL_GENERATION, STALE_MEMBER_EPOCH and so on."""
        ...

    def commit_error(self, committer: Committer, partition: TopicIdPartition) -> ErrorCode:
        """Whether a commit that was allowed holds for `partition` (KIP-1251)."""
        ...

    def on_committed(self, committer: Committer) -> None:
        """A commit that was allowed is a sign of life, in a classic group."""
        ...

    def require_fetch(self, committer: Committer) -> None:
        """May who says this read committed offsets? Only a consumer group looks who asks."""
        ...

    def require_deletion(self) -> None: ...

    def require_offset_deletion(self) -> None: ...

    def is_subscribed(self, topic: str) -> bool:
        """A subscribed topic's offsets neither expire nor may be deleted."""
        ...

    def offset_age_base(self) -> AgeBase | None:
        """From when on offsets get older; None as long as none of them may expire."""
        ...

    def tombstones(self) -> tuple[object, ...]:
        """The records that take back all that the group has written, but for its offsets."""
        ...

    def on_timer(self, name: TimerName) -> None: ...

    def on_loaded(self) -> None:
        """The shard begins to lead: timers begin."""
        ...

    def on_removed(self) -> None:
        """The group is no longer: timers end, nobody waits."""
        ...
