"""A mark that a crash has left says where a replica is, and harms nobody else (KIP-113)."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.moving import SMALL, T, begin_slowly, fill, fill_here, folders, settle
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND
from tests.unit.broker.world import (
    broker_world,
    process_killed,
)
from tidelog.base.errors import StorageError
from tidelog.storage import layout
from tidelog.storage.future_log import Moved, write_moved


@in_virtual_time
async def test_a_replica_that_was_moved_where_no_disk_is_now_is_not_made_anew() -> None:
    """F3 of `future_log.py`: an empty one in its place would be elected leader of nothing."""
    async with broker_world(dir_count=2) as world:
        await fill_here(world)
        name = layout.future_folder_name(T, uuid4())
        there = world.log_dirs[1].log_dir
        assert there is not None
        assert name is not None
        write_moved(world.disk, world.log_dirs[0].path / "t-0", Moved(there.directory_id, name))
        process_killed(world)
        world.memory_disk.rename(Path("/logs-1"), Path("/elsewhere"))
    async with broker_world(dir_count=2, before=world) as after:
        # The disk is another one: what it was to hold is nowhere, and what is left is set aside.
        assert after.stored("t") == []
        assert [one.endswith("-stray") for one in folders(after, 0) if one != "t-0"] == [True]


@pytest.mark.parametrize("has_failed_too", [False, True])
@in_virtual_time
async def test_a_move_that_comes_to_light_late_leaves_a_topic_of_that_name_alone(
    has_failed_too: bool,
) -> None:
    """I2: the log was marked, its disk failed, and meanwhile its topic was made anew."""
    async with broker_world(dir_count=2) as world:
        await begin_slowly(world)
        here, there = world.log_dirs
        (name,) = folders(world, 1)
        here.on_failure(StorageError("test"))
        world.executors[0].release(BACKGROUND)
        await settle(world)
        assert there.log_dir is not None
        write_moved(world.disk, here.path / "t-0", Moved(there.log_dir.directory_id, name))
        world.delete("t")
        world.create("t", config=SMALL)
        await settle(world)
        assert world.runner("t").log_directory is there
        fill(world, 2)
        await settle(world)
        names = world.disk.list_folder(there.path / "t-0")
        before = [name for name in names if name.endswith(layout.LOG)]
        assert before
        if has_failed_too:
            there.on_failure(StorageError("test"))
        await world.reopen(here)
        if has_failed_too:
            await world.reopen(there)
        await settle(world)
        after_names = world.disk.list_folder(there.path / "t-0")
        assert [name for name in after_names if name.endswith(layout.LOG)] == before
        assert folders(world, 1) == ["t-0"]
        assert "t-0" not in folders(world, 0)
        assert here.is_online
        assert there.is_online
        assert world.produce("t", plain_batch(1)).base_offset == 6
        await world.stop()
    async with broker_world(dir_count=2, before=world) as after:
        assert len(after.stored("t")) == 7
