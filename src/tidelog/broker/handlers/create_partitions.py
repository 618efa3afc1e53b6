"""CreatePartitions (37): more partitions for topics that exist. There is no way back to fewer.

One topic's refusal is that topic's answer; it never fails its neighbours. A name that appears
twice in one request is answered once, as a mistake. As with CreateTopics, the answer leaves when
the new partitions of this broker are open.
"""

import asyncio
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
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, is_out_of_time, message_error
from tidelog.core.controller.requests import NewPartitions, TopicOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsHandler:
    """`partitions_open` returns once this broker serves all it has been given so far."""

    controller: ControllerRunner
    partitions_open: Callable[[], Awaitable[None]]

    async def handle(
        self, request: CreatePartitionsRequest, context: RequestContext
    ) -> CreatePartitionsResponse:
        one_per_name = {outcome.name: outcome for outcome in await self._outcomes(request)}
        return CreatePartitionsResponse(
            throttle_time=NO_THROTTLE,
            results=tuple(_result(outcome) for outcome in one_per_name.values()),
        )

    async def _outcomes(self, request: CreatePartitionsRequest) -> list[TopicOutcome]:
        if is_out_of_time(request.timeout):
            return [
                TopicOutcome(name=topic.name, error=ErrorCode.REQUEST_TIMED_OUT)
                for topic in request.topics
            ]
        outcomes = await self.controller.create_partitions(
            [_new_partitions(topic) for topic in request.topics],
            validate_only=request.validate_only,
        )
        if request.validate_only:
            return outcomes
        try:
            async with asyncio.timeout(request.timeout.total_seconds()):
                await self.partitions_open()
        except TimeoutError:
            return [_timed_out(outcome) for outcome in outcomes]
        return outcomes


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


def _timed_out(outcome: TopicOutcome) -> TopicOutcome:
    if outcome.error is not ErrorCode.NONE:
        return outcome
    return TopicOutcome(
        name=outcome.name,
        error=ErrorCode.REQUEST_TIMED_OUT,
        message="The partitions were created, but they are not open yet.",
    )


def _result(outcome: TopicOutcome) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=TopicName(outcome.name or ""),
        error_code=message_error(outcome.error),
        error_message=outcome.message,
    )
