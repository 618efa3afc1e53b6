"""IncrementalAlterConfigs (44): single settings of a resource; what is not named stays (KIP-339).

One resource's refusal is that resource's answer; it never fails its neighbours. The alterations of
one resource happen together or not at all.
"""

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

from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.large_requests import in_turns
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

    async def handle(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        outcomes = await self.controller.incremental_alter_configs(
            [_change(resource) async for resource in in_turns(request.resources)],
            validate_only=request.validate_only,
        )
        return IncrementalAlterConfigsResponse(
            throttle_time=NO_THROTTLE,
            responses=tuple([_response(outcome) async for outcome in in_turns(outcomes)]),
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
