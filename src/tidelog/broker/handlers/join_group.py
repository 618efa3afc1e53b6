"""JoinGroup (11): become, or stay, a member of a classic group; answered when all have joined.

Who has no id is given one here: what its client or its instance is called, and chance.
"""

import datetime
from dataclasses import dataclass
from typing import Final, cast

from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.static.primitive import i32

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.group_shards import GroupCoordinator, require_text
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.core.groups.requests import JoinAnswer, JoinProtocol, JoinRequest

_FIRST_WITH_KNOWN_MEMBER_IDS: Final = 4
_FIRST_WITHOUT_PROTOCOL: Final = 7
_FIRST_THAT_SKIPS_ASSIGNMENT: Final = 9
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupHandler:
    """Waits outside of its turn: the other members may be behind it."""

    groups: GroupCoordinator

    async def handle(self, request: JoinGroupRequest, context: RequestContext) -> object:
        async def wait() -> JoinGroupResponse:
            try:
                joining = self._joining(request, context)
                answer = await self.groups.ask(
                    joining.group_id,
                    lambda shard, token, now_ms: shard.on_join(joining, token, now_ms),
                )
            except RequestRefused as refused:
                answer = JoinAnswer(refused.code, request.member_id)
            return _response(cast(JoinAnswer, answer), context.api_version)

        return Postponed(wait)

    def _joining(self, request: JoinGroupRequest, context: RequestContext) -> JoinRequest:
        if not request.group_id:
            raise RequestRefused(ErrorCode.INVALID_GROUP_ID)
        instance_id = request.group_instance_id
        texts = (request.protocol_type, *(protocol.name for protocol in request.protocols))
        client_id = context.client_id or ""
        for text in (client_id, instance_id or "", *texts):
            require_text(text, ErrorCode.INVALID_REQUEST)
        session_ms = request.session_timeout // _MILLISECOND
        rebalance_ms = request.rebalance_timeout // _MILLISECOND
        prefix = client_id if instance_id is None else instance_id
        return JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            new_member_id=self.groups.new_member_id(prefix),
            group_instance_id=instance_id,
            client_id=client_id,
            client_host=f"/{context.peer_host}",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(JoinProtocol(one.name, one.metadata) for one in request.protocols),
            requires_known_member_id=context.api_version >= _FIRST_WITH_KNOWN_MEMBER_IDS,
            supports_skipping_assignment=context.api_version >= _FIRST_THAT_SKIPS_ASSIGNMENT,
        )


def _response(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and version < _FIRST_WITHOUT_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(answer.error_code),
        generation_id=i32(answer.generation),
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ),
    )
