"""ListOffsets: ends of the log at once, searches by a thread, one partition's failure its own."""

from typing import Any

import pytest

from tests.support.batches import NOW_MS, plain_batch
from tests.unit.broker.served import (
    LIST_OFFSETS_VERSION,
    Client,
    ServedWorld,
    list_offsets_values,
    served_world,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.wire.api import ApiKey

T0 = ("t", 0)
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def with_records(served: ServedWorld, config: dict[str, str] | None = None) -> None:
    """Offsets 0 to 4, a second apart from NOW_MS on."""
    served.world.create("t", config=config)
    await served.world.settle()
    for number in range(5):
        served.world.produce("t", plain_batch(1, timestamp_ms=NOW_MS + 1_000 * number))
    await served.world.settle()


def ask(client: Client, timestamp_ms: int) -> None:
    client.send(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, list_offsets_values(T0, timestamp_ms))


def answer(client: Client) -> tuple[int, int]:
    """Code and offset."""
    (response,) = client.take()
    partition: Any = response.topics[0].partitions[0]
    return int(partition.error_code), partition.offset


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [
        (LATEST, 5),
        (EARLIEST, 0),
        (MAX_TIMESTAMP, 4),
        (0, 0),
        (NOW_MS, 0),
        (NOW_MS + 1, 1),
        (NOW_MS + 4_000, 4),
        (NOW_MS + 4_001, -1),
        (2**63 - 1, -1),
    ],
)
@in_virtual_time
async def test_an_offset_is_found(timestamp_ms: int, offset: int) -> None:
    async with served_world() as served:
        await with_records(served)
        client = served.client()
        ask(client, timestamp_ms)
        await served.world.settle()
        assert answer(client) == (0, offset)


@in_virtual_time
async def test_a_record_that_may_not_be_read_yet_is_not_found() -> None:
    async with served_world() as served:
        await with_records(served, {"flush.messages": "1"})
        served.world.executor.hold(BACKGROUND)
        served.world.produce("t", plain_batch(1, timestamp_ms=NOW_MS + 9_000))
        client = served.client()
        ask(client, NOW_MS + 5_000)
        await served.world.settle()
        assert answer(client) == (0, -1)
        ask(client, LATEST)
        assert answer(client) == (0, 5)


@in_virtual_time
async def test_a_topic_deleted_during_a_search_costs_nobody_else() -> None:
    async with served_world() as served:
        await with_records(served)
        client = served.client()
        served.world.executor.hold(URGENT)
        ask(client, NOW_MS)
        await served.world.settle()
        served.world.delete("t")
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert client.waiting == 1
        client.take()
        assert client.waiting == 0
        assert served.world.log_dir.is_online


@in_virtual_time
async def test_a_disk_that_fails_during_a_search_is_told() -> None:
    async with served_world() as served:
        await with_records(served)
        client = served.client()
        served.world.disk.arm("read", "*", StorageError)
        ask(client, NOW_MS + 1)
        await served.world.settle()
        assert answer(client) == (int(ErrorCode.KAFKA_STORAGE_ERROR), -1)
        assert not served.world.log_dir.is_online


@in_virtual_time
async def test_a_search_among_damaged_records_is_refused() -> None:
    async with served_world() as served:
        await with_records(served)
        served.world.overwrite("t")
        client = served.client()
        ask(client, NOW_MS + 1)
        await served.world.settle()
        assert answer(client) == (int(ErrorCode.CORRUPT_MESSAGE), -1)
        assert served.world.log_dir.is_online


@in_virtual_time
async def test_a_client_may_hang_up_during_a_search() -> None:
    async with served_world() as served:
        await with_records(served)
        client = served.client()
        served.world.executor.hold(URGENT)
        ask(client, NOW_MS)
        await served.world.settle()
        client.disconnect()
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert client.take() == []


@in_virtual_time
async def test_nothing_is_searched_for_a_client_that_has_hung_up() -> None:
    """Rolls and cold reads of everybody else would wait behind a hundred thousand searches."""
    async with served_world() as served:
        served.world.create("t", partitions=2)
        await served.world.settle()
        client = served.client()
        served.world.executor.hold(URGENT)
        searches = [
            {"partition_index": partition, "current_leader_epoch": -1, "timestamp": NOW_MS}
            for partition in range(2)
        ]
        client.send(
            ApiKey.LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": "t", "partitions": searches}],
            },
        )
        await served.world.settle()
        client.disconnect()
        served.world.executor.step(URGENT)
        await served.world.settle()
        assert served.world.executor.waiting(URGENT) == 0


@in_virtual_time
async def test_something_unforeseen_in_a_search_costs_its_connection_only() -> None:
    async with served_world() as served:
        await with_records(served)
        client, other = served.client(), served.client()
        served.world.executor.urgent = None  # type: ignore[assignment,method-assign]
        ask(client, NOW_MS)
        await served.world.settle()
        assert client.transport.is_closed
        ask(other, LATEST)
        assert answer(other) == (0, 5)
