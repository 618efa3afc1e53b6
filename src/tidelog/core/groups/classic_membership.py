"""A group whose members assign partitions among themselves: Kafka's classic protocol.

The coordinator decides who is a member and gets everybody to the same point. One member, the
leader, is told of all others and brings back an assignment for each, which the coordinator passes
on without a look. So range, round robin, sticky and cooperative assignment are the clients' own.

                 a member joins                 all have joined,
                 (after a delay)                or their time is up
        Empty ──────────────▶ PreparingRebalance ──────────────▶ CompletingRebalance
          ▲                     ▲    │      ▲                          │       │
          │ nobody is left      │    │      └── somebody joins, leaves ┘       │ the leader syncs
          └─────────────────────┼────┘          or stays away                  ▼
                                └──── somebody joins, leaves, stays away ─── Stable

Rules, those of a Kafka 4.x broker:

    G1  A generation begins when the members have joined, and never has the number of an older one.
        Whoever names another one is told: ILLEGAL_GENERATION.
    G2  A group has one leader, of this generation's members. It stays leader as long as it comes
        back; then the eldest who did takes over.
    G3  The protocol is one that every member knows, chosen by vote. A newcomer that shares none
        with the group stays out: INCONSISTENT_GROUP_PROTOCOL.
    G4  A new group waits `group.initial.rebalance.delay.ms` for more members, again for each delay
        in which one came, and no longer than a rebalance may take.
    G5  Members that do not come back to join in the time of the slowest are removed, static ones
        aside, who have until their session ends. So are those that joined and do not sync.
    G6  A member that is not heard of for its session time-out is removed. Waiting counts as being
        heard of, but not for a newcomer, who cannot know yet that it is one.
    G7  A static member that comes back takes its place under a new id, without a rebalance if the
        group is stable and its protocol stays. The old id is fenced: FENCED_INSTANCE_ID.
    G8  A group has at most `group.max.size` members, and has given ids to at most
        PENDING_MEMBERS_MAX that have not come back.
    G9  What is written is a stable group with its assignments, or an empty one. So that is what a
        new coordinator finds; a rebalance that was under way begins again with the next heartbeat.
   G10  A group that comes from the consumer protocol has a generation in which it never agreed.
        Its record names no leader, by which a new coordinator knows to have it agree: members
        would go on, and what those had that are gone would be nobody's.

Everybody who waits is answered once. Who asks anew before that has given up the first request,
which is answered REBALANCE_IN_PROGRESS.
"""

