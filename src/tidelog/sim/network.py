"""The network of a simulation: TCP between simulated processes, with faults.

Each process gets a `ProcessNetwork`, which is the port `broker/network.py` asks for. Connections
carry asyncio protocols on `SimulatedTransport` (`transport.py`) over streams (`stream.py`), each on
a link (`links.py`) with a latency of its own: bytes of one connection stay in order, connections
overtake each other.

What can be done to it:

    cut, heal            one direction between two machines: bytes wait, connecting hangs
    isolate              both directions between a machine and all others
    set_conditions       slow, lossy links
    reset                every connection between two machines breaks, perhaps within a frame
    Process.kill         the system closes its connections: what it had written still arrives
    Process.pause        bytes wait; connections are still accepted, by the system
    power_off, power_on  a machine goes without a word: nobody hears of it, until it is back and
                         answers with resets

A machine is a name. A process that dies leaves its machine answering: connecting is refused.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Final

from tidelog.broker.network import ProtocolFactory, Reserved
from tidelog.sim.links import Conditions, Link
from tidelog.sim.process import Process
from tidelog.sim.stream import Signal, Stream
from tidelog.sim.transport import Address, SimulatedTransport
from tidelog.sim.world import World

FIRST_EPHEMERAL_PORT: Final = 32_768
# What a machine calls itself.
_OWN_NAMES: Final = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0"})


class Host:
    """One machine: what listens there, and whether it has power."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.listeners: dict[int, SimulatedAddress] = {}
        self.ports = count(FIRST_EPHEMERAL_PORT)
        self.is_on = True
        self.unanswered: dict[Stream, None] = {}
        """Streams that sent something while it was off."""


