"""Metrics are for whoever asks properly, and cost others nothing (O3)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ConfigError
from tidelog.broker.metrics_server import (
    CONNECTIONS_MAX,
    REQUEST_MAX_BYTES,
    REQUEST_TIMEOUT_S,
    MetricsServer,
)
from tidelog.broker.network import ProtocolFactory
from tidelog.telemetry.metrics import Family, Kind, Sample

LOOK_S = 0.01
GET = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


class Wire(asyncio.Transport):
    """One connection of somebody who asks."""

    def __init__(self, factory: ProtocolFactory) -> None:
        super().__init__()
        self.answer = bytearray()
        self.is_over = False
        protocol = factory()
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol
        protocol.connection_made(self)

    async def send(self, data: bytes) -> bytes:
        """What is answered by the time that nothing is left to do."""
        self.say(data)
        await asyncio.sleep(0.1)
        return bytes(self.answer)

    def say(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def write(self, data: Any) -> None:
        self.answer += data

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True
        self._protocol.connection_lost(None)

    def abort(self) -> None:
        self.close()


class OneAddress:
    """A network of one address, which may be taken."""

    port = 9400

    def __init__(self, *, is_taken: bool = False) -> None:
        self._is_taken = is_taken
        self.factory: ProtocolFactory | None = None

    async def reserve(self, host: str, port: int, *, backlog: int) -> "OneAddress":
        if self._is_taken:
            raise OSError(98, "Address already in use")
        return self

    async def listen(self, factory: ProtocolFactory) -> None:
        self.factory = factory

    def close(self) -> None:
        self.factory = None

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        raise NotImplementedError

    def wire(self) -> Wire:
        assert self.factory is not None
        return Wire(self.factory)


class Things:
    """Something to tell, which takes a second to look at."""

    def __init__(self) -> None:
        self.looks = 0

    async def look(self) -> "Things":
        self.looks += 1
        await asyncio.sleep(LOOK_S)
        return self

    def __len__(self) -> int:
        return 1

    def families(self) -> list[Family]:
        return [Family("tidelog_things", Kind.GAUGE, "Things", (), [Sample(self.looks)])]


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[OneAddress, MetricsServer]]:
    network = OneAddress()
    async with asyncio.TaskGroup() as tasks:
        server = MetricsServer(network, Things().look, tasks)
        await server.listen("127.0.0.1", 9400)
        yield network, server
        server.close()


@in_virtual_time
async def test_metrics_are_told_and_the_connection_ends() -> None:
    async with listening() as (network, _):
        wire = network.wire()
        head, _, body = (await wire.send(GET)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"tidelog_things 1.0\n" in body
        assert wire.is_over


@in_virtual_time
async def test_request_may_come_in_pieces() -> None:
    async with listening() as (network, _):
        wire = network.wire()
        assert await wire.send(GET[:9]) == b""
        assert (await wire.send(GET[9:])).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics?x=1 HTTP/1.0", b"200"),
        (b"HEAD /metrics HTTP/1.1", b"200"),
        (b"GET / HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"\x00\xff what is this", b"400"),
        (b"", b"400"),
    ],
)
@in_virtual_time
async def test_other_requests_are_told_what_is_wrong(request_line: bytes, status: bytes) -> None:
    async with listening() as (network, _):
        answer = await network.wire().send(request_line + b"\r\n\r\n")
        assert answer.split(b" ")[1] == status


@in_virtual_time
async def test_endless_request_is_cut_off() -> None:
    async with listening() as (network, _):
        wire = network.wire()
        assert await wire.send(b"x" * (REQUEST_MAX_BYTES + 1)) == b""
        assert wire.is_over


@in_virtual_time
async def test_silent_connection_is_cut_off() -> None:
    async with listening() as (network, _):
        wire = network.wire()
        await asyncio.sleep(REQUEST_TIMEOUT_S + 1)
        assert wire.is_over


@in_virtual_time
async def test_crowd_is_kept_out_and_makes_room_again() -> None:
    async with listening() as (network, _):
        wires = [network.wire() for _ in range(CONNECTIONS_MAX + 1)]
        assert [wire.is_over for wire in wires] == [False] * CONNECTIONS_MAX + [True]
        await wires[0].send(GET)
        assert (await network.wire().send(GET)).startswith(b"HTTP/1.1 200 OK")


@in_virtual_time
async def test_nobody_stays_connected_when_it_closes() -> None:
    async with listening() as (network, server):
        wire = network.wire()
        server.close()
        assert wire.is_over
        assert network.factory is None


@in_virtual_time
async def test_who_asks_while_an_answer_is_made_gets_that_one() -> None:
    async with listening() as (network, _):
        first, second, gone = (network.wire() for _ in range(3))
        first.say(GET)
        await asyncio.sleep(LOOK_S / 2)
        second.say(GET.replace(b"GET", b"HEAD"))
        gone.say(GET)
        gone.abort()
        await asyncio.sleep(LOOK_S)
        assert first.answer.endswith(b"tidelog_things 1.0\n")
        assert second.answer.endswith(b"\r\n\r\n")
        assert gone.answer == b""
        assert (await network.wire().send(GET)).endswith(b"tidelog_things 2.0\n")


@in_virtual_time
async def test_a_broker_that_stops_does_not_wait_for_an_answer_that_is_being_made() -> None:
    async with listening() as (network, server):
        wire = network.wire()
        wire.say(GET)
        await asyncio.sleep(LOOK_S / 2)
        server.close()
        assert wire.is_over
    assert wire.answer == b""


@in_virtual_time
async def test_who_asks_for_what_cannot_be_told_does_not_end_the_broker() -> None:
    network = OneAddress()
    things = Things()

    async def look() -> Things:
        await things.look()
        if things.looks == 1:
            raise RuntimeError("this once")
        return things

    async with asyncio.TaskGroup() as tasks:
        server = MetricsServer(network, look, tasks)
        await server.listen("127.0.0.1", 9400)
        assert (await network.wire().send(GET)).startswith(b"HTTP/1.1 500 ")
        assert (await network.wire().send(GET)).endswith(b"tidelog_things 2.0\n")
        server.close()


@in_virtual_time
async def test_address_that_is_taken_names_the_setting() -> None:
    server = MetricsServer(OneAddress(is_taken=True), Things().look, asyncio.TaskGroup())
    with pytest.raises(ConfigError, match=r"tidelog\.metrics\.port: cannot listen on"):
        await server.listen("127.0.0.1", 9400)
