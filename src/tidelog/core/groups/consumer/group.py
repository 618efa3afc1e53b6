"""One group of the consumer protocol (KIP-848): the coordinator assigns, members obey.

A group's life is counted in epochs, each of which only grows:

    group epoch          what the group is made of: its members, what they subscribe to, the topics
       │ assign          (not more often than group.consumer.assignment.interval.ms, H8)
       ▼
    assignment epoch     what everybody shall have: the target
       │ reconcile       (`reconciliation.py`)
       ▼
    member epochs        what each member has

There are no rounds in which everybody has to take part. Each heartbeat of a member is answered with
what that member has to know, and moves its part of the group on.

Rules:

    H1  A member that does not know its epoch knows nothing: FENCED_MEMBER_EPOCH. It may be one
        behind, if it has nothing that it should not have: the last answer may have been lost.
    H2  A static member's place is kept for the next of its instance, once it has said that it
        goes (epoch -2). Until then nobody else takes it: UNRELEASED_INSTANCE_ID.
    H3  Who is silent for its session, or does not give back in its time to rebalance, is not a
        member any more.
    H4  The group epoch moves when somebody joins, leaves or subscribes to something else, and when
        a subscribed topic is created, deleted or gets partitions.
    H5  A member that is told what it has is told all of it; one that has missed nothing is not.
    H6  An assignment of a large group is made elsewhere (`MakeAssignment`), one at a time, while
        the group goes on as before; the first heartbeat after it is there takes it over. Who has
        left meanwhile gets nothing, who has come waits for the next one, and whoever has taken
        the place of a static member has what was meant for that.
    H7  What a member has, and what it shall have, is one record each. If there is no room in one,
        there is no assignment: heartbeats are refused until there is another one that fits.
    H8  An assignment is made by the first heartbeat after the group has changed. If it is too
        early for that, it is made as soon as it may be, whoever is heard then: otherwise members
        that are heard just before would wait for one heartbeat more.

Members that speak the classic protocol may be in the group as well, see `classic_members.py`.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicId, TopicIdPartition
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.core.coordinators import Token
from tidelog.core.groups.consumer import expressions
from tidelog.core.groups.consumer.assignors import ASSIGNORS
from tidelog.core.groups.consumer.members import ConsumerMember, ConsumerMembers
from tidelog.core.groups.consumer.reconciliation import Target, reconcile
from tidelog.core.groups.consumer.removal import group_tombstones, member_tombstones
from tidelog.core.groups.consumer.requests import (
    AssignmentTooLarge,
    ConsumerDescription,
    ConsumerHeartbeat,
    DescribedConsumer,
    HeartbeatAnswer,
    MakeAssignment,
)
from tidelog.core.groups.context import GroupContext, Timer, TimerName
from tidelog.core.groups.group import AgeBase, Committer, GroupListing, GroupType
from tidelog.core.groups.requests import CONSUMER_PROTOCOL_TYPE
from tidelog.core.groups.topics import NO_TOPICS, Topics
from tidelog.records.consumer_groups import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    NOTHING_OWNED,
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    ExpressionRecord,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    PartitionMetadataRecord,
    Partitions,
    Subscription,
    TargetEpochRecord,
    TargetRecord,
)

METADATA_REFRESH_MS: Final = 180_000

_RECORD_OVERHEAD_BYTES: Final = 64
_TOPIC_BYTES: Final = 21
_PARTITION_BYTES: Final = 8
_ALONE_BYTES: Final = 30
"""Of a partition that is the only one of its topic. None takes more."""

_MEMBER_TIMERS: Final = (Timer.SESSION, Timer.REVOCATION, Timer.JOIN, Timer.SYNC)


class ConsumerGroup:
    """One group. Everything it knows but timers is in its records (W1)."""

    __slots__ = (
        "_context",
        "_decided",
        "_digested",
        "_group_id",
        "_made",
        "_making",
        "_quiet_interval_ms",
        "_quiet_until_ms",
        "_refresh_at_ms",
        "_successors",
        "members",
        "unassignable",
    )

    group_type = GroupType.CONSUMER

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.members = ConsumerMembers()
        self._group_id = group_id
        self._context = context
        self._decided: list[ConsumerGroupRecord] = []
        self._refresh_at_ms = 0
        self.unassignable: AssignmentTooLarge | None = None
        # H6: what is being made, what has come of it, and who is who by now.
        self._making: MakeAssignment | None = None
        self._made: dict[str, Partitions] | None = None
        self._successors: dict[str, str] = {}
        # No expression is due until then, if those that are due are after that interval.
        self._quiet_until_ms = self._quiet_interval_ms = 0
        # The last topics that were asked for, and what they were found to be.
        self._digested: tuple[Topics, frozenset[str], int] = (NO_TOPICS, frozenset(), 0)

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def is_empty(self) -> bool:
        return not self.members.by_id

    @property
    def state(self) -> str:
        members = self.members
        if not members.by_id:
            return "Empty"
        if members.epoch > members.target_epoch:
            return "Assigning"
        epoch = members.target_epoch
        is_stable = all(member.is_reconciled_to(epoch) for member in members.by_id.values())
        return "Stable" if is_stable else "Reconciling"

    @property
    def config(self) -> ConsumerGroupsConfig:
        return self._context.consumer_config_of(self._group_id)

    def replay(self, record: ConsumerGroupRecord) -> None:
        self.members.apply(record)
        self._quiet_until_ms = 0

    # Members of the consumer protocol

    def on_heartbeat(self, request: ConsumerHeartbeat, token: Token) -> None:
        """Replies with a HeartbeatAnswer, or RequestRefused though something changed (H7)."""
        if request.member_epoch in {LEAVING_EPOCH, LEAVING_STATIC_EPOCH}:
            self._on_leaving(request, token)
            return
        before, leaver = self._entering(request)
        subscription = _updated(before.subscription, request)
        self.require_subscription(before.subscription, subscription)
        member = self.enter(request.member_id, subscription, request.owned, leaver)
        self.start_session(member, self.config.group_consumer_session_timeout_ms)
        if self.unassignable is not None:
            self._context.reply(token, self.unassignable.refusal())
            return
        is_told = request.member_epoch == JOINING_EPOCH or request.is_full
        if before.current is not member.current:
            is_told |= before.current.assigned.keys() != member.current.assigned.keys()
        answer = HeartbeatAnswer(
            member.member_id,
            member.epoch,
            self.config.group_consumer_heartbeat_interval_ms,
            frozenset(member.current.assigned) if is_told else None,
        )
        self._context.reply(token, answer)

    def _entering(self, request: ConsumerHeartbeat) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member as it was, and the one whose place it takes. H1, H2"""
        is_joining = request.member_epoch == JOINING_EPOCH
        self.require_room(request.member_id)
        if request.instance_id is not None:
            return self._entering_static(request, is_joining=is_joining)
        member = self.members.by_id.get(request.member_id)
        if member is None and is_joining:
            return ConsumerMember(request.member_id), None
        member = member or self.unknown_member(request.member_id)
        _require_epoch(member, request)
        return member, None

    def _entering_static(
        self, request: ConsumerHeartbeat, *, is_joining: bool
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        member = self.members.static(request.instance_id)
        if not is_joining:
            known = self.require_static(request.instance_id, request.member_id)
            _require_epoch(known, request)
            return known, None
        if member is None:
            return self.members.by_id.get(
                request.member_id, ConsumerMember(request.member_id)
            ), None
        is_released = member.is_classic or member.epoch == LEAVING_STATIC_EPOCH
        if not is_released:
            raise RequestRefused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot "
                f"join the group because the instance id is owned by {member.member_id} member.",
            )
        return member, member

    def _on_leaving(self, request: ConsumerHeartbeat, token: Token) -> None:
        if request.instance_id is None:
            member = self.members.by_id.get(request.member_id)
            member = member or self.unknown_member(request.member_id)
        else:
            member = self.require_static(request.instance_id, request.member_id)
        if request.member_epoch == LEAVING_STATIC_EPOCH:
            self._release(member)
        else:
            self.remove((member,))
        self._context.reply(token, HeartbeatAnswer(request.member_id, request.member_epoch))

    def _release(self, member: ConsumerMember) -> None:
        """Keep the place of a static member for the next of its instance. H2"""
        released = replace(
            member.current,
            epoch=LEAVING_STATIC_EPOCH,
            assigned=dict.fromkeys(member.current.assigned, JOINING_EPOCH),
            revoking=NOTHING_OWNED,
        )
        self._decide(CurrentAssignmentRecord(self._group_id, member.member_id, released))
        self._context.timers.cancel(self._timer(Timer.REVOCATION, member.member_id))
        self._write()

    # What is asked of members of either protocol

    def require_room(self, member_id: str) -> None:
        most = self.config.group_consumer_max_size
        if len(self.members.by_id) >= most and member_id not in self.members.by_id:
            raise RequestRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def require_static(self, instance_id: str | None, member_id: str) -> ConsumerMember:
        """The member with that instance id, if `member_id` is the one it goes by now."""
        member = self.members.static(instance_id)
        if member is None:
            raise RequestRefused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            )
        if member.member_id != member_id:
            raise RequestRefused(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    def require_subscription(self, before: Subscription, after: Subscription) -> None:
        """Can what a member wants be matched, and be written down?"""
        if after == before:
            return
        size_bytes = sum(len(topic.encode()) + 4 for topic in after.topics)
        size_bytes += len(after.expression) * 4
        if after.classic is not None:
            size_bytes += sum(len(metadata) + 64 for _, metadata in after.classic.protocols)
        if size_bytes > self._context.record_max_bytes // 2:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, "The subscription is too large.")
        is_new = after.expression != before.expression
        if is_new and after.expression and after.expression not in self.members.expressions:
            expressions.require_matchable(after.expression, self._context.topics)

    def unknown_member(self, member_id: str) -> ConsumerMember:
        raise RequestRefused(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {self._group_id}.",
        )

    def enter(
        self,
        member_id: str,
        subscription: Subscription,
        owned: Partitions | None,
        leaver: ConsumerMember | None,
    ) -> ConsumerMember:
        """Take a member in, or note that it is alive; then move the group and the member on.

        Whatever can be refused has been by now: from here on things change.
        """
        if leaver is not None and leaver.member_id != member_id:
            self._take_place_of(leaver, member_id)
        before = self.members.by_id.get(member_id)
        known = before.subscription if before is not None else Subscription()
        if before is None or known != subscription:
            self._decide(MemberRecord(self._group_id, member_id, subscription))
            self._forget_expressions()
        is_new = known.topics != subscription.topics or known.expression != subscription.expression
        self._refresh(is_changed=is_new)
        self._assign()
        self._reconcile(member_id, owned, has_new_subscription=is_new)
        self._write()
        return self.members.by_id[member_id]

    def _take_place_of(self, leaver: ConsumerMember, member_id: str) -> None:
        """A static member is back under another id. It gets what its instance had."""
        current = replace(leaver.current, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        target = self.members.target(leaver.member_id)
        self._cancel_timers(leaver.member_id)
        if self._making is not None:
            self._note_successor(leaver.member_id, member_id)
        self._decide(
            *member_tombstones(self._group_id, leaver.member_id),
            MemberRecord(self._group_id, member_id, leaver.subscription),
            TargetRecord(self._group_id, member_id, target),
            CurrentAssignmentRecord(self._group_id, member_id, current),
        )

    def _note_successor(self, leaver_id: str, member_id: str) -> None:
        """H6. `leaver_id` may itself have come after the assignment was begun."""
        for first_id, last_id in self._successors.items():
            if last_id == leaver_id:
                self._successors[first_id] = member_id
                return
        self._successors[leaver_id] = member_id

    def start_session(self, member: ConsumerMember, timeout_ms: int) -> None:
        self._context.set_timer(self._timer(Timer.SESSION, member.member_id), timeout_ms)

    def remove(self, leaving: Collection[ConsumerMember]) -> None:
        """They are members no more, and what they had is free. H4"""
        if not leaving:
            return
        for member in leaving:
            self._decide(*member_tombstones(self._group_id, member.member_id))
            self._cancel_timers(member.member_id)
        self._forget_expressions()
        self._bump()
        self._write()

    # The group as a whole

    def on_topics(self) -> None:
        """Topics have changed: the next heartbeat looks whether they are ours. H4"""
        self._refresh_at_ms = self._quiet_until_ms = 0

    def may_assign(self) -> bool:
        """Whether enough time has passed since the last assignment, and the next one is there."""
        if self._making is not None:
            return self._made is not None
        return self._assignment_wait_ms() == 0

    def _assignment_wait_ms(self) -> int:
        since_ms = self._context.now_ms - self.members.target_time_ms
        interval_ms = self.config.group_consumer_assignment_interval_ms
        if self.members.target_time_ms == 0 or not 0 <= since_ms < interval_ms:
            return 0
        return interval_ms - since_ms

    def assignor(self) -> str:
        """What most members ask for; the broker's first if none asks."""
        offered = self.config.assignors
        votes = Counter(
            member.subscription.assignor
            for member in self.members.by_id.values()
            if member.subscription.assignor in offered
        )
        return min(votes, key=lambda name: (-votes[name], name or ""), default=None) or offered[0]

    def _refresh(self, *, is_changed: bool) -> None:
        """Look at topics and expressions, if it is time to, and begin a new epoch if need be. H4"""
        is_changed |= self._resolve()
        if not is_changed and self._context.now_ms < self._refresh_at_ms:
            return
        digest = self._digest()
        if is_changed or digest != self.members.metadata_hash:
            self._bump()
        if self.members.has_partition_metadata:
            self._decide(PartitionMetadataRecord(self._group_id))
        self._refresh_at_ms = self._context.now_ms + METADATA_REFRESH_MS

    def _bump(self) -> None:
        self._decide(GroupEpochRecord(self._group_id, self.members.epoch + 1, self._digest()))
        self._time_assignment()

    def _time_assignment(self) -> None:
        """H8"""
        wait_ms = self._assignment_wait_ms()
        if wait_ms and self.members.epoch > self.members.target_epoch and not self.is_empty:
            self._context.set_timer(self._timer(Timer.ASSIGNMENT), wait_ms)

    def _digest(self) -> int:
        """What is known of the topics that anybody subscribes to: usually the same as before."""
        topics, names = self._context.topics, self.members.all_topics()
        if self._digested[0] is not topics or self._digested[1] is not names:
            self._digested = topics, names, topics.digest(names)
        return self._digested[2]

    def _resolve(self) -> bool:
        """Whether an expression stands for other topics than before.

        There may be as many as members, and each heartbeat gets here: as long as none can be due
        they are not looked at.
        """
        members, topics, now_ms = self.members, self._context.topics, self._context.now_ms
        interval_ms = self.config.group_consumer_regex_refresh_interval_ms
        if now_ms < self._quiet_until_ms and interval_ms == self._quiet_interval_ms:
            return False
        due = expressions.due(members, topics, now_ms=now_ms, refresh_interval_ms=interval_ms)
        if not due:
            self._quiet_interval_ms = interval_ms
            self._quiet_until_ms = expressions.quiet_until_ms(
                members, topics, refresh_interval_ms=interval_ms
            )
            return False
        topics_before = self.members.all_topics()
        found = expressions.resolve(
            due,
            members,
            topics,
            now_ms=now_ms,
            record_max_bytes=self._context.record_max_bytes,
        )
        for expression, resolved in found.items():
            self._decide(ExpressionRecord(self._group_id, expression, resolved))
        return self.members.all_topics() != topics_before

    def _forget_expressions(self) -> None:
        for expression in self.members.expressions.keys() - self.members.subscriber_counts.keys():
            self._decide(ExpressionRecord(self._group_id, expression, None))

    def on_assigned(self, made: MakeAssignment, targets: dict[str, Partitions] | None) -> None:
        """H6. Nothing is written before somebody asks: then it is known that writing can be.

        One that could not be made is asked for again by the next heartbeat.
        """
        if made is not self._making:
            return
        self._made = targets
        if targets is None:
            self._making = None
            self._successors.clear()

    def _assign(self) -> None:
        """Decide what everybody shall have, if that is older than the group is."""
        members, topics = self.members, self._context.topics
        if members.epoch <= members.target_epoch or not self.may_assign():
            return
        if self.unassignable is not None and self.unassignable.epoch == members.epoch:
            return  # It would be the same again.
        if self._making is not None:
            self._take_over(self._making.epoch)
            return
        assignment = MakeAssignment(
            group_id=self._group_id,
            epoch=members.epoch,
            assignor=ASSIGNORS[self.assignor()],
            subscriptions=self._subscriptions(),
            counts=topics.counts(topics.ids(members.all_topics())),
            previous=dict(members.targets),
        )
        if assignment.size <= self._context.assigned_at_once_max:
            self._set_targets(assignment.epoch, assignment.make())
        else:
            self._making = assignment
            self._context.perform(assignment)

    def _take_over(self, epoch: int) -> None:
        """H6"""
        assert self._made is not None, "may_assign() says so"
        targets = {self._successors.get(one, one): given for one, given in self._made.items()}
        self._making = self._made = None
        self._successors.clear()
        self._set_targets(epoch, targets)

    def _set_targets(self, epoch: int, targets: dict[str, Partitions]) -> None:
        members = self.members
        self.unassignable = self._too_large(epoch, targets)
        if self.unassignable is not None:
            self._context.perform(self.unassignable)
            return
        for member_id, partitions in targets.items():
            if member_id in members.by_id and members.targets.get(member_id) != partitions:
                self._decide(TargetRecord(self._group_id, member_id, partitions))
        self._decide(TargetEpochRecord(self._group_id, epoch, self._context.now_ms))
        self._time_assignment()  # The group may have changed while a large one was made.

    def _too_large(
        self, epoch: int, targets: Mapping[str, Partitions]
    ) -> AssignmentTooLarge | None:
        """H7"""
        group_room = self._context.record_max_bytes - len(self._group_id.encode())
        for member_id, partitions in targets.items():
            room = group_room - len(member_id.encode())
            if len(partitions) * _ALONE_BYTES + _RECORD_OVERHEAD_BYTES <= room:
                continue  # Usually: those of each topic need not be counted.
            size_bytes = assignment_bytes(partitions)
            if size_bytes > room:
                return AssignmentTooLarge(
                    self._group_id, epoch, member_id, len(partitions), size_bytes
                )
        return None

    def _subscriptions(self) -> dict[str, frozenset[TopicId]]:
        """The topics of each member. Those who want the same share one set: assignors look. I4"""
        ids: dict[tuple[frozenset[str], str], frozenset[TopicId]] = {}
        subscriptions: dict[str, frozenset[TopicId]] = {}
        for member_id, member in self.members.by_id.items():
            wanted = member.subscription.topics, member.subscription.expression
            if wanted not in ids:
                ids[wanted] = self._context.topics.ids(self.members.topics_of(member))
            subscriptions[member_id] = ids[wanted]
        return subscriptions

    def _reconcile(
        self, member_id: str, owned: Partitions | None, *, has_new_subscription: bool
    ) -> None:
        members = self.members
        member = members.by_id[member_id]
        if not has_new_subscription and member.is_reconciled_to(members.target_epoch):
            return
        names, subscribed = self._context.topics.names, members.topics_of(member)
        target = Target(
            epoch=members.target_epoch,
            partitions=members.target(member_id),
            is_subscribed=lambda topic_id: names.get(topic_id) in subscribed,
            is_free=lambda partition: members.owner(partition) is None,
            owned=owned,
        )
        current = reconcile(member.current, target, has_new_subscription=has_new_subscription)
        if current == member.current:
            return
        self._decide(CurrentAssignmentRecord(self._group_id, member_id, current))
        self._time_revocation(members.by_id[member_id])

    def _time_revocation(self, member: ConsumerMember) -> None:
        """H3. Members of the classic protocol are timed otherwise."""
        name = self._timer(Timer.REVOCATION, member.member_id)
        is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if is_revoking and not member.is_classic:
            self._context.set_timer(name, member.subscription.rebalance_timeout_ms)
        else:
            self._context.timers.cancel(name)

    def _decide(self, *records: ConsumerGroupRecord) -> None:
        self.members.apply_all(records)
        self._decided += records
        if any(isinstance(record, MemberRecord | ExpressionRecord) for record in records):
            self._quiet_until_ms = 0

    def _write(self) -> None:
        self._context.write(*self._decided)
        self._decided.clear()

    def _timer(self, timer: Timer, member_id: str = "") -> TimerName:
        return TimerName(self._group_id, timer, member_id)

    def _cancel_timers(self, member_id: str) -> None:
        for timer in _MEMBER_TIMERS:
            self._context.timers.cancel(self._timer(timer, member_id))

    # What a shard asks of any group

    def on_timer(self, name: TimerName) -> None:
        """H3, whichever timer of a member it is."""
        if name.timer is not Timer.ASSIGNMENT:
            self.remove((self.members.by_id[name.member_id],))
        elif not self.is_empty:
            self._assign()
            self._write()
            self._time_assignment()  # The interval may be longer than it was.

    def on_loaded(self) -> None:
        """Sessions begin, but for those of members that were heard since."""
        timers = self._context.timers
        for member in self.members.by_id.values():
            classic = member.subscription.classic
            timeout_ms = self.config.group_consumer_session_timeout_ms
            if self._timer(Timer.SESSION, member.member_id) not in timers:
                self.start_session(member, classic.session_timeout_ms if classic else timeout_ms)
            if self._timer(Timer.REVOCATION, member.member_id) not in timers:
                self._time_revocation(member)
        self._time_assignment()

    def on_removed(self) -> None:
        self._context.timers.cancel(self._timer(Timer.ASSIGNMENT))
        for member_id in self.members.by_id:
            self._cancel_timers(member_id)

    def tombstones(self) -> tuple[ConsumerGroupRecord, ...]:
        return tuple(group_tombstones(self._group_id, self.members))

    def listing(self) -> GroupListing:
        return GroupListing(self._group_id, CONSUMER_PROTOCOL_TYPE, self.state, GroupType.CONSUMER)

    def describe(self) -> ConsumerDescription:
        members = tuple(
            DescribedConsumer(member, self.members.target(member_id))
            for member_id, member in self.members.by_id.items()
        )
        return ConsumerDescription(
            self._group_id,
            self.state,
            self.members.epoch,
            self.members.target_epoch,
            self.assignor(),
            members,
        )

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.members.all_topics()

    def offset_age_base(self) -> AgeBase | None:
        return lambda value: value.commit_timestamp_ms

    def require_deletion(self) -> None:
        if not self.is_empty:
            raise RequestRefused(ErrorCode.NON_EMPTY_GROUP)

    def require_offset_deletion(self) -> None:
        """Whether a topic is subscribed to is asked by topic."""

    def require_commit(self, committer: Committer, *, is_transactional: bool) -> None:
        """Who commits must be a member, and not claim an epoch that it has not had yet."""
        epoch = committer.generation_or_member_epoch
        if epoch < 0 and self.is_empty:
            return
        if is_transactional and _is_nobody(committer):
            return
        member = self.members.by_id.get(committer.member_id)
        member = member or self.unknown_member(committer.member_id)
        if not is_transactional and not member.is_classic and not committer.knows_epochs:
            raise RequestRefused(ErrorCode.UNSUPPORTED_VERSION)
        if epoch > member.epoch:
            raise _stale(member, epoch)

    def commit_error(self, committer: Committer, partition: TopicIdPartition) -> ErrorCode:
        """Whether an allowed commit holds for `partition`.

        An older epoch will do if the member has had the partition since then (KIP-1251): its
        commit may have been on its way when the epoch moved.
        """
        member = self.members.by_id.get(committer.member_id)
        epoch = committer.generation_or_member_epoch
        if member is None or epoch == member.epoch:
            return ErrorCode.NONE
        given = member.current.assigned.get(partition, member.current.revoking.get(partition))
        is_stale = given is None or epoch < given
        return _stale(member, epoch).code if is_stale else ErrorCode.NONE

    def on_committed(self, committer: Committer) -> None:
        """Heartbeats alone are signs of life here."""

    def require_fetch(self, committer: Committer) -> None:
        epoch = committer.generation_or_member_epoch
        member = self.members.by_id.get(committer.member_id)
        member = member or self.unknown_member(committer.member_id)
        if epoch != member.epoch:
            raise _stale(member, epoch)


def assignment_bytes(partitions: Partitions) -> int:
    """No fewer than a record about these will have, however much of it is to be given back.

    Each takes its number and its epoch. A topic takes its id and five numbers, once for what a
    member has and once for what it has yet to give back; more, by up to six bytes, if it has more
    than 126 partitions.
    """
    count = len(partitions)
    times = min(count, 2 * len({partition.topic_id for partition in partitions}))
    return _RECORD_OVERHEAD_BYTES + _TOPIC_BYTES * times + _PARTITION_BYTES * count + count // 8


def _updated(before: Subscription, request: ConsumerHeartbeat) -> Subscription:
    """What a member says, over what it said before."""
    timeout_ms = request.rebalance_timeout_ms
    return Subscription(
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=before.topics if request.topics is None else request.topics,
        expression=before.expression if request.expression is None else request.expression,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=before.assignor if request.assignor is None else request.assignor,
    )


def _require_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """H1. Who joins anew claims nothing."""
    epoch = request.member_epoch
    if epoch in {JOINING_EPOCH, member.epoch}:
        return
    has_missed_one = epoch < member.epoch and epoch == member.current.previous_epoch
    owned = request.owned
    if has_missed_one and owned is not None and owned <= member.current.assigned.keys():
        return
    compared = "greater" if epoch > member.epoch else "smaller"
    raise RequestRefused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _is_nobody(committer: Committer) -> bool:
    """An old transactional producer, which does not say for which member it commits."""
    has_no_name = not committer.member_id and committer.group_instance_id is None
    return has_no_name and committer.generation_or_member_epoch == -1


def _stale(member: ConsumerMember, epoch: int) -> RequestRefused:
    if member.is_classic:
        return RequestRefused(
            ErrorCode.ILLEGAL_GENERATION,
            f"The received generation id {epoch} does not match the expected member epoch "
            f"{member.epoch}.",
        )
    return RequestRefused(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {epoch} does not match the expected member epoch "
        f"{member.epoch}.",
    )
