"""The state of one group of the consumer protocol: what its records say, applied in order.

Nothing is decided here. A group decides by writing records and applying them, so whoever replays
its log has the same group (W1).

Invariants:

    I1  `owner` is who has a partition, or has yet to give it back.
    I2  A static member's instance id leads to its member id and to no other.
    I3  `subscriber_counts` counts the members that subscribe with each regular expression.
    I4  Members who name the same topics share one set of them: thousands of members are usual,
        and many of what they want is not. Its sharers are counted.
    I5  `classic_count` counts the members that speak the classic protocol.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from tidelog.base.ids import TopicIdPartition
from tidelog.records.consumer_groups import (
    FIRST_EPOCH,
    LEAVING_EPOCH,
    NO_PARTITIONS,
    ConsumerGroupRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    ExpressionRecord,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    PartitionMetadataRecord,
    Partitions,
    ResolvedExpression,
    Subscription,
    TargetEpochRecord,
    TargetRecord,
)

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member, of either protocol."""

    member_id: str
    subscription: Subscription = field(default_factory=Subscription)
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state is MemberState.STABLE and self.epoch == epoch

    def all_partitions(self) -> Iterator[TopicIdPartition]:
        """What it has, and what it has yet to give back."""
        yield from self.current.assigned
        yield from self.current.revoking


class ConsumerMembers:
    """The members of a group, their epochs and assignments."""

    __slots__ = (
        "_all_topics",
        "_owners",
        "_sharers",
        "_static",
        "by_id",
        "classic_count",
        "epoch",
        "expressions",
        "has_partition_metadata",
        "metadata_hash",
        "subscriber_counts",
        "target_epoch",
        "target_time_ms",
        "targets",
    )

    def __init__(self) -> None:
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_time_ms = 0
        self.by_id: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.expressions: dict[str, ResolvedExpression] = {}
        self.subscriber_counts: Counter[str] = Counter()
        self.classic_count = 0
        self.has_partition_metadata = False
        self._sharers: dict[frozenset[str], _Sharers] = {}
        self._static: dict[str, str] = {}
        self._owners: dict[TopicIdPartition, str] = {}
        self._all_topics: frozenset[str] | None = None

    def static(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with that instance id."""
        return self.by_id.get(self._static.get(instance_id or "", ""))

    def owner(self, partition: TopicIdPartition) -> str | None:
        return self._owners.get(partition)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """All that it subscribes to; an expression that is not resolved stands for nothing."""
        resolved = self.expressions.get(member.subscription.expression)
        topics = member.subscription.topics
        return topics if resolved is None else topics | resolved.topics

    def all_topics(self) -> frozenset[str]:
        """What anybody subscribes to."""
        if self._all_topics is None:
            resolved = (self.expressions.get(one) for one in self.subscriber_counts)
            self._all_topics = frozenset().union(
                *self._sharers, *(found.topics for found in resolved if found is not None)
            )
        return self._all_topics

    def apply_all(self, records: Iterable[ConsumerGroupRecord]) -> None:
        for record in records:
            self.apply(record)

    def apply(self, record: ConsumerGroupRecord) -> None:
        match record:
            case GroupEpochRecord():
                self.epoch = FIRST_EPOCH if record.epoch is None else record.epoch
                self.metadata_hash = record.metadata_hash
            case PartitionMetadataRecord():
                self.has_partition_metadata = record.is_there
            case MemberRecord():
                self._apply_member(record)
            case TargetEpochRecord():
                self.target_epoch = FIRST_EPOCH if record.epoch is None else record.epoch
                self.target_time_ms = record.time_ms
            case TargetRecord(_, member_id, partitions):
                _put(self.targets, member_id, partitions)
            case CurrentAssignmentRecord():
                self._apply_current(record)
            case ExpressionRecord(_, expression, resolved):
                _put(self.expressions, expression, resolved)
                self._all_topics = None
            case _:
                assert_never(record)

    def _apply_member(self, record: MemberRecord) -> None:
        member = self.by_id.get(record.member_id)
        if record.subscription is None:
            if member is not None:
                self._replace(member, None)
            return
        before = member or ConsumerMember(record.member_id)
        subscription = replace(record.subscription, topics=self._shared(record.subscription.topics))
        self._replace(member, replace(before, subscription=subscription))

    def _shared(self, topics: frozenset[str]) -> frozenset[str]:
        """The set that is known already, if there is an equal one. I4"""
        known = self._sharers.get(topics)
        return topics if known is None else known.topics

    def _apply_current(self, record: CurrentAssignmentRecord) -> None:
        member = self.by_id.get(record.member_id)
        if record.current is not None:
            before = member or ConsumerMember(record.member_id)
            self._replace(member, replace(before, current=record.current))
        elif member is not None:
            gone = CurrentAssignment(epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH)
            self._replace(member, replace(member, current=gone))

    def _replace(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        # The new one first: what both subscribe to has a subscriber all the time.
        if new is not None:
            self._count(new.subscription, 1)
        if old is not None:
            self._count(old.subscription, -1)
            self._forget(old)
        if new is not None:
            self._remember(new)

    def _count(self, subscription: Subscription, change: int) -> None:
        """I3, I4, I5"""
        sharers = self._sharers.setdefault(subscription.topics, _Sharers(subscription.topics))
        sharers.count += change
        if sharers.count == max(0, change):
            self._all_topics = None
        if sharers.count == 0:
            del self._sharers[subscription.topics]
        if subscription.expression:
            counts = self.subscriber_counts
            counts[subscription.expression] += change
            if counts[subscription.expression] == max(0, change):
                self._all_topics = None
            if counts[subscription.expression] == 0:
                del counts[subscription.expression]
        self.classic_count += change * (subscription.classic is not None)

    def _forget(self, member: ConsumerMember) -> None:
        del self.by_id[member.member_id]
        instance_id = member.subscription.instance_id or ""
        if self._static.get(instance_id) == member.member_id:
            del self._static[instance_id]
        for partition in member.all_partitions():
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def _remember(self, member: ConsumerMember) -> None:
        self.by_id[member.member_id] = member
        if member.subscription.instance_id is not None:
            self._static[member.subscription.instance_id] = member.member_id
        self._owners.update(dict.fromkeys(member.all_partitions(), member.member_id))


class _Sharers:
    """How many members name these topics."""

    __slots__ = ("count", "topics")

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.count = 0


def _put(values: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
