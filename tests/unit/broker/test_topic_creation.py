"""Topics on first use (P4): each created once, and open when the answer leaves."""

import asyncio
from typing import Any

from tests.support.batches import plain_batch
from tests.unit.broker.controlled_world import ControlledWorld, controlled_world
from tests.unit.broker.served import Client
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey

VERSION = 9


def ask_for(client: Client, *names: str, may_create: bool = True) -> None:
    client.send(
        ApiKey.METADATA,
        VERSION,
        {
            "topics": [{"name": name} for name in names],
            "allow_auto_topic_creation": may_create,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
    )


def told(client: Client) -> dict[str, int]:
    """Topics and their codes."""
    (answer,) = client.take()
    topics: Any = answer.topics
    return {topic.name: int(topic.error_code) for topic in topics}


@in_virtual_time
async def test_a_topic_can_be_written_to_when_metadata_says_it_is_there() -> None:
    async with controlled_world() as controlled:
        client = controlled.served.client()
        ask_for(client, "t")
        await controlled.settle()
        assert told(client) == {"t": 0}
        client.produce(plain_batch(1))
        (answer,) = client.take()
        assert answer.responses[0].partition_responses[0].base_offset == 0


@in_virtual_time
async def test_metadata_waits_until_the_partitions_are_open() -> None:
    async with controlled_world() as controlled:
        client = controlled.served.client()
        controlled.world.executor.hold(URGENT)
        ask_for(client, "t")
        await controlled.settle()
        assert client.take() == []
        controlled.world.executor.release(URGENT)
        await controlled.settle()
        assert told(client) == {"t": 0}


@in_virtual_time
async def test_many_clients_that_ask_at_once_create_one_topic() -> None:
    async with controlled_world() as controlled:
        clients = [controlled.served.client() for _ in range(5)]
        for client in clients:
            ask_for(client, "t", "u")
        await controlled.settle()
        assert [told(client) for client in clients] == [{"t": 0, "u": 0}] * 5
        assert set(controlled.controller.image.topics) == {"t", "u"}


@in_virtual_time
async def test_a_client_may_hang_up_while_others_wait_for_the_same_topic() -> None:
    async with controlled_world() as controlled:
        first, second = controlled.served.client(), controlled.served.client()
        controlled.world.executor.hold(URGENT)
        ask_for(first, "t")
        ask_for(second, "t")
        await controlled.settle()
        first.disconnect()
        controlled.world.executor.release(URGENT)
        await controlled.settle()
        assert told(second) == {"t": 0}


@in_virtual_time
async def test_a_waiter_that_is_cancelled_takes_nobody_with_it() -> None:
    async with controlled_world() as controlled:
        controlled.world.executor.hold(URGENT)
        creating = asyncio.create_task(controlled.creation.create_missing(["t"]))
        await controlled.settle()
        waiting = asyncio.create_task(controlled.creation.create_missing(["t"]))
        await controlled.settle()
        waiting.cancel()
        await asyncio.wait([waiting])
        controlled.world.executor.release(URGENT)
        assert await creating == {}


@in_virtual_time
async def test_a_name_that_is_not_legal_is_refused_beside_one_that_is() -> None:
    async with controlled_world() as controlled:
        client = controlled.served.client()
        ask_for(client, "not legal", "t")
        await controlled.settle()
        assert told(client) == {"not legal": ErrorCode.INVALID_TOPIC_EXCEPTION, "t": 0}


@in_virtual_time
async def test_nothing_is_created_for_a_client_that_does_not_want_it() -> None:
    async with controlled_world() as controlled:
        client = controlled.served.client()
        ask_for(client, "t", may_create=False)
        assert told(client) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not controlled.controller.image.topics


@in_virtual_time
async def test_a_coordinator_that_does_not_answer_is_told_and_the_next_try_succeeds() -> None:
    async with controlled_world() as controlled:
        client = controlled.served.client()
        controlled.tree.refusing = 1
        ask_for(client, "t")
        await settle_long(controlled)
        (code,) = told(client).values()
        assert code != 0
        ask_for(client, "t")
        await settle_long(controlled)
        assert told(client) == {"t": 0}


async def settle_long(controlled: ControlledWorld) -> None:
    """Until the controller has tried again."""
    await controlled.settle()
    await asyncio.sleep(5)
    await controlled.settle()
