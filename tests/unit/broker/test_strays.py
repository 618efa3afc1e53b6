"""Folders that are nobody's are set aside when that is certain (S1-S4 of `broker/strays.py`)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import BROKER, World, broker_world, process_killed
from tidelog.base.ids import TopicId

BOTH = (URGENT, BACKGROUND)
LEFT_BEHIND = ["t-0"]


def folders(world: World) -> list[str]:
    """Of the deleted topic, whatever became of them; the endings without what is unique."""
    names = world.disk.list_folder(world.log_dir.path)
    return [name if "." not in name else name[-6:] for name in names if name.startswith("t-")]


async def follow_image(world: World) -> None:
    """It is a member by now, and follows what the controller says."""
    world.create("new")
    await world.replicas.settled()


@asynccontextmanager
async def left_behind(*, was_ours: bool = True) -> AsyncIterator[tuple[World, TopicId]]:
    """A broker that has come back; while it was away its topic, of that id, was deleted."""
    async with broker_world(is_vouched_for=was_ours) as world:
        for name in ("t", "kept"):
            world.create(name)
        await world.settle()
        world.produce("t", plain_batch(3))
        topic_id = world.runner("t").topic_id
        world.executor.hold(*BOTH)
        world.delete("t")
        process_killed(world)
        async with broker_world(before=world, is_vouched_for=was_ours) as restarted:
            yield restarted, topic_id
        world.executor.release(*BOTH)


@in_virtual_time
async def test_it_is_set_aside_when_the_controller_has_given_all_roles() -> None:
    async with left_behind() as (world, _):
        await follow_image(world)
        assert folders(world) == LEFT_BEHIND
        world.replicas.on_all_told(())
        await world.replicas.settled()
        assert folders(world) == ["-stray"]
        assert world.runner("kept").leader is not None
        assert world.runner("new").leader is not None


@in_virtual_time
async def test_it_is_left_alone_if_there_is_a_role_for_it() -> None:
    """The image is older than what the controller says."""
    async with left_behind() as (world, topic_id):
        await follow_image(world)
        world.replicas.on_all_told([(topic_id, 0)])
        await world.replicas.settled()
        assert folders(world) == LEFT_BEHIND


@in_virtual_time
async def test_it_is_left_alone_if_the_controller_is_not_to_be_believed_any_more() -> None:
    async with left_behind() as (world, _):
        await follow_image(world)
        world.executor.hold(*BOTH)
        world.replicas.on_all_told(())
        await world.settle()
        world.replicas.drop_roles()
        world.executor.release(*BOTH)
        await world.replicas.settled()
        assert folders(world) == LEFT_BEHIND


@in_virtual_time
async def test_a_folder_without_the_id_of_a_topic_is_left_alone_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with left_behind() as (world, _):
        await follow_image(world)
        world.memory_disk.remove(world.log_dir.path / "t-0" / "partition.metadata")
        world.replicas.on_all_told(())
        await world.replicas.settled()
        assert folders(world) == LEFT_BEHIND
        assert "left alone" in caplog.text


@in_virtual_time
async def test_a_topic_that_nobody_knows_is_left_alone_where_none_of_us_was_before() -> None:
    async with left_behind(was_ours=False) as (world, _):
        await follow_image(world)
        world.replicas.on_all_told(())
        await world.replicas.settled()
        assert folders(world) == LEFT_BEHIND


@in_virtual_time
async def test_a_folder_that_is_in_use_by_then_is_left_alone() -> None:
    """A topic of that name is created while the folders are looked at."""
    async with left_behind() as (world, _):
        await follow_image(world)
        world.executor.hold(BACKGROUND)
        world.replicas.on_all_told(())
        await world.settle()
        world.create("t")
        await world.settle()
        world.executor.release(BACKGROUND)
        await world.replicas.settled()
        assert sorted(folders(world)) == ["-stray", "t-0"]
        assert world.runner("t").topic_id == world.image.topics["t"].topic_id
        assert BROKER in world.image.topics["t"].partitions[0].replicas
        assert world.log_dir.is_online
