"""What is asked of the groups of a shard, and what they answer, apart from any version of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.core.groups.group import Committer
from tidelog.records.groups import CommittedOffset

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class JoinProtocol(NamedTuple):
    """One way to assign that a member knows, with what its leader has to know for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Somebody wants to be, or to stay, a member of a classic group."""

    group_id: str
    member_id: str
    new_member_id: str
    """The id it gets if it has none; chance does not belong here."""

    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    """In the order of preference."""

    requires_known_member_id: bool
    """Nobody is a member before it has come back with the id it was given (KIP-394)."""

    supports_skipping_assignment: bool
    """A leader that is told so does not assign anew (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member as the leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """`members` is for the leader alone."""

    error_code: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings everybody's."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """By member id."""


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """What a member is to read."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A member is alive."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    """By its id or, if an administrator removes it, by its instance's."""

    member_id: str
    group_instance_id: str | None


class MemberLeft(NamedTuple):
    """What came of one member's wish to leave."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


class PartitionCommit(NamedTuple):
    """One partition of a commit."""

    partition: TopicPartition
    value: CommittedOffset


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """How far a group has come. The answer is one error code for each partition, in order."""

    group_id: str
    committer: Committer
    offsets: Sequence[PartitionCommit]
    unknown_group: ErrorCode
    """What a member of a group that is not here is told; this depends on the version it speaks."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Asks how far a group has come; everywhere, if `partitions` is None."""

    group_id: str
    committer: Committer | None
    """Who asks; None if it does not say. An empty member id says something."""
    partitions: Sequence[TopicPartition] | None
    requires_stable: bool
    """Refuse rather than say what an open transaction may change (KIP-447)."""


class FetchedOffset(NamedTuple):
    """The answer for one partition; `value` is None if nothing is committed."""

    partition: TopicPartition
    value: CommittedOffset | None
    error_code: ErrorCode


class DescribedMember(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicDescription:
    """A group as DescribeGroups shows it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
