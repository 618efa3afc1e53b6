"""A replica that moves between log directories, for tests that say themselves what happens when."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from tests.support.batches import plain_batch
from tests.unit.broker.played_leader import registered
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import (
    OTHER,
    Produced,
    World,
    replicated,
    topic_partition,
)
from tidelog.base.errors import ErrorCode, RequestRefused

BOTH = (URGENT, BACKGROUND)
SMALL = {"internal.segment.bytes": "400", "file.delete.delay.ms": "10"}
IN_SLICES = {
    "tidelog.log.dir.move.slice.bytes": "300",
    "tidelog.log.dir.move.rest.bytes": "200",
}
"""So that little is much."""
THERE = "/logs-1"
T = topic_partition("t")


def folders(world: World, number: int) -> list[str]:
    names = world.disk.list_folder(world.log_dirs[number].path)
    return [name for name in names if name.startswith("t-")]


def placed(world: World) -> list[list[str]]:
    """Of every directory, what is called like the replica."""
    return [folders(world, number) for number in range(len(world.log_dirs))]


def lies_in(world: World) -> int:
    """The number of the directory that the replica is served from."""
    here = world.runner("t").log_directory
    return next(number for number, one in enumerate(world.log_dirs) if one is here)


def contents(world: World) -> dict[str, bytes]:
    """Every segment of the log, by its file's name."""
    log = world.runner("t").log
    return {
        segment.log_path.name: world.disk.read_file(segment.log_path) for segment in log.segments
    }


async def create_here(world: World, config: Mapping[str, str] = MappingProxyType({})) -> None:
    """In the first directory."""
    world.create("t", config={**SMALL, **config})
    await world.settle()
    assert lies_in(world) == 0


def fill(world: World, count: int = 20) -> list[Produced]:
    return [world.produce("t", plain_batch(3)) for _ in range(count)]


async def fill_here(
    world: World, config: Mapping[str, str] = MappingProxyType({}), *, count: int = 20
) -> None:
    """In the first directory, and there is something in it."""
    await create_here(world, config)
    fill(world, count)
    await settle(world)


async def settle(world: World) -> None:
    for _ in range(40):
        await world.settle()
        await asyncio.sleep(0.02)


async def code_of_alter(world: World, path: str, one: str = "t", partition: int = 0) -> ErrorCode:
    try:
        await world.replicas.moves.alter(topic_partition(one, partition), path)
    except RequestRefused as refusal:
        return refusal.code
    return ErrorCode.NONE


def altering_in(world: World) -> "asyncio.Future[ErrorCode]":
    """The second directory is asked for, and nobody waits for the answer."""
    return asyncio.ensure_future(code_of_alter(world, THERE))


async def begin_slowly(world: World) -> None:
    """A move to the second directory has begun, and copies nothing yet."""
    await fill_here(world)
    world.executors[0].hold(BACKGROUND)
    assert await code_of_alter(world, THERE) is ErrorCode.NONE
    await world.settle()
    assert [name.endswith("-future") for name in folders(world, 1)] == [True]
    assert list(world.log_dirs[1].futures) == [T]


def hold(world: World) -> None:
    """No thread does anything by itself."""
    for executor in world.executors:
        executor.hold(*BOTH)


def release(world: World) -> None:
    for executor in world.executors:
        executor.release(*BOTH)


async def step_through(world: World, stop: int) -> int:
    """Do up to `stop` pieces of work, one at a time; how many there were."""
    done, idle = 0, 0
    while done < stop and idle < 100:
        await world.settle()
        await asyncio.sleep(0.005)
        waiting = [(e, lane) for e in world.executors for lane in BOTH if e.waiting(lane)]
        idle = 0 if waiting else idle + 1
        for executor, lane in waiting[:1]:
            executor.step(lane)
            done += 1
    return done


async def abandon(world: World) -> None:
    """Nothing that the broker has begun goes on."""
    under_way = [*world.replicas._under_way, *world.replicas.moves.stop()]
    for task in under_way:
        task.cancel()
    for executor in world.executors:
        for lane in BOTH:
            executor._lanes[lane].clear()
    await world.settle()


async def begin_to_follow(world: World) -> None:
    world.decide(registered(OTHER, 20))
    world.change("t", replicated(OTHER, 1))
    await world.settle()


async def stop_following(world: World) -> None:
    for task in world.replicas.stop_fetching():
        await asyncio.wait([task])
