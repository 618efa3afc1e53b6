"""ListConfigResources: what there is to ask about the settings of (P1)."""

import asyncio
from collections.abc import Sequence

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse
from kio.static.primitive import i8

from tests.unit.broker.handlers.samples import LISTENER, broker, cluster, context, partition, topic
from tidelog.broker.handlers.list_config_resources import ListConfigResourcesHandler
from tidelog.core.controller.changes import GroupConfigChanged
from tidelog.core.controller.image import Endpoint

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
CLUSTER = cluster(
    broker(2, Endpoint(LISTENER, "PLAINTEXT", "two.example", 9092)),
    topic("a", partition()),
    topic("b", partition()),
)
CLUSTER.image = CLUSTER.image.apply(GroupConfigChanged("g", {"consumer.session.timeout.ms": "1"}))


def ask(*types: int, api_version: int = 1) -> ListConfigResourcesResponse:
    handler = ListConfigResourcesHandler(partitions=CLUSTER)
    request = ListConfigResourcesRequest(resource_types=tuple(map(i8, types)))
    return asyncio.run(handler.handle(request, context(api_version=api_version)))


def listed(*types: int, api_version: int = 1) -> list[tuple[int, str]]:
    response = ask(*types, api_version=api_version)
    assert response.error_code is ErrorCode.none
    return [(int(one.resource_type), one.resource_name) for one in response.config_resources]


def test_topics_and_brokers_are_listed_when_nothing_else_is_asked_for() -> None:
    assert listed() == [
        (TOPIC, "a"),
        (TOPIC, "b"),
        (BROKER, "1"),
        (BROKER, "2"),
        (BROKER_LOGGER, "1"),
        (BROKER_LOGGER, "2"),
        (GROUP, "g"),
    ]


@pytest.mark.parametrize(
    ("types", "names"),
    [([TOPIC], ["a", "b"]), ([BROKER], ["1", "2"]), ([BROKER, GROUP], ["1", "2", "g"])],
)
def test_only_what_is_asked_for_is_listed(types: Sequence[int], names: Sequence[str]) -> None:
    assert [name for _, name in listed(*types)] == names


def test_kinds_of_which_there_is_none_are_an_empty_list() -> None:
    assert listed(CLIENT_METRICS) == []


def test_version_0_asks_for_client_metrics_alone() -> None:
    assert listed(api_version=0) == []


def test_a_kind_that_nobody_knows_is_refused_as_kafka_does() -> None:
    assert ask(TOPIC, 7).error_code is ErrorCode.unsupported_version
