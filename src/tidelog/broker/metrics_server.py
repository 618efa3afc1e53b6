"""Answers Prometheus, over as much of HTTP as that takes: GET /metrics, one request a connection.

On an address of its own (`tidelog.metrics.host`, `tidelog.metrics.port`), because whoever may read
metrics need not be able to reach the log, and the other way round.

Bounds: REQUEST_MAX_BYTES of a request, REQUEST_TIMEOUT_S until it is complete and its answer read,
CONNECTIONS_MAX at a time; who goes beyond them is closed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import cast

from tidelog.base.errors import ConfigError
from tidelog.broker.network import Network, Reserved
from tidelog.telemetry.metrics import CONTENT_TYPE, Family, exposition

logger = logging.getLogger(__name__)

REQUEST_MAX_BYTES = 8_192
REQUEST_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 16
BACKLOG = 16
PATH = "/metrics"

Gather = Callable[[], Iterable[Family]]


class MetricsServer:
    """Listens, and tells what `gather` finds at that moment."""

    def __init__(self, network: Network, gather: Gather) -> None:
        self._network = network
        self._gather = gather
        self._address: Reserved | None = None
        self._readers: set[_Reader] = set()

    async def listen(self, host: str, port: int) -> int:
        """Serve from now on; the port. ConfigError names the setting if it cannot be had."""
        exposition(())  # Loads what it takes: later, all clients would wait for that.
        try:
            self._address = await self._network.reserve(host, port, backlog=BACKLOG)
            await self._address.listen(lambda: _Reader(self._answer, self._readers))
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
        for reader in tuple(self._readers):
            reader.hang_up()

    def _answer(self, head: bytes) -> bytes:
        """To a request that begins with `head`."""
        line, _, _ = head.partition(b"\r\n")
        method, _, rest = line.decode("latin-1").partition(" ")
        target, _, version = rest.rpartition(" ")
        if not version.startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, b"This is not HTTP/1.\n", is_head=False)
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"", is_head=False)
        if target.partition("?")[0] != PATH:
            return _response(
                HTTPStatus.NOT_FOUND, f"There is {PATH}.\n".encode(), is_head=method == "HEAD"
            )
        body = exposition(self._gather())
        return _response(HTTPStatus.OK, body, is_head=method == "HEAD")


class _Reader(asyncio.Protocol):
    """One connection: a request, its answer, the end."""

    def __init__(self, answer: Callable[[bytes], bytes], others: "set[_Reader]") -> None:
        self._answer = answer
        self._others = others
        self._received = bytearray()
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
        if self._transport is None or self._transport.is_closing():
            return  # What comes behind the request is nobody's.
        self._received += data
        if b"\r\n\r\n" in self._received:
            self._transport.write(self._answer(bytes(self._received)))
            self._transport.close()
        elif len(self._received) > REQUEST_MAX_BYTES:
            self._transport.abort()

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
