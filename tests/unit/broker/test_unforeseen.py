"""What nobody thought of costs the client that brought it about, not the broker (O5).

`broker_world` fails a test in which an exception reaches the event loop: that would end a broker.
"""

import asyncio

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.served import ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import broker_world
from tidelog.base.errors import ErrorCode
from tidelog.broker import partition_appends
from tidelog.broker.fetch_reader import FetchReader
from tidelog.broker.handlers import produce
from tidelog.records.validation import validate_produce
from tidelog.storage.log import Log
from tidelog.wire.produce import encode_produce_response

T0 = ("t", 0)
LONG_MS = 60_000
ONE_BATCH = {"internal.segment.bytes": "150"}


class Unforeseen(Exception):
    """Not one of ours."""


def fail(*_arguments: object, **_named: object) -> None:
    raise Unforeseen


async def others_are_served(served: ServedWorld) -> None:
    other = served.client()
    other.fetch({T0: 0}, max_wait_ms=0)
    await served.world.settle()
    assert other.fetched().partitions[T0].code == ErrorCode.NONE


@in_virtual_time
async def test_a_read_on_a_thread() -> None:
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        served.world.produce("t", plain_batch(1))
        client = served.client()
        served.world.disk.is_cold = True
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, "read", fail)
            client.fetch({T0: 0}, max_wait_ms=LONG_MS)
            await served.world.settle()
        assert client.transport.is_closed
        await others_are_served(served)


@pytest.mark.parametrize("is_woken_by_an_append", [True, False])
@in_virtual_time
async def test_a_parked_fetch_that_is_looked_at_again(is_woken_by_an_append: bool) -> None:
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=500)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FetchReader, "look", fail)
            if is_woken_by_an_append:
                served.world.produce("t", plain_batch(1))
            else:
                await asyncio.sleep(1)
            await served.world.settle()
        assert client.transport.is_closed
        await others_are_served(served)


@in_virtual_time
async def test_an_answer_to_a_batch_that_had_to_wait() -> None:
    """Those who wait behind it are answered all the same."""
    async with served_world() as served:
        served.world.create("t", config=ONE_BATCH)
        await served.world.settle()
        served.world.produce("t", plain_batch(1))
        served.world.executor.hold(URGENT)
        clients = [served.client(), served.client()]
        for client in clients:
            client.produce(plain_batch(1))
        calls: list[None] = []

        def fail_first(*arguments: object, **named: object) -> object:
            calls.append(None)
            if len(calls) == 1:
                raise Unforeseen
            return encode_produce_response(*arguments, **named)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(produce, "encode_produce_response", fail_first)
            served.world.executor.release(URGENT)
            await served.world.settle()
        assert clients[0].transport.is_closed
        (answer,) = clients[1].take()
        assert answer.responses[0].partition_responses[0].base_offset == 2
        await others_are_served(served)


@in_virtual_time
async def test_a_batch_that_had_to_wait() -> None:
    """Those behind it are appended, and whoever comes next."""
    async with broker_world() as world:
        world.create("t", config=ONE_BATCH)
        await world.settle()
        world.produce("t", plain_batch(1))
        world.executor.hold(URGENT)
        waiting = [world.produce("t", plain_batch(1)) for _ in range(2)]
        calls: list[None] = []

        def fail_first(*arguments: object, **named: object) -> object:
            calls.append(None)
            if len(calls) == 1:
                raise Unforeseen
            return validate_produce(*arguments, **named)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partition_appends, "validate_produce", fail_first)
            world.executor.release(URGENT)
            await world.settle()
        assert waiting[0].code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert waiting[1].base_offset == 1
        assert world.request_memory.held_bytes == 0


@in_virtual_time
async def test_a_batch_that_is_rewritten() -> None:
    async with broker_world() as world:
        world.create("t", config={"compression.type": "gzip"})
        await world.settle()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partition_appends, "rewrite", fail)
            first = world.produce("t", plain_batch(1))
            await world.settle()
        assert first.code == ErrorCode.UNKNOWN_SERVER_ERROR
        second = world.produce("t", plain_batch(1))
        await world.settle()
        assert second.base_offset == 0
        assert world.request_memory.held_bytes == 0


@pytest.mark.parametrize("what", ["roll", "flush", "write_leader_epochs"])
@in_virtual_time
async def test_work_on_a_log_takes_its_directory_offline(what: str) -> None:
    """Nobody knows how much of it was done; recovery finds out."""
    async with broker_world() as world:
        world.create("t", config={**ONE_BATCH, "flush.messages": "1"})
        await world.settle()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, what, fail)
            world.elect("t")
            await world.settle()
            produced = [world.produce("t", plain_batch(1)) for _ in range(2)]
            await world.settle()
        assert produced[1].code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not world.log_dir.is_online
        await world.reopen()
        again = world.produce("t", plain_batch(1))
        await world.settle()
        assert again.code == ErrorCode.NONE
