"""The controller is told of log directories until it has been (S9)."""

import asyncio

from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.log_dir_events import RETRY_BACKOFF_S, LogDirEvents


class Told:
    """Refuses as often as it is said to."""

    def __init__(self) -> None:
        self.refusals_left = 0
        self.count = 0

    async def tell(self) -> None:
        if self.refusals_left:
            self.refusals_left -= 1
            raise RequestRefused(ErrorCode.NOT_CONTROLLER)
        self.count += 1


@in_virtual_time
async def test_events_are_told_once_however_many_come_together() -> None:
    told = Told()
    events = LogDirEvents(told.tell)
    task = asyncio.create_task(events.run())
    events.note()
    events.note()
    await asyncio.sleep(1)
    assert told.count == 1
    events.note()
    await asyncio.sleep(1)
    assert told.count == 2
    task.cancel()


@in_virtual_time
async def test_what_could_not_be_told_is_told_later() -> None:
    told = Told()
    told.refusals_left = 3
    events = LogDirEvents(told.tell)
    task = asyncio.create_task(events.run())
    events.note()
    await asyncio.sleep(2.5 * RETRY_BACKOFF_S)
    assert told.count == 0
    await asyncio.sleep(RETRY_BACKOFF_S)
    assert told.count == 1
    task.cancel()
