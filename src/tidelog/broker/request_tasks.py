"""What a request leaves to be done after its callback: the other half of the top of a connection.

Whatever goes wrong with it ends the connection of the client that asked, and nothing else. Only a
failed assertion ends the broker (`broker/dispatch.py` does the same for what a callback does).
"""

import asyncio
import logging
from collections.abc import Coroutine

from tidelog.base.errors import RequestRefused, WireError
from tidelog.broker.connection import Connection

logger = logging.getLogger(__name__)


class RequestTasks:
    """Starts tasks of requests, in the broker's task group."""

    __slots__ = ("_tasks",)

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    def start(
        self, connection: Connection, api_key: int, work: Coroutine[None, None, None]
    ) -> None:
        """Do `work`, which answers a request of `connection`."""
        self._tasks.create_task(_at_the_cost_of(connection, api_key, work))


async def _at_the_cost_of(
    connection: Connection, api_key: int, work: Coroutine[None, None, None]
) -> None:
    try:
        await work
    except AssertionError:
        raise
    except (RequestRefused, WireError) as error:
        connection.refuse(f"api key {api_key}: {error}")
    except Exception:
        logger.exception("request failed", extra={"api_key": api_key})
        connection.refuse(f"internal error while handling api key {api_key}")
