"""ElectLeaders (43): leaders back to preferred replicas, or any leader at all (KIP-460).

Every partition has an answer of its own. Without a list of partitions the request is about all of
them, and only those for which something was done, or could not be, are in the answer. It leaves
when the brokers have been told, so that who asks for metadata next is told the new leaders.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicPartition
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error, within_or_refused
from tidelog.core.controller.preferred import ElectionOutcome, ElectionType


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeadersHandler:
    """`delivered` returns once the brokers know of what the controller has decided."""

    controller: AdminRequests
    delivered: Callable[[], Awaitable[None]]

    async def handle(
        self, request: ElectLeadersRequest, context: RequestContext
    ) -> ElectLeadersResponse:
        partitions = _partitions(request)
        if partitions == []:
            return _response(ErrorCode.NONE, ())  # As in Kafka, also for a type there is not.
        code = ErrorCode.NONE
        try:
            outcomes = await within_or_refused(
                request.timeout, lambda: self._elect(request.election_type, partitions)
            )
        except RequestRefused as refusal:
            code, outcomes = refusal.code, _all_refused(partitions, refusal)

        def answer() -> ElectLeadersResponse:
            if partitions is None:
                return _response(code, _by_topic(outcomes))
            return _response(code, _as_asked(request, outcomes))

        return await self.controller.aside.run(answer, count=len(outcomes))

    async def _elect(
        self, election_type: int, partitions: list[TopicPartition] | None
    ) -> list[ElectionOutcome]:
        outcomes = await self.controller.elect_leaders(_election_type(election_type), partitions)
        await self.delivered()
        return outcomes


def _election_type(number: int) -> ElectionType:
    try:
        return ElectionType(number)
    except ValueError:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"there is no election type {number}"
        ) from None


def _partitions(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return [
        TopicPartition(topic.topic, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    ]


def _all_refused(
    partitions: list[TopicPartition] | None, refusal: RequestRefused
) -> list[ElectionOutcome]:
    return [
        ElectionOutcome(topic_partition=one, error=refusal.code, message=refusal.message)
        for one in partitions or ()
    ]


def _as_asked(
    request: ElectLeadersRequest, outcomes: list[ElectionOutcome]
) -> Iterator[ReplicaElectionResult]:
    """In the order of the request; what it names twice is answered twice."""
    known = {outcome.topic_partition: outcome for outcome in outcomes}
    for topic in request.topic_partitions or ():
        yield ReplicaElectionResult(
            topic=topic.topic,
            partition_result=tuple(
                _result(known[TopicPartition(topic.topic, partition)])
                for partition in topic.partitions
            ),
        )


def _by_topic(outcomes: list[ElectionOutcome]) -> Iterator[ReplicaElectionResult]:
    for topic, together in groupby(outcomes, key=lambda outcome: outcome.topic_partition.topic):
        yield ReplicaElectionResult(
            topic=TopicName(topic), partition_result=tuple(map(_result, together))
        )


def _result(outcome: ElectionOutcome) -> PartitionResult:
    return PartitionResult(
        partition_id=i32(outcome.topic_partition.partition),
        error_code=message_error(outcome.error),
        error_message=outcome.message,
    )


def _response(code: ErrorCode, results: Iterable[ReplicaElectionResult]) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(code),
        replica_election_results=tuple(results),
    )
