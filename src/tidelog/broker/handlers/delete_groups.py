"""DeleteGroups (42): groups without members, gone with all their offsets."""

import asyncio
from dataclasses import dataclass

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.types import GroupId

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.coordinated import Outcome, outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsHandler:
    """Each group has an answer of its own, however often it is named."""

    groups: GroupCoordinator

    async def handle(self, request: DeleteGroupsRequest, _context: RequestContext) -> object:
        async def wait() -> DeleteGroupsResponse:
            asked = {
                group_id: self._ask(group_id) for group_id in dict.fromkeys(request.groups_names)
            }
            if asked:
                await asyncio.wait(asked.values())  # Ended by shards, each in its time.
            return DeleteGroupsResponse(
                throttle_time=NO_THROTTLE,
                results=tuple(
                    _result(group_id, outcome(future)) for group_id, future in asked.items()
                ),
            )

        return Postponed(wait)

    def _ask(self, group_id: str) -> "asyncio.Future[object]":
        return self.groups.ask(
            group_id, lambda shard, token, now_ms: shard.on_delete(group_id, token, now_ms)
        )


def _result(group_id: str, told: Outcome) -> DeletableGroupResult:
    code = told.code if isinstance(told, RequestRefused) else ErrorCode.NONE
    return DeletableGroupResult(group_id=GroupId(group_id), error_code=message_error(code))
