"""D6: where the records with an id are, as the leader of their partition knows."""

import asyncio

import pytest

from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.test_deduplication import batch, send, topic
from tests.unit.broker.test_roles import replicated_world
from tests.unit.broker.world import World, broker_world
from tidelog.base.errors import DiskFull, ErrorCode
from tidelog.broker.handlers.find_records import RecordFinder
from tidelog.wire.find_records import FindRecordsRequest, FoundInPartition


async def find(world: World, record_id: str, *partitions: int) -> list[FoundInPartition]:
    request = FindRecordsRequest("t", [*(partitions or (0,))], record_id.encode())
    return (await RecordFinder(world.partitions).find(request)).partitions


def offsets(found: list[FoundInPartition]) -> list[int]:
    return [offset for one in found for offset, _ in one.places]


@in_virtual_time
async def test_id_is_found_with_all_its_copies() -> None:
    async with broker_world() as world:
        await topic(world, internal_segment_bytes="150", tidelog_dedup_ids_max="1")
        for one in ("a", "b", "a", "c"):
            await send(world, batch(one))
        assert offsets(await find(world, "a")) == [0, 2]
        assert offsets(await find(world, "c")) == [3]
        assert offsets(await find(world, "z")) == []


@in_virtual_time
async def test_each_partition_has_its_own_answer() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a"))
        codes = [one.error_code for one in await find(world, "a", 0, 9)]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@in_virtual_time
async def test_topic_without_ids_is_not_searched() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        (answer,) = await find(world, "a")
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@in_virtual_time
async def test_what_is_not_committed_is_not_found() -> None:
    async with broker_world() as world:
        await replicated_world(world, tidelog_dedup_header="guid")
        await send(world, batch("a"))
        assert offsets(await find(world, "a")) == []


@in_virtual_time
async def test_what_else_the_disk_has_to_do_waits_for_a_slice_of_the_log_only() -> None:
    async with broker_world() as world:
        await topic(world, internal_segment_bytes="150")
        for number in range(6):
            await send(world, batch(f"id-{number}"))
        executor = world.partitions.led("t", 0).log_directory.executor
        finding = asyncio.ensure_future(find(world, "id-5"))
        await asyncio.sleep(0)
        await executor.background(lambda: None)
        assert not finding.done()
        assert offsets(await finding) == [5]


@in_virtual_time
@pytest.mark.parametrize("operation", ["append", "open"])
async def test_full_disk_without_room_for_ids_serves_on(operation: str) -> None:
    async with broker_world() as world:
        world.disk.arm(operation, "*.ids.*", DiskFull)
        await topic(world, internal_segment_bytes="150")
        for number in range(6):
            await send(world, batch(f"id-{number}"))
        assert offsets(await find(world, "id-2")) == [2]
        await world.settle()
        runner = world.partitions.led("t", 0)
        assert not runner.is_offline
        assert not [name for name in world.disk.list_folder(runner.log.folder) if ".ids" in name]
