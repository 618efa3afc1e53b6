"""A broker tells what it counted, of each partition and of itself (O3, D5)."""

import asyncio

from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.test_deduplication import batch, send, topic
from tests.unit.broker.test_roles import become, replicated_world
from tests.unit.broker.world import BROKER, OTHER, World, broker_world, replicated
from tidelog.base.errors import StorageError
from tidelog.broker.large_requests import PARTS_PER_TURN
from tidelog.broker.metrics import look

DROPS = "tidelog_deduplication_dropped_records_total"
IDS = "tidelog_deduplication_remembered_ids"


async def told_of(world: World, *, is_controller: bool) -> dict[str, dict[tuple[str, ...], float]]:
    seen = await look(world.partitions, is_controller=is_controller)
    return {one.name: {each.labels: each.value for each in one.samples} for one in seen.families()}


@in_virtual_time
async def test_drops_are_counted_by_partition() -> None:
    async with broker_world() as world:
        await topic(world)
        world.create("other")
        await world.settle()
        await send(world, batch("a", "a", "a"))
        await send(world, batch("a", "b"))
        told = await told_of(world, is_controller=False)
        assert told[DROPS] == {("t", "0"): 3}
        assert told[IDS] == {("t", "0"): 2}
        assert told["tidelog_deduplication_index_bytes"][("t", "0")] > 0
        assert told["tidelog_deduplication_forgotten_ids_total"] == {("t", "0"): 0}


@in_virtual_time
async def test_ids_that_did_not_fit_are_told() -> None:
    async with broker_world() as world:
        await topic(world, tidelog_dedup_ids_max="2")
        for one in ("a", "b", "c"):
            await send(world, batch(one))
        told = await told_of(world, is_controller=False)
        assert told["tidelog_deduplication_forgotten_ids_total"] == {("t", "0"): 1}


@in_virtual_time
async def test_replicas_are_counted_under_the_names_of_kafka() -> None:
    prefix = "kafka_server_replicamanager_"
    async with broker_world() as world:
        await replicated_world(world)
        world.change("t", replicated(BROKER, 0, isr=(BROKER,), partition_epoch=1))
        await world.settle()
        told = await told_of(world, is_controller=True)
        assert told["kafka_controller_kafkacontroller_activecontrollercount"] == {(): 1}
        assert told[f"{prefix}partitioncount"] == {(): 1}
        assert told[f"{prefix}leadercount"] == {(): 1}
        assert told[f"{prefix}underreplicatedpartitions"] == {(): 1}
        await become(world, OTHER, 2)
        told = await told_of(world, is_controller=False)
        assert told["kafka_controller_kafkacontroller_activecontrollercount"] == {(): 0}
        assert told[f"{prefix}leadercount"] == {(): 0}
        assert told[f"{prefix}underreplicatedpartitions"] == {(): 0}


@in_virtual_time
async def test_replicas_whose_disk_was_never_there_are_counted_as_offline() -> None:
    """Whoever watches that number has to hear of a disk that was gone at the start."""
    prefix = "kafka_server_replicamanager_"
    async with broker_world() as world:
        world.create("before")
        await world.settle()
        world.log_dir.on_failure(StorageError("test"))
        world.create("t")
        await world.settle()
        assert world.partitions.find("t", 0) is None
        told = await told_of(world, is_controller=False)
        assert told[f"{prefix}offlinereplicacount"] == {(): 2}
        assert told[f"{prefix}partitioncount"] == {(): 2}


@in_virtual_time
async def test_nobody_waits_until_all_partitions_have_been_looked_at() -> None:
    async with broker_world() as world:
        for number in range(3 * PARTS_PER_TURN):
            world.create(f"t{number}")
        await world.settle()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        waiting = asyncio.create_task(others())
        await look(world.partitions, is_controller=False)
        waiting.cancel()
        assert turns >= 3
