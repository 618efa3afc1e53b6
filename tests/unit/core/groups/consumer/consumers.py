"""Consumers that act as real ones do, before a shard that is under test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tests.unit.core.groups.hosted import GROUP, Hosted
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicId, TopicIdPartition
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.core.groups.consumer.group import ConsumerGroup
from tidelog.core.groups.consumer.requests import (
    ConsumerDescription,
    ConsumerHeartbeat,
    HeartbeatAnswer,
    MakeAssignment,
)
from tidelog.core.groups.context import ASSIGNED_AT_ONCE_MAX
from tidelog.core.groups.shard import GroupShard
from tidelog.core.groups.topics import NO_TOPICS, TopicFacts, Topics
from tidelog.records.consumer_groups import NO_PARTITIONS, Partitions

SESSION_MS = 45_000
REVOCATION_MS = 60_000
AT_ONCE = ConsumerGroupsConfig(group_consumer_assignment_interval_ms=0)

_NOT_A_MEMBER = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


def topic_id(number: int) -> TopicId:
    return TopicId(UUID(int=number))


@dataclass
class ConsumerHosted(Hosted):
    """A shard that knows topics, of one partition each unless another number is given."""

    consumer_config: ConsumerGroupsConfig = AT_ONCE
    topics: Topics = NO_TOPICS
    assigned_at_once_max: int = ASSIGNED_AT_ONCE_MAX
    """Larger assignments are made when time passes."""
    _ids: dict[str, int] = field(default_factory=dict)
    _next_id: int = 1

    def new_shard(self) -> GroupShard:
        return GroupShard(
            config=self.config,
            record_max_bytes=self.record_max_bytes,
            consumer_config=self.consumer_config,
            topics=self.topics,
            assigned_at_once_max=self.assigned_at_once_max,
        )

    def advance(self, duration_ms: int) -> None:
        self.make_assignments()
        super().advance(duration_ms)

    def make_assignments(self) -> None:
        """Those that were left to others; also those of a shard that is not there any more."""
        making = [deed for deed in self.deeds if isinstance(deed, MakeAssignment)]
        self.deeds = [deed for deed in self.deeds if deed not in making]
        for assignment in making:
            self.perform(self.shard.on_assigned(assignment, assignment.make()))

    def set_topics(self, counts: Mapping[str, int]) -> None:
        """There are these topics now and no others. One that is back after it was gone is new."""
        self._ids = {name: number for name, number in self._ids.items() if name in counts}
        for name in counts:
            if name not in self._ids:
                self._ids[name] = self._next_id
                self._next_id += 1
        facts = {name: TopicFacts(topic_id(self._ids[name]), counts[name]) for name in counts}
        self.topics = Topics.of(facts)
        self.shard.know_topics(self.topics)

    def partitions(self, topic: str) -> Partitions:
        known = self.topics.by_name[topic]
        return frozenset(
            TopicIdPartition(known.topic_id, number) for number in range(known.partition_count)
        )

    def all_partitions(self) -> Partitions:
        return NO_PARTITIONS.union(*map(self.partitions, self.topics.by_name))

    def send(self, request: ConsumerHeartbeat) -> HeartbeatAnswer | ErrorCode:
        token = self.ask(
            lambda token: self.shard.on_consumer_heartbeat(request, token, self.now_ms)
        )
        answer = self.answer(token)
        if isinstance(answer, RequestRefused):
            answer = answer.code
        assert isinstance(answer, HeartbeatAnswer | ErrorCode)
        return answer

    def group(self, shard: GroupShard | None = None) -> ConsumerGroup:
        group = (shard or self.shard)._groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def describe_consumers(self) -> ConsumerDescription:
        token = self.ask(lambda token: self.shard.on_consumer_describe(GROUP, token, self.now_ms))
        described = self.answer(token)
        assert isinstance(described, ConsumerDescription)
        return described


@dataclass
class Consumer:
    """A consumer of the consumer protocol, as the Java client is one.

    It obeys assignments at once, unless it is slow; then `obey` has to be called. It says what it
    owns when that has changed, and everything after it was left without an answer.
    """

    world: ConsumerHosted
    member_id: str
    topics: frozenset[str] | None = None
    expression: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    is_slow: bool = False
    epoch: int = 0
    owned: Partitions = NO_PARTITIONS
    assigned: Partitions = NO_PARTITIONS
    says_all: bool = True
    said_owned: Partitions | None = None
    last_error: ErrorCode = ErrorCode.NONE

    def request(self) -> ConsumerHeartbeat:
        says_all = self.says_all or self.epoch == 0
        says_owned = says_all or self.owned != self.said_owned
        return ConsumerHeartbeat(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REVOCATION_MS if says_all else -1,
            topics=self.topics if says_all else None,
            expression=self.expression if says_all else None,
            assignor=self.assignor if says_all else None,
            owned=self.owned if says_owned else None,
            client_id="client",
            client_host="/127.0.0.1",
        )

    def beat(self, *, is_answer_lost: bool = False) -> HeartbeatAnswer | ErrorCode:
        request = self.request()
        answer = self.world.send(request)
        if is_answer_lost:
            self.says_all = True
            self.said_owned = None
            return answer
        if isinstance(answer, ErrorCode):
            self._on_refused(answer)
            return answer
        self.last_error = ErrorCode.NONE
        self.says_all = False
        if request.owned is not None:
            self.said_owned = request.owned
        self.epoch = answer.member_epoch
        if answer.assigned is not None:
            self.assigned = answer.assigned
        if not self.is_slow:
            self.obey()
        return answer

    def _on_refused(self, code: ErrorCode) -> None:
        self.last_error = code
        self.says_all = True
        if code in _NOT_A_MEMBER:
            self.drop_all()

    def obey(self) -> None:
        """Give back what is not assigned, and take what is."""
        self.owned = self.assigned

    def drop_all(self) -> None:
        """It knows that it is not a member any more."""
        self.epoch = 0
        self.owned = self.assigned = NO_PARTITIONS

    def subscribe(self, *topics: str) -> None:
        self.topics = frozenset(topics)
        self.says_all = True

    def leave(self, epoch: int = -1) -> HeartbeatAnswer | ErrorCode:
        answer = self.world.send(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
            )
        )
        self.drop_all()
        return answer


def beat_until_quiet(*consumers: Consumer, rounds: int = 6) -> None:
    """Everybody sends heartbeats, twenty seconds apart, until nothing changes any more."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()
            consumer.obey()
        consumers[0].world.advance(20_000)
