"""How a broker listens and reaches other brokers: a port, and the real one over sockets.

The simulator puts its own network in this place. Both carry asyncio protocols: whoever is connected
gets `connection_made`, then bytes, then `connection_lost`. Failures to reserve or to connect are
OSErrors, whichever network it is; the callers say what that means.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Reserved(Protocol):
    """An address that is ours; nobody is accepted until `listen`."""

    @property
    def port(self) -> int: ...

    async def listen(self, factory: ProtocolFactory) -> None:
        """Accept connections, each with a protocol of its own. OSError if others listen there."""
        ...

    def close(self) -> None:
        """Accept nobody any more. Connections that were accepted stay."""
        ...


class Network(Protocol):
    """What a broker needs of the network."""

    async def reserve(self, host: str, port: int, *, backlog: int) -> Reserved:
        """Reserve an address; port 0 picks one. OSError, UnicodeError if `host` is no name."""
        ...

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        """Connect, and give the transport to the protocol that `factory` makes."""
        ...


class SocketNetwork:
    """The real one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def reserve(self, host: str, port: int, *, backlog: int) -> Reserved:
        return _ReservedSockets(
            self._loop, await _bound_sockets(self._loop, host, port), backlog=backlog
        )

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        await self._loop.create_connection(factory, host, port)


class _ReservedSockets:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: tuple[socket.socket, ...],
        *,
        backlog: int,
    ) -> None:
        self._loop = loop
        self._sockets = list(sockets)
        self._backlog = backlog
        self._listening: list[asyncio.Server] = []
        self.port: int = sockets[0].getsockname()[1]

    async def listen(self, factory: ProtocolFactory) -> None:
        while self._sockets:
            # uvloop says nothing if this fails, which it does if another process has begun to
            # listen there since we bound it.
            self._sockets[0].listen(self._backlog)
            one = self._sockets.pop(0)
            self._listening.append(
                await self._loop.create_server(factory, sock=one, backlog=self._backlog)
            )

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        self._sockets.clear()
        for listening in self._listening:
            listening.close()
        self._listening.clear()


async def _bound_sockets(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> tuple[socket.socket, ...]:
    """One socket for every address of `host`, all on one port; no host is every address."""
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _kind, _protocol, _name, address in sorted(dict.fromkeys(found)):
            if family == socket.AF_INET6 and sockets and not _has_ipv6(address[0]):
                continue  # `localhost` and "every address" name IPv6 where there is none.
            one = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(one)
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], port, *address[2:]))
            port = one.getsockname()[1]
    except OSError:
        for one in sockets:
            one.close()
        raise
    return tuple(sockets)


def _has_ipv6(host: int | str) -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
