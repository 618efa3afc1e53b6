"""D3: WriteTxnMarkers ends transactions, partition by partition, once that is committed."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.kio_codec import Values
from tests.unit.broker.served import Client, ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.transactions import aborted, follower_has, write
from tests.unit.broker.world import BROKER, OTHER, replicated
from tidelog.base.errors import ErrorCode
from tidelog.broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from tidelog.wire.api import ApiKey

TIMEOUT_MS = 30_000


def serve(served: ServedWorld) -> Client:
    handler = WriteTxnMarkersHandler(
        served.world.partitions, served.world.clock, asyncio.get_running_loop(), TIMEOUT_MS
    )
    served.serve({ApiKey.WRITE_TXN_MARKERS: handler})
    return served.client()


def marker(
    producer: int = 7,
    *,
    epoch: int = 0,
    commit: bool = False,
    coordinator_epoch: int = 0,
    topics: Sequence[tuple[str, tuple[int, ...]]] = (("t", (0,)),),
) -> Values:
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": 2,
    }


def ask(client: Client, *markers: Values, version: int = 2) -> None:
    told = [dict(one) for one in markers]
    if version < 2:
        for one in told:
            del one["transaction_version"]
    client.send(ApiKey.WRITE_TXN_MARKERS, version, {"markers": told})


def codes(answer: Any) -> list[tuple[int, str, int, int]]:
    return [
        (one.producer_id, topic.name, partition.partition_index, int(partition.error_code))
        for one in answer.markers
        for topic in one.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", [1, 2])
@in_virtual_time
async def test_each_marker_ends_a_transaction_in_each_of_its_partitions(version: int) -> None:
    async with served_world() as served:
        served.world.create("t", partitions=2)
        await served.world.settle()
        client = serve(served)
        write(served.world, partition=0)
        write(served.world, partition=1)
        write(served.world, partition=1, producer=8)
        ask(
            client,
            marker(7, epoch=1, topics=(("t", (0, 1)),)),
            marker(8, epoch=1, commit=True, topics=(("t", (1,)),)),
            version=version,
        )
        (answer,) = client.take()
        assert codes(answer) == [(7, "t", 0, 0), (7, "t", 1, 0), (8, "t", 1, 0)]
        assert aborted(served.world) == [(7, 0, 1, 2)]
        assert served.world.runner("t", 1).last_stable_offset == 4


@in_virtual_time
async def test_the_answer_waits_until_all_is_committed() -> None:
    async with served_world() as served:
        served.world.create("t", state=replicated(BROKER, 0))
        served.world.create("u")
        await served.world.settle()
        client = serve(served)
        ask(client, marker(topics=(("u", (0,)), ("t", (0,)))))
        assert client.take() == []
        follower_has(served.world, 1)
        (answer,) = client.take()
        assert codes(answer) == [(7, "u", 0, 0), (7, "t", 0, 0)]


@in_virtual_time
async def test_what_takes_too_long_is_to_be_asked_again() -> None:
    async with served_world() as served:
        served.world.create("t", state=replicated(BROKER, 0))
        await served.world.settle()
        client = serve(served)
        ask(client, marker())
        await asyncio.sleep(TIMEOUT_MS / 1000 + 1)
        (answer,) = client.take()
        assert codes(answer) == [(7, "t", 0, ErrorCode.REQUEST_TIMED_OUT)]
        ask(client, marker())
        follower_has(served.world, 2)
        (answer,) = client.take()
        assert codes(answer) == [(7, "t", 0, 0)]


@in_virtual_time
async def test_a_partition_that_is_not_led_here_is_refused_alone() -> None:
    async with served_world() as served:
        served.world.create("t")
        served.world.create("followed", state=replicated(OTHER, 0))
        await served.world.settle()
        client = serve(served)
        ask(client, marker(topics=(("absent", (0,)), ("followed", (0,)), ("t", (0, 1)))))
        (answer,) = client.take()
        assert codes(answer) == [
            (7, "absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (7, "followed", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (7, "t", 0, 0),
            (7, "t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


@in_virtual_time
async def test_a_coordinator_that_was_replaced_is_told_so() -> None:
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        client = serve(served)
        ask(client, marker(coordinator_epoch=5))
        ask(client, marker(coordinator_epoch=4))
        answers = [codes(answer) for answer in client.take()]
        assert answers == [
            [(7, "t", 0, 0)],
            [(7, "t", 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)],
        ]


@in_virtual_time
async def test_a_version_without_strictness_ends_a_transaction_of_the_same_epoch() -> None:
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        client = serve(served)
        write(served.world)
        ask(client, marker(epoch=0), version=2)
        ask(client, marker(epoch=0), version=1)
        answers = [codes(answer) for answer in client.take()]
        assert answers == [
            [(7, "t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)],
            [(7, "t", 0, 0)],
        ]


@in_virtual_time
async def test_whoever_asks_for_nothing_is_answered() -> None:
    async with served_world() as served:
        client = serve(served)
        ask(client)
        (answer,) = client.take()
        assert codes(answer) == []


@in_virtual_time
async def test_a_coordinator_that_is_gone_leaves_what_it_wrote() -> None:
    async with served_world() as served:
        served.world.create("t", state=replicated(BROKER, 0))
        await served.world.settle()
        client = serve(served)
        write(served.world)
        ask(client, marker(epoch=1))
        client.disconnect()
        follower_has(served.world, 2)
        assert served.world.runner("t").last_stable_offset == 2
