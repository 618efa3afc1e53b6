"""Members of a group of the consumer protocol that speak the classic one.

While the consumers of an application are restarted one after the other with
`group.protocol=consumer`, some of them still join, sync and send heartbeats as before. They are
members like all others, whose subscription is inside their request to join and whose assignment is
the answer to their sync:

    JoinGroup        like a heartbeat that says everything; the generation is the member epoch
    SyncGroup        tells the member what it has
    Heartbeat        REBALANCE_IN_PROGRESS when a step of its reconciliation waits for it to join

    M1  It is told to join again when its epoch is not the assignment's, when it has something to
        give back, and when what it waits for has become free.
    M2  It then has its time to rebalance to join, and to sync once it has joined.
    M3  It shares a classic protocol with all others that speak it: they may be left among
        themselves, and then the group becomes a classic one (`migration.py`).
    M4  Who says that it owns partitions was a member: UNKNOWN_MEMBER_ID if it is one no more, as in
        a classic group. It then knows that all of them are lost. If it were taken in as somebody
        new it would commit what has become another's, in its new generation, as it gives them up.
"""

from collections.abc import Iterable
from dataclasses import replace

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicIdPartition, TopicPartition
from tidelog.core.coordinators import Token
from tidelog.core.groups.consumer.group import ConsumerGroup
from tidelog.core.groups.consumer.members import ConsumerMember
from tidelog.core.groups.context import GroupContext, Timer, TimerName
from tidelog.core.groups.requests import (
    CONSUMER_PROTOCOL_TYPE,
    NO_MEMBER_ID,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    MemberLeft,
    SyncAnswer,
    SyncRequest,
)
from tidelog.core.groups.topics import Topics
from tidelog.records.consumer_groups import (
    ClassicIdentity,
    MemberState,
    Partitions,
    Subscription,
)
from tidelog.records.consumer_protocol import (
    EmbeddedSubscription,
    decode_subscription,
    encode_assignment,
)


