"""A leader that brokers fetch from, played by the test: it reads requests and writes answers, over
connections without sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.unit.broker.far_end import FarConnection, FarEnd
from tests.unit.broker.world import OTHER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.broker.replica_fetcher import FETCH_VERSION
from tidelog.broker.shortcuts import SHORTCUTS, Shortcuts
from tidelog.core.controller.changes import BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop
from tidelog.wire.api import ApiKey, RequestHeader, decode_request_header
from tidelog.wire.fetch import (
    FetchPartitionResult,
    FetchRequest,
    decode_fetch,
    encode_fetch_response,
)

SESSION = 77

Asked = dict[int, int]
"""Partitions that a request names, and from which offset on."""


class Unanswered(NamedTuple):
    connection: FarConnection
    header: RequestHeader
    request: FetchRequest


class Leader:
    """The far end, and what it was asked and has not answered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.far = FarEnd()
        world.far_end = self.far
        self.unanswered: list[Unanswered] = []

    async def asked(self) -> list[FetchRequest]:
        """What has arrived since this was last asked."""
        await self.world.settle()
        arrived = []
        for connection in self.far.connections:
            for frame in connection.requests():
                header = decode_request_header(frame)
                assert (header.api_key, header.api_version) == (ApiKey.FETCH, FETCH_VERSION)
                request = decode_fetch(frame, header.body_position, header.api_version)
                self.unanswered.append(Unanswered(connection, header, request))
                arrived.append(request)
        return arrived

    async def asked_once(self) -> FetchRequest:
        (request,) = await self.asked()
        return request

    def answer(
        self,
        *results: FetchPartitionResult,
        session_id: int = SESSION,
        error: ErrorCode = ErrorCode.NONE,
        topic_id: bytes | None = None,
    ) -> None:
        """The oldest request."""
        connection, header, _ = self.unanswered.pop(0)
        known = self.world.image.topics.get("t")
        assert known is not None
        topics = [(None, topic_id or known.topic_id.bytes, list(results))] if results else []
        buffers = encode_fetch_response(
            header.api_version,
            header.correlation_id,
            topics,
            throttle_ms=0,
            error_code=error,
            session_id=session_id,
            node_endpoints=(),
        )
        connection.send(b"".join(bytes(one) for one in buffers))


def named(request: FetchRequest) -> Asked:
    return {
        one.partition: one.fetch_offset for _, _, partitions in request.topics for one in partitions
    }


def forgotten(request: FetchRequest) -> list[int]:
    return [one for _, _, partitions in request.forgotten for one in partitions]


def registered(broker_id: BrokerId, epoch: int) -> BrokerRegistered:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"broker-{broker_id}", 9092)
    return BrokerRegistered(BrokerImage(broker_id, epoch, (endpoint,), None, LastStop.CLEAN))


@asynccontextmanager
async def followed(
    partitions: int = 1,
    *,
    settings: dict[str, str] | None = None,
    broker_settings: dict[str, str] | None = None,
    shortcuts: Shortcuts = SHORTCUTS,
) -> AsyncIterator[tuple[World, Leader]]:
    """A broker that follows another one, in an incremental session that has been opened."""
    async with broker_world(settings=broker_settings or {}, shortcuts=shortcuts) as world:
        leader = Leader(world)
        world.decide(registered(OTHER, 20))
        world.create("t", partitions=partitions, config=settings, state=replicated(OTHER, 3))
        yield world, leader
        for task in world.replicas.stop_fetching():
            await asyncio.wait([task])


async def opened(leader: Leader) -> None:
    """The first request was answered, with a session and nothing to copy; the next is parked."""
    await leader.asked_once()
    leader.answer()
    await leader.asked_once()
