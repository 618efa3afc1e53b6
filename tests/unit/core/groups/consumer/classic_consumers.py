"""Consumers of the classic protocol that act as real ones do, in a group of either protocol."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.unit.core.groups.consumer.consumers import ConsumerHosted
from tests.unit.core.groups.hosted import GROUP
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.core.coordinators import Token
from tidelog.core.groups.consumer.classic_guests import to_ids, to_names
from tidelog.core.groups.requests import (
    HeartbeatRequest,
    JoinAnswer,
    JoinedMember,
    JoinProtocol,
    LeavingMember,
    SyncAnswer,
)
from tidelog.records.consumer_groups import NO_PARTITIONS, Partitions
from tidelog.records.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)

EAGER, COOPERATIVE = "range", "cooperative-sticky"


def encode_subscription(
    topics: Iterable[str], owned: Iterable[TopicPartition] = (), *, version: int = 1
) -> bytes:
    """As a consumer describes itself when it joins."""
    output = bytearray(struct.pack(">hi", version, len(list(topics))))
    for topic in topics:
        output += struct.pack(">h", len(topic)) + topic.encode()
    output += struct.pack(">i", -1)
    if version >= 1:
        output += encode_assignment(owned, 0)[2:-4]
    if version >= 2:
        output += struct.pack(">i", -1)
    if version >= 3:
        output += struct.pack(">h4s", 4, b"rack")
    return bytes(output)


@dataclass
class ClassicConsumer:
    """One step at a time: it joins, syncs and sends heartbeats, whatever comes next.

    The leader deals out partitions in turn. A cooperative one withholds what another still has.
    """

    world: ConsumerHosted
    member_id: str
    topics: frozenset[str]
    style: str = EAGER
    instance_id: str | None = None
    given_id: str = ""
    generation: int = -1
    owned: Partitions = NO_PARTITIONS
    _joining: Token | None = None
    _syncing: Token | None = None
    must_join: bool = True
    joined: int = 0
    is_lost: bool = False
    """It was removed, and has not been told so yet: what it has is not its own."""
    seen: list[ErrorCode] = field(default_factory=list)

    def step(self) -> None:
        if self._joining is not None:
            if not self.world.waits(self._joining):
                token, self._joining = self._joining, None
                self._on_joined(self.world.answer(token))
        elif self._syncing is not None:
            if not self.world.waits(self._syncing):
                token, self._syncing = self._syncing, None
                self._on_synced(self.world.answer(token))
        elif self.must_join:
            self._join()
        else:
            self._beat()

    def steps(self, count: int = 4) -> None:
        for _ in range(count):
            self.step()

    def _join(self) -> None:
        if self.style == EAGER:
            self.owned = NO_PARTITIONS
        names = to_names(self.owned, self.world.topics)
        metadata = encode_subscription(sorted(self.topics), names)
        self.joined += 1
        self._joining = self.world.join(
            f"{self.member_id}-{self.joined}",
            member_id=self.given_id,
            instance=self.instance_id,
            protocols=(JoinProtocol(self.style, metadata),),
        )
        self.must_join = False

    def _on_joined(self, answer: object) -> None:
        code = answer.error_code if isinstance(answer, JoinAnswer) else answer
        if code is not ErrorCode.NONE or not isinstance(answer, JoinAnswer):
            self._on_refused(code)
            return
        self.given_id = answer.member_id
        self.generation = answer.generation
        is_leader = answer.leader == answer.member_id
        assignments = self._assign(answer.members) if is_leader else {}
        self._syncing = self.world.sync(
            self.given_id,
            self.generation,
            tuple(assignments.items()),
            instance=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.style,
        )

    def _assign(self, members: tuple[JoinedMember, ...]) -> Mapping[str, bytes]:
        found = {}
        for member in members:
            subscription = decode_subscription(member.metadata)
            assert subscription is not None
            found[member.member_id] = subscription
        owners = {
            partition: member_id
            for member_id, subscription in found.items()
            for partition in subscription.owned
        }
        dealt: dict[str, list[TopicPartition]] = {member_id: [] for member_id in found}
        for partition in sorted(to_names(self.world.all_partitions(), self.world.topics)):
            takers = [name for name in found if partition.topic in found[name].topics]
            if takers:
                taker = min(takers, key=lambda name: (len(dealt[name]), name))
                dealt[taker].append(partition)
        return {
            member_id: encode_assignment(
                [one for one in partitions if owners.get(one, member_id) == member_id], 1
            )
            for member_id, partitions in dealt.items()
        }

    def _on_synced(self, answer: object) -> None:
        code = answer.error_code if isinstance(answer, SyncAnswer) else answer
        if code is not ErrorCode.NONE or not isinstance(answer, SyncAnswer):
            self._on_refused(code)
            return
        assignment = decode_assignment(answer.assignment)
        assert assignment is not None
        assigned = to_ids(assignment.partitions, self.world.topics)
        self.is_lost = False
        self.must_join = self.style == COOPERATIVE and bool(self.owned - assigned)
        self.owned = assigned

    def _beat(self) -> None:
        request = HeartbeatRequest(GROUP, self.given_id, self.instance_id, self.generation)
        token = self.world.ask(
            lambda token: self.world.shard.on_heartbeat(request, token, self.world.now_ms)
        )
        answer = self.world.answer(token)
        if answer is not ErrorCode.NONE:
            self._on_refused(answer)

    def _on_refused(self, code: object) -> None:
        assert isinstance(code, ErrorCode)
        self.seen.append(code)
        self.must_join = True
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self.owned = NO_PARTITIONS
            self.generation = -1
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.given_id = ""

    def forget_waiting(self) -> None:
        """The broker that it waited for is gone."""
        if self._joining is not None or self._syncing is not None:
            self._joining = self._syncing = None
            self.must_join = True

    def on_topics(self) -> None:
        """It looks at the topics from time to time; if they change, the group assigns anew."""
        self.must_join = True

    def leave(self) -> None:
        self.world.leave(LeavingMember(self.given_id, self.instance_id))
        self.owned = NO_PARTITIONS
