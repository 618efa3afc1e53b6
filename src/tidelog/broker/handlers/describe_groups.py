"""DescribeGroups (15): members of classic groups, and what each has been assigned."""

import asyncio
from dataclasses import dataclass
from typing import Final, cast

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.types import GroupId
from kio.static.primitive import i32

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.coordinated import Outcome, outcome
from tidelog.core.groups.classic_membership import ClassicState
from tidelog.core.groups.requests import ClassicDescription
from tidelog.wire.metadata import NO_OPERATIONS

_FIRST_THAT_KNOWS_MISSING_GROUPS: Final = 6
# Without an authorizer everybody may do everything. Kafka numbers its operations; each is a bit.
ALL_GROUP_OPERATIONS: Final = sum(1 << code for code in (3, 6, 8, 10, 11))


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsHandler:
    """Each group has an answer of its own, and one however often it is named."""

    groups: GroupCoordinator

    async def handle(self, request: DescribeGroupsRequest, context: RequestContext) -> object:
        async def wait() -> DescribeGroupsResponse:
            asked = {group_id: self._ask(group_id) for group_id in dict.fromkeys(request.groups)}
            if asked:
                await asyncio.wait(asked.values())  # Ended by shards, each in its time.
            operations = NO_OPERATIONS
            if request.include_authorized_operations:
                operations = ALL_GROUP_OPERATIONS
            return DescribeGroupsResponse(
                throttle_time=NO_THROTTLE,
                groups=tuple(
                    _described(group_id, outcome(future), context.api_version, operations)
                    for group_id, future in asked.items()
                ),
            )

        return Postponed(wait)

    def _ask(self, group_id: str) -> "asyncio.Future[object]":
        return self.groups.ask(
            group_id,
            lambda shard, token, now_ms: shard.on_describe(group_id, token, now_ms),
            may_write=False,
        )


def _described(group_id: str, told: Outcome, version: int, operations: int) -> DescribedGroup:
    if isinstance(told, RequestRefused):
        return _refused(group_id, told.code, None, state="", operations=NO_OPERATIONS)
    if told is None:
        is_known = version >= _FIRST_THAT_KNOWS_MISSING_GROUPS
        return _refused(
            group_id,
            ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.NONE,
            f"Group {group_id} not found." if is_known else None,
            state=ClassicState.DEAD.value,
            operations=NO_OPERATIONS if is_known else operations,
        )
    group = cast(ClassicDescription, told)
    return DescribedGroup(
        error_code=message_error(ErrorCode.NONE),
        error_message=None,
        group_id=GroupId(group_id),
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=i32(operations),
    )


def _refused(
    group_id: str, code: ErrorCode, message: str | None, *, state: str, operations: int
) -> DescribedGroup:
    return DescribedGroup(
        error_code=message_error(code),
        error_message=message,
        group_id=GroupId(group_id),
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=i32(operations),
    )
