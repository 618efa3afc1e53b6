"""A follower's fetch that is compiled, on real files: what the page cache has, and how much of it.

The other tests have their disk in memory, where a read is Python's. Here both twins append to real
files, which the shortcut writes and reads by system calls of its own.
"""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.broker.compiled import only_compiled
from tests.unit.broker.led_twins import Follower, Twins, led_twins
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.test_fetch_shortcut import Scene
from tidelog.base.errors import ErrorCode
from tidelog.broker.heavy_turns import HEAVY_BYTES
from tidelog.storage.disk import RealDisk, RealLogFile

pytestmark = only_compiled


class OnFiles(Scene):
    """The scene, with what was stored so far and all that follows in a file."""

    def move_to(self, folder: Path) -> None:
        for number, served in enumerate(self.both.served):
            segment = served.world.runner("t").log.segments[-1]
            assert segment.file is not None
            file = RealDisk().open(folder / f"{number}.log")
            file.append(segment.file.read(0, segment.file.size_bytes))
            segment.file = file

    @property
    def files(self) -> list[RealLogFile]:
        files = [served.world.runner("t").log.segments[-1].file for served in self.both.served]
        assert all(isinstance(file, RealLogFile) for file in files)
        return [file for file in files if isinstance(file, RealLogFile)]

    def stored(self, size_bytes: int) -> bytes:
        """The last bytes of the log."""
        with closing(RealDisk().open_existing(self.files[0].path)) as file:
            return file.read(file.size_bytes - size_bytes, size_bytes)


async def on_files(both: Twins, folder: Path) -> OnFiles:
    scene = OnFiles(both)
    await scene.begin()
    scene.move_to(folder)
    both.compare()
    return scene


def records_of(follower: Follower) -> bytes:
    ((_, _, (result,)),) = follower.answer.topics
    assert result.error_code == ErrorCode.NONE
    return bytes(result.records)


async def fall_behind(scene: OnFiles, *value_bytes: int) -> list[int]:
    """The followers are told of one batch and do not ask on; the sizes of those that follow."""
    scene.produce(acks=1)
    batches = [scene.batch(value_bytes=each) for each in value_bytes]
    scene.producer.produce(*batches, acks=1)
    await scene.both.settle()
    return [len(each) for each in batches]


@pytest.mark.parametrize("value_bytes", [8, 60_000, 65_461, 65_462, 70_000, 120_000, 200_000])
@in_virtual_time
async def test_who_waits_gets_what_was_written(tmp_path: Path, value_bytes: int) -> None:
    """Remembered or read; in one piece, or in parts if it is more than 64 KiB."""
    async with led_twins() as both:
        scene = await on_files(both, tmp_path)
        for _ in range(3):
            sent = scene.batch(value_bytes=value_bytes)
            scene.producer.produce(sent, acks=1)
            await both.settle()
            for follower in scene.followers:
                assert records_of(follower) == scene.stored(len(sent))
                follower.ask()
        assert both.taken.started == both.taken.answered == 0
        # Who got much looks again when it is its turn, and finds nothing.
        assert both.taken.taken_over == 0 or value_bytes >= HEAVY_BYTES


@pytest.mark.parametrize("value_bytes", [(8, 8), (8, 70_000), (70_000, 8, 8), (70_000, 70_000)])
@in_virtual_time
async def test_who_is_behind_gets_all_of_it(tmp_path: Path, value_bytes: tuple[int, ...]) -> None:
    async with led_twins() as both:
        scene = await on_files(both, tmp_path)
        before = both.taken.answered
        sizes = await fall_behind(scene, *value_bytes)
        for follower in scene.followers:
            follower.ask()
            assert records_of(follower) == scene.stored(sum(sizes))
        await both.settle()
        assert both.taken.answered == before + 2
        assert (both.taken.started, both.taken.taken_over) == (0, 0)


@pytest.mark.parametrize("more_bytes", [-1, 0, 1, 26, 27, 28, 60, 61, 62, 75])
@pytest.mark.parametrize("value_bytes", [8, 70_000])
@in_virtual_time
async def test_who_has_no_room_for_all_gets_whole_batches(
    tmp_path: Path, value_bytes: int, more_bytes: int
) -> None:
    """Two of three, or what there is room for, up to the last byte. And then the rest."""
    async with led_twins() as both:
        scene = await on_files(both, tmp_path)
        before = both.taken.answered
        sizes = await fall_behind(scene, value_bytes, value_bytes, value_bytes)
        stored = scene.stored(sum(sizes))
        follower = scene.followers[0]
        room_bytes = 2 * sizes[0] + more_bytes
        follower.form = replace(follower.form, partition_max_bytes=room_bytes)
        follower.stand(both.runner().log.log_end_offset - 3)
        follower.ask()
        await both.settle()
        fits_bytes = sizes[0] * (room_bytes // sizes[0])
        assert records_of(follower) == stored[:fits_bytes]
        follower.ask()
        await both.settle()
        assert records_of(follower) == stored[fits_bytes : 2 * fits_bytes]
        assert both.taken.answered == before + 2
        assert both.taken.started == 0
        await both.settle()


@pytest.mark.parametrize("room_bytes", [0, 1, 60, 200])
@in_virtual_time
async def test_a_first_batch_that_is_too_large_is_sent_all_the_same(
    tmp_path: Path, room_bytes: int
) -> None:
    async with led_twins() as both:
        scene = await on_files(both, tmp_path)
        before = both.taken.answered
        sizes = await fall_behind(scene, 70_000, 70_000)
        follower = scene.followers[0]
        follower.form = replace(follower.form, partition_max_bytes=room_bytes)
        follower.stand(both.runner().log.log_end_offset - 2)
        follower.ask()
        assert records_of(follower) == scene.stored(sum(sizes))[: sizes[0]]
        assert both.taken.answered == before + 1
        assert both.taken.started == 0
        await both.settle()


@in_virtual_time
async def test_a_file_that_is_shorter_than_it_should_be_is_for_python(tmp_path: Path) -> None:
    async with led_twins() as both:
        scene = await on_files(both, tmp_path)
        await fall_behind(scene, 8, 8)
        for file in scene.files:
            os.truncate(file.path, file.size_bytes - 1)
        for follower in scene.followers:
            follower.ask()
        await both.settle()
        ((_, _, (result,)),) = scene.followers[0].answer.topics
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_a_system_without_reads_that_do_not_wait_leaves_them_to_python(
    tmp_path: Path,
) -> None:
    async with led_twins() as both:
        scene = await on_files(both, tmp_path)
        sizes = await fall_behind(scene, 8, 8)
        for file in scene.files:
            file._nowait = 0
        for follower in scene.followers:
            follower.ask()
            assert records_of(follower) == scene.stored(sum(sizes))
        assert both.taken.started == 2
        await both.settle()
