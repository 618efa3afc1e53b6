"""SyncGroup (14): the leader brings assignments, and every member gets its own."""

from dataclasses import dataclass
from typing import Final, cast

from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.core.groups.requests import SyncAnswer, SyncRequest

_FIRST_WITH_PROTOCOL: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupHandler:
    """Waits outside of its turn: the leader may be behind it."""

    groups: GroupCoordinator

    async def handle(self, request: SyncGroupRequest, context: RequestContext) -> object:
        async def wait() -> SyncGroupResponse:
            try:
                answer = await self._ask(request, context)
            except RequestRefused as refused:
                answer = SyncAnswer(refused.code)
            return _response(answer)

        return Postponed(wait)

    async def _ask(self, request: SyncGroupRequest, context: RequestContext) -> SyncAnswer:
        if not request.group_id:
            raise RequestRefused(ErrorCode.INVALID_GROUP_ID)
        names_protocol = request.protocol_type is not None and request.protocol_name is not None
        if context.api_version >= _FIRST_WITH_PROTOCOL and not names_protocol:
            raise RequestRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        syncing = SyncRequest(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            tuple((one.member_id, one.assignment) for one in request.assignments),
        )
        answer = await self.groups.ask(
            request.group_id, lambda shard, token, now_ms: shard.on_sync(syncing, token, now_ms)
        )
        return cast(SyncAnswer, answer)


def _response(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(answer.error_code),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
