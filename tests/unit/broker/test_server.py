"""Who may connect, who has to go, and that nobody is served once the broker stops."""

import asyncio
import logging
from dataclasses import replace

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.served import ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT

T0 = ("t", 0)


def limit(
    served: ServedWorld,
    *,
    connections_max: int = 100,
    connections_max_per_ip: int = 100,
    idle_max_ms: int = 600_000,
) -> None:
    served.server.set_limits(
        replace(
            served.server.limits,
            connections_max=connections_max,
            connections_max_per_ip=connections_max_per_ip,
            idle_max_ms=idle_max_ms,
        )
    )


@in_virtual_time
async def test_connections_over_the_limit_are_closed_at_once() -> None:
    async with served_world() as served:
        limit(served, connections_max=2)
        clients = [served.client() for _ in range(3)]
        assert [client.transport.is_closed for client in clients] == [False, False, True]
        clients[2].disconnect()
        clients[0].disconnect()
        assert not served.client().transport.is_closed
        assert served.server.connection_count == 2


@in_virtual_time
async def test_connections_of_one_address_over_its_limit_are_closed_at_once() -> None:
    async with served_world() as served:
        limit(served, connections_max_per_ip=1)
        first, second = served.client(), served.client()
        assert not first.transport.is_closed
        assert second.transport.is_closed
        first.disconnect()
        assert not served.client().transport.is_closed


@in_virtual_time
async def test_an_idle_connection_is_closed_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with served_world() as served:
        limit(served, idle_max_ms=10_000)
        await served.server.listen()
        idle, busy = served.client(), served.client()
        for _ in range(15):
            served.world.clock.moment_ms += 1_000
            busy.fetch({}, max_wait_ms=0)
            await asyncio.sleep(1.01)
        assert idle.transport.is_closed
        assert not busy.transport.is_closed
        assert caplog.text.count("idle connection closed") == 1
        await served.server.drain(0)


@in_virtual_time
async def test_a_client_that_does_not_read_is_closed() -> None:
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        served.world.produce("t", plain_batch(50))
        await served.server.listen()
        client = served.client()
        client.transport.is_stalled = True
        client.fetch({T0: 0})
        for _ in range(35):
            served.world.clock.moment_ms += 1_000
            await asyncio.sleep(1.01)
        assert client.transport.is_closed
        await served.server.drain(0)


@in_virtual_time
async def test_draining_lets_answers_leave_and_takes_no_more_requests() -> None:
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        waiting, idle = served.client(), served.client()
        served.world.produce("t", plain_batch(1))
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        waiting.fetch({T0: 0}, max_wait_ms=500)
        draining = asyncio.create_task(served.server.drain(5.0))
        await served.world.settle()
        assert idle.transport.is_closed
        idle.disconnect()
        waiting.produce(plain_batch(1))
        assert not waiting.transport.is_closed
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert waiting.fetched().offsets() == [0]
        assert waiting.transport.is_closed
        waiting.disconnect()
        await draining
        assert served.world.runner("t").log.log_end_offset == 1


@in_virtual_time
async def test_draining_does_not_wait_for_a_fetch_that_waits_for_records() -> None:
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=60_000)
        draining = asyncio.create_task(served.server.drain(5.0))
        await served.world.settle()
        assert client.fetched().offsets() == []
        assert client.transport.is_closed
        client.disconnect()
        await draining


@in_virtual_time
async def test_draining_ends_when_its_time_is_up() -> None:
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        served.world.produce("t", plain_batch(1))
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=60_000)
        await served.server.drain(1.0)
        assert client.transport.is_closed
        served.world.executor.release(URGENT)


@pytest.mark.parametrize("is_first", [False, True])
@in_virtual_time
async def test_a_connection_that_arrives_while_the_broker_stops_is_not_served(
    is_first: bool,
) -> None:
    """It was accepted just before the listener closed."""
    async with served_world() as served:
        served.world.create("t")
        await served.world.settle()
        others = [] if is_first else [served.client()]
        draining = asyncio.create_task(served.server.drain(1.0))
        await served.world.settle()
        late = served.client()
        late.produce(plain_batch(1))
        assert late.transport.is_closed
        assert served.world.runner("t").log.log_end_offset == 0
        await draining
        assert all(other.transport.is_closed for other in others)


# -- max.connection.creation.rate ----------------------------------------------------------------


def pace(served: ServedWorld, per_second: int, *, unpaced: str | None = None) -> None:
    limits = served.server.limits
    served.server.set_limits(
        replace(limits, connections_per_second_max=per_second, unpaced_listener=unpaced)
    )


async def let_pass(served: ServedWorld, by_ms: int) -> None:
    """The clock and the loop's timers are told of time apart."""
    served.world.clock.moment_ms += by_ms
    await asyncio.sleep(by_ms / 1_000)


@in_virtual_time
async def test_connections_that_come_too_fast_are_served_later_in_their_order() -> None:
    async with served_world() as served:
        pace(served, 2)
        clients = [served.client() for _ in range(5)]
        for client in clients:
            client.fetch({}, max_wait_ms=0)
        assert [len(client.take()) for client in clients] == [1, 1, 0, 0, 0]
        await let_pass(served, 500)
        assert [len(client.take()) for client in clients] == [0, 0, 1, 0, 0]
        clients[3].disconnect()  # Takes nobody's turn.
        await let_pass(served, 500)
        assert [len(client.take()) for client in clients[4:]] == [1]
        clients[4].fetch({}, max_wait_ms=0)
        assert len(clients[4].take()) == 1
        assert not any(client.transport.is_closed for client in clients[:3])


@in_virtual_time
async def test_who_hangs_up_before_its_turn_is_forgotten() -> None:
    """G5: it is no connection any more, so `max.connections` would not bound how many there are."""
    async with served_world() as served:
        pace(served, 1)
        clients = [served.client() for _ in range(3)]
        for _ in range(100):
            served.client().disconnect()
        assert list(served.server._pace._waiting) == [client.connection for client in clients[1:]]


@in_virtual_time
async def test_a_higher_rate_lets_those_in_who_wait() -> None:
    async with served_world() as served:
        pace(served, 1)
        clients = [served.client() for _ in range(3)]
        for client in clients:
            client.fetch({}, max_wait_ms=0)
        pace(served, 1_000)
        assert [len(client.take()) for client in clients] == [1, 1, 1]


@in_virtual_time
async def test_brokers_with_a_listener_of_their_own_do_not_wait() -> None:
    async with served_world() as served:
        pace(served, 1, unpaced=served.client().connection.listener_name)
        clients = [served.client() for _ in range(3)]
        for client in clients:
            client.fetch({}, max_wait_ms=0)
        assert [len(client.take()) for client in clients] == [1, 1, 1]