class ClassicGuests:
    """The classic protocol's requests to one group of the consumer protocol."""

    __slots__ = ("_context", "_group")

    def __init__(self, group: ConsumerGroup, context: GroupContext) -> None:
        self._group = group
        self._context = context

    def on_join(self, request: JoinRequest, token: Token) -> None:
        """Replies with a JoinAnswer."""
        embedded = self._required_subscription(request)
        self._group.require_room(request.member_id)
        is_unknown = request.member_id == NO_MEMBER_ID
        if is_unknown and request.requires_known_member_id and request.group_instance_id is None:
            answer = JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
            self._context.reply(token, answer)
            return
        before, leaver = self._entering(request, has_partitions=bool(embedded.owned))
        subscription = _subscription(before.subscription, request, embedded)
        self._group.require_subscription(before.subscription, subscription)
        member_id = request.new_member_id if is_unknown else request.member_id
        owned = to_ids(embedded.owned, self._context.topics)
        member = self._group.enter(member_id, subscription, owned, leaver)
        self._context.timers.cancel(self._timer(Timer.JOIN, member_id))
        self._context.set_timer(self._timer(Timer.SYNC, member_id), request.rebalance_timeout_ms)
        self._group.start_session(member, request.session_timeout_ms)
        if self._group.unassignable is not None:
            refusal = self._group.unassignable.refusal()
            self._context.reply(token, JoinAnswer(refusal.code, member_id))
            return
        self._context.reply(
            token,
            JoinAnswer(
                ErrorCode.NONE,
                member_id,
                member.epoch,
                CONSUMER_PROTOCOL_TYPE,
                request.protocols[0].name,
            ),
        )

    def _required_subscription(self, request: JoinRequest) -> EmbeddedSubscription:
        """M3"""
        guests = [
            {name for name, _ in member.subscription.classic.protocols}
            for member in self._group.members.by_id.values()
            if member.subscription.classic is not None
        ]
        shared = {name for name, _ in request.protocols}.intersection(*guests)
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not shared:
            raise RequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        embedded = decode_subscription(request.protocols[0].metadata)
        if embedded is None:
            raise RequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return embedded

    def _entering(
        self, request: JoinRequest, *, has_partitions: bool
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member as it was, and the one whose place it takes."""
        instance_id = request.group_instance_id
        if instance_id is not None and request.member_id != NO_MEMBER_ID:
            return self._group.require_static(instance_id, request.member_id), None
        leaver = self._group.members.static(instance_id) if instance_id is not None else None
        if leaver is not None:
            return leaver, leaver
        member = self._group.members.by_id.get(request.member_id)
        if member is None and has_partitions:
            return self._group.unknown_member(request.member_id), None  # M4
        return member or ConsumerMember(request.member_id), None

    def on_sync(self, request: SyncRequest, token: Token) -> None:
        """Replies with a SyncAnswer."""
        member = self._required_guest(request.member_id, request.group_instance_id)
        _require_generation(member, request.generation)
        classic = member.subscription.classic
        assert classic is not None
        name, metadata = classic.protocols[0]
        _require_same(request.protocol_type, CONSUMER_PROTOCOL_TYPE)
        _require_same(request.protocol_name, name)
        is_behind = member.epoch < self._group.members.target_epoch
        if is_behind and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(member)
            self._context.reply(token, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
            return
        embedded = decode_subscription(metadata)
        assignment = encode_assignment(
            to_names(member.current.assigned, self._context.topics),
            0 if embedded is None else embedded.version,
        )
        self._context.timers.cancel(self._timer(Timer.SYNC, member.member_id))
        self._group.start_session(member, classic.session_timeout_ms)
        protocol = request.protocol_type, request.protocol_name
        self._context.reply(token, SyncAnswer(ErrorCode.NONE, *protocol, assignment))

    def on_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        """Replies with an ErrorCode. M1"""
        member = self._required_guest(request.member_id, request.group_instance_id)
        _require_generation(member, request.generation)
        classic = member.subscription.classic
        assert classic is not None
        self._group.start_session(member, classic.session_timeout_ms)
        if self._has_to_join(member):
            self._expect_join(member)
            self._context.reply(token, ErrorCode.REBALANCE_IN_PROGRESS)
        else:
            self._context.reply(token, ErrorCode.NONE)

    def on_leave(self, leaving: tuple[LeavingMember, ...], token: Token) -> None:
        """Replies with one MemberLeft for each. Members of either protocol may be made to leave."""
        found: dict[str, ConsumerMember] = {}
        answers: list[MemberLeft] = []
        for one in leaving:
            try:
                member = self._leaver(one)
            except RequestRefused as refusal:
                answers.append(MemberLeft(*one, refusal.code))
            else:
                found[member.member_id] = member
                answers.append(MemberLeft(*one, ErrorCode.NONE))
        self._group.remove(found.values())
        self._context.reply(token, tuple(answers))

    def _leaver(self, leaving: LeavingMember) -> ConsumerMember:
        members = self._group.members
        if leaving.group_instance_id is None:
            member = members.by_id.get(leaving.member_id)
            return member or self._group.unknown_member(leaving.member_id)
        member = members.static(leaving.group_instance_id)
        known_id = NO_MEMBER_ID if member is None else member.member_id
        # An administrator names the instance alone.
        return self._group.require_static(leaving.group_instance_id, leaving.member_id or known_id)

    def _has_to_join(self, member: ConsumerMember) -> bool:
        """M1. If nobody else does it, this member's joining is what makes the next assignment."""
        members = self._group.members
        is_behind = member.epoch < members.target_epoch
        is_last = member.epoch < members.epoch and self._group.may_assign()
        state = member.current.state
        if is_behind or is_last or state is MemberState.UNREVOKED_PARTITIONS:
            return True
        return state is MemberState.UNRELEASED_PARTITIONS and not self._is_waiting(member)

    def _is_waiting(self, member: ConsumerMember) -> bool:
        """Others have yet to give back something that it shall have."""
        members = self._group.members
        missing = members.target(member.member_id) - member.current.assigned.keys()
        return any(members.owner(partition) is not None for partition in missing)

    def _required_guest(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            known = self._group.members.by_id.get(member_id)
            member = known or self._group.unknown_member(member_id)
        else:
            member = self._group.require_static(instance_id, member_id)
        return member if member.is_classic else self._group.unknown_member(member_id)

    def _expect_join(self, member: ConsumerMember) -> None:
        """M2. Being told again does not give it more time."""
        name = self._timer(Timer.JOIN, member.member_id)
        if name not in self._context.timers:
            self._context.set_timer(name, member.subscription.rebalance_timeout_ms)

    def _timer(self, timer: Timer, member_id: str) -> TimerName:
        return TimerName(self._group.group_id, timer, member_id)


def to_ids(partitions: Iterable[TopicPartition], topics: Topics) -> Partitions:
    """Those of `partitions` whose topics exist."""
    return frozenset(
        TopicIdPartition(topics.by_name[topic].topic_id, number)
        for topic, number in partitions
        if topic in topics.by_name
    )


def to_names(partitions: Iterable[TopicIdPartition], topics: Topics) -> list[TopicPartition]:
    """Those of `partitions` whose topics exist."""
    return [
        TopicPartition(topics.names[topic_id], number)
        for topic_id, number in partitions
        if topic_id in topics.names
    ]


def _subscription(
    before: Subscription, request: JoinRequest, embedded: EmbeddedSubscription
) -> Subscription:
    protocols = tuple((name, metadata) for name, metadata in request.protocols)
    return replace(
        before,
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=embedded.rack_id or before.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=embedded.topics,
        expression="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicIdentity(request.session_timeout_ms, protocols),
    )


def _require_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise RequestRefused(ErrorCode.ILLEGAL_GENERATION)


def _require_same(said: str | None, known: str) -> None:
    if said is not None and said != known:
        raise RequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
