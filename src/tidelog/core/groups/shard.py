"""The groups of one partition of `__consumer_offsets`: who leads the partition, coordinates them.

A shard finds the group that is meant and lets it decide (`group.py`). What is common to groups of
all types is here: their offsets, how groups come to be and end.

Rules, Kafka's:

    S1  A group comes to be when somebody without an id joins, or when offsets are committed by who
        claims no membership. Any other request about a group that is not here names an unknown one.
    S2  A group without members and offsets, none of them pending either, is forgotten at the next
        clean-up, every `offsets.retention.check.interval.ms`. Clean-up visits a number of groups in
        one go, so that a shard with many of them stays fast.
    S3  The offsets of a deleted topic are deleted. One of the same name begins without: an offset
        that was committed under another topic id does not count, also if nobody led this shard
        when its topic was deleted.
    S4  Deleting a group deletes its offsets too, and needs a group without members.
    S5  A group changes its protocol with whoever joins while it is empty, and otherwise as
        `migration.py` says. It is of one type at any time, and its offsets stay.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_TOPIC_ID, ProducerId, TopicIdPartition, TopicPartition
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.groups import GroupsConfig
from tidelog.core.coordinators import NO_EFFECTS, Effects, Token, Transactional
from tidelog.core.groups.classic_group import ClassicGroup
from tidelog.core.groups.consumer.classic_guests import ClassicGuests
from tidelog.core.groups.consumer.group import ConsumerGroup
from tidelog.core.groups.consumer.requests import ConsumerHeartbeat, MakeAssignment
from tidelog.core.groups.context import ASSIGNED_AT_ONCE_MAX, NO_CONFIGS, GroupContext
from tidelog.core.groups.group import Group
from tidelog.core.groups.migration import can_downgrade, downgraded, upgrade_records
from tidelog.core.groups.offsets import Offsets
from tidelog.core.groups.requests import (
    NO_MEMBER_ID,
    CommitRequest,
    FetchedOffset,
    FetchRequest,
    HeartbeatRequest,
    JoinRequest,
    LeavingMember,
    PartitionCommit,
    SyncRequest,
)
from tidelog.core.groups.topics import NO_TOPICS, Topics
from tidelog.records.consumer_groups import (
    JOINING_EPOCH,
    ConsumerGroupRecord,
    GroupEpochRecord,
    Partitions,
)
from tidelog.records.groups import GroupMetadataRecord, GroupRecord, OffsetCommitRecord

GROUPS_PER_CLEAN_UP: Final = 200
GROUPS_PER_TURN: Final = 200
"""Whose sessions begin in one go when a shard was loaded."""
_MINUTE_MS: Final = 60_000
_OFFSET_RECORD_OVERHEAD_BYTES: Final = 128


class GroupShard:
    """Hosts groups by id. One event at a time; see `core/coordinators.py` for what it promises."""

    __slots__ = (
        "_begin_ms",
        "_clean_up_ms",
        "_context",
        "_groups",
        "_offsets",
        "_to_begin",
        "_to_clean_up",
    )

    def __init__(
        self,
        *,
        config: GroupsConfig,
        record_max_bytes: int,
        consumer_config: ConsumerGroupsConfig | None = None,
        consumer_configs: Mapping[str, ConsumerGroupsConfig] = NO_CONFIGS,
        topics: Topics = NO_TOPICS,
        assigned_at_once_max: int = ASSIGNED_AT_ONCE_MAX,
    ) -> None:
        self._context = GroupContext(
            config=config,
            record_max_bytes=record_max_bytes,
            consumer_config=consumer_config,
            consumer_configs=consumer_configs,
            topics=topics,
            assigned_at_once_max=assigned_at_once_max,
        )
        self._groups: dict[str, Group] = {}
        self._offsets = Offsets()
        self._clean_up_ms: int | None = None
        self._to_clean_up: list[str] = []
        self._begin_ms: int | None = None
        self._to_begin: list[str] = []

    # Loading

    def replay(self, record: GroupRecord) -> None:
        """A record that counts."""
        match record:
            case OffsetCommitRecord():
                if record.value is not None:
                    self._get_or_create(record.group_id)
                self._offsets.apply(record)
            case GroupMetadataRecord():
                self._replay_classic(record)
            case _:
                self._replay_consumer(record)

    def _replay_consumer(self, record: ConsumerGroupRecord) -> None:
        """A group that only kept offsets until now is replaced: it is in no record."""
        group = self._groups.get(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.is_tombstone:
                return
            group = self._groups[record.group_id] = ConsumerGroup(record.group_id, self._context)
        group.replay(record)
        if isinstance(record, GroupEpochRecord) and record.is_tombstone:
            del self._groups[record.group_id]

    def _replay_classic(self, record: GroupMetadataRecord) -> None:
        group_id = record.group_id
        if record.value is not None:
            group = ClassicGroup.from_record(group_id, record.value, self._context)
            self._groups[group_id] = group
        elif isinstance(self._groups.get(group_id), ClassicGroup):
            del self._groups[group_id]

    def replay_transactional(self, record: GroupRecord, producer_id: ProducerId) -> None:
        """A record that counts if its producer's transaction is committed: offsets alone do."""
        if isinstance(record, OffsetCommitRecord) and record.value is not None:
            self._get_or_create(record.group_id)
            self._offsets.apply_pending(record, producer_id)

    def replay_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """The end of a producer's transaction."""
        self._offsets.apply_marker(producer_id, is_commit=is_commit)

    def on_loaded(self, now_ms: int) -> Effects:
        """All there was to replay has been replayed: sessions begin.

        Those of the groups that are many begin bit by bit, with the ticks that follow at once: a
        member that is not expected yet has so much longer to say something.
        """
        self._context.now_ms = now_ms
        self._clean_up_ms = now_ms + self._context.config.offsets_retention_check_interval_ms
        self._to_begin = [*self._groups]
        self._begin_sessions()
        return self._context.take_effects()

    def _begin_sessions(self) -> None:
        for group_id in self._to_begin[-GROUPS_PER_TURN:]:
            group = self._groups.get(group_id)
            if group is not None:
                group.on_loaded()
        del self._to_begin[-GROUPS_PER_TURN:]
        self._begin_ms = self._context.now_ms if self._to_begin else None

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_tick` has something to do."""
        times = (self._clean_up_ms, self._begin_ms, self._context.timers.next_ms)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def on_tick(self, now_ms: int) -> Effects:
        """Everything that is due by now."""
        self._context.now_ms = now_ms
        while (name := self._context.timers.first_due(now_ms)) is not None:
            self._groups[name.group_id].on_timer(name)
            self._downgrade_if_classic(name.group_id)
        if self._to_begin:
            self._begin_sessions()
        if self._clean_up_ms is not None and now_ms >= self._clean_up_ms:
            self._clean_up()
        return self._context.take_effects()

    def _clean_up(self) -> None:
        if not self._to_clean_up:
            self._to_clean_up = [*self._groups]
        for group_id in self._to_clean_up[-GROUPS_PER_CLEAN_UP:]:
            self._clean_up_group(group_id)
        del self._to_clean_up[-GROUPS_PER_CLEAN_UP:]
        interval_ms = self._context.config.offsets_retention_check_interval_ms
        self._clean_up_ms = self._context.now_ms + (0 if self._to_clean_up else interval_ms)

    def _clean_up_group(self, group_id: str) -> None:
        """S2"""
        group = self._groups.get(group_id)
        if group is None:
            return
        self._expire_offsets(group)
        if group.is_empty and not self._offsets.has_any(group_id):
            self._context.write(*group.tombstones())
            self._drop(group)

    def _expire_offsets(self, group: Group) -> None:
        age_base = group.offset_age_base()
        if age_base is None:
            return
        expired = self._offsets.expired(
            group.group_id,
            age_base,
            now_ms=self._context.now_ms,
            retention_ms=self._context.config.offsets_retention_minutes * _MINUTE_MS,
        )
        unwanted = [partition for partition in expired if not group.is_subscribed(partition.topic)]
        self._write_tombstones(list(self._offsets.tombstones(group.group_id, unwanted)))

    # Classic members

    def on_join(self, request: JoinRequest, token: Token, now_ms: int) -> Effects:
        """Replies with a JoinAnswer, maybe much later."""
        self._context.now_ms = now_ms
        config = self._context.config
        shortest_ms, longest_ms = (
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
        )
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise RequestRefused(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            group.on_join(request, token)
        elif group is None or group.is_empty:
            self._join_new_group(request, token)
        else:
            self._guests(request.group_id).on_join(request, token)
            self._downgrade_if_classic(request.group_id)
        return self._context.take_effects()

    def _join_new_group(self, request: JoinRequest, token: Token) -> None:
        """S1"""
        if request.member_id != NO_MEMBER_ID:
            raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        group = ClassicGroup(request.group_id, self._context)
        group.require_protocols(request)
        self._make_way(request.group_id)
        group.write_created()
        group.on_join(request, token)
        self._groups[request.group_id] = group

    def on_sync(self, request: SyncRequest, token: Token, now_ms: int) -> Effects:
        """Replies with a SyncAnswer, maybe later."""
        self._context.now_ms = now_ms
        self._required_host(request.group_id).on_sync(request, token)
        return self._context.take_effects()

    def on_heartbeat(self, request: HeartbeatRequest, token: Token, now_ms: int) -> Effects:
        """Replies with an ErrorCode."""
        self._context.now_ms = now_ms
        self._required_host(request.group_id).on_heartbeat(request, token)
        return self._context.take_effects()

    def on_leave(
        self, group_id: str, leaving: tuple[LeavingMember, ...], token: Token, now_ms: int
    ) -> Effects:
        """Replies with one MemberLeft for each."""
        self._context.now_ms = now_ms
        self._required_host(group_id).on_leave(leaving, token)
        self._downgrade_if_classic(group_id)
        return self._context.take_effects()

    def _required_host(self, group_id: str) -> ClassicGroup | ClassicGuests:
        """Who looks after the members of the classic protocol of a group."""
        group = self._groups.get(group_id)
        if group is None or (group.is_empty and isinstance(group, ConsumerGroup)):
            raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        return group if isinstance(group, ClassicGroup) else self._guests(group_id)

    def _guests(self, group_id: str) -> ClassicGuests:
        group = self._groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return ClassicGuests(group, self._context)

    # Members of the consumer protocol

    def on_consumer_heartbeat(
        self, request: ConsumerHeartbeat, token: Token, now_ms: int
    ) -> Effects:
        """Replies with a HeartbeatAnswer."""
        self._context.now_ms = now_ms
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            group.on_heartbeat(request, token)
            self._downgrade_if_classic(request.group_id)
        elif request.member_epoch == JOINING_EPOCH:
            self._join_as_consumer(request, token)
        else:
            raise RequestRefused(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group."
            )
        return self._context.take_effects()

    def _join_as_consumer(self, request: ConsumerHeartbeat, token: Token) -> None:
        """The first member of a group, or the first of its protocol in a classic one. S5"""
        group_id = request.group_id
        old = self._groups.get(group_id)
        new = ConsumerGroup(group_id, self._context)
        records: list[ConsumerGroupRecord] = []
        if isinstance(old, ClassicGroup) and not old.is_empty:
            records = upgrade_records(old, self._context)
            new.members.apply_all(records)
        if old is not None:
            self._context.write(*old.tombstones())
        self._context.write(*records)
        try:
            new.on_heartbeat(request, token)
        except RequestRefused:
            self._context.discard_effects()
            raise
        if isinstance(old, ClassicGroup):
            old.on_upgraded()
        self._groups[group_id] = new
        new.on_loaded()

    def on_assigned(self, made: MakeAssignment, targets: dict[str, Partitions] | None) -> Effects:
        """An assignment that a group has asked for, if that is the one it waits for still.

        None: it could not be made.
        """
        group = self._groups.get(made.group_id)
        if isinstance(group, ConsumerGroup):
            group.on_assigned(made, targets)
        return NO_EFFECTS

    def know_topics(self, topics: Topics) -> None:
        """Topics were created or deleted, or have more partitions than before, if at all."""
        if topics is self._context.topics:
            return
        self._context.topics = topics
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.on_topics()

    def know_configs(
        self, default: ConsumerGroupsConfig, configs: Mapping[str, ConsumerGroupsConfig]
    ) -> None:
        """Groups have these settings now, single groups their own.

        They count from a member's next heartbeat on.
        """
        self._context.consumer_config = default
        self._context.consumer_configs = configs

    def on_consumer_describe(self, group_id: str, token: Token, now_ms: int) -> Effects:
        """Replies with a ConsumerDescription, or None if there is no such consumer group."""
        self._context.now_ms = now_ms
        group = self._groups.get(group_id)
        described = group.describe() if isinstance(group, ConsumerGroup) else None
        self._context.reply(token, described)
        return self._context.take_effects()

    def _downgrade_if_classic(self, group_id: str) -> None:
        """S5"""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and can_downgrade(group, self._context):
            classic = downgraded(group, self._context)
            self._make_way(group_id)
            self._groups[group_id] = classic
            classic.on_downgraded()

    def _make_way(self, group_id: str) -> None:
        """Take back what a group of the consumer protocol has written, if there is one."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._context.write(*group.tombstones())
            self._drop(group)

    # Offsets

    def on_commit(self, request: CommitRequest, token: Token, now_ms: int) -> Effects:
        """Replies with one ErrorCode for each partition, in order."""
        self._context.now_ms = now_ms
        self._require_commit(request, is_transactional=False)
        codes, records = self._judge_all(request)
        self._context.write(*records)
        for record in records:
            self._offsets.apply(record)
        self._context.reply(token, codes)
        return self._context.take_effects()

    def on_transactional_commit(
        self, request: CommitRequest, transactional: Transactional, token: Token, now_ms: int
    ) -> Effects:
        """Like `on_commit`; what was committed is pending until the marker (D3)."""
        self._context.now_ms = now_ms
        self._require_commit(request, is_transactional=True)
        codes, records = self._judge_all(request)
        self._context.write(*records, transactional=transactional)
        for record in records:
            self._offsets.apply_pending(record, transactional.producer_id)
        self._context.reply(token, codes)
        return self._context.take_effects()

    def on_marker(self, producer_id: ProducerId, *, is_commit: bool) -> Effects:
        """A transaction's marker was appended to the log."""
        self._offsets.apply_marker(producer_id, is_commit=is_commit)
        return self._context.take_effects()

    def _require_commit(self, request: CommitRequest, *, is_transactional: bool) -> None:
        group = self._groups.get(request.group_id)
        if group is not None:
            group.require_commit(request.committer, is_transactional=is_transactional)
            if not is_transactional:
                group.on_committed(request.committer)
        elif request.committer.generation_or_member_epoch >= 0:
            raise RequestRefused(request.unknown_group)

    def _judge_all(
        self, request: CommitRequest
    ) -> tuple[list[ErrorCode], list[OffsetCommitRecord]]:
        group = self._groups.get(request.group_id)
        codes = [self._judge(group, request, commit) for commit in request.offsets]
        records = [
            OffsetCommitRecord(request.group_id, commit.partition, commit.value)
            for commit, code in zip(request.offsets, codes, strict=True)
            if code is ErrorCode.NONE
        ]
        if records:
            self._get_or_create(request.group_id)  # S1
        return codes, records

    def _judge(
        self, group: Group | None, request: CommitRequest, commit: PartitionCommit
    ) -> ErrorCode:
        if _java_length(commit.value.metadata) > self._context.config.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if _record_bytes(request.group_id, commit) > self._context.record_max_bytes:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE  # W3
        if group is None:
            return ErrorCode.NONE
        partition = TopicIdPartition(commit.value.topic_id, commit.partition.partition)
        return group.commit_error(request.committer, partition)

    def on_fetch(self, request: FetchRequest, token: Token, now_ms: int) -> Effects:
        """Replies with one FetchedOffset for each partition."""
        self._context.now_ms = now_ms
        group = self._groups.get(request.group_id)
        partitions = request.partitions
        if group is not None and request.committer is not None:
            group.require_fetch(request.committer)
        if partitions is None:
            known = self._offsets.partitions(request.group_id)
            partitions = [one for one in known if not self._is_of_another_topic(request, one)]
        self._context.reply(token, [self._fetched(request, partition) for partition in partitions])
        return self._context.take_effects()

    def _is_of_another_topic(self, request: FetchRequest, partition: TopicPartition) -> bool:
        """Was its topic deleted, and one of the same name made? S3"""
        value = self._offsets.committed(request.group_id, partition)
        facts = self._context.topics.by_name.get(partition.topic)
        if value is None or facts is None:
            return False
        return value.topic_id not in (NO_TOPIC_ID, facts.topic_id)

    def _fetched(self, request: FetchRequest, partition: TopicPartition) -> FetchedOffset:
        group_id = request.group_id
        if request.requires_stable and self._offsets.has_pending(group_id, partition):
            return FetchedOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if self._is_of_another_topic(request, partition):
            return FetchedOffset(partition, None, ErrorCode.NONE)
        value = self._offsets.committed(group_id, partition)
        return FetchedOffset(partition, value, ErrorCode.NONE)

    def on_delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], token: Token, now_ms: int
    ) -> Effects:
        """Replies with one ErrorCode for each partition, in order."""
        self._context.now_ms = now_ms
        group = self._required_group(group_id)
        group.require_offset_deletion()
        codes = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if group.is_subscribed(partition.topic)
            else ErrorCode.NONE
            for partition in partitions
        ]
        free = [
            partition
            for partition, code in zip(partitions, codes, strict=True)
            if code is ErrorCode.NONE
        ]
        self._write_tombstones(list(self._offsets.tombstones(group_id, dict.fromkeys(free))))
        self._context.reply(token, codes)
        return self._context.take_effects()

    def on_topics_deleted(self, topics: Collection[str], now_ms: int) -> Effects:
        """S3"""
        self._context.now_ms = now_ms
        for group_id in self._offsets.groups():
            gone = [one for one in self._offsets.touched(group_id) if one.topic in topics]
            self._write_tombstones(list(self._offsets.tombstones(group_id, gone)))
        return self._context.take_effects()

    def _write_tombstones(self, records: list[OffsetCommitRecord]) -> None:
        self._context.write(*records)
        for record in records:
            self._offsets.apply(record)

    # Groups

    def on_list(
        self, states: Collection[str], types: Collection[str], token: Token, now_ms: int
    ) -> Effects:
        """Replies with a GroupListing for each group in one of `states` and of one of `types`.

        An empty collection stands for all of them; case does not matter.
        """
        self._context.now_ms = now_ms
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in types}
        listings = [
            listing
            for listing in (group.listing() for group in self._groups.values())
            if (not wanted_states or listing.state.lower() in wanted_states)
            and (not wanted_types or listing.group_type in wanted_types)
        ]
        self._context.reply(token, listings)
        return self._context.take_effects()

    def on_describe(self, group_id: str, token: Token, now_ms: int) -> Effects:
        """Replies with a ClassicDescription, or None if there is no such classic group."""
        self._context.now_ms = now_ms
        group = self._groups.get(group_id)
        described = group.describe() if isinstance(group, ClassicGroup) else None
        self._context.reply(token, described)
        return self._context.take_effects()

    def on_delete(self, group_id: str, token: Token, now_ms: int) -> Effects:
        """S4. Replies with ErrorCode.NONE."""
        self._context.now_ms = now_ms
        group = self._required_group(group_id)
        group.require_deletion()
        self._write_tombstones(self._offsets.all_tombstones(group_id))
        self._context.write(*group.tombstones())
        self._drop(group)
        self._context.reply(token, ErrorCode.NONE)
        return self._context.take_effects()

    def _required_group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise RequestRefused(ErrorCode.GROUP_ID_NOT_FOUND)
        return group

    def _get_or_create(self, group_id: str) -> Group:
        """A group that keeps offsets need be nothing else, and is not written before it is more."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id, self._context)
        return group

    def _drop(self, group: Group) -> None:
        group.on_removed()
        del self._groups[group.group_id]


def _java_length(text: str) -> int:
    """As Kafka counts, whatever the setting is called: in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _record_bytes(group_id: str, commit: PartitionCommit) -> int:
    """No fewer than the record of a commit will have; text counts four bytes each."""
    texts = len(group_id) + len(commit.partition.topic) + len(commit.value.metadata)
    return _OFFSET_RECORD_OVERHEAD_BYTES + 4 * texts
