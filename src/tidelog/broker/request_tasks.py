"""What a request leaves to be done after its callback: the other half of the top of a connection.

Whatever goes wrong with it ends the connection of the client that asked, and nothing else. Only a
failed assertion ends the broker (`broker/dispatch.py` does the same for what a callback does).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType

from tidelog.base.errors import RequestRefused, WireError
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Connection

logger = logging.getLogger(__name__)


class AtTheCostOf:
    """`with AtTheCostOf(connection, api_key)`: what fails within ends `connection`.

    For callbacks that finish a request: a thread is done, a timer has run out, there is news.
    """

    __slots__ = ("_api_key", "_connection")

    def __init__(self, connection: Connection, api_key: int) -> None:
        self._connection = connection
        self._api_key = api_key

    def __enter__(self) -> None:
        """Nothing has gone wrong yet."""

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, AssertionError):
            return False
        if isinstance(error, RequestRefused | WireError):
            self._connection.refuse(f"api key {self._api_key}: {error}")
        else:
            logger.error("request failed", extra={"api_key": self._api_key}, exc_info=error)
            self._connection.refuse(f"internal error while handling api key {self._api_key}")
        return True


class RequestTasks:
    """Starts tasks of requests, in the broker's task group."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    def start(
        self, connection: Connection, api_key: int, work: Coroutine[None, None, None]
    ) -> None:
        """Do `work`, which answers a request of `connection`."""
        task = self._tasks.create_task(_at_the_cost_of(connection, api_key, work))
        # It never begins if the broker fails in this very turn, and nobody else has it.
        task.add_done_callback(lambda _: work.close())

    def answer(
        self,
        connection: Connection,
        api_key: int,
        work: Callable[[PendingAnswer], Coroutine[None, None, None]],
    ) -> PendingAnswer:
        """What `work` will complete. Until then the connection handles nothing else."""
        pending = PendingAnswer(connection, exclusive=True)
        self.start(connection, api_key, work(pending))
        return pending


async def _at_the_cost_of(
    connection: Connection, api_key: int, work: Coroutine[None, None, None]
) -> None:
    with AtTheCostOf(connection, api_key):
        await work
