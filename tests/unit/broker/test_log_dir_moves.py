"""Who is to lie in which log directory, and what becomes of it as disks come and go (KIP-113)."""

import asyncio
from dataclasses import replace

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.moving import (
    THERE,
    T,
    abandon,
    altering_in,
    begin_slowly,
    code_of_alter,
    create_here,
    fill_here,
    folders,
    hold,
    lies_in,
    placed,
    release,
    settle,
    step_through,
    stop_following,
)
from tests.unit.broker.played_leader import registered
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND
from tests.unit.broker.world import (
    BROKER,
    OTHER,
    broker_world,
    process_killed,
    replicated,
)
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.core.controller.changes import BrokerConfigChanged, TopicDeleted


@in_virtual_time
async def test_refusals_have_kafkas_codes() -> None:
    async with broker_world(dir_count=3) as world:
        await create_here(world)
        assert await code_of_alter(world, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code_of_alter(world, THERE, "unknown") is unknown
        assert await code_of_alter(world, THERE, "t", 9) is unknown
        assert await code_of_alter(world, THERE, "t" * 249) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await code_of_alter(world, "/logs-0") is ErrorCode.NONE
        world.log_dirs[2].on_failure(StorageError("test"))
        assert await code_of_alter(world, "/logs-2") is ErrorCode.KAFKA_STORAGE_ERROR
        assert await code_of_alter(world, THERE) is ErrorCode.KAFKA_STORAGE_ERROR
        await world.reopen(world.log_dirs[2])
        world.log_dirs[0].on_failure(StorageError("test"))
        assert await code_of_alter(world, THERE) is ErrorCode.KAFKA_STORAGE_ERROR
        assert folders(world, 1) == []


@in_virtual_time
async def test_a_replica_that_comes_later_is_put_where_it_was_asked_to_be() -> None:
    async with broker_world(dir_count=3) as world:
        world.decide(registered(OTHER, 20))
        world.create("t", state=replace(replicated(OTHER, 0), replicas=(OTHER,), isr=(OTHER,)))
        await world.settle()
        assert await code_of_alter(world, "/logs-2") is ErrorCode.REPLICA_NOT_AVAILABLE
        world.change("t", replicated(OTHER, 1))
        await world.settle()
        assert lies_in(world) == 2
        await stop_following(world)


@in_virtual_time
async def test_a_replica_is_put_where_it_was_asked_to_be_though_a_folder_was_in_the_way() -> None:
    """Of a topic that was deleted long ago: it is set aside first."""
    async with broker_world(dir_count=3) as world:
        world.decide(registered(OTHER, 20))
        world.create("t", state=replace(replicated(OTHER, 0), replicas=(OTHER,), isr=(OTHER,)))
        await world.settle()
        assert await code_of_alter(world, "/logs-2") is ErrorCode.REPLICA_NOT_AVAILABLE
        old = world.log_dirs[2].path / "t-0"
        world.disk.make_folder(old)
        world.disk.replace_file(
            old / "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n"
        )
        world.change("t", replicated(OTHER, 1))
        await world.settle()
        assert lies_in(world) == 2
        assert sorted(name.endswith("-stray") for name in folders(world, 2)) == [False, True]
        await stop_following(world)


@in_virtual_time
async def test_another_directory_that_is_asked_for_takes_the_place_of_the_first() -> None:
    async with broker_world(dir_count=3) as world:
        await begin_slowly(world)
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        assert len(folders(world, 1)) == 1
        assert await code_of_alter(world, "/logs-2") is ErrorCode.NONE
        world.executors[0].release(BACKGROUND)
        await settle(world)
        assert lies_in(world) == 2
        assert placed(world) == [[], [], ["t-0"]]


@in_virtual_time
async def test_of_two_that_ask_at_once_the_later_has_its_way_wherever_the_move_is() -> None:
    """The first to ask wakes up last: the move that it ends was the second's as well."""
    stops = 0
    while await _is_asked_twice_at(stops):
        stops += 1
    assert stops > 10


async def _is_asked_twice_at(stop: int) -> bool:
    """Whether a move was under way after `stop` pieces of work; then both are asked for."""
    async with broker_world(dir_count=3) as world:
        await fill_here(world, count=4)
        hold(world)
        first = altering_in(world)
        is_over = await step_through(world, stop) < stop
        earlier = asyncio.ensure_future(code_of_alter(world, "/logs-2"))
        await asyncio.sleep(0)
        later = altering_in(world)
        release(world)
        await settle(world)
        assert [await one for one in (first, earlier, later)] == [ErrorCode.NONE] * 3
        assert placed(world) == [[], ["t-0"], []]
        await world.stop()
    return not is_over


@in_virtual_time
async def test_a_restart_goes_on_with_the_move_that_was_asked_for_last() -> None:
    """A copy that is not wanted any more is gone when that is said."""
    async with broker_world(dir_count=3) as world:
        await begin_slowly(world)
        world.executors[1].hold(BACKGROUND)
        altering = asyncio.ensure_future(code_of_alter(world, "/logs-2"))
        await settle(world)
        assert not altering.done()
        world.executors[1].release(BACKGROUND)
        assert await altering is ErrorCode.NONE
        assert [len(names) for names in placed(world)] == [1, 0, 1]
        await abandon(world)
        process_killed(world)
        async with broker_world(dir_count=3, before=world) as after:
            await settle(after)
            assert placed(after) == [[], [], ["t-0"]]
        release(world)


@in_virtual_time
async def test_a_copy_that_could_not_be_removed_is_not_gone_on_with() -> None:
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        world.executors[1].hold(BACKGROUND)
        altering = asyncio.ensure_future(code_of_alter(world, "/logs-0"))
        await world.settle()
        world.log_dirs[1].on_failure(StorageError("test"))
        world.disk.arm("rename", "*-future", StorageError)
        release(world)
        assert await altering is ErrorCode.NONE
        await settle(world)
        world.disk.heal()
        await world.reopen(world.log_dirs[1])
        await settle(world)
        assert placed(world) == [["t-0"], []]


@in_virtual_time
async def test_asking_for_where_it_is_ends_a_move() -> None:
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        assert await code_of_alter(world, "/logs-0") is ErrorCode.NONE
        world.executors[0].release(BACKGROUND)
        await settle(world)
        assert placed(world) == [["t-0"], []]
        assert world.log_dirs[1].futures == {}
        assert world.produce("t", plain_batch(1)).base_offset == 60


@in_virtual_time
async def test_a_move_that_was_called_off_while_its_disk_was_gone_does_not_go_on() -> None:
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        world.log_dirs[1].on_failure(StorageError("test"))
        world.executors[0].release(BACKGROUND)
        await settle(world)
        assert await code_of_alter(world, "/logs-0") is ErrorCode.NONE
        await world.reopen(world.log_dirs[1])
        await settle(world)
        assert placed(world) == [["t-0"], []]
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await settle(world)
        assert placed(world) == [[], ["t-0"]]


@in_virtual_time
async def test_a_move_is_as_fast_as_it_may_be_by_the_setting_in_force() -> None:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    async with broker_world(dir_count=2, settings={name: "10"}) as world:
        await fill_here(world)
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await asyncio.sleep(60)
        await world.settle()
        future = world.log_dirs[1].futures[T]
        assert 0 < future.size_bytes <= 1000
        assert future.offset_lag > 30
        world.decide(BrokerConfigChanged(BROKER, {name: "1000000"}))
        await settle(world)
        assert lies_in(world) == 1


@pytest.mark.parametrize("number", [0, 1])
@in_virtual_time
async def test_a_move_goes_on_after_its_disk_was_gone_for_a_moment(number: int) -> None:
    """I3: it was held back by its rate all the while, and had not noticed."""
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    async with broker_world(dir_count=2, settings={name: "10"}) as world:
        await fill_here(world)
        assert await code_of_alter(world, THERE) is ErrorCode.NONE
        await settle(world)
        world.log_dirs[number].on_failure(StorageError("test"))
        await world.reopen(world.log_dirs[number])
        await settle(world)
        world.decide(BrokerConfigChanged(BROKER, {name: "1000000"}))
        await settle(world)
        await settle(world)
        assert lies_in(world) == 1
        assert placed(world) == [[], ["t-0"]]


@in_virtual_time
async def test_a_copy_of_a_replica_that_is_not_ours_any_more_is_set_aside() -> None:
    """S1 of `strays.py`: its topic was deleted while the broker was away."""
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        await abandon(world)
        process_killed(world)
        topic_id = world.image.topics["t"].topic_id
        world.image = world.image.apply_all([TopicDeleted("t", topic_id)])
        async with broker_world(dir_count=2, before=world) as after:
            after.create("new")
            await after.replicas.settled()
            assert [name.endswith("-future") for name in folders(after, 1)] == [True]
            after.replicas.on_all_told([(topic_id, 0)])
            await after.replicas.settled()
            assert [name.endswith("-future") for name in folders(after, 1)] == [True]
            after.replicas.on_all_told(())
            await after.replicas.settled()
            assert [name.endswith("-stray") for name in folders(after, 1)] == [True]
        world.executors[0].release(BACKGROUND)
