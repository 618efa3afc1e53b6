"""Who goes on when a broker has stopped: nobody should, and its process would not end."""

import asyncio
from typing import Any


async def left_tasks(within_s: float) -> "set[asyncio.Task[Any]]":
    """The other tasks of this process that are not over after `within_s`, or as soon as all are.

    Also those that another one has begun meanwhile, with the last that it did.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + within_s
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        rest_s = ends_s - loop.time()
        if rest_s <= 0:
            break
        await asyncio.wait(left, timeout=rest_s)
    return left
