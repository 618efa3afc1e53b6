"""From a frame to the handler of its API.

Two kinds of handler:

    direct   answers from the frame in the read callback: Produce, Fetch, Metadata, ...
    cold     gets a decoded message and may await: topics, configs, log dirs, ...

Cold handlers and the message library behind them are imported at first use (and warmed up in the
background after start), so that a broker starts and serves without them. While a cold request is
being worked on, its connection handles nothing else: a client that pipelines CreateTopics and
Produce finds its topic there. Large ones are read and answered aside (`large_requests.py`).

This is the top of a connection, which catches `Exception`; what a request leaves to be done later
is caught in `request_tasks.py`. Nobody else does that.
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from tidelog.base.errors import WireError
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.forwarding import FORWARDED, Forwarding
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.large_requests import LARGE_BYTES, LARGE_COUNT, LargeRequests
from tidelog.broker.loggers import BROKER_LOGGER
from tidelog.broker.request_tasks import RequestTasks
from tidelog.wire import messages
from tidelog.wire.api import (
    INTER_BROKER,
    SUPPORTED,
    ApiKey,
    RequestHeader,
    decode_request_header,
)
from tidelog.wire.incremental_alter_configs import has_resource_of

logger = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")


class DirectHandler(Protocol):
    """Answers in the read callback. Must not keep `frame`, which is read over afterwards."""

    def answer(
        self, connection: Connection, frame: memoryview, header: RequestHeader
    ) -> Answer: ...


class ColdHandler(Protocol):
    """Answers one decoded request, in the newest version's shape."""

    async def handle(self, request: object, context: "RequestContext") -> object: ...


class Postponed:
    """What a cold handler returns that is done with a request but for a wait for others.

    Nobody is kept waiting by it: the turn of a large request has ended by then. It is cancelled if
    the client goes away.
    """

    __slots__ = ("wait",)

    def __init__(self, wait: Callable[[], Awaitable[object]]) -> None:
        self.wait = wait


class RequestContext:
    """Who asks, and in which version."""

    __slots__ = ("api_version", "client_id", "listener_name", "peer_host")

    def __init__(
        self, *, api_version: int, client_id: str | None, peer_host: str, listener_name: str
    ) -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.peer_host = peer_host
        self.listener_name = listener_name


ColdHandlers = Mapping[ApiKey, ColdHandler]


