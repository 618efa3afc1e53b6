"""OffsetFetch (9): how far groups have come, each in an answer of its own.

What is asked for twice is answered once: a few bytes must not ask for megabytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, cast

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicPartition
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.coordinated import Begun, Outcome
from tidelog.broker.partitions import Partitions
from tidelog.core.coordinators import Effects, Token
from tidelog.core.groups import requests
from tidelog.core.groups.group import Committer
from tidelog.core.groups.requests import FetchedOffset
from tidelog.core.groups.shard import GroupShard
from tidelog.wire.api import RequestHeader
from tidelog.wire.offset_fetch import (
    FetchedGroup,
    FetchedTopic,
    FetchGroup,
    FetchTopic,
    OffsetFetchRequest,
    OffsetResult,
    decode_offset_fetch,
    encode_offset_fetch_response,
    has_topic_ids,
)

_FIRST_WITH_ERROR_OF_GROUP: Final = 2
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetFetchApi:
    """Asked by name or, from version 10 on, by topic id."""

    groups: GroupCoordinator
    partitions: Partitions

    def decode(self, view: memoryview, position: int, version: int) -> OffsetFetchRequest:
        return decode_offset_fetch(view, position, version)

    def begin(self, request: OffsetFetchRequest, header: RequestHeader) -> Begun:
        groups = list(_once(request.groups))
        names = [self._names(group) for group in groups]

        def finish(outcomes: Sequence[Outcome]) -> bytes:
            answered = [
                self._answered(group, known, told, header)
                for group, known, told in zip(groups, names, outcomes, strict=True)
            ]
            return encode_offset_fetch_response(
                header.api_version, header.correlation_id, answered, throttle_ms=0
            )

        asked = [
            self.groups.ask(
                group.group_id,
                partial(_decide, group, known, requires_stable=request.requires_stable),
                may_write=False,
            )
            for group, known in zip(groups, names, strict=True)
        ]
        return Begun(asked, finish)

    def _names(self, group: FetchGroup) -> list[str | None]:
        """What the topics of the request are called; None for an id that nobody has."""
        return [
            topic.name if topic.topic_id is None else self.partitions.topic_name(topic.topic_id)
            for topic in group.topics or ()
        ]

    def _answered(
        self,
        group: FetchGroup,
        names: Sequence[str | None],
        told: Outcome,
        header: RequestHeader,
    ) -> FetchedGroup:
        if isinstance(told, RequestRefused):
            return _refused(group, told.code, header.api_version)
        fetched = cast(Sequence[FetchedOffset], told)
        if group.topics is None:
            by_id = has_topic_ids(header.api_version)
            return FetchedGroup(group.group_id, self._all_topics(fetched, by_id=by_id), 0)
        results = iter(fetched)
        topics = [
            FetchedTopic(
                topic.name,
                topic.topic_id,
                [
                    _nothing(partition, ErrorCode.UNKNOWN_TOPIC_ID)
                    if name is None
                    else _result(next(results))
                    for partition in topic.partitions
                ],
            )
            for topic, name in zip(group.topics, names, strict=True)
        ]
        return FetchedGroup(group.group_id, topics, 0)

    def _all_topics(self, fetched: Sequence[FetchedOffset], *, by_id: bool) -> list[FetchedTopic]:
        """Whatever there is; a topic without an id cannot be told of where ids are spoken."""
        ordered = sorted(fetched, key=lambda one: one.partition)
        topics = []
        for name, offsets in groupby(ordered, key=lambda one: one.partition.topic):
            results = [_result(one) for one in offsets]
            image = self.partitions.image.topics.get(name)
            if not by_id:
                topics.append(FetchedTopic(name, None, results))
            elif image is not None:
                topics.append(FetchedTopic(None, image.topic_id.bytes, results))
        return topics


def _once(groups: Iterable[FetchGroup]) -> Iterator[FetchGroup]:
    """All that a group has is asked for once, and so is each partition that is named."""
    whole: set[str] = set()
    named: set[tuple[str, str | None, bytes | None, int]] = set()
    for group in groups:
        if group.topics is not None:
            yield group._replace(topics=list(_topics_once(group, group.topics, named)))
        elif group.group_id not in whole:
            whole.add(group.group_id)
            yield group


def _topics_once(
    group: FetchGroup,
    topics: Iterable[FetchTopic],
    named: set[tuple[str, str | None, bytes | None, int]],
) -> Iterator[FetchTopic]:
    for topic in topics:
        keys = [(group.group_id, topic.name, topic.topic_id, one) for one in topic.partitions]
        new = [key for key in dict.fromkeys(keys) if key not in named]
        named.update(new)
        if new or not keys:
            yield topic._replace(partitions=[key[-1] for key in new])


def _decide(
    group: FetchGroup,
    names: Sequence[str | None],
    shard: GroupShard,
    token: Token,
    now_ms: int,
    *,
    requires_stable: bool,
) -> Effects:
    wanted = None if group.topics is None else list(_wanted(group.topics, names))
    committer = None
    if group.member_id is not None or group.member_epoch >= 0:
        committer = Committer(group.member_epoch, group.member_id or "", None)
    request = requests.FetchRequest(group.group_id, committer, wanted, requires_stable)
    return shard.on_fetch(request, token, now_ms)


def _wanted(topics: Iterable[FetchTopic], names: Sequence[str | None]) -> Iterable[TopicPartition]:
    for topic, name in zip(topics, names, strict=True):
        if name is not None:
            yield from (TopicPartition(name, partition) for partition in topic.partitions)


def _result(fetched: FetchedOffset) -> OffsetResult:
    partition, value, code = fetched
    if value is None:
        return _nothing(partition.partition, code)
    return OffsetResult(partition.partition, value.offset, value.leader_epoch, value.metadata, code)


def _nothing(partition: int, code: ErrorCode) -> OffsetResult:
    return OffsetResult(partition, _NO_OFFSET, _NO_EPOCH, "", code)


def _refused(group: FetchGroup, code: ErrorCode, version: int) -> FetchedGroup:
    if version >= _FIRST_WITH_ERROR_OF_GROUP:
        return FetchedGroup(group.group_id, [], code)
    topics = [
        FetchedTopic(
            topic.name, None, [_nothing(partition, code) for partition in topic.partitions]
        )
        for topic in group.topics or ()
    ]
    return FetchedGroup(group.group_id, topics, code)
