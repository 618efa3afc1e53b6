"""DescribeCluster (60): the cluster's id, its controller, and where its brokers listen.

A client is told the addresses of the listener that it came through. There are no controller
endpoints here (KIP-919), so asking for those is refused the way a Kafka broker refuses it.
"""

from dataclasses import dataclass
from typing import Final

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from kio.schema.types import BrokerId as MessageBrokerId
from kio.static.primitive import i8, i32

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.metadata import ALL_CLUSTER_OPERATIONS
from tidelog.broker.partitions import Partitions
from tidelog.core.controller.image import ClusterImage
from tidelog.wire.metadata import NO_OPERATIONS

BROKERS: Final = 1
CONTROLLERS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterHandler:
    """Answers from the cluster image."""

    partitions: Partitions

    async def handle(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> DescribeClusterResponse:
        if request.endpoint_type == CONTROLLERS:
            return _refusal(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint "
                "of type CONTROLLER",
            )
        if request.endpoint_type != BROKERS:
            return _refusal(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                f"Unsupported endpoint type {request.endpoint_type}",
            )
        image = self.partitions.image
        with_operations = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            throttle_time=NO_THROTTLE,
            error_code=message_error(ErrorCode.NONE),
            endpoint_type=i8(BROKERS),
            cluster_id=image.cluster_id,
            controller_id=MessageBrokerId(image.controller_id),
            brokers=_brokers(image, context.listener_name),
            cluster_authorized_operations=i32(
                ALL_CLUSTER_OPERATIONS if with_operations else NO_OPERATIONS
            ),
        )


def _refusal(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(code),
        error_message=message,
        endpoint_type=i8(BROKERS),
        cluster_id="",
        controller_id=MessageBrokerId(NO_BROKER),
        brokers=(),
        cluster_authorized_operations=i32(NO_OPERATIONS),
    )


def _brokers(image: ClusterImage, listener_name: str) -> tuple[DescribeClusterBroker, ...]:
    """Brokers that are alive and reachable the way the client came; no others are known here."""
    endpoints = ((broker, broker.endpoint(listener_name)) for broker in image.brokers.values())
    return tuple(
        DescribeClusterBroker(
            broker_id=MessageBrokerId(broker.broker_id),
            host=endpoint.host,
            port=i32(endpoint.port),
            rack=broker.rack,
            is_fenced=False,
        )
        for broker, endpoint in endpoints
        if endpoint is not None
    )
