"""ListGroups (16): the groups that this broker looks after; a client asks every broker."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.types import GroupId

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.coordinated import outcome
from tidelog.core.groups.group import GroupListing


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsHandler:
    """As long as one shard is loading, a list would lack its groups, so there is none."""

    groups: GroupCoordinator

    async def handle(self, request: ListGroupsRequest, _context: RequestContext) -> object:
        async def wait() -> ListGroupsResponse:
            states, types = request.states_filter, request.types_filter
            asked = self.groups.ask_all(
                lambda shard, token, now_ms: shard.on_list(states, types, token, now_ms)
            )
            if asked:
                await asyncio.wait(asked)  # Ended by shards, each in its time.
            listings: list[GroupListing] = []
            for future in asked:
                told = outcome(future)
                if not isinstance(told, RequestRefused):
                    listings += cast(Sequence[GroupListing], told)
                elif told.code is not ErrorCode.NOT_COORDINATOR:
                    return _response(told.code, [])
            return _response(ErrorCode.NONE, listings)

        return Postponed(wait)


def _response(code: ErrorCode, listings: Sequence[GroupListing]) -> ListGroupsResponse:
    return ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(code),
        groups=tuple(
            ListedGroup(
                group_id=GroupId(listing.group_id),
                protocol_type=listing.protocol_type,
                group_state=listing.state,
                group_type=listing.group_type.value,
            )
            for listing in listings
        ),
    )
