"""InitProducerId: every producer an id of its own (D2), in blocks that are asked for once."""

import asyncio

from tests.support.kio_codec import milliseconds
from tests.unit.broker.controlled_world import controlled_world
from tests.unit.broker.served import Client
from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.wire.api import ApiKey

VERSION = 4


def ask(client: Client) -> None:
    client.send(
        ApiKey.INIT_PRODUCER_ID,
        VERSION,
        {
            "transactional_id": None,
            "transaction_timeout": milliseconds(1_000),
            "producer_id": -1,
            "producer_epoch": -1,
        },
    )


@in_virtual_time
async def test_nobody_gets_an_id_twice() -> None:
    async with controlled_world() as controlled:
        clients = [controlled.served.client() for _ in range(3)]
        for _ in range(700):
            for client in clients:
                ask(client)
        answers = []
        for _ in range(20):
            await controlled.settle()
            answers += [answer for client in clients for answer in client.take()]
        assert {int(answer.error_code) for answer in answers} == {0}
        ids = [answer.producer_id for answer in answers]
        assert len(ids) == len(set(ids)) == 2_100


@in_virtual_time
async def test_everybody_who_waits_is_refused_while_the_coordinator_does_not_answer() -> None:
    async with controlled_world() as controlled:
        client, gone = controlled.served.client(), controlled.served.client()
        controlled.tree.refusing = 1
        for _ in range(3):
            ask(client)
        ask(gone)
        gone.disconnect()
        await controlled.settle()
        assert all(int(answer.error_code) != 0 for answer in client.take())
        assert client.waiting == 0
        await asyncio.sleep(5)
        ask(client)
        await controlled.settle()
        (answer,) = client.take()
        assert int(answer.error_code) == 0


@in_virtual_time
async def test_something_unforeseen_refuses_those_who_wait_and_does_not_end_the_broker() -> None:
    async with controlled_world() as controlled:
        first, second = controlled.served.client(), controlled.served.client()

        async def fail() -> range:
            await asyncio.sleep(0.01)
            raise KeyError("a bug")

        controlled.requests.allocate_producer_ids = fail  # type: ignore[method-assign]
        ask(first)
        ask(second)
        await controlled.settle()
        await asyncio.sleep(0.02)
        assert first.transport.is_closed
        (answer,) = second.take()
        assert int(answer.error_code) == -1
