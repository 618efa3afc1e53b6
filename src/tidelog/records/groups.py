"""What the log of a group coordinator says, as values: one partition of `__consumer_offsets`.

The same values are decided upon by `core/groups/` and written as Kafka's bytes by
`wire/group_records.py`, so they live below both. A record whose value is None takes back what was
said under its key (a tombstone).
"""

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import NO_TIMESTAMP, NO_TOPIC_ID, TopicId, TopicPartition
from tidelog.records.consumer_groups import ConsumerGroupRecord

NO_EPOCH = -1


class CommittedOffset(NamedTuple):
    """How far a group has come in one partition: `offset` is the next it wants to read."""

    offset: int
    leader_epoch: int
    """Of the last record that was read; -1 if the client did not say (KIP-320)."""

    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    """When it is forgotten, as clients of old times said; -1 leaves that to the broker."""

    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class OffsetCommitRecord:
    """Key: group, topic, partition."""

    group_id: str
    partition: TopicPartition
    value: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """One member of a classic group, as of the generation in which it got its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A classic group that is stable, or empty if it has no members."""

    protocol_type: str
    """Empty for a group that never had a member."""

    generation: int
    protocol: str | None
    leader: str | None
    """None if it has members that have yet to agree who has what."""

    current_state_timestamp_ms: int
    """Since when it is stable or empty; -1 in records of old brokers."""

    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """Key: group."""

    group_id: str
    value: GroupMetadata | None


GroupRecord = OffsetCommitRecord | GroupMetadataRecord | ConsumerGroupRecord
