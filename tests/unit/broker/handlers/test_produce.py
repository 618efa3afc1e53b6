"""Produce: each partition settled on its own, one answer, in order (R8)."""

import asyncio

import pytest

from tests.support.batches import idempotent_batch, plain_batch, with_header
from tests.unit.broker.served import (
    PRODUCE_VERSION,
    Client,
    ServedWorld,
    list_offsets_values,
    produce_values,
    served_world,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tidelog.base.errors import DiskFull, ErrorCode, StorageError
from tidelog.records.batch import TRANSACTIONAL_FLAG
from tidelog.wire.api import ApiKey

T0 = ("t", 0)
ONE_BATCH = {"internal.segment.bytes": "150"}
ALL = -1


async def with_topic(served: ServedWorld, config: dict[str, str], partitions: int = 1) -> None:
    served.world.create("t", partitions=partitions, config=config)
    await served.world.settle()


def results(client: Client) -> list[tuple[int, int]]:
    """Code and base offset of every partition of every answer."""
    return [
        (int(partition.error_code), partition.base_offset)
        for answer in client.take()
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


def to_partitions(client: Client, *partitions: int, acks: int = 1) -> bytes:
    values = dict(produce_values(plain_batch(1), T0, acks))
    values["topic_data"] = [
        {
            "name": "t",
            "partition_data": [
                {"index": number, "records": bytes(plain_batch(1))} for number in partitions
            ],
        }
    ]
    return client.frame(ApiKey.PRODUCE, PRODUCE_VERSION, values, is_answered=acks != 0)


@in_virtual_time
async def test_pipelined_produces_are_answered_in_order_around_rolls() -> None:
    async with served_world() as served:
        await with_topic(served, ONE_BATCH)
        client = served.client()
        for _ in range(6):
            client.produce(plain_batch(1))
        await served.world.settle()
        assert results(client) == [(0, offset) for offset in range(6)]


@in_virtual_time
async def test_an_answer_waits_for_all_its_partitions() -> None:
    async with served_world() as served:
        await with_topic(served, ONE_BATCH, partitions=2)
        served.world.produce("t", plain_batch(1), partition=1)
        client = served.client()
        served.world.executor.hold(URGENT)
        client.send_together([to_partitions(client, 0, 1, 7)])
        assert served.world.runner("t", 0).log.log_end_offset == 1
        assert client.take() == []
        served.world.executor.release(URGENT)
        await served.world.settle()
        unknown = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1)
        assert results(client) == [(0, 0), (0, 1), unknown]


@in_virtual_time
async def test_a_disk_that_fails_in_the_middle_of_a_request_is_told_for_every_partition() -> None:
    async with served_world() as served:
        await with_topic(served, ONE_BATCH, partitions=3)
        served.world.produce("t", plain_batch(1), partition=0)
        client = served.client()
        served.world.executor.hold(URGENT)
        served.world.disk.arm("append", "*.log", DiskFull)
        client.send_together([to_partitions(client, 0, 1, 2)])
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert results(client) == [(int(ErrorCode.KAFKA_STORAGE_ERROR), -1)] * 3


@in_virtual_time
async def test_a_client_that_hangs_up_leaves_its_records_in_the_queue() -> None:
    """They may be stored or not; nobody was told."""
    async with served_world() as served:
        await with_topic(served, ONE_BATCH)
        served.world.produce("t", plain_batch(1))
        client = served.client()
        served.world.executor.hold(URGENT)
        client.produce(plain_batch(1))
        client.disconnect()
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert served.world.request_memory.held_bytes == 0
        assert served.world.runner("t").log.log_end_offset == 2


@in_virtual_time
async def test_acks_all_is_timed_out_and_the_record_stays() -> None:
    async with served_world() as served:
        await with_topic(served, {"flush.messages": "1"})
        client = served.client()
        served.world.executor.hold(BACKGROUND)
        client.produce(plain_batch(1), acks=ALL)
        await asyncio.sleep(1.1)
        assert results(client) == [(int(ErrorCode.REQUEST_TIMED_OUT), -1)]
        served.world.executor.release(BACKGROUND)
        await served.world.settle()
        assert served.world.stored_offsets("t") == [0]
        assert results(client) == []


@pytest.mark.parametrize("acks", [2, -2, 32_767])
@in_virtual_time
async def test_other_acks_are_refused(acks: int) -> None:
    async with served_world() as served:
        await with_topic(served, {})
        client = served.client()
        client.produce(plain_batch(1), acks=acks)
        assert results(client) == [(int(ErrorCode.INVALID_REQUIRED_ACKS), -1)]
        assert served.world.runner("t").log.log_end_offset == 0


@in_virtual_time
async def test_acks_0_has_no_answer_and_leaves_no_gap() -> None:
    async with served_world() as served:
        await with_topic(served, ONE_BATCH)
        client = served.client()
        for acks in (0, 1, 0, 0, 1):
            client.send_together([to_partitions(client, 0, acks=acks)])
        await served.world.settle()
        assert results(client) == [(0, 1), (0, 4)]
        assert client.waiting == 0


@pytest.mark.parametrize("is_late", [False, True])
@in_virtual_time
async def test_acks_0_that_is_refused_closes_the_connection(is_late: bool) -> None:
    async with served_world() as served:
        await with_topic(served, ONE_BATCH)
        client = served.client()
        if is_late:
            served.world.produce("t", plain_batch(1))
            served.world.disk.arm("open", "*.timeindex", StorageError)
            client.send_together([to_partitions(client, 0, acks=0)])
        else:
            client.send_together([to_partitions(client, 3, acks=0)])
        await served.world.settle()
        assert client.transport.is_closed


@in_virtual_time
async def test_a_repeated_batch_on_another_connection_gets_the_first_answer() -> None:
    """D2: the first connection was lost before the answer left."""
    async with served_world() as served:
        await with_topic(served, ONE_BATCH)
        first, second = served.client(), served.client()
        served.world.produce("t", plain_batch(1))
        served.world.executor.hold(URGENT)
        first.produce(idempotent_batch(1))
        first.disconnect()
        second.produce(idempotent_batch(1))
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert results(second) == [(0, 1)]
        assert served.world.runner("t").log.log_end_offset == 2


@in_virtual_time
async def test_a_transactional_batch_is_refused() -> None:
    async with served_world() as served:
        await with_topic(served, {})
        client = served.client()
        client.produce(with_header(idempotent_batch(), attributes=TRANSACTIONAL_FLAG))
        assert results(client) == [(int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), -1)]


