"""Brokers that are reached through proxies: which ports are whose, and how the brokers are told.

A broker listens at a port that nobody is told of, and advertises its proxy's; so clients and other
brokers come through the proxy, and whoever looks after the cluster reaches the broker itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from tidelog.lab.network.parties import broker_party, server_party
from tidelog.lab.network.routes import Route
from tidelog.lab.ports import choose_ports

_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ProxiedPorts:
    """By broker: the port that it listens at, and its proxy's."""

    listening: Mapping[int, int]
    advertised: Mapping[int, int]

    @classmethod
    def choose(cls, broker_ids: Sequence[int], advertised: Sequence[int] | None = None) -> Self:
        """Any that are free; `advertised` where people know the ports already."""
        count = len(broker_ids)
        chosen = choose_ports(_HOST, first_port=0, count=2 * count)
        proxies = chosen[count:] if advertised is None else advertised
        return cls(
            dict(zip(broker_ids, chosen[:count], strict=True)),
            dict(zip(broker_ids, proxies, strict=True)),
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
    for server_id, address, port in zip(server_ids, addresses, ports, strict=True):
        host, _, target_port = address.rpartition(":")
        routes.append(
            Route(
                port=port,
                target_host=host,
                target_port=int(target_port),
                party=server_party(server_id),
            )
        )
    return routes, ",".join(f"{_HOST}:{port}" for port in ports)
