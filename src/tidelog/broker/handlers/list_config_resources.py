"""ListConfigResources (74): what there is to ask DescribeConfigs about (KIP-1142).

Version 0 was ListClientMetricsResources and asks for those alone. There are none here: whoever asks
for them gets an empty list, as from a Kafka that has none. Of groups those are listed that have
settings.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import (
    ConfigResource,
    ListConfigResourcesResponse,
)
from kio.static.primitive import i8

from tidelog.base.errors import ErrorCode
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.describe_configs import NOT_SERVED
from tidelog.broker.loggers import BROKER_LOGGER
from tidelog.broker.partitions import Partitions
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.requests import ResourceType

KNOWN: Final = frozenset({*map(int, ResourceType), BROKER_LOGGER, *NOT_SERVED})
_FIRST_WITH_TYPES: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListConfigResourcesHandler:
    """Answers from the cluster image."""

    partitions: Partitions

    async def handle(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> ListConfigResourcesResponse:
        if context.api_version < _FIRST_WITH_TYPES:
            return _answer(ErrorCode.NONE, ())
        wanted = frozenset(map(int, request.resource_types)) or KNOWN
        if not wanted <= KNOWN:
            return _answer(ErrorCode.UNSUPPORTED_VERSION, ())
        return _answer(ErrorCode.NONE, _resources(wanted, self.partitions.image))


def _resources(wanted: frozenset[int], image: ClusterImage) -> Iterable[ConfigResource]:
    if ResourceType.TOPIC in wanted:
        for name in image.topics:
            yield ConfigResource(resource_name=name, resource_type=i8(ResourceType.TOPIC))
    for kind in (ResourceType.BROKER, BROKER_LOGGER):
        if kind in wanted:
            for broker_id in image.brokers:
                yield ConfigResource(resource_name=str(broker_id), resource_type=i8(kind))

    if ResourceType.GROUP in wanted:
        for group_id in image.group_configs:
            yield ConfigResource(resource_name=group_id, resource_type=i8(ResourceType.GROUP))


def _answer(code: ErrorCode, resources: Iterable[ConfigResource]) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(code),
        config_resources=tuple(resources),
    )
