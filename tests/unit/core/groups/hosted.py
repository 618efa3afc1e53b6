"""A shard of groups under test: time, tokens and what came of them, in few words."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import (
    NO_TOPIC_ID,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from tidelog.config.groups import GroupsConfig
from tidelog.core.coordinators import Effects, Perform, Reply, Token, Transactional, Write
from tidelog.core.groups.group import Committer, GroupListing
from tidelog.core.groups.requests import (
    ClassicDescription,
    CommitRequest,
    FetchedOffset,
    FetchRequest,
    HeartbeatRequest,
    JoinAnswer,
    JoinProtocol,
    JoinRequest,
    LeavingMember,
    MemberLeft,
    PartitionCommit,
    SyncAnswer,
    SyncRequest,
)
from tidelog.core.groups.shard import GroupShard
from tidelog.records.groups import (
    CommittedOffset,
    GroupMetadataRecord,
    GroupRecord,
    OffsetCommitRecord,
)

CONFIG = GroupsConfig(
    group_initial_rebalance_delay_ms=0,
    group_min_session_timeout_ms=1,
    group_max_session_timeout_ms=100_000,
)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
GROUP = "group"
ANYBODY = Committer(-1, "", None)


def subscription(*topics: str) -> bytes:
    """As a consumer describes itself, version 0."""
    encoded = b"".join(len(t).to_bytes(2, "big") + t.encode() for t in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + encoded + b"\xff\xff\xff\xff"


RANGE = (JoinProtocol("range", subscription("orders")),)


@dataclass
class Hosted:
    """A shard, what it has written, and what it has answered to whom."""

    config: GroupsConfig = CONFIG
    record_max_bytes: int = 1_000_000
    now_ms: int = 1_000_000
    written: list[tuple[GroupRecord, Transactional | None]] = field(default_factory=list)
    markers: list[tuple[int, ProducerId, bool]] = field(default_factory=list)
    """Behind how many records, of whom, whether it commits."""
    write_ends: list[int] = field(default_factory=list)
    """Behind how many records each write ended: a coordinator may die between two of them."""
    answers: dict[Token, object] = field(default_factory=dict)
    deeds: list[object] = field(default_factory=list)
    """What is to be done elsewhere."""
    asked: int = 0

    def __post_init__(self) -> None:
        self.shard = self.new_shard()
        self.perform(self.shard.on_loaded(self.now_ms))

    def new_shard(self) -> GroupShard:
        return GroupShard(config=self.config, record_max_bytes=self.record_max_bytes)

    def restart(self) -> None:
        """Another broker leads the partition now: it knows what was written, and nothing else."""
        self.shard = self.replayed()
        self.perform(self.shard.on_loaded(self.now_ms))

    def replayed(self, count: int | None = None) -> GroupShard:
        """A shard that knows what was written, or the first `count` records of it."""
        shard = self.new_shard()
        markers = list(self.markers)
        for position, (record, transactional) in enumerate([*self.written[:count], (None, None)]):
            while markers and markers[0][0] == position:
                _, producer_id, is_commit = markers.pop(0)
                shard.replay_marker(producer_id, is_commit=is_commit)
            if record is None:
                continue
            if transactional is None:
                shard.replay(record)
            else:
                shard.replay_transactional(record, transactional.producer_id)
        return shard

    def mark(self, producer_id: int, *, is_commit: bool) -> None:
        """The transaction of `producer_id` ends."""
        self.markers.append((len(self.written), ProducerId(producer_id), is_commit))
        self.perform(self.shard.on_marker(ProducerId(producer_id), is_commit=is_commit))

    def perform(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Write(records=records, transactional=transactional):
                    assert records
                    for record in records:
                        assert isinstance(record, GroupRecord)
                        self.written.append((record, transactional))
                    self.write_ends.append(len(self.written))
                case Reply(token=token, answer=answer):
                    assert token not in self.answers, "answered twice"
                    assert token < self.asked, "answered before it was asked"
                    self.answers[token] = answer
                case Perform(deed=deed):
                    self.deeds.append(deed)

    def ask(self, decide: Callable[[Token], Effects]) -> Token:
        """What is refused counts as answered, with the code."""
        token = Token(self.asked)
        self.asked += 1
        try:
            effects = decide(token)
        except RequestRefused as refusal:
            self.answers[token] = refusal.code
        else:
            self.perform(effects)
        return token

    def answer(self, token: Token) -> object:
        assert token in self.answers, "still waits"
        return self.answers[token]

    def waits(self, token: Token) -> bool:
        return token not in self.answers

    def advance(self, duration_ms: int) -> None:
        """Time passes, and the shard is woken whenever it wants to be."""
        end_ms = self.now_ms + duration_ms
        while (next_ms := self.shard.next_deadline_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(next_ms, self.now_ms)
            self.perform(self.shard.on_tick(self.now_ms))
        self.now_ms = end_ms

    # Members

    def join(
        self,
        new_member_id: str = "",
        *,
        member_id: str = "",
        instance: str | None = None,
        protocols: Sequence[JoinProtocol] = RANGE,
        protocol_type: str = "consumer",
        group_id: str = GROUP,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        requires_id: bool = False,
        skips: bool = True,
        client_id: str = "client",
        client_host: str = "/127.0.0.1",
    ) -> Token:
        request = JoinRequest(
            group_id=group_id,
            member_id=member_id,
            new_member_id=new_member_id,
            group_instance_id=instance,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=tuple(protocols),
            requires_known_member_id=requires_id,
            supports_skipping_assignment=skips,
        )
        return self.ask(lambda token: self.shard.on_join(request, token, self.now_ms))

    def joined(self, token: Token) -> JoinAnswer:
        answer = self.answer(token)
        assert isinstance(answer, JoinAnswer), answer
        return answer

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Sequence[tuple[str, bytes]] = (),
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Token:
        request = SyncRequest(
            GROUP, member_id, instance, generation, protocol_type, protocol_name, tuple(assignments)
        )
        return self.ask(lambda token: self.shard.on_sync(request, token, self.now_ms))

    def synced(self, token: Token) -> SyncAnswer:
        answer = self.answer(token)
        assert isinstance(answer, SyncAnswer), answer
        return answer

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> object:
        request = HeartbeatRequest(GROUP, member_id, instance, generation)
        return self.answer(
            self.ask(lambda token: self.shard.on_heartbeat(request, token, self.now_ms))
        )

    def leave(self, *leaving: LeavingMember) -> list[ErrorCode] | ErrorCode:
        token = self.ask(
            lambda token: self.shard.on_leave(GROUP, leaving, token, self.now_ms),
        )
        answer = self.answer(token)
        if isinstance(answer, ErrorCode):
            return answer
        assert isinstance(answer, tuple)
        codes = []
        for wish, left in zip(leaving, answer, strict=True):
            assert isinstance(left, MemberLeft)
            assert left[:2] == wish
            codes.append(left.error_code)
        return codes

    def stable(self, *member_ids: str, **others: str) -> int:
        """These are the members of a group that had none. Static ones as id="instance".

        Returns the generation.
        """
        ids = [*member_ids, *others]
        tokens = [self.join(member_id, instance=others.get(member_id)) for member_id in ids]
        self.advance(0)
        generation = self.joined(tokens[0]).generation
        leader = self.joined(tokens[0]).leader
        assignments = [(member_id, member_id.encode()) for member_id in ids]
        for member_id in sorted(ids, key=lambda known: known == leader):
            self.sync(member_id, generation, assignments, instance=others.get(member_id))
        assert self.described().state == "Stable"
        return generation

    # Offsets

    def commit(
        self,
        offset: int,
        partition: TopicPartition,
        *,
        committer: Committer = ANYBODY,
        producer_id: int | None = None,
        metadata: str = "",
        expire_ms: int = -1,
        group_id: str = GROUP,
        topic_id: TopicId = NO_TOPIC_ID,
    ) -> object:
        value = CommittedOffset(offset, -1, metadata, self.now_ms, expire_ms, topic_id)
        unknown = ErrorCode.GROUP_ID_NOT_FOUND
        request = CommitRequest(group_id, committer, [PartitionCommit(partition, value)], unknown)
        if producer_id is None:
            return self._only(lambda token: self.shard.on_commit(request, token, self.now_ms))
        owner = Transactional(ProducerId(producer_id), ProducerEpoch(0))
        return self._only(
            lambda token: self.shard.on_transactional_commit(request, owner, token, self.now_ms)
        )

    def _only(self, decide: Callable[[Token], Effects]) -> object:
        answer = self.answer(self.ask(decide))
        return answer[0] if isinstance(answer, list) else answer

    def fetch(
        self,
        *partitions: TopicPartition,
        requires_stable: bool = False,
        group_id: str = GROUP,
    ) -> list[FetchedOffset]:
        """Without partitions, of all there are."""
        request = FetchRequest(group_id, None, partitions or None, requires_stable)
        answer = self.answer(
            self.ask(lambda token: self.shard.on_fetch(request, token, self.now_ms))
        )
        assert isinstance(answer, list)
        return answer

    def offset(self, partition: TopicPartition, *, group_id: str = GROUP) -> int | None:
        (fetched,) = self.fetch(partition, group_id=group_id)
        assert fetched.error_code is ErrorCode.NONE
        return None if fetched.value is None else fetched.value.offset

    def delete_offsets(self, *partitions: TopicPartition) -> object:
        return self.answer(
            self.ask(
                lambda token: self.shard.on_delete_offsets(GROUP, partitions, token, self.now_ms)
            )
        )

    # Groups

    def described(self, group_id: str = GROUP) -> ClassicDescription:
        answer = self.answer(
            self.ask(lambda token: self.shard.on_describe(group_id, token, self.now_ms))
        )
        assert isinstance(answer, ClassicDescription), answer
        return answer

    def listed(
        self, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> dict[str, GroupListing]:
        answer = self.answer(
            self.ask(lambda token: self.shard.on_list(states, types, token, self.now_ms))
        )
        assert isinstance(answer, list)
        return {listing.group_id: listing for listing in answer}

    def delete(self, group_id: str = GROUP) -> object:
        return self.answer(
            self.ask(lambda token: self.shard.on_delete(group_id, token, self.now_ms))
        )

    def tombstones(self) -> list[object]:
        return [
            record.partition if isinstance(record, OffsetCommitRecord) else record.group_id
            for record, _ in self.written
            if isinstance(record, OffsetCommitRecord | GroupMetadataRecord) and record.value is None
        ]


def with_config(**changes: int) -> Hosted:
    """A shard whose settings differ from CONFIG."""
    return Hosted(dataclasses.replace(CONFIG, **changes))
