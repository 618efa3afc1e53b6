"""A new cluster on old folders takes over the partitions in them, and nothing else."""

import pytest

from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import World, broker_world
from tidelog.base.errors import ConfigError
from tidelog.base.ids import TopicPartition
from tidelog.broker.adoption import open_found
from tidelog.config.topic import TopicConfig


async def adopted(world: World) -> set[TopicPartition]:
    opened = await open_found(
        world.log_dirs,
        TopicConfig.resolve({}, world.config.topic_defaults),
        producer_id_expiration_ms=1,
        now_ms=world.clock.now_ms(),
    )
    return {one.wanted.topic_partition for one in opened}


def put_log(world: World, name: str, dir_number: int = 0) -> None:
    folder = world.log_dirs[dir_number].path / name
    world.disk.make_folder(folder)
    world.disk.open(folder / "00000000000000000000.log").close()


@in_virtual_time
async def test_partitions_that_hold_a_log_are_adopted() -> None:
    async with broker_world() as world:
        put_log(world, "t-0")
        put_log(world, "t-1")
        put_log(world, "with-gap-17")
        assert await adopted(world) == {
            TopicPartition("t", 0),
            TopicPartition("t", 1),
            TopicPartition("with-gap", 17),
        }


@in_virtual_time
async def test_what_an_operator_left_there_is_no_partition() -> None:
    """A folder called backup-20260101 became a topic of twenty million partitions."""
    async with broker_world() as world:
        path = world.log_dir.path
        put_log(world, "t-0")
        put_log(world, "backup-20260101")
        put_log(world, "not a name-0")
        world.disk.make_folder(path / "empty-0")
        world.disk.open(path / "file-0").close()
        assert await adopted(world) == {TopicPartition("t", 0)}
        assert world.log_dir.is_online


@in_virtual_time
async def test_a_partition_that_lies_in_two_directories_is_left_to_the_operator() -> None:
    async with broker_world(dir_count=2) as world:
        put_log(world, "t-0", 0)
        put_log(world, "t-0", 1)
        with pytest.raises(ConfigError, match=r"/logs-0/t-0 and /logs-1/t-0 are the same"):
            await adopted(world)
