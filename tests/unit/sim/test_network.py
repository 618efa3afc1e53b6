"""TCP between simulated processes, and what faults do to it."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.unit.sim.networked import (
    CLIENT,
    CONNECT_TIMEOUT_S,
    LATENCY_MAX_S,
    PORT,
    SERVER,
    WINDOW_BYTES,
    Peer,
    Scene,
    calm,
    connect,
)
from tidelog.broker.network import Network
from tidelog.sim.process import Process
from tidelog.sim.world import World

A_WHILE_S = 5.0


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1, lines_max=1_000) as world:
        yield world


@pytest.fixture
def echo(world: World) -> Scene:
    return Scene(world, answer=bytes)


@pytest.fixture
def sink(world: World) -> Scene:
    """A server that only listens."""
    return Scene(world, answer=None)


def outcome_of(scene: Scene, use: Callable[[Network], Awaitable[None]]) -> BaseException | None:
    client = scene.start_client(use)
    scene.world.run_until(lambda: not client.is_alive, within_s=100)
    return client.failure


# -- connections ---------------------------------------------------------------------------------


def test_bytes_arrive_in_order_after_a_while(echo: Scene) -> None:
    client = echo.connected()
    before_s = echo.world.now_s
    sent = b"".join(b"%d," % number for number in range(1_000))
    for number in range(1_000):
        client.write(b"%d," % number)
    echo.world.run_until(lambda: len(client.received) == len(sent), within_s=1)
    assert client.received == sent
    assert before_s < echo.world.now_s <= before_s + 4 * LATENCY_MAX_S


def test_connections_overtake_each_other(sink: Scene) -> None:
    clients = [sink.connected() for _ in range(20)]
    order: list[int] = []
    accepted = list(sink.accepted)
    sink.world.observe(
        lambda _process: order.extend(
            number for number, peer in enumerate(accepted) if peer.received and number not in order
        )
    )
    for client in clients:
        client.write(b"now")
    sink.world.run_for(1)
    assert len(order) == 20
    assert order != sorted(order)


def test_both_ends_know_who_the_other_is(sink: Scene) -> None:
    client = sink.connected()
    server = sink.accepted[0]
    assert client.transport is not None
    assert server.transport is not None
    assert client.transport.get_extra_info("peername") == (SERVER, PORT)
    assert server.transport.get_extra_info("peername")[0] == CLIENT
    assert server.transport.get_extra_info("socket") is None
    assert server.transport.get_extra_info("peername") == client.transport.get_extra_info(
        "sockname"
    )


def test_a_close_arrives_after_what_was_written(sink: Scene) -> None:
    client = sink.connected()
    assert client.transport is not None
    client.transport.writelines([b"last ", bytearray(b"words")])
    client.transport.close()
    assert client.transport.is_closing()
    client.write(b"too late")
    sink.world.run_for(1)
    assert sink.accepted[0].received == b"last words"
    assert client.losses == [None]
    assert sink.accepted[0].losses == [None]
    assert sink.network.connection_count == 0


def test_who_writes_to_a_closed_connection_is_reset(sink: Scene) -> None:
    client = sink.connected()
    server = sink.accepted[0]
    assert client.transport is not None
    assert server.transport is not None
    server.transport.pause_reading()  # So that it does not hear of the end.
    client.transport.close()
    sink.world.run_for(1)
    assert server.losses == []
    server.write(b"anybody?")
    sink.world.run_for(1)
    server.write(b"anybody?")
    sink.world.run_for(1)
    assert isinstance(server.losses[0], ConnectionError)


def test_what_came_before_a_reset_is_read(sink: Scene) -> None:
    """As on Linux: the request of a client that is gone waits for a process that was paused."""
    client = sink.connected()
    server = sink.accepted[0]
    assert client.transport is not None
    client.transport.pause_reading()
    server.write(b"never read, so that closing resets")
    sink.world.run_for(1)
    sink.server.pause()
    client.write(b"a request")
    client.transport.close()
    sink.world.run_for(1)
    assert server.received == b""
    sink.server.resume()
    sink.world.run_for(1)
    assert server.received == b"a request"
    assert isinstance(server.losses[0], ConnectionResetError)


def test_an_abort_drops_what_has_not_left(sink: Scene) -> None:
    client = sink.connected()
    server = sink.accepted[0]
    assert client.transport is not None
    assert server.transport is not None
    server.transport.pause_reading()
    client.write(bytes(3 * WINDOW_BYTES))
    assert client.transport.get_write_buffer_size() == 2 * WINDOW_BYTES
    client.transport.abort()
    server.transport.resume_reading()
    sink.world.run_for(1)
    assert len(server.received) == WINDOW_BYTES
    assert client.losses == [None]
    assert server.losses == [None]


def test_a_writer_is_paused_while_nobody_reads(sink: Scene) -> None:
    client = sink.connected()
    server = sink.accepted[0]
    assert client.transport is not None
    assert server.transport is not None
    client.transport.set_write_buffer_limits(high=0)
    server.transport.pause_reading()
    client.write(bytes(WINDOW_BYTES))
    assert client.pauses == []
    client.write(b"one more")
    assert client.pauses == [True]
    sink.world.run_for(A_WHILE_S)
    assert client.transport.get_write_buffer_size() == len(b"one more")
    server.transport.resume_reading()
    sink.world.run_for(A_WHILE_S)
    assert client.pauses == [True, False]
    assert len(server.received) == WINDOW_BYTES + len(b"one more")


def test_a_connection_closed_while_its_writer_is_paused_delivers_everything(sink: Scene) -> None:
    client = sink.connected()
    server = sink.accepted[0]
    assert client.transport is not None
    assert server.transport is not None
    server.transport.pause_reading()
    client.write(bytes(5 * WINDOW_BYTES))
    client.transport.close()
    sink.world.run_for(A_WHILE_S)
    assert client.losses == []
    server.transport.resume_reading()
    sink.world.run_for(A_WHILE_S)
    assert len(server.received) == 5 * WINDOW_BYTES
    assert server.losses == [None]


def test_writes_can_arrive_in_pieces(sink: Scene) -> None:
    sink.network.set_conditions(CLIENT, SERVER, replace(calm(), split_probability=1.0))
    client = sink.connected()
    client.write(b"0123456789")
    sink.world.run_for(1)
    server = sink.accepted[0]
    assert server.received == b"0123456789"
    assert len(server.pieces) == 2


def test_a_buffered_protocol_gets_what_fits_its_buffer(world: World, sink: Scene) -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(10)
            self.received: list[bytes] = []

        def get_buffer(self, sizehint: int) -> memoryview:
            return memoryview(self.buffer)

        def buffer_updated(self, nbytes: int) -> None:
            self.received.append(bytes(self.buffer[:nbytes]))

    made: list[Buffered] = []

    async def use(network: Network) -> None:
        def make() -> Buffered:
            made.append(Buffered())
            return made[-1]

        await network.connect(SERVER, PORT, make)
        await asyncio.Event().wait()

    sink.start_client(use)
    world.run_until(lambda: bool(sink.accepted), within_s=1)
    sink.accepted[0].write(b"0123456789abcdefghijklmno")
    sink.accepted[0].write(b"pq")
    world.run_for(1)
    assert len(made[0].received[0]) == 10
    assert max(len(each) for each in made[0].received) <= 10
    assert b"".join(made[0].received) == b"0123456789abcdefghijklmnopq"


def test_a_protocol_that_fails_ends_its_process(world: World) -> None:
    def fail(_data: bytes) -> bytes:
        raise AssertionError("seen the impossible")

    scene = Scene(world, answer=fail)
    client = scene.connected()
    client.write(b"x")
    world.run_for(1)
    assert isinstance(scene.server.failure, AssertionError)
    assert client.losses == [None]


# -- connecting ----------------------------------------------------------------------------------


def test_connecting_is_refused_where_nobody_listens(sink: Scene) -> None:
    async def use(network: Network) -> None:
        await network.connect(SERVER, PORT + 1, Peer)

    assert isinstance(outcome_of(sink, use), ConnectionRefusedError)


def test_a_machine_that_nobody_heard_of_cannot_be_found(sink: Scene) -> None:
    async def use(network: Network) -> None:
        await network.connect("elsewhere", PORT, Peer)

    assert isinstance(outcome_of(sink, use), OSError)


def test_connecting_over_a_cut_link_ends_with_a_time_out(sink: Scene) -> None:
    sink.network.cut(SERVER, CLIENT)

    async def use(network: Network) -> None:
        await connect(network)

    before_s = sink.world.now_s
    failure = outcome_of(sink, use)
    assert isinstance(failure, TimeoutError)
    assert failure.errno == errno.ETIMEDOUT
    assert sink.world.now_s == before_s + CONNECT_TIMEOUT_S


def test_who_gives_up_connecting_leaves_nothing_behind(sink: Scene) -> None:
    sink.network.cut(SERVER, CLIENT)

    async def use(network: Network) -> None:
        async with asyncio.timeout(1):
            await connect(network)

    assert isinstance(outcome_of(sink, use), TimeoutError)
    sink.network.heal_all()
    sink.world.run_for(A_WHILE_S)
    assert len(sink.accepted) == 1
    assert len(sink.accepted[0].losses) == 1
    assert sink.network.connection_count == 0


def test_a_connection_may_be_over_before_its_process_hears_that_it_began(sink: Scene) -> None:
    peers: list[Peer] = []

    async def use(network: Network) -> None:
        peers.append(await connect(network))
        await asyncio.Event().wait()

    client = sink.start_client(use)
    sink.world.run_for(0)
    client.pause()
    sink.world.run_until(lambda: bool(sink.accepted), within_s=1)
    server = sink.accepted[0].transport
    assert server is not None
    server.write(b"hello and good-bye")
    server.close()
    sink.world.run_for(1)
    client.resume()
    sink.world.run_for(1)
    assert peers[0].received == b"hello and good-bye"
    assert peers[0].losses == [None]


def test_a_port_is_used_by_one(sink: Scene) -> None:
    async def reserve(process: Process) -> None:
        network = sink.network.attach(process, SERVER)
        first = await network.reserve("localhost", 0, backlog=1)
        second = await network.reserve(SERVER, 0, backlog=1)
        assert first.port != second.port
        with pytest.raises(OSError, match="in use"):
            await network.reserve("", PORT, backlog=1)
        with pytest.raises(OSError, match="assign"):
            await network.reserve(CLIENT, PORT, backlog=1)
        first.close()
        await network.reserve("", first.port, backlog=1)

    sink.world.run_for(1)
    sink.world.run("other", reserve)


# -- faults --------------------------------------------------------------------------------------


def test_bytes_wait_while_their_link_is_cut(echo: Scene) -> None:
    client = echo.connected()
    echo.network.cut(CLIENT, SERVER)
    client.write(b"request")
    echo.world.run_for(60)
    assert echo.accepted[0].received == b""
    echo.network.heal(CLIENT, SERVER)
    echo.world.run_for(A_WHILE_S)
    assert client.received == b"request"


def test_the_other_direction_of_a_cut_link_works(echo: Scene) -> None:
    client = echo.connected()
    echo.network.cut(SERVER, CLIENT)
    client.write(b"request")
    echo.world.run_for(60)
    assert echo.accepted[0].received == b"request"
    assert client.received == b""
    echo.network.heal_all()
    echo.world.run_for(A_WHILE_S)
    assert client.received == b"request"


def test_a_writer_over_a_cut_link_is_paused_in_the_end(sink: Scene) -> None:
    client = sink.connected()
    sink.network.isolate(SERVER)
    client.write(bytes(WINDOW_BYTES))
    client.write(bytes(2 * WINDOW_BYTES))
    assert client.pauses == [True]
    sink.world.run_for(60)
    assert client.pauses == [True]
    sink.network.heal_all()
    sink.world.run_for(A_WHILE_S)
    assert client.pauses == [True, False]
    assert len(sink.accepted[0].received) == 3 * WINDOW_BYTES


def test_a_slow_link_takes_its_time(sink: Scene) -> None:
    client = sink.connected()
    sink.network.set_conditions(
        CLIENT, SERVER, replace(calm(), latency_min_s=0.5, latency_max_s=0.5, bytes_per_s=1_000)
    )
    client.write(bytes(2_000))
    sink.world.run_for(2.4)
    assert not sink.accepted[0].received
    sink.world.run_for(0.2)
    assert len(sink.accepted[0].received) == 2_000
    sink.network.restore_conditions()
    client.write(b"fast again")
    sink.world.run_for(LATENCY_MAX_S)
    assert len(sink.accepted[0].received) == 2_010


def test_lost_packets_come_late(sink: Scene) -> None:
    client = sink.connected()
    sink.network.set_conditions(CLIENT, SERVER, replace(calm(), loss_probability=1.0))
    client.write(b"lost")
    sink.world.run_for(0.2)
    assert not sink.accepted[0].received
    sink.world.run_for(0.3)
    assert sink.accepted[0].received == b"lost"


def test_a_reset_may_come_within_a_frame(world: World) -> None:
    scene = Scene(world, answer=None)
    arrived: list[int] = []
    for _ in range(30):
        client = scene.connected()
        client.write(bytes(100))
        client.write(bytes(100))
        scene.network.reset(CLIENT, SERVER)
        world.run_for(A_WHILE_S)
        assert isinstance(client.losses[0], ConnectionResetError)
        assert isinstance(scene.accepted[-1].losses[0], ConnectionResetError)
        arrived.append(len(scene.accepted[-1].received))
    assert any(0 < size_bytes < 100 or 100 < size_bytes < 200 for size_bytes in arrived)
    assert any(size_bytes == 200 for size_bytes in arrived)
    assert scene.network.connection_count == 0


def test_a_killed_server_is_noticed_and_replaced(echo: Scene) -> None:
    client = echo.connected()
    client.write(b"before")
    echo.world.run_for(1)
    echo.server.kill()
    echo.world.run_for(1)
    assert client.received == b"before"
    assert client.losses == [None]

    async def use(network: Network) -> None:
        await connect(network)

    assert isinstance(outcome_of(echo, use), ConnectionRefusedError)
    echo.start_server()
    again = echo.connected()
    again.write(b"after")
    echo.world.run_for(1)
    assert again.received == b"after"


def test_what_a_process_wrote_before_it_was_killed_arrives(sink: Scene) -> None:
    client = sink.connected()
    sink.accepted[0].write(b"last words")
    sink.server.kill()
    sink.accepted[0].write(b"of a ghost")
    sink.world.run_for(1)
    assert client.received == b"last words"
    assert client.losses == [None]


def test_a_kill_behind_a_cut_link_is_noticed_after_healing(sink: Scene) -> None:
    client = sink.connected()
    sink.network.cut_both(CLIENT, SERVER)
    sink.server.kill()
    sink.world.run_for(60)
    assert client.losses == []
    sink.network.heal_both(CLIENT, SERVER)
    sink.world.run_for(A_WHILE_S)
    assert client.losses == [None]


def test_a_paused_server_accepts_and_answers_later(echo: Scene) -> None:
    echo.world.run_for(1)
    echo.server.pause()
    client = echo.connected()
    client.write(b"patience")
    echo.world.run_for(60)
    assert echo.accepted == []
    echo.server.resume()
    echo.world.run_for(1)
    assert client.received == b"patience"


def test_nobody_hears_of_a_machine_that_lost_power(echo: Scene) -> None:
    client = echo.connected()
    idle = echo.connected()
    echo.network.power_off(SERVER)
    echo.server.kill()
    client.write(b"anybody?")
    echo.world.run_for(60)
    assert client.losses == []
    echo.network.power_on(SERVER)
    echo.world.run_for(A_WHILE_S)
    assert isinstance(client.losses[0], ConnectionResetError)
    assert idle.losses == []
    idle.write(b"anybody?")
    echo.world.run_for(A_WHILE_S)
    assert isinstance(idle.losses[0], ConnectionResetError)


def test_a_run_is_repeated_by_its_seed() -> None:
    def run(seed: int) -> tuple[int, float]:
        with World(seed, lines_max=0) as world:
            scene = Scene(world, answer=bytes)
            client = scene.connected()
            for _ in range(100):
                client.write(b"x")
                world.run_for(0.01)
            return world.trace.digest, world.now_s

    assert run(1) == run(1)
    assert run(1) != run(2)
    digests = [run(seed)[0] for seed in range(5)]
    assert all(one != other for one, other in pairwise(digests))
