"""From a frame to its handler: what costs a connection, and what costs nothing."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kio.schema.describe_cluster.v2.response import DescribeClusterResponse

from tests.support.kio_codec import example, milliseconds
from tests.unit.broker.served import Client, ServedWorld, fetch_values, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.dispatch import ColdHandlers, Dispatcher, Postponed, RequestContext
from tidelog.broker.large_requests import LARGE_BYTES
from tidelog.wire import messages
from tidelog.wire.api import SUPPORTED, ApiKey

DESCRIBE_CLUSTER = 0
NO_TIME = milliseconds(0)


class ColdHandler:
    """Does what the test says when it is asked."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[RequestContext] = []
        self.gate = asyncio.Event()

    async def handle(self, request: object, context: RequestContext) -> object:
        self.asked.append(context)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return example(DescribeClusterResponse)


@asynccontextmanager
async def with_cold_handler(
    *, is_loaded: bool
) -> AsyncIterator[tuple[ServedWorld, ColdHandler, Client]]:
    async with served_world() as served:
        handler = ColdHandler()
        hot = {ApiKey.PRODUCE, *served.direct}
        cold: ColdHandlers = {key: handler for key in SUPPORTED if key not in hot}
        dispatcher = Dispatcher(
            produce=served.produce,
            direct=served.direct,
            inter_broker={},
            forwarding=None,
            load_cold=lambda: cold,
            tasks=served.requests,
            large=served.large,
        )
        if is_loaded:
            dispatcher.warm_up()
        served.server.dispatch = dispatcher.dispatch
        yield served, handler, served.client()


def describe_cluster(client: Client) -> None:
    client.send(
        ApiKey.DESCRIBE_CLUSTER, DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False}
    )


@in_virtual_time
async def test_a_cold_request_is_answered_before_what_was_sent_behind_it() -> None:
    async with with_cold_handler(is_loaded=True) as (served, handler, client):
        describe_cluster(client)
        client.send(ApiKey.FETCH, 12, fetch_values({}, max_wait_ms=0))
        await served.world.settle()
        assert client.take() == []
        handler.gate.set()
        await served.world.settle()
        first, second = client.take()
        assert type(first).__name__ == "DescribeClusterResponse"
        assert type(second).__name__ == "FetchResponse"


@pytest.mark.parametrize(
    "error", [RequestRefused(ErrorCode.INVALID_REQUEST), ValueError("a bug"), KeyError(7)]
)
@in_virtual_time
async def test_a_cold_request_that_fails_costs_its_own_connection(error: Exception) -> None:
    async with with_cold_handler(is_loaded=True) as (served, handler, client):
        other = served.client()
        handler.error = error
        handler.gate.set()
        describe_cluster(client)
        await served.world.settle()
        assert client.transport.is_closed
        other.fetch({}, max_wait_ms=0)
        assert other.fetched().partitions == {}


@in_virtual_time
async def test_a_client_may_hang_up_before_its_cold_request_is_done() -> None:
    async with with_cold_handler(is_loaded=True) as (served, handler, client):
        describe_cluster(client)
        await served.world.settle()
        client.disconnect()
        handler.gate.set()
        await served.world.settle()
        assert client.take() == []


