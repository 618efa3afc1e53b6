"""Who comes to a coordinator that is just taking office is kept, not sent away (T1, P3, D3)."""

import asyncio

import pytest

from tests.unit.broker.numbers_shard import (
    Coordinated,
    Numbers,
    coordinated_world,
    elected_again,
    overtaken,
    refusal,
    stored,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import BROKER, OTHER, broker_world, replicated
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.coordinators import LOADS_MAX, TAKING_OFFICE_MAX_S
from tidelog.broker.shard_runner import ShardRunner
from tidelog.core.coordinators import Effects, Token


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
async def test_who_was_kept_for_one_epoch_is_not_answered_in_a_later_one() -> None:
    """D3: others have led meanwhile, and may have answered the same client."""
    async with coordinated_world() as one:
        one.world.replicas.drop_roles()
        asked = one.send("a", 1)
        await one.world.settle()
        assert not asked.done()
        elected_again(one, 3)
        await one.world.settle()
        assert refusal(asked) is ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_what_goes_wrong_in_deciding_is_told_to_who_has_waited_for_the_shard() -> None:
    """It would end the broker if it were raised where the shard opens."""

    def fail(_shard: Numbers, _token: Token, _now_ms: int) -> Effects:
        raise ValueError

    async with coordinated_world() as one:
        one.set("a", 1)
        one.world.executor.hold(URGENT)
        elected_again(one, 1)
        await one.world.settle()
        asked = one.coordinators.ask("a", fail, may_write=True)
        one.world.executor.release(URGENT)
        await one.world.settle()
        assert isinstance(asked.exception(), ValueError)
        assert one.runner._waiting == {}


@in_virtual_time
async def test_who_asks_a_broker_that_does_not_lead_is_told_so_at_once() -> None:
    async with coordinated_world(alone=False) as one:
        overtaken(one)
        await one.world.settle()
        with pytest.raises(RequestRefused) as refused:
            one.send("a", 1)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_few_of_many_shards_are_loaded_at_a_time_and_all_in_the_end() -> None:
    """Each has a table in memory while it is; a broker may take over fifty at once."""
    count = LOADS_MAX + 3
    async with broker_world() as world:
        one = Coordinated(world, 2**20)
        world.create("t", partitions=count)
        await world.settle()
        for number, runner in enumerate(one.coordinators):
            _set(runner, number)
        world.executor.hold(URGENT)
        for partition in range(count):
            world.change("t", replicated(BROKER, 1, isr=(BROKER,)), partition)
        await world.settle()
        assert world.executor.waiting(URGENT) == LOADS_MAX
        world.executor.release(URGENT)
        while not all(runner.is_active for runner in one.coordinators):
            await world.settle()
        assert [runner._active_shard.known for runner in one.coordinators] == [
            {"a": number} for number in range(count)
        ]


@in_virtual_time
async def test_a_shard_that_loses_its_lead_while_it_waits_to_be_loaded_holds_nobody_up() -> None:
    async with broker_world() as world:
        one = Coordinated(world, 2**20)
        world.create("t", partitions=LOADS_MAX + 2)
        await world.settle()
        for runner in one.coordinators:
            _set(runner, 1)
        world.executor.hold(URGENT)
        for partition in range(LOADS_MAX + 2):
            world.change("t", replicated(BROKER, 1, isr=(BROKER,)), partition)
        await world.settle()
        world.change("t", replicated(OTHER, 2), LOADS_MAX)
        await world.settle()
        world.executor.release(URGENT)
        while not all(runner.is_active for runner in one.coordinators):
            await world.settle()
        assert len(list(one.coordinators)) == LOADS_MAX + 1


@in_virtual_time
async def test_disk_that_hangs_does_not_keep_the_shards_of_another_from_loading() -> None:
    async with broker_world(dir_count=2) as world:
        one = Coordinated(world, 2**20)
        world.create("t", partitions=2 * LOADS_MAX)
        await world.settle()
        for runner in one.coordinators:
            _set(runner, 1)
        world.executors[0].hold(URGENT)
        for partition in range(2 * LOADS_MAX):
            world.change("t", replicated(BROKER, 1, isr=(BROKER,)), partition)
        await world.settle()
        assert world.executors[0].waiting(URGENT) == LOADS_MAX
        assert sorted(runner.is_active for runner in one.coordinators) == (
            [False] * LOADS_MAX + [True] * LOADS_MAX
        )
        world.executors[0].release(URGENT)
        await world.settle()


def _set(runner: ShardRunner[Numbers], number: int) -> None:
    runner.ask(lambda shard, token, now: shard.on_set("a", number, token, now))
