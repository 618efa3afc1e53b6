"""ConsumerGroupDescribe (69): groups of the consumer protocol, and what each member has.

A classic group is not found here, and neither is one of this protocol by DescribeGroups: tools ask
one and then the other.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicId, TopicIdPartition
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.coordinated import Outcome, outcome
from tidelog.broker.handlers.describe_groups import ALL_GROUP_OPERATIONS
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.core.groups.consumer.requests import ConsumerDescription, DescribedConsumer
from tidelog.core.groups.topics import Topics
from tidelog.wire.metadata import NO_OPERATIONS

_CLASSIC_MEMBER: Final = i8(0)
_CONSUMER_MEMBER: Final = i8(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeHandler:
    """Each group has an answer of its own, and one however often it is named."""

    groups: GroupCoordinator
    config: ConsumerGroupsConfig

    async def handle(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> object:
        async def wait() -> ConsumerGroupDescribeResponse:
            asked = {group_id: self._ask(group_id) for group_id in dict.fromkeys(request.group_ids)}
            if asked:
                await asyncio.wait(asked.values())  # Ended by shards, each in its time.
            operations = NO_OPERATIONS
            if request.include_authorized_operations:
                operations = ALL_GROUP_OPERATIONS
            topics = self.groups.topics.current
            return ConsumerGroupDescribeResponse(
                throttle_time=NO_THROTTLE,
                groups=tuple(
                    _described(group_id, outcome(future), topics, operations)
                    for group_id, future in asked.items()
                ),
            )

        return Postponed(wait)

    def _ask(self, group_id: str) -> "asyncio.Future[object]":
        if not self.config.is_served:
            return self.groups.refuse(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            return self.groups.refuse(ErrorCode.INVALID_GROUP_ID)
        return self.groups.ask(
            group_id,
            lambda shard, token, now_ms: shard.on_consumer_describe(group_id, token, now_ms),
            may_write=False,
        )


def _described(group_id: str, told: Outcome, topics: Topics, operations: int) -> DescribedGroup:
    if isinstance(told, RequestRefused):
        return _refused(group_id, told.code, told.message)
    if told is None:
        message = f"Group {group_id} is not a consumer group."
        return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
    group = cast(ConsumerDescription, told)
    return DescribedGroup(
        error_code=message_error(ErrorCode.NONE),
        error_message=None,
        group_id=GroupId(group_id),
        group_state=group.state,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.assignment_epoch),
        assignor_name=group.assignor,
        members=tuple(_member(described, topics) for described in group.members),
        authorized_operations=i32(operations),
    )


def _member(described: DescribedConsumer, topics: Topics) -> Member:
    member, subscription = described.member, described.member.subscription
    return Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=i32(member.epoch),
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=tuple(map(TopicName, sorted(subscription.topics))),
        subscribed_topic_regex=subscription.expression,
        assignment=_assignment(member.all_partitions(), topics),
        target_assignment=_assignment(described.target, topics),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(partitions: Iterable[TopicIdPartition], topics: Topics) -> Assignment:
    """Of topics that are still there: others have no name."""
    by_topic: dict[TopicId, list[i32]] = {}
    for topic_id, number in sorted(partitions):
        if topic_id in topics.names:
            by_topic.setdefault(topic_id, []).append(i32(number))
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(
                topic_id=topic_id,
                topic_name=TopicName(topics.names[topic_id]),
                partitions=tuple(numbers),
            )
            for topic_id, numbers in by_topic.items()
        )
    )


def _refused(group_id: str, code: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=message_error(code),
        error_message=message,
        group_id=GroupId(group_id),
        group_state="",
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        assignor_name="",
        members=(),
        authorized_operations=i32(NO_OPERATIONS),
    )
