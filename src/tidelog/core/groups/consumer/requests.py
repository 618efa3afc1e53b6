"""What is asked of a group of the consumer protocol, and what it answers, in any version."""

from dataclasses import dataclass

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.core.groups.consumer.assignors import (
    Assignments,
    Assignor,
    PartitionCounts,
    Subscriptions,
)
from tidelog.core.groups.consumer.members import ConsumerMember
from tidelog.records.consumer_groups import Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """A member is alive; it joins or leaves. What is None has not changed since it last said it."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    expression: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """It says all there is: it may have missed an answer."""
        has_topics = self.topics is not None or self.expression is not None
        return self.rebalance_timeout_ms != -1 and has_topics and self.owned is not None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`assigned` is None if the member knows already."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MakeAssignment:
    """Work that a group leaves to others, because it takes long: call `make` where nobody waits.

    The result comes back with `GroupShard.on_assigned`. What it is made of does not change.
    """

    group_id: str
    epoch: int
    assignor: Assignor
    subscriptions: Subscriptions
    counts: PartitionCounts
    previous: Assignments

    def make(self) -> dict[str, Partitions]:
        return self.assignor(self.subscriptions, self.counts, self.previous)

    @property
    def size(self) -> int:
        """How much there is to look at. Members who subscribe to the same are looked at once."""
        is_alike = len(set(self.subscriptions.values())) == 1
        pairs = 0 if is_alike else sum(map(len, self.subscriptions.values()))
        return len(self.subscriptions) + sum(self.counts.values()) + pairs


@dataclass(frozen=True, slots=True)
class AssignmentTooLarge:
    """A group has no assignment, because there is no room for what one member should have."""

    group_id: str
    epoch: int
    member_id: str
    partition_count: int
    size_bytes: int
    """Of the record that would say so, at most."""

    def refusal(self) -> RequestRefused:
        """As Kafka says when its log refuses the record."""
        return RequestRefused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Member {self.member_id} should have {self.partition_count} partitions, for which a "
            f"record of {self.size_bytes} bytes may be needed: more than max.message.bytes of "
            "__consumer_offsets allows. The group has no assignment until that is larger, or "
            "there are more members.",
        )


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    """A member as ConsumerGroupDescribe shows it."""

    member: ConsumerMember
    target: Partitions


@dataclass(frozen=True, slots=True)
class ConsumerDescription:
    """A group as ConsumerGroupDescribe shows it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
