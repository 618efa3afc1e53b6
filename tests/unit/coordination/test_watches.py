"""News of a watched node waits for its watcher (K4)."""

import asyncio

import pytest

from tidelog.base.errors import SessionLost
from tidelog.coordination.watches import WatchSlot


def test_only_the_newest_state_is_kept() -> None:
    async def scenario() -> None:
        slot: WatchSlot[int | None] = WatchSlot()
        states = slot.states()
        slot.offer(1)
        slot.offer(2)
        assert await anext(states) == 2
        slot.offer(None)
        assert await anext(states) is None

    asyncio.run(scenario())


def test_the_loss_of_the_session_comes_before_any_news() -> None:
    async def scenario() -> None:
        slot: WatchSlot[int] = WatchSlot()
        slot.offer(1)
        slot.lose()
        with pytest.raises(SessionLost):
            await anext(slot.states())

    asyncio.run(scenario())


def test_a_watcher_that_waits_is_woken() -> None:
    async def scenario() -> None:
        slot: WatchSlot[int] = WatchSlot()
        waiting = asyncio.ensure_future(anext(slot.states()))
        await asyncio.sleep(0)
        assert not waiting.done()
        slot.offer(7)
        assert await waiting == 7

    asyncio.run(scenario())