class Dispatcher:
    """Knows the handler of every API the broker advertises."""

    def __init__(
        self,
        *,
        produce: ProduceHandler,
        direct: Mapping[ApiKey, DirectHandler],
        inter_broker: Mapping[ApiKey, DirectHandler],
        forwarding: Forwarding | None,
        load_cold: Callable[[], ColdHandlers],
        tasks: RequestTasks,
        large: LargeRequests,
    ) -> None:
        self._answer_repeated = produce.answer_repeated
        handlers = {ApiKey.PRODUCE: produce, **direct}
        self._direct = {
            int(key): (handler.answer, SUPPORTED[key].lowest, SUPPORTED[key].highest)
            for key, handler in handlers.items()
        }
        self._direct |= {
            int(key): (handler.answer, INTER_BROKER[key].lowest, INTER_BROKER[key].highest)
            for key, handler in inter_broker.items()
        }
        self._advertised = {*handlers}
        self._forwarding = forwarding
        self._load_cold = load_cold
        self._cold: ColdHandlers | None = None
        self._tasks = tasks
        self._large = large
        self._fallback = direct[ApiKey.API_VERSIONS]

    def dispatch(self, connection: Connection, frame: memoryview) -> Answer:
        """Handle one request. Raises WireError for what cannot be answered at all."""
        try:
            template = connection.produce_template
            if template is not None:
                answer = self._answer_repeated(connection, frame, template)
                if answer is not False:
                    return answer
            return self._dispatch(connection, frame)
        except (WireError, AssertionError):
            raise
        except Exception as error:
            logger.exception("request failed", extra={"peer": connection.peer_host})
            raise WireError("internal error while handling a request") from error

    def _dispatch(self, connection: Connection, frame: memoryview) -> Answer:
        header = decode_request_header(frame)
        entry = self._direct.get(header.api_key)
        if entry is not None and entry[1] <= header.api_version <= entry[2]:
            return entry[0](connection, frame, header)
        if header.api_key == ApiKey.API_VERSIONS:
            return self._fallback.answer(connection, frame, header)
        return self._dispatch_cold(connection, frame, header)

    def warm_up(self) -> None:
        """Import every cold handler now. Slow; for a thread after start."""
        if self._cold is None:
            cold = self._load_cold()
            assert {*cold, *self._advertised} == {*SUPPORTED}  # What is advertised works.
            messages.warm_up()
            self._cold = cold

    def _dispatch_cold(
        self, connection: Connection, frame: memoryview, header: RequestHeader
    ) -> PendingAnswer:
        key = _supported_key(header)
        pending = PendingAnswer(connection, exclusive=True)
        forwarding = self._forwarding
        # The frame is read over by the time it is decoded, so the request waits as a copy.
        if forwarding is not None and forwarding.is_needed and key in FORWARDED:
            work = self._forward(forwarding, pending, connection, bytes(frame), header)
        elif len(frame) > LARGE_BYTES:
            messages.require_size(key, len(frame) - header.body_position)
            work = self._run_large(pending, connection, bytes(frame), header)
        elif self._cold is None:
            work = self._load_then_run(pending, connection, bytes(frame), header)
        else:
            request = messages.decode_request(key, header.api_version, frame, header.body_position)
            work = self._run(pending, connection, request, header)
        self._tasks.start(connection, header.api_key, work)
        return pending

    async def _forward(
        self,
        forwarding: Forwarding,
        pending: PendingAnswer,
        connection: Connection,
        frame: bytes,
        header: RequestHeader,
    ) -> None:
        messages.require_size(ApiKey(header.api_key), len(frame) - header.body_position)
        answer = None
        if not await self._has_loggers(frame, header):
            answer = await forwarding.ask(frame, connection.peer_host)
        if answer is None:
            await self._run_large(pending, connection, frame, header)
        elif pending.is_wanted:
            # The correlation id is the client's own: the request was passed on as it is.
            pending.complete([_LENGTH.pack(len(answer)), answer])

    async def _has_loggers(self, frame: bytes, header: RequestHeader) -> bool:
        """Whether some of it is for this broker, whoever is controller."""
        if header.api_key != ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return False
        look = partial(has_resource_of, memoryview(frame), header, BROKER_LOGGER)
        return await self._large.aside.run(look, count=len(frame))

    async def answer_forwarded(self, frame: bytes, client_host: str) -> bytes:
        """Answer a request that another broker has passed on; both without their lengths.

        Raises WireError for what a client could not have been answered either.
        """
        view = memoryview(frame)
        header = decode_request_header(view)
        key = _supported_key(header)
        if key not in FORWARDED:
            raise WireError(f"{key.name} is not for the controller")
        messages.require_size(key, len(frame) - header.body_position)
        async with self._large.turn(len(frame)):
            if self._cold is None:
                await asyncio.to_thread(self.warm_up)
            request = await self._large.aside.run(partial(_decode, frame, header), count=len(frame))
        context = RequestContext(
            api_version=header.api_version,
            client_id=header.client_id,
            peer_host=client_host,
            listener_name="",
        )
        answer = await self._respond(request, header, context)
        assert not isinstance(answer, Postponed)  # The controller waits for nobody's fetches.
        return answer[_LENGTH.size :]

    async def _load_then_run(
        self, pending: PendingAnswer, connection: Connection, frame: bytes, header: RequestHeader
    ) -> None:
        """The first admin request of this broker: importing must not hold up the others."""
        await asyncio.to_thread(self.warm_up)
        await self._run(pending, connection, _decode(frame, header), header)

    async def _run_large(
        self, pending: PendingAnswer, connection: Connection, frame: bytes, header: RequestHeader
    ) -> None:
        async with self._large.turn(len(frame)):
            if self._cold is None:
                await asyncio.to_thread(self.warm_up)
            if not pending.is_wanted:
                return
            request = await self._large.aside.run(partial(_decode, frame, header), count=len(frame))
            answer = await self._respond(request, header, _context(connection, header))
        await self._complete(pending, answer, header)

    async def _run(
        self,
        pending: PendingAnswer,
        connection: Connection,
        request: object,
        header: RequestHeader,
    ) -> None:
        answer = await self._respond(request, header, _context(connection, header))
        await self._complete(pending, answer, header)

    async def _complete(
        self, pending: PendingAnswer, answer: bytes | Postponed, header: RequestHeader
    ) -> None:
        if isinstance(answer, Postponed) and pending.is_wanted:
            task = asyncio.current_task()
            assert task is not None
            pending.on_abandoned(partial(_cancel, task))
            answer = await self._encode(await answer.wait(), header)
        if pending.is_wanted:
            assert not isinstance(answer, Postponed)
            pending.complete([answer])

    async def _respond(
        self, request: object, header: RequestHeader, context: RequestContext
    ) -> bytes | Postponed:
        assert self._cold is not None
        response = await self._cold[ApiKey(header.api_key)].handle(request, context)
        if isinstance(response, Postponed):
            return response
        return await self._encode(response, header)

    async def _encode(self, response: object, header: RequestHeader) -> bytes:
        return await self._large.aside.run(
            partial(messages.encode_response, response, header.api_version, header.correlation_id),
            count=messages.count_parts(response, enough=LARGE_COUNT),
        )


def _cancel(task: "asyncio.Task[object]") -> None:
    task.cancel()


def _context(connection: Connection, header: RequestHeader) -> RequestContext:
    return RequestContext(
        api_version=header.api_version,
        client_id=header.client_id,
        peer_host=connection.peer_host,
        listener_name=connection.listener_name,
    )


def _decode(frame: bytes, header: RequestHeader) -> object:
    key, view = ApiKey(header.api_key), memoryview(frame)
    return messages.decode_request(key, header.api_version, view, header.body_position)


def _supported_key(header: RequestHeader) -> ApiKey:
    try:
        key = ApiKey(header.api_key)
    except ValueError:
        raise WireError(f"unknown api key {header.api_key}") from None
    versions = SUPPORTED.get(key)
    if versions is None or not versions.lowest <= header.api_version <= versions.highest:
        raise WireError(f"{key.name} version {header.api_version} is not supported")
    return key
