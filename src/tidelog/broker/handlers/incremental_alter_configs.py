"""IncrementalAlterConfigs (44): single settings of a resource; what is not named stays (KIP-339).

One resource's refusal is that resource's answer; it never fails its neighbours. The alterations of
one resource happen together or not at all.

The controller decides, but for the levels of this broker's own loggers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kio.static.primitive import i8

from tidelog.base.errors import ErrorCode
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.large_requests import in_turns
from tidelog.broker.loggers import BROKER_LOGGER, Loggers
from tidelog.core.controller.requests import (
    ConfigAlteration,
    ConfigOutcome,
    ConfigResource,
    IncrementalChange,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsHandler:
    """Sets, deletes, appends to and subtracts from what was set at run time."""

    controller: AdminRequests
    loggers: Loggers

    async def handle(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        changes = [_change(resource) async for resource in in_turns(request.resources)]
        outcomes = self._alter_loggers(
            [one for one in changes if one[0].resource_type == BROKER_LOGGER],
            validate_only=request.validate_only,
        )
        for_controller = [one for one in changes if one[0].resource_type != BROKER_LOGGER]
        if for_controller or not changes:
            outcomes += await self.controller.incremental_alter_configs(
                for_controller, validate_only=request.validate_only
            )
        return IncrementalAlterConfigsResponse(
            throttle_time=NO_THROTTLE,
            responses=tuple([_response(outcome) async for outcome in in_turns(outcomes)]),
        )

    def _alter_loggers(
        self, changes: Sequence[IncrementalChange], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        times = Counter(resource for resource, _steps in changes)
        return [
            _named_twice(resource)
            if times[resource] > 1
            else self.loggers.alter(resource, steps, validate_only=validate_only)
            for resource, steps in dict(changes).items()
        ]


def _named_twice(resource: ConfigResource) -> ConfigOutcome:
    return ConfigOutcome(
        resource=resource,
        error=ErrorCode.INVALID_REQUEST,
        message=f"'{resource.name}' is in the request more than once",
    )


def _change(resource: AlterConfigsResource) -> IncrementalChange:
    return (
        ConfigResource(resource.resource_type, resource.resource_name),
        tuple(
            ConfigAlteration(config.name, config.config_operation, config.value)
            for config in resource.configs
        ),
    )


def _response(outcome: ConfigOutcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=message_error(outcome.error),
        error_message=outcome.message,
        resource_type=i8(outcome.resource.resource_type),
        resource_name=outcome.resource.name,
    )