@in_virtual_time
async def test_requests_of_every_kind_behind_a_roll_are_answered_in_order() -> None:
    async with served_world() as served:
        await with_topic(served, ONE_BATCH)
        client = served.client()
        client.produce(plain_batch(1))
        client.produce(plain_batch(1))
        client.send(ApiKey.LIST_OFFSETS, 7, list_offsets_values(T0, -1))
        client.send(ApiKey.LIST_OFFSETS, 7, list_offsets_values(T0, 0))
        client.fetch({T0: 0}, max_wait_ms=0)
        client.produce(plain_batch(1))
        await served.world.settle()
        names = [type(answer).__name__ for answer in client.take()]
        assert names == [
            "ProduceResponse",
            "ProduceResponse",
            "ListOffsetsResponse",
            "ListOffsetsResponse",
            "FetchResponse",
            "ProduceResponse",
        ]


@in_virtual_time
async def test_a_topic_deleted_under_a_queued_produce_is_told() -> None:
    async with served_world() as served:
        await with_topic(served, ONE_BATCH)
        served.world.produce("t", plain_batch(1))
        client = served.client()
        served.world.executor.hold(URGENT)
        client.produce(plain_batch(1))
        served.world.delete("t")
        served.world.executor.release(URGENT)
        await served.world.settle()
        ((code, _offset),) = results(client)
        assert code != ErrorCode.NONE
        assert served.world.request_memory.held_bytes == 0
