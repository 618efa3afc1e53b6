"""Heartbeat (12): a member of a classic group is alive, and learns whether it has to rejoin."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.coordinated import Begun, Outcome
from tidelog.core.groups import requests
from tidelog.wire.api import RequestHeader
from tidelog.wire.heartbeat import HeartbeatRequest, decode_heartbeat, encode_heartbeat_response


@dataclass(frozen=True, slots=True)
class HeartbeatApi:
    """Needs no write, so it is answered while nothing can be written."""

    groups: GroupCoordinator

    def decode(self, view: memoryview, position: int, version: int) -> HeartbeatRequest:
        return decode_heartbeat(view, position, version)

    def begin(self, request: HeartbeatRequest, header: RequestHeader) -> Begun:
        def finish(outcomes: Sequence[Outcome]) -> bytes:
            (told,) = outcomes
            code = told.code if isinstance(told, RequestRefused) else cast(ErrorCode, told)
            return encode_heartbeat_response(
                header.api_version, header.correlation_id, code, throttle_ms=0
            )

        return Begun([self._ask(request)], finish)

    def _ask(self, request: HeartbeatRequest) -> "asyncio.Future[object]":
        if not request.group_id:
            return self.groups.refuse(ErrorCode.INVALID_GROUP_ID)
        heartbeat = requests.HeartbeatRequest(
            request.group_id, request.member_id, request.group_instance_id, request.generation
        )
        return self.groups.ask(
            request.group_id,
            lambda shard, token, now_ms: shard.on_heartbeat(heartbeat, token, now_ms),
            may_write=False,
        )
