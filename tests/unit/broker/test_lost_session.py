"""A broker that lost its session acknowledges nothing and keeps nobody waiting (C6)."""

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.served import NEW_SESSION, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import BROKER, LISTENER, World, broker_world
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop

ONE_BATCH = {"internal.segment.bytes": "150"}
T0 = ("t", 0)
LONG_MS = 60_000


def lose_session(world: World) -> None:
    world.decide(BrokerGone(BROKER))


def register_again(world: World) -> None:
    """And be elected anew, as it happens when a broker joins."""
    endpoint = Endpoint(LISTENER, "PLAINTEXT", "localhost", 9092)
    world.decide(BrokerRegistered(BrokerImage(BROKER, 2, (endpoint,), None, LastStop.CLEAN)))
    world.elect("t")


@in_virtual_time
async def test_a_parked_fetch_is_told_at_once() -> None:
    for session in (None, NEW_SESSION):
        async with served_world() as served:
            served.world.create("t")
            await served.world.settle()
            client = served.client()
            if session is None:
                client.fetch({T0: 0}, max_wait_ms=LONG_MS)
            else:
                client.fetch({T0: 0}, session=session, max_wait_ms=0)
                session_id = client.fetched().session_id
                client.fetch({}, session=(session_id, 1), max_wait_ms=LONG_MS)
            await served.world.settle()
            assert client.take() == []
            lose_session(served.world)
            await served.world.settle()
            answer = client.fetched()
            assert answer.partitions[T0].code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_a_queued_append_is_refused_and_not_written() -> None:
    async with broker_world() as world:
        world.create("t", config=ONE_BATCH)
        await world.settle()
        world.produce("t", plain_batch(1))
        world.executor.hold(URGENT)
        queued = [world.produce("t", plain_batch(1)) for _ in range(2)]
        lose_session(world)
        world.executor.release(URGENT)
        await world.settle()
        codes = [one.code for one in queued]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
        replica = world.partitions.find("t", 0)
        assert replica is not None
        assert replica.log.log_end_offset == 1
        assert world.request_memory.held_bytes == 0


@in_virtual_time
async def test_a_batch_that_waits_for_its_flush_is_not_acknowledged() -> None:
    for acks in (1, -1):
        async with broker_world() as world:
            world.create("t", config={"flush.messages": "1"})
            await world.settle()
            world.executor.hold(BACKGROUND)
            waiting = world.produce("t", plain_batch(1), acks=acks)
            lose_session(world)
            world.executor.release(BACKGROUND)
            await world.settle()
            assert waiting.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_a_partition_opened_meanwhile_serves_nobody() -> None:
    async with broker_world() as world:
        world.executor.hold(URGENT)
        world.create("t")
        await world.settle()
        lose_session(world)
        world.executor.release(URGENT)
        await world.settle()
        replica = world.partitions.find("t", 0)
        assert replica is not None
        result = replica.append(memoryview(plain_batch(1)), acks=1, now_ms=0, settle=lambda _: None)
        assert result is not None
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_deleted_records_are_not_reported() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(1))
        runner = world.runner("t")
        lose_session(world)
        with pytest.raises(RequestRefused) as refusal:
            await runner.delete_records(Offset(1))
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_everything_is_served_again_in_a_role_of_the_next_registration() -> None:
    async with served_world() as served:
        world = served.world
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(1))
        client = served.client()
        client.fetch({T0: 1}, session=NEW_SESSION, max_wait_ms=0)
        session_id = client.fetched().session_id
        lose_session(world)
        client.fetch({}, session=(session_id, 1), max_wait_ms=LONG_MS)
        assert client.fetched().partitions[T0].code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        register_again(world)
        await world.settle()
        assert world.produce("t", plain_batch(1), acks=-1).code == ErrorCode.NONE
        client.fetch({}, session=(session_id, 2), max_wait_ms=LONG_MS)
        await world.settle()
        assert client.fetched().offsets() == [1]
