"""Who comes to a coordinator that is just taking office is kept, not sent away (T1, P3, D3)."""

import asyncio

import pytest

from tests.unit.broker.numbers_shard import (
    Coordinated,
    coordinated_world,
    elected_again,
    overtaken,
    refusal,
    stored,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import OTHER, broker_world, replicated
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.coordinators import TAKING_OFFICE_MAX_S


@in_virtual_time
async def test_who_comes_before_the_partition_is_open_is_answered_when_it_is() -> None:
    """T1: a client that had the topic made does not have to look for its coordinator twice."""
    async with broker_world() as world:
        one = Coordinated(world, 2**20)
        world.executor.hold(URGENT, BACKGROUND)
        world.create("t")
        await world.settle()
        with pytest.raises(RequestRefused):
            one.coordinators.of("a")
        first, second = one.send("a", 1), one.send("a", 2)
        await world.settle()
        assert not first.done()
        world.executor.release(URGENT, BACKGROUND)
        await world.settle()
        assert (first.result(), second.result()) == (1, 2)
        assert stored(world) == [(b"a", b"1"), (b"a", b"2")]


@in_virtual_time
async def test_who_comes_while_a_log_is_read_is_answered_when_that_is_done() -> None:
    async with coordinated_world(alone=False) as one:
        one.world.executor.hold(URGENT)
        one.set("a", 1)
        elected_again(one, 1)
        await one.world.settle()
        asked, given_up = one.send("a", 2), one.send("a", 3)
        assert not asked.done()
        given_up.cancel()
        one.world.executor.release(URGENT)
        await one.world.settle()
        one.fetched(2)
        await one.world.settle()
        assert asked.result() == 2
        assert one.machine.known == {"a": 2}


@in_virtual_time
async def test_who_has_waited_long_enough_for_a_coordinator_is_told_that_it_loads() -> None:
    async with coordinated_world() as one:
        one.set("a", 1)
        one.world.executor.hold(URGENT)
        elected_again(one, 1)
        await one.world.settle()
        asked = one.send("a", 2)
        await asyncio.sleep(TAKING_OFFICE_MAX_S - 0.01)
        assert not asked.done()
        await asyncio.sleep(0.02)
        assert refusal(asked) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        one.world.executor.release(URGENT)
        await one.world.settle()


@pytest.mark.parametrize("loses", ["the lead", "the session"])
@in_virtual_time
async def test_who_waits_for_a_broker_that_will_not_lead_looks_for_another(loses: str) -> None:
    async with coordinated_world(alone=False) as one:
        one.set("a", 1)
        one.world.executor.hold(URGENT)
        elected_again(one, 1)
        await one.world.settle()
        asked = one.send("a", 2)
        if loses == "the lead":
            one.world.change("t", replicated(OTHER, 2))
        else:
            one.coordinators.end()
        await one.world.settle()
        assert refusal(asked) is ErrorCode.NOT_COORDINATOR
        one.world.executor.release(URGENT)
        await one.world.settle()


@in_virtual_time
async def test_who_asks_a_broker_that_does_not_lead_is_told_so_at_once() -> None:
    async with coordinated_world(alone=False) as one:
        overtaken(one)
        await one.world.settle()
        with pytest.raises(RequestRefused) as refused:
            one.send("a", 1)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