from enum import StrEnum
from typing import Final, Self

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.core.coordinators import Token
from tidelog.core.groups.classic_members import ClassicMember, ClassicMembers
from tidelog.core.groups.classic_records import (
    member_bytes,
    member_from_record,
    member_to_record,
)
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
from tidelog.core.groups.subscription import all_subscribed_topics
from tidelog.records.groups import GroupMetadata, GroupMetadataRecord

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a newcomer may wait to become a member. If it is still there then, it asks again."""

PENDING_MEMBERS_MAX: Final = 10_000
"""Given an id and not heard of since: a client in a loop must not fill the memory."""

NOBODY_IS_BACK_WAIT_MS: Final = 1_000
"""At least: members may say that they need no time at all."""

_RECORD_OVERHEAD_BYTES: Final = 1024


class ClassicState(StrEnum):
    """As Kafka's tools show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicMembership:
    """The members of one group, from joining to leaving; `ClassicGroup` is all of it."""

    __slots__ = (
        "_context",
        "_delay_ms",
        "_generation",
        "_has_agreed",
        "_is_initial",
        "_newcomer_came",
        "_protocol_name",
        "_protocol_type",
        "_remaining_delay_ms",
        "_state",
        "_state_timestamp_ms",
        "_subscribed_topics",
        "group_id",
        "members",
    )

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.members = ClassicMembers()
        self._context = context
        self._state = ClassicState.EMPTY
        self._state_timestamp_ms = context.now_ms
        self._generation = 0
        self._protocol_type: str | None = None
        self._protocol_name: str | None = None
        self._subscribed_topics: frozenset[str] | None = None
        self._has_agreed = True
        # G4, while the first members of an empty group gather.
        self._is_initial = False
        self._newcomer_came = False
        self._delay_ms = 0
        self._remaining_delay_ms = 0

    @classmethod
    def from_record(cls, group_id: str, metadata: GroupMetadata, context: GroupContext) -> Self:
        """The group as its last record has it. G9

        Whoever may write to the coordinator's topic may write nonsense: of two members with one id
        there is the last.
        """
        group = cls(group_id, context)
        group._generation = metadata.generation
        group._protocol_type = metadata.protocol_type or None
        group._protocol_name = metadata.protocol
        group._state = ClassicState.STABLE if metadata.members else ClassicState.EMPTY
        group._state_timestamp_ms = metadata.current_state_timestamp_ms
        for member in {member.member_id: member for member in metadata.members}.values():
            group.members.add(member_from_record(member, metadata.protocol or ""))
        if metadata.leader is not None and metadata.leader in group.members:
            group.members.leader = metadata.leader
        group._has_agreed = metadata.leader is not None or not metadata.members  # G10
        group._subscribed_topics = group._topics_of_members()
        return group

    # What it is

    @property
    def state(self) -> ClassicState:
        return self._state

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def protocol_type(self) -> str | None:
        return self._protocol_type

    @property
    def protocol_name(self) -> str | None:
        return self._protocol_name

    @property
    def is_empty(self) -> bool:
        return self._state is ClassicState.EMPTY

    @property
    def is_of_consumers(self) -> bool:
        return self._protocol_type == CONSUMER_PROTOCOL_TYPE

    # Joining

    def on_join(self, request: JoinRequest, token: Token) -> None:
        """Replies now, or when the group has its next generation."""
        member_id = request.member_id
        if not self._has_room_for(member_id):
            self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            refusal = JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
            self._context.reply(token, refusal)
            return
        self.require_protocols(request)
        if member_id == NO_MEMBER_ID:
            self._join_new(request, token)
        elif member_id in self.members.pending:
            self._context.timers.cancel(self._timer(Timer.PENDING, member_id))
            self._add(member_id, request, token)
        else:
            self._join_again(request, token)

    def _has_room_for(self, member_id: str) -> bool:
        limit = self._context.config.group_max_size  # G8
        member = self.members.find(member_id)
        match self._state:
            case ClassicState.EMPTY:
                return True
            case ClassicState.PREPARING_REBALANCE:
                is_waiting = member is not None and member.awaiting_join is not None
                return is_waiting or self.members.joined_count < limit
            case _:
                return member is not None or len(self.members) < limit

    def require_protocols(self, request: JoinRequest) -> None:
        """Raises INCONSISTENT_GROUP_PROTOCOL unless it has one in common with all members. G3"""
        if not self._supports(request):
            raise RequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _supports(self, request: JoinRequest) -> bool:
        if not request.protocol_type or not request.protocols:
            return False
        if self.is_empty:
            return True
        is_same_type = request.protocol_type == self._protocol_type
        return is_same_type and self.members.support_one_of(request.protocols)

    def _join_new(self, request: JoinRequest, token: Token) -> None:
        new_id = request.new_member_id
        if request.group_instance_id is not None:
            old_id = self.members.static_member_id(request.group_instance_id)
            if old_id is None:
                self._add(new_id, request, token)
            else:
                self._replace_static(old_id, request, token)
        elif request.requires_known_member_id:
            if len(self.members.pending) >= PENDING_MEMBERS_MAX:
                raise RequestRefused(ErrorCode.GROUP_MAX_SIZE_REACHED)  # G8
            self.members.pending.add(new_id)
            timer = self._timer(Timer.PENDING, new_id)
            self._context.set_timer(timer, request.session_timeout_ms)
            self._context.reply(token, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, new_id))
        else:
            self._add(new_id, request, token)

    def _add(self, member_id: str, request: JoinRequest, token: Token) -> None:
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            assignment=b"",
        )
        member.is_new = True
        if not self.members:
            self._protocol_type = request.protocol_type
        self.members.add(member)
        self.members.begin_join(member, token)
        self._newcomer_came = self._is_initial
        session = self._timer(Timer.SESSION, member_id)
        self._context.set_timer(session, NEW_MEMBER_JOIN_TIMEOUT_MS)  # G6
        self._rebalance_or_complete_join()

    def _join_again(self, request: JoinRequest, token: Token) -> None:
        member = self._required_member(request.member_id, request.group_instance_id)
        is_same = member.protocols == request.protocols
        match self._state:
            case ClassicState.PREPARING_REBALANCE:
                self._update(member, request, token)
                self._complete_join_if_all_have()
            case ClassicState.COMPLETING_REBALANCE if is_same:
                # The answer to its first request got lost.
                self._context.reply(token, self._joined(member))
            case ClassicState.STABLE if is_same and member.member_id != self.members.leader:
                self._context.reply(token, self._joined(member))
            case _:
                self._update(member, request, token)
                self._prepare_rebalance()

    def _update(self, member: ClassicMember, request: JoinRequest, token: Token) -> None:
        rejoined = ErrorCode.REBALANCE_IN_PROGRESS
        self._answer_join(member, JoinAnswer(rejoined, member.member_id))
        self.members.update_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.members.begin_join(member, token)

    def _replace_static(self, old_id: str, request: JoinRequest, token: Token) -> None:
        """G7"""
        old_leader = self.members.leader
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._answer_join(self.members[old_id], JoinAnswer(fenced, old_id))
        self._answer_sync(self.members[old_id], SyncAnswer(fenced))
        self._context.timers.cancel(self._timer(Timer.SESSION, old_id))
        member = self.members.replace_static(old_id, request.new_member_id)
        member.client_id = request.client_id
        member.client_host = request.client_host
        self._update(member, request, token)
        self._expect_heartbeat(member)
        stays = self._state is ClassicState.STABLE and self._fits_as_it_is
        match self._state:
            case ClassicState.STABLE if stays:
                self._write()
                self._answer_join(member, self._skipping(member, request, old_leader))
            case ClassicState.PREPARING_REBALANCE:
                self._complete_join_if_all_have()
            case _:
                # The leader may be assigning to the old id right now.
                self._prepare_rebalance()

    @property
    def _fits_as_it_is(self) -> bool:
        """Would the members choose the same protocol again, and can they be written?"""
        is_same_protocol = self.members.selected_protocol() == self._protocol_name
        return is_same_protocol and self._record_bytes() <= self._context.record_max_bytes

    def _skipping(
        self, member: ClassicMember, request: JoinRequest, old_leader: str | None
    ) -> JoinAnswer:
        """A leader that knows of KIP-814 leads on and does not assign.

        Any other one is told of a leader that is no more, so that it takes itself for a follower
        and asks for the assignment that stands.
        """
        is_leader = member.member_id == self.members.leader
        skips = is_leader and request.supports_skipping_assignment
        assert self._protocol_name is not None
        leader = self.members.leader if request.supports_skipping_assignment else old_leader
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self._generation,
            self._protocol_type,
            self._protocol_name,
            leader or NO_MEMBER_ID,
            self.members.as_joined(self._protocol_name) if skips else (),
            skip_assignment=skips,
        )

    def _joined(self, member: ClassicMember) -> JoinAnswer:
        assert self._protocol_name is not None
        is_leader = member.member_id == self.members.leader
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self._generation,
            self._protocol_type,
            self._protocol_name,
            self.members.leader or NO_MEMBER_ID,
            self.members.as_joined(self._protocol_name) if is_leader else (),
        )

    # Rebalancing

    def _rebalance_or_complete_join(self) -> None:
        if self._state is ClassicState.PREPARING_REBALANCE:
            self._complete_join_if_all_have()
        else:
            self._prepare_rebalance()

    def _prepare_rebalance(self) -> None:
        if self._state is ClassicState.COMPLETING_REBALANCE:
            self._refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)
        self._context.timers.cancel(self._timer(Timer.SYNC))
        self._is_initial = self.is_empty
        self._move_to(ClassicState.PREPARING_REBALANCE)
        if self._is_initial:
            self._begin_initial_delay()
        elif self.members.have_all_joined:
            self._complete_join()
        else:
            self._context.set_timer(self._timer(Timer.JOIN), self.members.rebalance_timeout_ms)

    def _begin_initial_delay(self) -> None:
        self._newcomer_came = False
        self._delay_ms = self._context.config.group_initial_rebalance_delay_ms
        limit_ms = self.members.rebalance_timeout_ms
        self._remaining_delay_ms = max(limit_ms - self._delay_ms, 0)
        self._context.set_timer(self._timer(Timer.JOIN), self._delay_ms)

    def _complete_join_if_all_have(self) -> None:
        is_preparing = self._state is ClassicState.PREPARING_REBALANCE
        if is_preparing and not self._is_initial and self.members.have_all_joined:
            self._complete_join()

    def _on_join_time_up(self) -> None:
        assert self._state is ClassicState.PREPARING_REBALANCE
        if self._is_initial and self._newcomer_came and self._remaining_delay_ms:
            passed_ms = self._delay_ms  # G4
            self._newcomer_came = False
            self._delay_ms = min(
                self._context.config.group_initial_rebalance_delay_ms, self._remaining_delay_ms
            )
            self._remaining_delay_ms = max(self._remaining_delay_ms - passed_ms, 0)
            self._context.set_timer(self._timer(Timer.JOIN), self._delay_ms)
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        self._context.timers.cancel(self._timer(Timer.JOIN))
        for member in self.members:
            if member.awaiting_join is None and member.group_instance_id is None:
                self._remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)  # G5
        if self.members and not self.members.elect_joined_leader():  # G2
            # Static members alone, and none is back. Their sessions end, or they come.
            wait_ms = max(self.members.rebalance_timeout_ms, NOBODY_IS_BACK_WAIT_MS)
            self._context.set_timer(self._timer(Timer.JOIN), wait_ms)
            return
        self._is_initial = False
        self._generation += 1  # G1
        self.members.pending_sync.clear()
        if self.members:
            self._begin_sync()
        else:
            self._become_empty()

    def _become_empty(self) -> None:
        self._protocol_name = None
        self._subscribed_topics = self._topics_of_members()
        self._move_to(ClassicState.EMPTY)
        self._write()

    def _begin_sync(self) -> None:
        self._protocol_name = self.members.selected_protocol()  # G3
        self._subscribed_topics = self._topics_of_members()
        self._move_to(ClassicState.COMPLETING_REBALANCE)
        for member in self.members:
            self._answer_join(member, self._joined(member))
            self._expect_heartbeat(member)
            member.is_new = False
            self.members.pending_sync.add(member.member_id)
        self._context.set_timer(self._timer(Timer.SYNC), self.members.rebalance_timeout_ms)

    # Syncing

    def on_sync(self, request: SyncRequest, token: Token) -> None:
        """Replies now, or when the leader has brought the assignments."""
        member = self._required_member(request.member_id, request.group_instance_id)
        self._require_generation(request.generation)
        self._require_same_protocol(request)
        match self._state:
            case ClassicState.EMPTY:
                raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID)
            case ClassicState.PREPARING_REBALANCE:
                raise RequestRefused(ErrorCode.REBALANCE_IN_PROGRESS)
            case ClassicState.COMPLETING_REBALANCE:
                self._answer_sync(member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
                member.awaiting_sync = token
                self._on_synced(member)
                if member.member_id == self.members.leader:
                    self._assign(dict(request.assignments))
            case _:
                self._on_synced(member)
                self._context.reply(token, self._assigned(member))

    def _require_same_protocol(self, request: SyncRequest) -> None:
        is_other_type = request.protocol_type not in (None, self._protocol_type)
        is_other_name = request.protocol_name not in (None, self._protocol_name)
        if is_other_type or is_other_name:
            raise RequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _on_synced(self, member: ClassicMember) -> None:
        self.members.pending_sync.discard(member.member_id)
        if not self.members.pending_sync:
            self._context.timers.cancel(self._timer(Timer.SYNC))

    def _assign(self, assignments: dict[str, bytes]) -> None:
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
        if self._record_bytes() > self._context.record_max_bytes:
            # As Kafka does when its log refuses the record (W3).
            self._refuse_sync(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._prepare_rebalance()
            return
        self._move_to(ClassicState.STABLE)
        self._has_agreed = True
        self._write()
        for member in self.members:
            if member.awaiting_sync is not None:
                self._answer_sync(member, self._assigned(member))
                self._expect_heartbeat(member)

    def _refuse_sync(self, error_code: ErrorCode) -> None:
        for member in self.members:
            member.assignment = b""
            if member.awaiting_sync is not None:
                self._answer_sync(member, SyncAnswer(error_code))
                self._expect_heartbeat(member)

    def _assigned(self, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(
            ErrorCode.NONE, self._protocol_type, self._protocol_name, member.assignment
        )

    def _on_sync_time_up(self) -> None:
        late = tuple(self.members.pending_sync)
        for member_id in late:
            self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)  # G5
        if late:
            self._prepare_rebalance()

    # Staying and leaving

    def on_heartbeat(self, request: HeartbeatRequest, token: Token) -> None:
        member = self._required_member(request.member_id, request.group_instance_id)
        self._require_generation(request.generation)
        self._expect_heartbeat(member)
        is_preparing = self._state is ClassicState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE
        self._context.reply(token, code, is_held=False)

    def on_leave(self, leaving: tuple[LeavingMember, ...], token: Token) -> None:
        """Each of them leaves, or is told why not; the others rebalance once."""
        left = tuple(self._leave(member) for member in leaving)
        if any(member.error_code is ErrorCode.NONE for member in left):
            self._on_members_gone()
        self._context.reply(token, left)

    def _leave(self, leaving: LeavingMember) -> MemberLeft:
        member_id = leaving.member_id
        if member_id == NO_MEMBER_ID and leaving.group_instance_id is not None:
            member_id = self.members.static_member_id(leaving.group_instance_id) or NO_MEMBER_ID
        elif member_id not in self.members.pending:
            try:
                self._required_member(member_id, leaving.group_instance_id)
            except RequestRefused as refusal:
                return MemberLeft(*leaving, refusal.code)
        if member_id not in self.members and member_id not in self.members.pending:
            return MemberLeft(*leaving, ErrorCode.UNKNOWN_MEMBER_ID)
        self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return MemberLeft(*leaving, ErrorCode.NONE)

    def _on_members_gone(self) -> None:
        if self._state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self._prepare_rebalance()
        else:
            self._complete_join_if_all_have()

    def _remove(self, member_id: str, error_code: ErrorCode) -> None:
        """Nobody is left waiting for an answer."""
        self._context.timers.cancel(self._timer(Timer.SESSION, member_id))
        self._context.timers.cancel(self._timer(Timer.PENDING, member_id))
        member = self.members.remove(member_id)
        if member is not None:
            self._answer_join(member, JoinAnswer(error_code, NO_MEMBER_ID))
            self._answer_sync(member, SyncAnswer(error_code))

    def on_timer(self, name: TimerName) -> None:
        match name.timer:
            case Timer.JOIN:
                self._on_join_time_up()
            case Timer.SYNC:
                self._on_sync_time_up()
            case Timer.PENDING:
                self._remove(name.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
                self._complete_join_if_all_have()
            case Timer.SESSION:
                self._on_session_time_up(self.members[name.member_id])
            case _:
                raise AssertionError(name)

    def _on_session_time_up(self, member: ClassicMember) -> None:
        is_waiting = member.awaiting_join is not None or member.awaiting_sync is not None
        if is_waiting and not member.is_new:
            return  # G6; the session begins again with the answer.
        self._remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._on_members_gone()

    def on_loaded(self) -> None:
        """Sessions begin anew: nobody could be heard while nobody led.

        Those of whoever was heard since are under way, and a rebalance may be.
        """
        for member in self.members:
            if self._timer(Timer.SESSION, member.member_id) not in self._context.timers:
                self._expect_heartbeat(member)
        is_too_large = len(self.members) > self._context.config.group_max_size
        if self._state is ClassicState.STABLE and (is_too_large or not self._has_agreed):
            self._prepare_rebalance()  # G8, G10

    def on_removed(self) -> None:
        for member in self.members:
            self._remove(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        for member_id in tuple(self.members.pending):
            self._remove(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self._context.timers.cancel(self._timer(Timer.JOIN))
        self._context.timers.cancel(self._timer(Timer.SYNC))
        self._state = ClassicState.DEAD

    def on_upgraded(self) -> None:
        """Its members are in a group of the consumer protocol now; who waits is to join that."""
        for member in self.members:
            again = ErrorCode.REBALANCE_IN_PROGRESS
            self._answer_join(member, JoinAnswer(again, member.member_id))
            self._answer_sync(member, SyncAnswer(again))
        self.on_removed()

    def on_downgraded(self) -> None:
        """It was a group of the consumer protocol until now: its members have to agree anew."""
        self._write()
        for member in self.members:
            self._expect_heartbeat(member)
        self._prepare_rebalance()

    def _topics_of_members(self) -> frozenset[str] | None:
        if not self.members:
            return frozenset()
        protocol = self._protocol_name
        if not self.is_of_consumers or protocol is None:
            return None
        return all_subscribed_topics(member.metadata(protocol) for member in self.members)

    # Records

    def write_created(self) -> None:
        """Say in the log that there is such a group, before anybody is in it."""
        self._write()

    def _write(self) -> None:
        protocol = self._protocol_name
        members = tuple(member_to_record(member, protocol or "") for member in self.members)
        metadata = GroupMetadata(
            self._protocol_type or "",
            self._generation,
            protocol,
            self.members.leader if self._has_agreed else None,
            self._state_timestamp_ms,
            members,
        )
        self._context.write(GroupMetadataRecord(self.group_id, metadata))

    def _record_bytes(self) -> int:
        """No fewer than the record of the group will have."""
        protocol = self._protocol_name or ""
        texts = len(self.group_id) + len(protocol) + len(self._protocol_type or "")
        return (
            _RECORD_OVERHEAD_BYTES
            + 4 * texts
            + sum(member_bytes(member, protocol) for member in self.members)
        )

    # Checks and small steps

    def _required_member(self, member_id: str, group_instance_id: str | None) -> ClassicMember:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another has taken its place. G7"""
        if group_instance_id is not None:
            known_id = self.members.static_member_id(group_instance_id)
            if known_id is not None and known_id != member_id:
                raise RequestRefused(ErrorCode.FENCED_INSTANCE_ID)
            if known_id is None:
                raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.find(member_id)
        if member is None:
            raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _require_generation(self, generation: int) -> None:
        if generation != self._generation:
            raise RequestRefused(ErrorCode.ILLEGAL_GENERATION)  # G1

    def _expect_heartbeat(self, member: ClassicMember) -> None:
        timer = self._timer(Timer.SESSION, member.member_id)
        self._context.set_timer(timer, member.session_timeout_ms)

    def _answer_join(self, member: ClassicMember, answer: JoinAnswer) -> None:
        token = self.members.end_join(member)
        if token is not None:
            self._context.reply(token, answer)

    def _answer_sync(self, member: ClassicMember, answer: SyncAnswer) -> None:
        token, member.awaiting_sync = member.awaiting_sync, None
        if token is not None:
            self._context.reply(token, answer)

    def _move_to(self, state: ClassicState) -> None:
        self._state = state
        self._state_timestamp_ms = self._context.now_ms

    def _timer(self, timer: Timer, member_id: str = "") -> TimerName:
        return TimerName(self.group_id, timer, member_id)