class SimulatedNetwork:
    """See the module docstring."""

    def __init__(
        self,
        world: World,
        *,
        between: Conditions,
        within: Conditions,
        connect_timeout_s: float,
        window_bytes: int,
    ) -> None:
        """`between` machines and `within` one; a stream holds `window_bytes` that nobody read."""
        self.agenda = world.agenda
        self.trace = world.trace
        self.random = world.random_for("network")
        self.connect_timeout_s = connect_timeout_s
        self.window_bytes = window_bytes
        self.stream_numbers = count()
        self._between = between
        self._within = within
        self._hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._transports: dict[SimulatedTransport, None] = {}

    def attach(self, process: Process, host: str) -> "ProcessNetwork":
        """The network as `process`, which runs on the machine `host`, sees it."""
        return ProcessNetwork(self, process, self.host(host))

    @property
    def connection_count(self) -> int:
        """Ends of connections that have not been closed."""
        return len(self._transports)

    # -- faults ----------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets from `source` to `target`."""
        self.link(source, target).cut(self.agenda.now_s)
        self.trace.note("network", "link cut", {"source": source, "target": target})

    def heal(self, source: str, target: str) -> None:
        self.link(source, target).heal(self.agenda.now_s)
        self.trace.note("network", "link healed", {"source": source, "target": target})

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def heal_both(self, one: str, other: str) -> None:
        self.heal(one, other)
        self.heal(other, one)

    def isolate(self, host: str) -> None:
        """Cut `host` off from every other machine there is."""
        for other in self._hosts:
            if other != host:
                self.cut_both(host, other)

    def heal_all(self) -> None:
        for link in self._links.values():
            if link.is_cut:
                self.heal(link.source, link.target)

    def set_conditions(self, source: str, target: str, conditions: Conditions) -> None:
        """Change what a link is like, for what is sent from now on."""
        self.link(source, target).conditions = conditions
        self.trace.note("network", "link changed", {"source": source, "target": target})

    def restore_conditions(self) -> None:
        """Every link is as it was in the beginning; what is cut stays so."""
        for link in self._links.values():
            link.conditions = self._usual(link.source, link.target)

    def reset(self, one: str, other: str) -> None:
        """Break every connection between two machines; of what is under way some arrives."""
        pair = {one, other}
        for transport in tuple(self._transports):
            if {transport.local.host, transport.peer.host} == pair:
                transport.outgoing.break_off(self.random)
        self.trace.note("network", "connections reset", {"one": one, "other": other})

    def power_off(self, host: str) -> None:
        """Silence a machine. Its processes must be killed after this, in the same moment."""
        self.host(host).is_on = False
        self.trace.note(host, "power off", {})

    def power_on(self, host: str) -> None:
        """The machine answers again, with resets, to whoever still takes it for connected."""
        machine = self.host(host)
        machine.is_on = True
        unanswered, machine.unanswered = machine.unanswered, {}
        for stream in unanswered:
            stream.target.outgoing.signal(Signal.RESET)
        self.trace.note(host, "power on", {})

    # -- for processes and transports ------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = Link(source, target, self._usual(source, target), self.random)
            self._links[source, target] = link
        return link

    def on_connect(self, transport: SimulatedTransport) -> None:
        """A connection asks to be accepted by the machine of `transport`, its far end."""
        listener = transport.host.listeners.get(transport.local.port)
        if listener is None or listener.factory is None:
            transport.refuse()
        else:
            transport.accept(listener.process, listener.accept)

    def opened(self, transport: SimulatedTransport) -> None:
        self._transports[transport] = None

    def closed(self, transport: SimulatedTransport) -> None:
        self._transports.pop(transport, None)

    def knows(self, host: str) -> bool:
        return host in self._hosts

    def transports_of(self, process: Process) -> Iterator[SimulatedTransport]:
        return iter([each for each in self._transports if each.process is process])

    def host(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = Host(name)
        return host

    def _usual(self, source: str, target: str) -> Conditions:
        return self._within if source == target else self._between


class ProcessNetwork:
    """What one process can do: the `Network` of `broker/network.py`."""

    def __init__(self, network: SimulatedNetwork, process: Process, host: Host) -> None:
        self._network = network
        self._process = process
        self._host = host
        self._addresses: list[SimulatedAddress] = []
        process.at_end(self._on_end)

    async def reserve(self, host: str, port: int, *, backlog: int) -> Reserved:
        if host not in _OWN_NAMES and host != self._host.name:
            raise _os_error(errno.EADDRNOTAVAIL)
        if port == 0:
            port = next(each for each in self._host.ports if each not in self._host.listeners)
        elif port in self._host.listeners:
            raise _os_error(errno.EADDRINUSE)
        address = SimulatedAddress(self._process, self._host, port)
        self._host.listeners[port] = address
        self._addresses.append(address)
        return address

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
        target = self._host.name if host in _OWN_NAMES else host
        if not self._network.knows(target):
            raise socket.gaierror(socket.EAI_NONAME, f"no machine is called {host}")
        loop = self._process.loop
        connected: asyncio.Future[None] = loop.create_future()
        transport = self._network_transport(Address(target, port))
        transport.connect(connected, factory)
        time_out = loop.call_later(self._network.connect_timeout_s, partial(_give_up, connected))
        try:
            await connected  # Ended by the far end or by the time-out.
        except BaseException:
            transport.abandon()
            raise
        finally:
            time_out.cancel()

    def _network_transport(self, target: Address) -> SimulatedTransport:
        """The near end of a new connection."""
        local = Address(self._host.name, next(self._host.ports))
        network = self._network
        near = SimulatedTransport(network, self._host, self._process, local=local, peer=target)
        far_host = network.host(target.host)
        far = SimulatedTransport(network, far_host, None, local=target, peer=local)
        near.outgoing = Stream(network, near, far)
        far.outgoing = Stream(network, far, near)
        near.incoming, far.incoming = far.outgoing, near.outgoing
        return near

    def _on_end(self) -> None:
        for address in self._addresses:
            address.close()
        for transport in self._network.transports_of(self._process):
            transport.on_process_end()


class SimulatedAddress:
    """A port of a machine: the `Reserved` of `broker/network.py`."""

    def __init__(self, process: Process, host: Host, port: int) -> None:
        self.process = process
        self.port = port
        self.factory: ProtocolFactory | None = None
        self._host = host

    async def listen(self, factory: ProtocolFactory) -> None:
        self.factory = factory

    def accept(self, transport: SimulatedTransport) -> None:
        """In its process: somebody has connected."""
        if self.factory is None:
            transport.on_process_end()  # Nobody will take it: the system resets it.
        else:
            transport.begin(self.factory())

    def close(self) -> None:
        self.factory = None
        if self._host.listeners.get(self.port) is self:
            del self._host.listeners[self.port]


def _give_up(connected: "asyncio.Future[None]") -> None:
    if not connected.done():
        connected.set_exception(_os_error(errno.ETIMEDOUT))


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