class Waiter:
    """Answers when others are done, and says whether that is still wanted."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = 0

    async def handle(self, _request: object, _context: RequestContext) -> Postponed:
        return Postponed(self._wait)

    async def _wait(self) -> object:
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        return example(DescribeClusterResponse)


@asynccontextmanager
async def with_waiter() -> AsyncIterator[tuple[ServedWorld, Waiter]]:
    async with served_world() as served:
        waiter = Waiter()
        hot = {ApiKey.PRODUCE, *served.direct}
        dispatcher = Dispatcher(
            produce=served.produce,
            direct=served.direct,
            inter_broker={},
            forwarding=None,
            load_cold=lambda: {key: waiter for key in SUPPORTED if key not in hot},
            tasks=served.requests,
            large=served.large,
        )
        dispatcher.warm_up()
        served.server.dispatch = dispatcher.dispatch
        yield served, waiter


@in_virtual_time
async def test_a_postponed_answer_comes_when_others_are_done() -> None:
    async with with_waiter() as (served, waiter):
        client = served.client()
        describe_cluster(client)
        await served.world.settle()
        assert client.take() == []
        waiter.gate.set()
        await served.world.settle()
        assert len(client.take()) == 1


@in_virtual_time
async def test_a_client_that_hangs_up_is_not_waited_for() -> None:
    async with with_waiter() as (served, waiter):
        client = served.client()
        describe_cluster(client)
        await served.world.settle()
        assert waiter.waiting == 1
        client.disconnect()
        await served.world.settle()
        assert waiter.waiting == 0


def test_a_large_request_whose_answer_is_postponed_holds_up_no_other() -> None:
    async def scenario() -> None:
        async with with_waiter() as (served, waiter):
            clients = [served.client(), served.client()]
            for client in clients:
                topics = [{"name": f"t{n}", "partitions": []} for n in range(LARGE_BYTES)]
                client.send(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": NO_TIME})
            await until(lambda: waiter.waiting == 2)
            assert served.world.request_memory.held_bytes == 0
            waiter.gate.set()
            for client in clients:
                client.disconnect()

    asyncio.run(scenario())


async def until(condition: Callable[[], bool]) -> None:
    """For what waits for a thread that imports: there is no event to wait for."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_cold_request_that_cannot_be_decoded_costs_its_own_connection(
    is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the message library makes of it; also if it is the broker's first."""

    def fail(*_arguments: object) -> object:
        raise OverflowError("a number that nobody thought of")

    async def scenario() -> None:
        async with with_cold_handler(is_loaded=is_loaded) as (served, _handler, client):
            monkeypatch.setattr(messages, "decode_request", fail)
            describe_cluster(client)
            await until(lambda: client.transport.is_closed)
            assert not served.client().transport.is_closed

    asyncio.run(scenario())


def test_the_first_cold_request_is_answered_once_its_handler_is_loaded() -> None:
    async def scenario() -> None:
        async with with_cold_handler(is_loaded=False) as (_served, handler, client):
            handler.gate.set()
            describe_cluster(client)
            assert client.take() == []
            await until(lambda: bool(client.take()))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("api_key", "version"), [(999, 0), (-1, 0), (17, 0), (ApiKey.FETCH, 99), (ApiKey.PRODUCE, 2)]
)
@in_virtual_time
async def test_an_api_that_is_not_advertised_costs_the_connection(
    api_key: int, version: int
) -> None:
    async with served_world() as served:
        client = served.client()
        body = struct.pack(">hhih", api_key, version, 1, -1)
        client.send_together([struct.pack(">i", len(body)) + body])
        assert client.transport.is_closed


@in_virtual_time
async def test_api_versions_of_the_future_is_answered_in_version_0() -> None:
    async with served_world() as served:
        client = served.client()
        body = struct.pack(">hhihb", ApiKey.API_VERSIONS, 99, 5, -1, 0)
        client.send_together([struct.pack(">i", len(body)) + body])
        answer = bytes(client.transport.sent)
        assert struct.unpack_from(">iih", answer)[1:] == (5, ErrorCode.UNSUPPORTED_VERSION)
        assert not client.transport.is_closed


@in_virtual_time
async def test_clients_are_told_that_transactions_end_with_an_epoch_of_their_own() -> None:
    """KIP-890"""
    async with served_world() as served:
        client = served.client()
        values = {"client_software_name": "me", "client_software_version": "1"}
        client.send(ApiKey.API_VERSIONS, 4, values)
        (answer,) = client.take()
        assert answer.finalized_features_epoch >= 0
        assert [
            (one.name, one.min_version_level, one.max_version_level)
            for one in answer.finalized_features
        ] == [("group.version", 1, 1), ("transaction.version", 2, 2)]
        assert [
            (one.name, one.min_version, one.max_version) for one in answer.supported_features
        ] == [("group.version", 0, 1), ("transaction.version", 0, 2)]


@in_virtual_time
async def test_an_exception_in_a_handler_costs_its_connection_only() -> None:
    async with served_world() as served:
        client, other = served.client(), served.client()
        served.fetch.reader = None  # type: ignore[assignment]
        client.fetch({}, max_wait_ms=0)
        assert client.transport.is_closed
        assert not other.transport.is_closed
