"""DescribeCluster: the cluster and where its brokers listen (P1)."""

import asyncio

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from tests.unit.broker.handlers.samples import (
    BROKER,
    CLUSTER_ID,
    LISTENER,
    broker,
    cluster,
    context,
)
from tidelog.broker.handlers.describe_cluster import DescribeClusterHandler
from tidelog.core.controller.image import Endpoint

BROKERS = 1
CONTROLLERS = 2
ALL_OPERATIONS = 8096
NO_OPERATIONS = -(2**31)

TWO_BROKERS = cluster(
    broker(
        2,
        Endpoint(LISTENER, "PLAINTEXT", "two.example", 9092),
        Endpoint("INTERNAL", "PLAINTEXT", "10.0.0.2", 9094),
        rack="r1",
    )
)


def describe(
    *, endpoint_type: int = BROKERS, with_operations: bool = False, listener_name: str = LISTENER
) -> DescribeClusterResponse:
    handler = DescribeClusterHandler(partitions=TWO_BROKERS)
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=with_operations,
        endpoint_type=i8(endpoint_type),
        include_fenced_brokers=False,
    )
    return asyncio.run(handler.handle(request, context(listener_name=listener_name)))


def test_the_cluster_has_an_id_and_a_controller() -> None:
    response = describe()
    assert response.error_code is ErrorCode.none
    assert response.endpoint_type == BROKERS
    assert response.cluster_id == CLUSTER_ID
    assert int(response.controller_id) == BROKER


def test_every_live_broker_is_listed_with_its_address_and_rack() -> None:
    assert [(one.broker_id, one.host, one.port, one.rack) for one in describe().brokers] == [
        (1, "one.example", 9092, None),
        (2, "two.example", 9092, "r1"),
    ]
    assert not any(one.is_fenced for one in describe().brokers)


def test_a_client_is_told_the_addresses_of_the_listener_it_came_through() -> None:
    response = describe(listener_name="INTERNAL")
    assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [
        (2, "10.0.0.2", 9094)
    ]


def test_operations_are_told_only_to_who_asks() -> None:
    assert describe().cluster_authorized_operations == NO_OPERATIONS
    assert describe(with_operations=True).cluster_authorized_operations == ALL_OPERATIONS


def test_controller_endpoints_are_not_served_by_a_broker() -> None:
    response = describe(endpoint_type=CONTROLLERS)
    assert response.error_code is ErrorCode.mismatched_endpoint_type
    assert response.error_message == (
        "The request was sent to an endpoint of type BROKER, "
        "but we wanted an endpoint of type CONTROLLER"
    )
    assert (response.cluster_id, response.controller_id, response.brokers) == ("", -1, ())


def test_an_endpoint_type_nobody_knows_is_refused() -> None:
    response = describe(endpoint_type=3, with_operations=True)
    assert response.error_code is ErrorCode.unsupported_endpoint_type
    assert response.error_message == "Unsupported endpoint type 3"
    assert response.cluster_authorized_operations == NO_OPERATIONS
