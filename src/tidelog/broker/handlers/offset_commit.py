"""OffsetCommit (8): how far a group has come, in the log of every in-sync replica once answered.

Partitions that nobody knows are refused here, the others decided upon by the group's shard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_TIMESTAMP, TopicId, TopicPartition
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.coordinated import Begun, Outcome
from tidelog.broker.partitions import Partitions
from tidelog.core.coordinators import Effects, Token
from tidelog.core.groups.group import Committer
from tidelog.core.groups.requests import CommitRequest, PartitionCommit
from tidelog.core.groups.shard import GroupShard
from tidelog.records.groups import CommittedOffset
from tidelog.wire.api import RequestHeader
from tidelog.wire.offset_commit import (
    NO_RETENTION_TIME_MS,
    CommittedTopic,
    CommitTopic,
    OffsetCommitRequest,
    PartitionOffset,
    decode_offset_commit,
    encode_offset_commit_response,
)

_FIRST_THAT_KNOWS_MISSING_GROUPS: Final = 9
_FIRST_THAT_KNOWS_MEMBER_EPOCHS: Final = 9


class KnownPartition(NamedTuple):
    """A partition of the request that there is."""

    partition: TopicPartition
    topic_id: TopicId
    wanted: PartitionOffset


Judged = list[tuple[CommitTopic, list[KnownPartition | ErrorCode]]]
"""Every partition of the request, in order, each known or refused already."""


@dataclass(frozen=True, slots=True)
class OffsetCommitApi:
    """Committed by name or, from version 10 on, by topic id."""

    groups: GroupCoordinator
    partitions: Partitions

    def decode(self, view: memoryview, position: int, version: int) -> OffsetCommitRequest:
        return decode_offset_commit(view, position, version)

    def begin(self, request: OffsetCommitRequest, header: RequestHeader) -> Begun:
        judged: Judged = [(topic, self._judge(topic)) for topic in request.topics]
        known = [one for _, parts in judged for one in parts if isinstance(one, KnownPartition)]

        def decide(shard: GroupShard, token: Token, now_ms: int) -> Effects:
            return shard.on_commit(_to_core(request, known, header, now_ms), token, now_ms)

        def finish(outcomes: Sequence[Outcome]) -> bytes:
            topics = _answered(judged, outcomes[0] if outcomes else [])
            return encode_offset_commit_response(
                header.api_version, header.correlation_id, topics, throttle_ms=0
            )

        return Begun([self.groups.ask(request.group_id, decide)] if known else [], finish)

    def _judge(self, topic: CommitTopic) -> list[KnownPartition | ErrorCode]:
        name, missing = topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.topic_id is not None:
            name = self.partitions.topic_name(topic.topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        image = None if name is None else self.partitions.image.topics.get(name)
        if image is None:
            return [missing] * len(topic.partitions)
        return [
            KnownPartition(TopicPartition(image.name, wanted.partition), image.topic_id, wanted)
            if 0 <= wanted.partition < len(image.partitions)
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for wanted in topic.partitions
        ]


def _to_core(
    request: OffsetCommitRequest,
    known: Sequence[KnownPartition],
    header: RequestHeader,
    now_ms: int,
) -> CommitRequest:
    knows_epochs = header.api_version >= _FIRST_THAT_KNOWS_MEMBER_EPOCHS
    committer = Committer(
        request.generation_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        knows_epochs=knows_epochs,
    )
    expire_ms = NO_TIMESTAMP
    if request.retention_ms != NO_RETENTION_TIME_MS:
        expire_ms = now_ms + request.retention_ms
    offsets = partition_commits(known, now_ms=now_ms, expire_ms=expire_ms)
    is_known = header.api_version >= _FIRST_THAT_KNOWS_MISSING_GROUPS
    unknown_group = ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION
    return CommitRequest(request.group_id, committer, offsets, unknown_group)


def partition_commits(
    known: Sequence[KnownPartition], *, now_ms: int, expire_ms: int
) -> list[PartitionCommit]:
    """What a shard is to commit; without a time of their own, offsets expire as the group's do."""
    return [
        PartitionCommit(
            partition,
            CommittedOffset(
                wanted.offset,
                wanted.leader_epoch,
                wanted.metadata or "",
                now_ms,
                expire_ms,
                topic_id,
            ),
        )
        for partition, topic_id, wanted in known
    ]


def _answered(judged: Judged, told: Outcome) -> list[CommittedTopic]:
    known_count = sum(isinstance(one, KnownPartition) for _, parts in judged for one in parts)
    if isinstance(told, RequestRefused):
        codes = iter([told.code] * known_count)
    else:
        codes = iter(cast(Sequence[ErrorCode], told))
    return [
        CommittedTopic(
            topic.name,
            topic.topic_id,
            [
                (wanted.partition, next(codes) if isinstance(one, KnownPartition) else one)
                for wanted, one in zip(topic.partitions, parts, strict=True)
            ],
        )
        for topic, parts in judged
    ]
