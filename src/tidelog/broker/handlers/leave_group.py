"""LeaveGroup (13): members leave a classic group at once, rather than by silence."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.coordinated import Begun, Outcome
from tidelog.core.groups.requests import LeavingMember, MemberLeft
from tidelog.wire.api import RequestHeader
from tidelog.wire.leave_group import (
    LeaveGroupRequest,
    LeftMember,
    decode_leave_group,
    encode_leave_group_response,
)


@dataclass(frozen=True, slots=True)
class LeaveGroupApi:
    """Each member has an answer of its own."""

    groups: GroupCoordinator

    def decode(self, view: memoryview, position: int, version: int) -> LeaveGroupRequest:
        return decode_leave_group(view, position, version)

    def begin(self, request: LeaveGroupRequest, header: RequestHeader) -> Begun:
        def finish(outcomes: Sequence[Outcome]) -> bytes:
            code, members = _answered(request, outcomes[0])
            return encode_leave_group_response(
                header.api_version, header.correlation_id, code, members, throttle_ms=0
            )

        return Begun([self._ask(request)], finish)

    def _ask(self, request: LeaveGroupRequest) -> "asyncio.Future[object]":
        group_id = request.group_id
        if not group_id:
            return self.groups.refuse(ErrorCode.INVALID_GROUP_ID)
        leaving = tuple(
            LeavingMember(member.member_id, member.group_instance_id) for member in request.members
        )
        return self.groups.ask(
            group_id,
            lambda shard, token, now_ms: shard.on_leave(group_id, leaving, token, now_ms),
        )


def _answered(request: LeaveGroupRequest, told: Outcome) -> tuple[ErrorCode, list[LeftMember]]:
    if not isinstance(told, RequestRefused):
        left = cast(Sequence[MemberLeft], told)
        return ErrorCode.NONE, [LeftMember(*member) for member in left]
    if told.code is ErrorCode.UNKNOWN_MEMBER_ID:
        # There is no such group: each member is told so, as by Kafka.
        return ErrorCode.NONE, [
            LeftMember(member.member_id, member.group_instance_id, told.code)
            for member in request.members
        ]
    return told.code, []
