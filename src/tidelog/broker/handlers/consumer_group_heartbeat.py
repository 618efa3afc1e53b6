"""ConsumerGroupHeartbeat (68): a member of the consumer protocol joins, stays or leaves (KIP-848).

What does not belong together in one request is refused here, whoever sends it; the rest is for the
group to judge.
"""

import datetime
from dataclasses import dataclass
from typing import Final, cast

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.static.primitive import i32, i32Timedelta

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_TOPIC_ID, TopicId, TopicIdPartition
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.group_shards import GroupCoordinator, require_text
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.core.groups.consumer.requests import ConsumerHeartbeat, HeartbeatAnswer
from tidelog.records.consumer_groups import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    Partitions,
)

_FIRST_WITH_OWN_MEMBER_IDS: Final = 1
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_UNCHANGED_MS: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatHandler:
    """Answered once what it changes is written."""

    groups: GroupCoordinator
    config: ConsumerGroupsConfig

    async def handle(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> object:
        async def wait() -> ConsumerGroupHeartbeatResponse:
            try:
                if not self.config.is_served:
                    raise RequestRefused(ErrorCode.UNSUPPORTED_VERSION)
                self._require_sound(request, context.api_version)
                heartbeat = self._heartbeat(request, context)
                answer = await self.groups.ask(
                    heartbeat.group_id,
                    lambda shard, token, now_ms: shard.on_consumer_heartbeat(
                        heartbeat, token, now_ms
                    ),
                )
            except RequestRefused as refused:
                return _refusal(refused)
            if isinstance(answer, RequestRefused):
                return _refusal(answer)
            return _response(cast(HeartbeatAnswer, answer))

        return Postponed(wait)

    def _require_sound(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """Raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
        epoch = request.member_epoch
        has_id = version >= _FIRST_WITH_OWN_MEMBER_IDS or epoch > 0 or epoch == LEAVING_EPOCH
        if has_id:
            _require(bool(request.member_id), "MemberId can't be empty.")
        _require(bool(request.group_id), "GroupId can't be empty.")
        _require(request.instance_id != "", "InstanceId can't be empty.")
        _require(request.rack_id != "", "RackId can't be empty.")
        if epoch == JOINING_EPOCH:
            _require_complete(request)
        elif epoch == LEAVING_STATIC_EPOCH:
            _require(request.instance_id is not None, "InstanceId can't be null.")
        else:
            _require(epoch >= LEAVING_EPOCH, "MemberEpoch is invalid.")
        offered = self.config.assignors
        if request.server_assignor is not None and request.server_assignor not in offered:
            raise RequestRefused(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(offered)}.",
            )

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerHeartbeat:
        topics = request.subscribed_topic_names
        texts = (request.member_id, request.instance_id, request.rack_id)
        for text in (*texts, request.subscribed_topic_regex, *(topics or ())):
            require_text(text or "", ErrorCode.INVALID_REQUEST)
        return ConsumerHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id or self.groups.new_member_id("consumer"),
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout // _MILLISECOND,
            topics=None if topics is None else frozenset(topics),
            expression=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=_owned(request),
            client_id=context.client_id or "",
            client_host=f"/{context.peer_host}",
        )


def _require(is_sound: bool, message: str) -> None:
    if not is_sound:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, message)


def _require_complete(request: ConsumerGroupHeartbeatRequest) -> None:
    """Who joins says what it wants, and has nothing."""
    has_timeout = request.rebalance_timeout // _MILLISECOND != _UNCHANGED_MS
    _require(has_timeout, "RebalanceTimeoutMs must be provided in first request.")
    has_nothing = request.topic_partitions is not None and not request.topic_partitions
    _require(has_nothing, "TopicPartitions must be empty when (re-)joining.")
    names, expression = request.subscribed_topic_names, request.subscribed_topic_regex
    _require(
        names is not None or expression is not None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(TopicId(topic.topic_id or NO_TOPIC_ID), number)
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def _response(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(ErrorCode.NONE),
        error_message=None,
        member_id=answer.member_id,
        member_epoch=i32(answer.member_epoch),
        heartbeat_interval=_interval(answer.heartbeat_interval_ms),
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


def _assignment(assigned: Partitions) -> Assignment:
    by_topic: dict[TopicId, list[i32]] = {}
    for topic_id, number in assigned:
        by_topic.setdefault(topic_id, []).append(i32(number))
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(by_topic[topic_id])))
            for topic_id in sorted(by_topic)
        )
    )


def _refusal(refused: RequestRefused) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(refused.code),
        error_message=refused.message,
        member_id=None,
        member_epoch=i32(0),
        heartbeat_interval=_interval(0),
        assignment=None,
    )


def _interval(interval_ms: int) -> i32Timedelta:
    return i32Timedelta.parse(interval_ms * _MILLISECOND)
