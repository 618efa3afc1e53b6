"""Brokers that are reached through proxies: which ports are whose, and how the brokers are told.

A broker listens at a port that nobody is told of, and advertises its proxy's; so clients and other
brokers come through the proxy, and whoever looks after the cluster reaches the broker itself.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, Self

from tidelog.base.errors import ConfigError
from tidelog.config.properties import read_properties
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.parties import broker_party, server_party
from tidelog.lab.network.places import NetworkFolder
from tidelog.lab.network.routes import Route, read_routes
from tidelog.lab.ports import choose_ports, hold_any_port, hold_port
from tidelog.lab.state import BrokerState

_HOST: Final = "127.0.0.1"
_ZOOKEEPER_PORT: Final = 2181
_PORT: Final = re.compile(r":([0-9]+)")


@dataclass(frozen=True, slots=True)
class ProxiedPorts:
    """By broker: the port that it listens at, and its proxy's."""

    listening: Mapping[int, int]
    advertised: Mapping[int, int]

    @classmethod
    def choose(cls, broker_ids: Sequence[int], *, first_advertised: int) -> Self:
        """Proxies at that port and those that follow it, or all at any that are free if it is 0.

        Brokers listen at any that are free. PortInUse names a proxy's port that somebody has.
        """
        chance = random.SystemRandom()
        with ExitStack() as held:
            advertised = {
                broker_id: hold_port(held, _HOST, first_advertised + index)
                if first_advertised
                else hold_any_port(held, _HOST, chance)
                for index, broker_id in enumerate(broker_ids)
            }
            listening = {broker_id: hold_any_port(held, _HOST, chance) for broker_id in broker_ids}
        return cls(listening, advertised)

    def joined(self, other: Self) -> Self:
        """Those of both."""
        return type(self)(
            {**self.listening, **other.listening}, {**self.advertised, **other.advertised}
        )

    def without(self, broker_id: int) -> Self:
        return type(self)(
            {each: port for each, port in self.listening.items() if each != broker_id},
            {each: port for each, port in self.advertised.items() if each != broker_id},
        )

    def routes(self) -> list[Route]:
        return [
            Route(
                port=self.advertised[broker_id],
                target_host=_HOST,
                target_port=port,
                party=broker_party(broker_id),
            )
            for broker_id, port in self.listening.items()
        ]

    def bootstrap(self) -> str:
        return ",".join(f"{_HOST}:{port}" for port in self.advertised.values())


def server_routes(hosts: str, server_ids: Iterable[int]) -> tuple[list[Route], str]:
    """Proxies for the servers at `hosts`, in the order of their ids; and where those listen."""
    addresses = hosts.split(",")
    ports = choose_ports(_HOST, first_port=0, count=len(addresses))
    routes = []
    # Ids may go on for ever.
    for server_id, address, port in zip(server_ids, addresses, ports, strict=False):
        host, colon, target_port = address.rpartition(":")
        if colon and not target_port.isdecimal():
            raise ConfigError(f"'{address}' is no HOST:PORT of a ZooKeeper server")
        routes.append(
            Route(
                port=port,
                target_host=host if colon else address,
                target_port=int(target_port) if colon else _ZOOKEEPER_PORT,
                party=server_party(server_id),
            )
        )
    return routes, ",".join(f"{_HOST}:{port}" for port in ports)


def seen_by_clients(folder: ClusterFolder, broker: BrokerState) -> BrokerState:
    """The broker with the port by which clients reach it, which may be its proxy's."""
    return replace(broker, port=proxy_ports(folder).get(broker.id, broker.port))


def proxy_ports(folder: ClusterFolder) -> dict[int, int]:
    """By broker: the port of its proxy, by which clients reach it; without those that have none."""
    path = NetworkFolder(folder.root).routes_file
    if not path.exists():
        return {}
    proxies = {route.port for route in read_routes(path)}
    found: dict[int, int] = {}
    for broker_id in folder.broker_ids():
        properties = folder.properties_file(broker_id)
        told = read_properties(properties) if properties.exists() else {}
        for port in map(int, _PORT.findall(told.get("advertised.listeners", ""))):
            if port in proxies:
                found.setdefault(broker_id, port)
    return found
