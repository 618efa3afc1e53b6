"""A classic group as the shard sees it: its members, and what follows from them for its offsets.

How members come, agree and leave is in `classic_membership.py`.
"""

from typing import Final

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_TIMESTAMP, TopicIdPartition
from tidelog.core.groups.classic_membership import ClassicMembership, ClassicState
from tidelog.core.groups.group import AgeBase, Committer, GroupListing, GroupType
from tidelog.core.groups.requests import ClassicDescription, DescribedMember
from tidelog.records.groups import GroupMetadataRecord


class ClassicGroup(ClassicMembership):
    """One group. A group that nobody ever joined only keeps offsets."""

    __slots__ = ()

    group_type: Final = GroupType.CLASSIC

    @property
    def is_simple(self) -> bool:
        """It keeps offsets and has never been more than that, nor is about to become more."""
        return self.is_empty and not self.is_of_consumers and not self.members.pending

    def listing(self) -> GroupListing:
        return GroupListing(
            self.group_id, self._protocol_type or "", self._state.value, self.group_type
        )

    def describe(self) -> ClassicDescription:
        """What members say of themselves is shown once they agree; until then all is older."""
        is_stable = self._state is ClassicState.STABLE
        protocol = (self._protocol_name or "") if is_stable else ""
        members = tuple(
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if is_stable else b"",
                member.assignment,
            )
            for member in self.members
        )
        return ClassicDescription(
            self.group_id, self._state.value, self._protocol_type or "", protocol, members
        )

    def require_commit(self, committer: Committer, *, is_transactional: bool) -> None:
        generation = committer.generation_or_member_epoch
        if generation < 0 and self.is_empty:
            return
        has_named_itself = committer.member_id or committer.group_instance_id is not None
        if generation >= 0 or has_named_itself:
            self._required_member(committer.member_id, committer.group_instance_id)
            self._require_generation(generation)
        elif not is_transactional:
            # Transactions of old clients do not say who commits.
            raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self._state is ClassicState.COMPLETING_REBALANCE:
            raise RequestRefused(ErrorCode.REBALANCE_IN_PROGRESS)

    def commit_error(self, committer: Committer, partition: TopicIdPartition) -> ErrorCode:
        """Members of a generation may commit whatever they like."""
        return ErrorCode.NONE

    def on_committed(self, committer: Committer) -> None:
        member = self.members.find(committer.member_id)
        if member is not None:
            self._expect_heartbeat(member)

    def require_fetch(self, committer: Committer) -> None:
        """Anybody may know how far a classic group has come."""

    def require_deletion(self) -> None:
        if not self.is_empty:
            raise RequestRefused(ErrorCode.NON_EMPTY_GROUP)

    def require_offset_deletion(self) -> None:
        if not self.is_empty and not self.is_of_consumers:
            raise RequestRefused(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed(self, topic: str) -> bool:
        if self._subscribed_topics is None:
            return self.is_of_consumers  # All topics, for all we know.
        return topic in self._subscribed_topics

    def offset_age_base(self) -> AgeBase | None:
        """Offsets of a group that had members count from when the last of them was gone."""
        if self._protocol_type is None:
            return lambda offset: offset.commit_timestamp_ms
        if self.is_empty:
            empty_since_ms = self._state_timestamp_ms
            if empty_since_ms == NO_TIMESTAMP:
                return lambda offset: offset.commit_timestamp_ms
            return lambda _: empty_since_ms
        knows_topics = self.is_of_consumers and self._subscribed_topics is not None
        if knows_topics and self._state is ClassicState.STABLE:
            return lambda offset: offset.commit_timestamp_ms
        return None

    def tombstones(self) -> tuple[object, ...]:
        return (GroupMetadataRecord(self.group_id, None),)
