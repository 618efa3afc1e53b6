"""ListPartitionReassignments (46): which partitions are being moved, from where and to where.

What is asked for and does not exist, or does not move, is not in the answer.
"""

from dataclasses import dataclass

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kio.schema.types import BrokerId as MessageBrokerId
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error, within_or_refused
from tidelog.core.controller.image import PartitionImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsHandler:
    controller: AdminRequests

    async def handle(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        try:
            moving = await within_or_refused(
                request.timeout, lambda: self.controller.list_reassignments(_partitions(request))
            )
        except RequestRefused as refusal:
            return _response(refusal, {})
        topics: dict[str, list[OngoingPartitionReassignment]] = {}
        for (topic, partition), state in moving:
            topics.setdefault(topic, []).append(_ongoing(partition, state))
        return _response(RequestRefused(ErrorCode.NONE), topics)


def _partitions(request: ListPartitionReassignmentsRequest) -> list[TopicPartition] | None:
    if request.topics is None:
        return None
    return [
        TopicPartition(topic.name, partition)
        for topic in request.topics
        for partition in topic.partition_indexes
    ]


def _ongoing(partition: int, state: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=i32(partition),
        replicas=_brokers(state.replicas),
        adding_replicas=_brokers(state.adding_replicas),
        removing_replicas=_brokers(state.removing_replicas),
    )


def _brokers(ids: tuple[BrokerId, ...]) -> tuple[MessageBrokerId, ...]:
    return tuple(MessageBrokerId(each) for each in ids)


def _response(
    whole: RequestRefused, topics: dict[str, list[OngoingPartitionReassignment]]
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(whole.code),
        error_message=whole.message,
        topics=tuple(
            OngoingTopicReassignment(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )
