"""AlterConfigs (33): all settings of a resource at once; what the request does not name is reset.

One resource's refusal is that resource's answer; it never fails its neighbours.
"""

from dataclasses import dataclass

from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kio.static.primitive import i8

from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.large_requests import in_turns
from tidelog.core.controller.requests import ConfigOutcome, ConfigResource


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsHandler:
    """Replaces what was set at run time."""

    controller: AdminRequests

    async def handle(
        self, request: AlterConfigsRequest, context: RequestContext
    ) -> AlterConfigsResponse:
        outcomes = await self.controller.alter_configs(
            [
                (
                    ConfigResource(resource.resource_type, resource.resource_name),
                    tuple((config.name, config.value) for config in resource.configs),
                )
                async for resource in in_turns(request.resources)
            ],
            validate_only=request.validate_only,
        )
        return AlterConfigsResponse(
            throttle_time=NO_THROTTLE,
            responses=tuple([_response(outcome) async for outcome in in_turns(outcomes)]),
        )


def _response(outcome: ConfigOutcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=message_error(outcome.error),
        error_message=outcome.message,
        resource_type=i8(outcome.resource.resource_type),
        resource_name=outcome.resource.name,
    )
