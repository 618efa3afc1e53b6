"""CreatePartitions (37): more partitions for topics that exist. There is no way back to fewer.

One topic's refusal is that topic's answer; it never fails its neighbours. A name that appears
twice in one request is answered once, as a mistake. As with CreateTopics, the answer leaves when
the new partitions of this broker are open.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kio.schema.create_partitions.v3.request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kio.schema.types import TopicName

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error, within
from tidelog.broker.large_requests import in_turns
from tidelog.core.controller.requests import NewPartitions, TopicOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsHandler:
    """`partitions_open` returns once this broker serves all it has been given so far."""

    controller: AdminRequests
    partitions_open: Callable[[], Awaitable[None]]

    async def handle(
        self, request: CreatePartitionsRequest, context: RequestContext
    ) -> CreatePartitionsResponse:
        outcomes = await within(
            request.timeout,
            lambda: self._create(request),
            otherwise=lambda: _timed_out(request),
        )
        return CreatePartitionsResponse(
            throttle_time=NO_THROTTLE,
            results=tuple([_result(outcome) async for outcome in in_turns(outcomes)]),
        )

    async def _create(self, request: CreatePartitionsRequest) -> list[TopicOutcome]:
        outcomes = await self.controller.create_partitions(
            [_new_partitions(topic) async for topic in in_turns(request.topics)],
            validate_only=request.validate_only,
        )
        if not request.validate_only:
            await self.partitions_open()
        return outcomes


def _timed_out(request: CreatePartitionsRequest) -> list[TopicOutcome]:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return [TopicOutcome(name=name, error=ErrorCode.REQUEST_TIMED_OUT) for name in names]


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic=topic.name,
        partition_count=topic.count,
        assignments=(
            None
            if assignments is None
            else tuple(
                tuple(BrokerId(broker_id) for broker_id in assignment.broker_ids)
                for assignment in assignments
            )
        ),
    )


def _result(outcome: TopicOutcome) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=TopicName(outcome.name or ""),
        error_code=message_error(outcome.error),
        error_message=outcome.message,
    )
