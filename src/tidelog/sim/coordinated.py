"""Finds the coordinator of a group or of a transactional id, asks it, and finds it again.

As real clients do: any broker is asked who it is, and after an error that says so, or silence,
somebody is asked again after a short rest.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.static.primitive import i8

from tidelog.base.errors import ErrorCode, WireError
from tidelog.broker.peers import Address, PeerUnreachable
from tidelog.sim.client import SimulatedClient
from tidelog.wire import messages
from tidelog.wire.api import ApiKey

Decode = Callable[[memoryview, int], object]

GROUP = 0
TRANSACTION = 1
FIND_COORDINATOR_VERSION = 4

_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Unanswered(Exception):
    """Nobody knows whether the request was heard; or it was not, for want of somebody to ask."""


class CoordinatedClient:
    """One client's way to the coordinator of one key."""

    def __init__(self, client: SimulatedClient, key: str, key_type: int) -> None:
        self.client = client
        self._key = key
        self._key_type = key_type
        self._address: Address | None = None

    async def ask(
        self, api_key: ApiKey, version: int, request: object, decode: Decode | None = None
    ) -> Any:
        """The coordinator's answer, in the newest version's shape unless there is a `decode`.

        Raises Unanswered, after a rest.
        """
        address = await self.locate()
        try:
            return await ask(self.client, address, api_key, version, request, decode)
        except (PeerUnreachable, WireError) as error:
            await self.look_again()
            raise Unanswered(str(error)) from error

    async def locate(self) -> Address:
        """Whom `ask` asks next. Raises Unanswered, after a rest."""
        try:
            if self._address is None:
                self._address = await self._find()
        except (PeerUnreachable, WireError) as error:
            await self.look_again()
            raise Unanswered(str(error)) from error
        return self._address

    async def is_elsewhere(self, code: int) -> bool:
        """Whether `code` says that somebody else is to be asked, or later; then after a rest."""
        if code not in _ELSEWHERE:
            return False
        await self.look_again()
        return True

    async def look_again(self) -> None:
        self._address = None
        await asyncio.sleep(self.client.random.uniform(0.02, 0.2))

    async def _find(self) -> Address:
        request = FindCoordinatorRequest(key_type=i8(self._key_type), coordinator_keys=(self._key,))
        answer = await ask(
            self.client,
            self.client.any_broker(),
            ApiKey.FIND_COORDINATOR,
            FIND_COORDINATOR_VERSION,
            request,
        )
        (found,) = answer.coordinators
        if found.error_code:
            raise PeerUnreachable(f"coordinator of {self._key}: {found.error_code}")
        return Address(found.host, found.port)


async def ask(
    client: SimulatedClient,
    address: Address,
    api_key: ApiKey,
    version: int,
    request: object,
    decode: Decode | None = None,
) -> Any:
    """What the broker at `address` answers. Raises PeerUnreachable or WireError."""
    return await client.ask(
        address,
        api_key,
        version,
        lambda number, name: messages.encode_request(request, version, number, name),
        decode
        or (lambda view, position: messages.decode_response(api_key, version, view, position)),
    )
