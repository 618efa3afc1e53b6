"""AlterPartitionReassignments (45): begin to move partitions, or take a move back (KIP-455).

The answer says that a move has begun, not that it is done; ListPartitionReassignments says which
are still under way. One partition's refusal never fails its neighbours.
"""

from dataclasses import dataclass
from itertools import islice

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.static.primitive import i32

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error, within_or_refused
from tidelog.core.controller.reassignment import Reassignment, ReassignmentOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsHandler:
    controller: AdminRequests

    async def handle(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        requested = [
            _reassignment(topic.name, partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        allowed = request.allow_replication_factor_change
        whole = RequestRefused(ErrorCode.NONE)
        try:
            outcomes = await within_or_refused(
                request.timeout,
                lambda: self.controller.alter_reassignments(
                    requested, allow_replication_factor_change=allowed
                ),
            )
        except RequestRefused as refusal:
            whole, outcomes = refusal, _all_refused(requested, refusal)
        return await self.controller.aside.run(
            lambda: _response(request, whole, outcomes), count=len(outcomes)
        )


def _reassignment(topic: str, partition: ReassignablePartition) -> Reassignment:
    replicas = partition.replicas
    return Reassignment(
        topic,
        partition.partition_index,
        None if replicas is None else tuple(BrokerId(each) for each in replicas),
    )


def _all_refused(
    requested: list[Reassignment], refusal: RequestRefused
) -> list[ReassignmentOutcome]:
    return [
        ReassignmentOutcome(
            topic=one.topic, partition=one.partition, error=refusal.code, message=refusal.message
        )
        for one in requested
    ]


def _response(
    request: AlterPartitionReassignmentsRequest,
    whole: RequestRefused,
    outcomes: list[ReassignmentOutcome],
) -> AlterPartitionReassignmentsResponse:
    results = map(_result, outcomes)
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=message_error(whole.code),
        error_message=whole.message,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name, partitions=tuple(islice(results, len(topic.partitions)))
            )
            for topic in request.topics
        ),
    )


def _result(outcome: ReassignmentOutcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=i32(outcome.partition),
        error_code=message_error(outcome.error),
        error_message=outcome.message,
    )
