"""Lets the controller know that log directories of this broker failed or work again (S9).

    LogDirRunner ──note──▶ a node in the coordinator's tree ──▶ controller: "how are your replicas?"
                                                                    │
    Replicas ◀── LeaderAndIsr, again ───────────────────────────────┘
        └─▶ KAFKA_STORAGE_ERROR for those that cannot do as they are told

The node says no more than whom to ask. Until it is written it is tried again; a broker that has
lost its session is asked anyway when it has a new one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tidelog.base.errors import RequestRefused

logger = logging.getLogger(__name__)

RETRY_BACKOFF_S = 0.5


class LogDirEvents:
    """Every method is called on the event loop; `run` tells."""

    def __init__(self, tell: Callable[[], Awaitable[None]]) -> None:
        """`tell` writes the node. Raises RequestRefused if that did not work."""
        self._tell = tell
        self._wake = asyncio.Event()

    def note(self) -> None:
        """A directory failed, or works again."""
        self._wake.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await self._wake.wait()  # Ended by a directory.
            self._wake.clear()
            try:
                await self._tell()
            except RequestRefused as refusal:
                logger.info(
                    "controller is not told of log directories yet",
                    extra={"reason": refusal.message or refusal.code.name},
                )
                self._wake.set()
                await asyncio.sleep(RETRY_BACKOFF_S)
