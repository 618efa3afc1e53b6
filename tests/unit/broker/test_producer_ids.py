"""D2: ids of producers are given out once, from blocks that are asked for when need be."""

import asyncio

import pytest

from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.producer_ids import ProducerIds

BLOCK = 10


class Blocks:
    """Hands out blocks, after a while."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_refusing = False

    async def allocate(self) -> range:
        self.asked += 1
        first = self.asked * BLOCK
        await asyncio.sleep(1)
        if self.is_refusing:
            raise RequestRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return range(first, first + BLOCK)


@in_virtual_time
async def test_whoever_waits_gets_an_id_of_its_own() -> None:
    async with asyncio.TaskGroup() as tasks:
        blocks = Blocks()
        ids = ProducerIds(blocks.allocate, tasks)
        given = await asyncio.gather(*(ids.next() for _ in range(25)))
        assert sorted(given) == list(range(10, 35))
        assert blocks.asked == 3


@in_virtual_time
async def test_everybody_who_waits_hears_that_there_is_none() -> None:
    async with asyncio.TaskGroup() as tasks:
        blocks = Blocks()
        blocks.is_refusing = True
        ids = ProducerIds(blocks.allocate, tasks)
        outcomes = await asyncio.gather(*(ids.next() for _ in range(3)), return_exceptions=True)
        assert all(isinstance(outcome, RequestRefused) for outcome in outcomes)
        assert blocks.asked == 1
        blocks.is_refusing = False
        assert await ids.next() == 20


@in_virtual_time
async def test_who_cannot_wait_is_refused_and_finds_one_later() -> None:
    async with asyncio.TaskGroup() as tasks:
        blocks = Blocks()
        ids = ProducerIds(blocks.allocate, tasks)
        for _ in range(3):
            with pytest.raises(RequestRefused):
                ids.take()
            await asyncio.sleep(0)
        await asyncio.sleep(2)
        assert blocks.asked == 1
        assert ids.take() == 10


@in_virtual_time
async def test_who_cannot_wait_tries_again_after_a_refusal() -> None:
    async with asyncio.TaskGroup() as tasks:
        blocks = Blocks()
        blocks.is_refusing = True
        ids = ProducerIds(blocks.allocate, tasks)
        with pytest.raises(RequestRefused):
            ids.take()
        await asyncio.sleep(2)
        blocks.is_refusing = False
        with pytest.raises(RequestRefused):
            ids.take()
        await asyncio.sleep(2)
        assert ids.take() == 20
