"""DescribeConfigs (32): the settings of topics, groups, this broker, and all brokers.

    TOPIC    the topic's name      its own settings and what it inherits
    GROUP    the group's id        the same; there need not be such a group
    BROKER   this broker's id      static and dynamic settings; only a broker knows its own
    BROKER   the empty name        what was set at run time for all brokers
    BROKER_LOGGER  this broker's id   levels of its loggers

One resource's refusal is that resource's answer; it never fails its neighbours. Resources that
Kafka has and this broker does not (client metrics) are refused by name.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.describe_configs.v4.request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.static.primitive import i8

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.large_requests import in_turns
from tidelog.broker.loggers import BROKER_LOGGER, Loggers
from tidelog.broker.partitions import Partitions
from tidelog.config.broker import BrokerConfig
from tidelog.config.describe import (
    DescribedConfig,
    describe_broker,
    describe_cluster_wide,
    describe_group,
    describe_topic,
)
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.names import require_legal
from tidelog.core.controller.requests import ResourceType

NOT_SERVED: Final = {16: "CLIENT_METRICS"}

Described = tuple[DescribeConfigsResourceResult, ...]

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsHandler:
    """`broker_config` gives the settings of this broker as they are now."""

    partitions: Partitions
    broker_config: Callable[[], BrokerConfig]
    loggers: Loggers

    async def handle(
        self, request: DescribeConfigsRequest, context: RequestContext
    ) -> DescribeConfigsResponse:
        description = _Description(
            self.partitions.image, self.broker_config(), self.loggers, request
        )
        # What is asked for twice is answered once: an answer must not grow without bound.
        resources = dict.fromkeys(request.resources)
        results = [description.result(resource) async for resource in in_turns(resources)]
        return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


class _Description:
    """The settings of a cluster at one moment, described in the detail that a client wants."""

    def __init__(
        self,
        image: ClusterImage,
        config: BrokerConfig,
        loggers: Loggers,
        request: DescribeConfigsRequest,
    ) -> None:
        self._image = image
        self._loggers = loggers
        self._config = config
        self._request = request
        # Most topics have the same settings.
        self._topics: dict[object, Described] = {}

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        try:
            described = self._describe(resource)
        except RequestRefused as refusal:
            return _answer(resource, refusal.code, refusal.message, ())
        return _answer(resource, ErrorCode.NONE, None, described)

    def _describe(self, resource: DescribeConfigsResource) -> Described:
        # Kafka takes an empty list of names for all of them, as it does null.
        names = resource.configuration_keys or None
        match resource.resource_type:
            case ResourceType.TOPIC:
                return self._describe_topic(resource.resource_name, names)
            case ResourceType.BROKER:
                return self._in_detail(self._describe_broker(resource.resource_name, names))
            case ResourceType.GROUP:
                return self._in_detail(self._describe_group(resource.resource_name, names))
            case kind if kind == BROKER_LOGGER:
                return self._in_detail(self._loggers.describe(resource.resource_name, names))
            case other:
                name = NOT_SERVED.get(other, str(other))
                raise RequestRefused(
                    ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {name}"
                )

    def _describe_topic(self, name: str, names: tuple[str, ...] | None) -> Described:
        require_legal(name)
        if name not in self._image.topics:
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        overrides = self._image.topic_config(name)
        key = frozenset(overrides.items()), names
        described = self._topics.get(key)
        if described is None:
            described = self._in_detail(describe_topic(overrides, self._config, names))
            self._topics[key] = described
        return described

    def _describe_group(
        self, group_id: str, names: tuple[str, ...] | None
    ) -> Sequence[DescribedConfig]:
        if not group_id:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(self._image.group_config(group_id), self._config, names)

    def _describe_broker(
        self, name: str, names: tuple[str, ...] | None
    ) -> Sequence[DescribedConfig]:
        if not name:
            return describe_cluster_wide(self._config, names)
        if _INTEGER.fullmatch(name) is None:
            raise RequestRefused(
                ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
            )
        if int(name) != self._config.broker_id:
            raise RequestRefused(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._config.broker_id} or empty string, "
                f"but received {name}",
            )
        return describe_broker(self._config, names)

    def _in_detail(self, configs: Iterable[DescribedConfig]) -> Described:
        return tuple(_config(config, self._request) for config in configs)


def _answer(
    resource: DescribeConfigsResource,
    code: ErrorCode,
    message: str | None,
    configs: Described,
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=message_error(code),
        error_message=message or "",  # As Kafka: null is allowed, but clients have never met it.
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _config(
    config: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=i8(config.source),
        is_sensitive=config.is_sensitive,
        synonyms=_synonyms(config) if request.include_synonyms else (),
        config_type=i8(config.type),
        documentation=config.documentation if request.include_documentation else None,
    )


def _synonyms(config: DescribedConfig) -> tuple[DescribeConfigsSynonym, ...]:
    return tuple(
        DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=i8(synonym.source))
        for synonym in config.synonyms
    )
