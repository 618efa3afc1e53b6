"""IncrementalAlterConfigs (44): single settings of a resource; what is not named stays (KIP-339).

One resource's refusal is that resource's answer; it never fails its neighbours. The alterations of
one resource happen together or not at all.

The controller decides, but for the levels of this broker's own loggers. A request that has both is
split: the rest goes to the controller as a request of its own. Resources are answered in the order
in which they were named.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

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
from tidelog.broker.forwarding import Forwarding
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.large_requests import in_turns
from tidelog.broker.loggers import BROKER_LOGGER, Loggers
from tidelog.core.controller.requests import (
    ConfigAlteration,
    ConfigOutcome,
    ConfigResource,
    IncrementalChange,
)
from tidelog.wire import messages
from tidelog.wire.api import ApiKey, decode_response_header

_VERSION: Final = 1
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsHandler:
    """Sets, deletes, appends to and subtracts from what was set at run time."""

    controller: AdminRequests
    loggers: Loggers
    forwarding: Forwarding | None

    async def handle(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> IncrementalAlterConfigsResponse:
        changes = [_change(resource) async for resource in in_turns(request.resources)]
        outcomes = self._alter_loggers(
            [one for one in changes if one[0].resource_type == BROKER_LOGGER],
            validate_only=request.validate_only,
        )
        answered = {outcome.resource: _response(outcome) for outcome in outcomes}
        others = [one for one in changes if one[0].resource_type != BROKER_LOGGER]
        if others or not changes:
            responses = await self._ask_controller(request, context) if answered else None
            if responses is None:
                responses = await self._decide(others, validate_only=request.validate_only)
            for response in responses:
                answered[ConfigResource(response.resource_type, response.resource_name)] = response
        in_order = dict.fromkeys(resource for resource, _steps in changes)
        return IncrementalAlterConfigsResponse(
            throttle_time=NO_THROTTLE,
            responses=tuple(
                answered.get(resource) or _response(_unanswered(resource)) for resource in in_order
            ),
        )

    async def _ask_controller(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> Sequence[AlterConfigsResourceResponse] | None:
        """The answer of the controller to what is not about loggers; None: decide here.

        A request without loggers does not get here before the controller was asked.
        """
        if self.forwarding is None or not self.forwarding.is_needed:
            return None
        resources = tuple(one for one in request.resources if one.resource_type != BROKER_LOGGER)
        encode = partial(_encode, replace(request, resources=resources))
        frame = await self.controller.aside.run(encode, count=len(resources))
        answer = await self.forwarding.ask(frame, context.peer_host)
        if answer is None:
            return None
        return await self.controller.aside.run(partial(_decode, answer), count=len(resources))

    async def _decide(
        self, changes: Sequence[IncrementalChange], *, validate_only: bool
    ) -> list[AlterConfigsResourceResponse]:
        outcomes = await self.controller.incremental_alter_configs(
            changes, validate_only=validate_only
        )
        return [_response(outcome) async for outcome in in_turns(outcomes)]

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


def _unanswered(resource: ConfigResource) -> ConfigOutcome:
    return ConfigOutcome(
        resource=resource,
        error=ErrorCode.UNKNOWN_SERVER_ERROR,
        message=f"the controller did not answer for '{resource.name}'",
    )


def _change(resource: AlterConfigsResource) -> IncrementalChange:
    return (
        ConfigResource(resource.resource_type, resource.resource_name),
        tuple(
            ConfigAlteration(config.name, config.config_operation, config.value)
            for config in resource.configs
        ),
    )


def _encode(request: IncrementalAlterConfigsRequest) -> bytes:
    """Without its length."""
    return messages.encode_request(request, _VERSION, 0, "broker")[_LENGTH_BYTES:]


def _decode(answer: bytes) -> Sequence[AlterConfigsResourceResponse]:
    view, key = memoryview(answer), ApiKey.INCREMENTAL_ALTER_CONFIGS
    _, position = decode_response_header(view, key, _VERSION)
    response = messages.decode_response(key, _VERSION, view, position)
    assert isinstance(response, IncrementalAlterConfigsResponse)
    return response.responses


def _response(outcome: ConfigOutcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=message_error(outcome.error),
        error_message=outcome.message,
        resource_type=i8(outcome.resource.resource_type),
        resource_name=outcome.resource.name,
    )
