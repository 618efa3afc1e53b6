"""What requests leave to be done: at whose cost, and what becomes of it when a broker ends."""

import asyncio
from typing import cast

import pytest

from tidelog.broker.connection import Connection
from tidelog.broker.request_tasks import RequestTasks


@pytest.mark.filterwarnings("error")
def test_work_that_never_began_is_put_away_when_the_broker_fails() -> None:
    """Python complains about a coroutine that nobody has awaited."""
    began: list[bool] = []

    async def work() -> None:
        began.append(True)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            RequestTasks(tasks).start(cast(Connection, None), 1, work())
            raise ValueError("the broker fails in the same turn")

    with pytest.raises(ExceptionGroup):
        asyncio.run(main())
    assert not began
