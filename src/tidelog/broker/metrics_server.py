"""Answers Prometheus, over as much of HTTP as that takes: GET /metrics, one request a connection.

On an address of its own (`tidelog.metrics.host`, `tidelog.metrics.port`), because whoever may read
metrics need not be able to reach the log, and the other way round.

Bounds: REQUEST_MAX_BYTES of a request, REQUEST_TIMEOUT_S until it is complete and its answer read,
CONNECTIONS_MAX at a time; who goes beyond them is closed.

A broker of thousands of partitions has much to tell, and clients must not wait for that. So what
there is to tell is looked at in turns, and written down on a thread, once at a time: who asks while
an answer is being made gets that one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Protocol, cast

from tidelog.base.errors import ConfigError
from tidelog.broker.large_requests import Aside
from tidelog.broker.network import Network, Reserved
from tidelog.telemetry.metrics import CONTENT_TYPE, Family, exposition

logger = logging.getLogger(__name__)

REQUEST_MAX_BYTES = 8_192
REQUEST_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 16
BACKLOG = 16
PATH = "/metrics"


class Seen(Protocol):
    """What was there to tell at some moment. It does not change: a thread reads it."""

    def __len__(self) -> int:
        """How much it is, roughly."""
        ...

    def families(self) -> Iterable[Family]: ...


class MetricsServer:
    """Listens, and tells what `look` finds at that moment."""

    def __init__(
        self, network: Network, look: Callable[[], Awaitable[Seen]], tasks: asyncio.TaskGroup
    ) -> None:
        self._network = network
        self._look = look
        self._tasks = tasks
        self._aside = Aside()
        self._address: Reserved | None = None
        self._readers: set[_Reader] = set()
        self._making: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> int:
        """Serve from now on; the port. ConfigError names the setting if it cannot be had."""
        exposition(())  # Loads what it takes: later, all clients would wait for that.
        try:
            self._address = await self._network.reserve(host, port, backlog=BACKLOG)
            await self._address.listen(lambda: _Reader(self._on_request, self._readers))
        except (OSError, UnicodeError) as error:
            self.close()
            raise ConfigError(
                f"tidelog.metrics.port: cannot listen on {host}:{port}: {error}"
            ) from error
        logger.info("metrics served", extra={"host": host, "port": self._address.port})
        return self._address.port

    def close(self) -> None:
        """Stop listening, and hang up on whoever is connected."""
        if self._address is not None:
            self._address.close()
            self._address = None
        if self._making is not None:
            self._making.cancel()
        for reader in tuple(self._readers):
            reader.hang_up()

    def _on_request(self, head: bytes, reader: "_Reader") -> None:
        """Answer a request that begins with `head`, now or later."""
        line, _, _ = head.partition(b"\r\n")
        method, _, rest = line.decode("latin-1").partition(" ")
        target, _, version = rest.rpartition(" ")
        is_head = method == "HEAD"
        if not version.startswith("HTTP/1."):
            sentence = b"This is not HTTP/1.\n"
            reader.answer(_response(HTTPStatus.BAD_REQUEST, sentence, is_head=False))
        elif method not in ("GET", "HEAD"):
            reader.answer(_response(HTTPStatus.METHOD_NOT_ALLOWED, b"", is_head=False))
        elif target.partition("?")[0] != PATH:
            sentence = f"There is {PATH}.\n".encode()
            reader.answer(_response(HTTPStatus.NOT_FOUND, sentence, is_head=is_head))
        else:
            self._tell(reader, is_head=is_head)

    def _tell(self, reader: "_Reader", *, is_head: bool) -> None:
        reader.waits_for_head = is_head
        if self._making is None:
            self._making = self._tasks.create_task(self._make())

    async def _make(self) -> None:
        status = HTTPStatus.OK
        try:
            seen = await self._look()
            body = await self._aside.run(lambda: exposition(seen.families()), count=len(seen))
        except Exception:  # Who looks at a broker must not end it.
            logger.exception("metrics cannot be told")
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, b"See the broker's log.\n"
        finally:
            self._making = None
        for reader in tuple(self._readers):
            if reader.waits_for_head is not None:
                reader.answer(_response(status, body, is_head=reader.waits_for_head))


class _Reader(asyncio.Protocol):
    """One connection: a request, its answer, the end."""

    def __init__(
        self, on_request: "Callable[[bytes, _Reader], None]", others: "set[_Reader]"
    ) -> None:
        self._on_request = on_request
        self._others = others
        self._received = bytearray()
        self._has_asked = False
        # Whether the head is all it wants; None if it does not wait for metrics.
        self.waits_for_head: bool | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        given = cast(asyncio.Transport, transport)
        if len(self._others) >= CONNECTIONS_MAX:
            given.abort()
            return
        self._others.add(self)
        self._transport = given
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(REQUEST_TIMEOUT_S, self.hang_up)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self._has_asked:
            return  # What comes behind the request is nobody's.
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._has_asked = True
            self._on_request(bytes(self._received), self)
        elif len(self._received) > REQUEST_MAX_BYTES:
            self._transport.abort()

    def answer(self, data: bytes) -> None:
        """The end, also if nobody is there any more to hear it."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(data)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def hang_up(self) -> None:
        assert self._transport is not None
        self._transport.abort()


def _response(status: HTTPStatus, body: bytes, *, is_head: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {CONTENT_TYPE}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("ascii") + (b"" if is_head else body)
