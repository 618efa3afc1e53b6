"""R5, D3: what readers of committed records get, and when they hear of it."""

import asyncio

import pytest

from tests.support.batches import plain_batch
from tests.support.kio_codec import Values
from tests.unit.broker.served import Client, ServedWorld, list_offsets_values, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.transactions import end, follower_has, write
from tests.unit.broker.world import BROKER, replicated
from tidelog.base.ids import Offset
from tidelog.wire.api import ApiKey
from tidelog.wire.list_offsets import SpecialTimestamp

T0 = ("t", 0)
READ_COMMITTED = 1
LONG_MS = 60_000


async def with_topic(served: ServedWorld, *, is_replicated: bool = False) -> Client:
    served.world.create("t", state=replicated(BROKER, 0) if is_replicated else None)
    await served.world.settle()
    return served.client()


def wait_for(client: Client, offset: int, *, min_bytes: int = 1) -> None:
    client.fetch(
        {T0: offset}, max_wait_ms=LONG_MS, min_bytes=min_bytes, isolation_level=READ_COMMITTED
    )


@in_virtual_time
async def test_a_reader_who_waits_hears_of_a_commit() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        wait_for(client, 0)
        write(served.world, count=3)
        await served.world.settle()
        assert client.take() == []
        end(served.world, commit=True)
        await served.world.settle()
        answer = client.fetched()
        assert answer.offsets() == [0, 1, 2, 3]
        assert answer.partitions[T0].aborted == []


@in_virtual_time
async def test_a_reader_who_waits_for_many_bytes_hears_of_a_small_marker() -> None:
    """All of the transaction is readable at once, and not only the marker that said so."""
    async with served_world() as served:
        client = await with_topic(served)
        for sequence in range(0, 100, 20):
            write(served.world, sequence=sequence, count=20)
        wait_for(client, 0, min_bytes=1_000)
        await served.world.settle()
        assert client.take() == []
        end(served.world, commit=True)
        await served.world.settle()
        assert len(client.fetched().offsets()) == 101


@in_virtual_time
async def test_a_reader_hears_of_a_commit_when_that_is_committed() -> None:
    """M4 of `core/transactions/producers.py`"""
    async with served_world() as served:
        client = await with_topic(served, is_replicated=True)
        wait_for(client, 0)
        write(served.world)
        follower_has(served.world, 1)
        end(served.world, commit=True)
        await served.world.settle()
        assert client.take() == []
        follower_has(served.world, 2)
        await served.world.settle()
        assert client.fetched().offsets() == [0, 1]


@in_virtual_time
async def test_a_reader_who_waits_is_told_what_was_aborted() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        wait_for(client, 0)
        write(served.world)
        end(served.world)
        await served.world.settle()
        assert client.fetched().partitions[T0].aborted == [(7, 0)]


@in_virtual_time
async def test_one_open_transaction_holds_up_the_next() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        write(served.world, producer=7)
        write(served.world, producer=8)
        end(served.world, producer=8, commit=True)
        wait_for(client, 0)
        await served.world.settle()
        assert client.take() == []
        end(served.world, producer=7)
        await served.world.settle()
        answer = client.fetched()
        assert answer.offsets() == [0, 1, 2, 3]
        assert answer.partitions[T0].aborted == [(7, 0)]


@in_virtual_time
async def test_only_the_aborts_within_an_answer_are_told() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        for producer in range(3):
            write(served.world, producer=producer)
            end(served.world, producer=producer)
        wait_for(client, 4)
        await served.world.settle()
        assert client.fetched().partitions[T0].aborted == [(2, 4)]


@in_virtual_time
async def test_readers_of_everything_do_not_wait_for_markers() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        client.fetch({T0: 0}, max_wait_ms=LONG_MS)
        write(served.world)
        await served.world.settle()
        answer = client.fetched()
        assert answer.offsets() == [0]
        assert answer.partitions[T0].aborted is None
        assert answer.partitions[T0].last_stable_offset == 0


@in_virtual_time
async def test_an_open_transaction_does_not_keep_a_reader_from_its_time_out() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        wait_for(client, 0)
        write(served.world)
        await asyncio.sleep(LONG_MS / 1000 + 1)
        answer = client.fetched()
        assert answer.offsets() == []
        assert answer.partitions[T0].last_stable_offset == 0


# -- ListOffsets ---------------------------------------------------------------------------------


def latest(timestamp_ms: int, isolation_level: int) -> Values:
    return {**list_offsets_values(T0, timestamp_ms), "isolation_level": isolation_level}


def listed(client: Client) -> int:
    (answer,) = client.take()
    (partition,) = answer.topics[0].partitions
    assert int(partition.error_code) == 0
    offset: int = partition.offset
    return offset


@pytest.mark.parametrize(("isolation_level", "expected"), [(0, 3), (1, 1)])
@in_virtual_time
async def test_the_latest_offset_is_the_last_stable_one_to_readers_of_committed_records(
    isolation_level: int, expected: int
) -> None:
    async with served_world() as served:
        client = await with_topic(served)
        served.world.produce("t", plain_batch(1))
        write(served.world, count=2)
        client.send(ApiKey.LIST_OFFSETS, 7, latest(SpecialTimestamp.LATEST, isolation_level))
        assert listed(client) == expected


@in_virtual_time
async def test_a_search_by_time_finds_nothing_that_is_undecided() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        write(served.world)
        for isolation_level, expected in ((0, 0), (1, -1)):
            client.send(ApiKey.LIST_OFFSETS, 7, latest(1, isolation_level))
            await served.world.settle()
            assert listed(client) == expected


@in_virtual_time
async def test_a_transaction_from_before_an_election_does_not_hide_the_latest_offset() -> None:
    """What is committed is known; what is undecided is another question."""
    async with served_world() as served:
        client = await with_topic(served)
        write(served.world)
        served.world.elect("t")
        await served.world.settle()
        assert served.world.runner("t").leading.epoch_start_offset == Offset(1)
        client.send(ApiKey.LIST_OFFSETS, 7, latest(SpecialTimestamp.LATEST, READ_COMMITTED))
        assert listed(client) == 0
