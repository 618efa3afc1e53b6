"""Takes clients' admin requests to the controller, so that they may ask any broker (KIP-590).

    client ──CreateTopics──▶ this broker ──Envelope──▶ controller
           ◀───────────────              ◀────────────

While nobody is controller, or who was asked is not any more, it is tried again for a while. After
that the request is handled here, where every part of it is refused with NOT_CONTROLLER; clients
know what to do then.

A request that alters loggers is handled by whoever it was sent to: the levels are its own. What
else is in it, its handler takes to the controller.
"""

import asyncio
import logging

from tidelog.broker.controller_link import ControllerLink, LocalController
from tidelog.broker.peers import PeerUnreachable
from tidelog.wire.api import ApiKey

logger = logging.getLogger(__name__)

PATIENCE_S = 10.0
RETRY_BACKOFF_S = 0.05

FORWARDED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""What only the controller may decide."""


class Forwarding:
    """Asks the controller on behalf of clients."""

    def __init__(self, link: ControllerLink, controller: LocalController) -> None:
        self._link = link
        self._controller = controller

    @property
    def is_needed(self) -> bool:
        """Whether somebody else is controller, or nobody."""
        return not self._controller.is_controller

    async def ask(self, frame: bytes, client_host: str) -> bytes | None:
        """The controller's answer to `frame`, both without lengths; None: answer it here."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while self.is_needed:
            try:
                return await self._link.forward(frame, client_host)
            except PeerUnreachable as error:
                logger.debug("controller does not answer", extra={"reason": error})
                if asyncio.get_running_loop().time() > deadline:
                    return None
                await asyncio.sleep(RETRY_BACKOFF_S)
        return None
