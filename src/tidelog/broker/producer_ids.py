"""Ids for producers, each given out once in the life of a cluster (D2).

They come in blocks of a thousand that the cluster's coordinator hands out once and never again,
whatever crashes. The next block is asked for when somebody wants an id and there is none; whoever
comes meanwhile waits for the same block.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import ProducerId
from tidelog.core.transactions.initializing import NoProducerId

logger = logging.getLogger(__name__)


class ProducerIds:
    """The ids that this broker may give out."""

    def __init__(self, allocate: Callable[[], Awaitable[range]], tasks: asyncio.TaskGroup) -> None:
        self._allocate = allocate
        self._tasks = tasks
        self._block = range(0)
        self._asking: asyncio.Future[None] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._block

    def take(self) -> ProducerId:
        """An id, if there is one. Raises NoProducerId, and sees that there will be."""
        if self.is_empty:
            if self._asking is None:
                self._tasks.create_task(self._fill())
            raise NoProducerId
        producer_id, self._block = ProducerId(self._block[0]), self._block[1:]
        return producer_id

    async def next(self) -> ProducerId:
        """An id, when there is one. Raises RequestRefused if there will not be."""
        await self.available()
        return self.take()

    async def available(self) -> None:
        """Return when there is an id, which may be taken before anything else happens."""
        while self.is_empty:
            if self._asking is not None:
                await asyncio.shield(self._asking)
            else:
                await self._ask()

    async def _fill(self) -> None:
        try:
            await self.available()
        except RequestRefused as refusal:
            logger.warning("no producer ids", extra={"reason": refusal})

    async def _ask(self) -> None:
        asking = self._asking = asyncio.get_running_loop().create_future()
        refusal = RequestRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            self._block = await self._allocate()
        except RequestRefused as refused:
            refusal = refused
            raise
        finally:
            self._asking = None
            if self.is_empty:
                asking.set_exception(refusal)
                asking.exception()  # There may be nobody else who waits.
            else:
                asking.set_result(None)
