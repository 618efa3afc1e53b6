"""Listeners: names, hosts and ports out of `listeners` and its relatives.

A broker may listen under several names (`PLAINTEXT`, `INTERNAL`, ...); a client that arrived
through one of them is told that name's advertised address. `listener.security.protocol.map` says
what a name stands for. Only PLAINTEXT is served: a listener that asks for TLS or SASL is refused,
because serving it in the clear would be worse than not starting.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tidelog.base.errors import ConfigError

_ENDPOINT = re.compile(r"([A-Za-z0-9_]+)://(?:\[([0-9a-fA-F:.%]+)\]|([^:/\[\]]*)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Listener:
    """One name with the address it is bound to, or advertised as. An empty host is all of them."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(setting_name: str, endpoints: tuple[str, ...]) -> tuple[Listener, ...]:
    """The listeners that `setting_name` holds; no name may appear twice."""
    listeners = tuple(_parse(setting_name, endpoint) for endpoint in endpoints)
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{setting_name} names the listener {name} twice")
    return listeners


def parse_protocol_map(setting_name: str, text: str) -> Mapping[str, str]:
    """What each listener name of `listener.security.protocol.map` stands for."""
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or not name.strip():
            raise ConfigError(f"{setting_name} holds '{pair}', which is not name:protocol")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def require_plaintext(listener: Listener, protocols: Mapping[str, str]) -> None:
    """Refuse a listener whose clients would expect encryption or a password."""
    protocol = protocols.get(listener.name)
    if protocol is None:
        raise ConfigError(
            f"listeners holds {listener}, but listener.security.protocol.map "
            f"does not say what {listener.name} is"
        )
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"listeners holds {listener}, but {protocol} is not served, only PLAINTEXT"
        )


def require_different_addresses(listeners: Sequence[Listener]) -> None:
    """Refuse two listeners on one port, of which only one could ever be reached."""
    for one, other in combinations(listeners, 2):
        is_same_port = one.port == other.port != 0
        if is_same_port and (one.host == other.host or _is_everywhere(one, other)):
            raise ConfigError(f"listeners holds {one} and {other}, which have the same port")


def _is_everywhere(one: Listener, other: Listener) -> bool:
    """Whether one of the two takes in the address of the other; IPv4 and IPv6 are apart."""
    hosts = (one.host, other.host)
    return "" in hosts or ("0.0.0.0" in hosts and not any(":" in host for host in hosts))


def _parse(setting_name: str, endpoint: str) -> Listener:
    found = _ENDPOINT.fullmatch(endpoint)
    if found is None:
        raise ConfigError(f"{setting_name} holds '{endpoint}', which is not NAME://host:port")
    name, bracketed, plain, port = found.groups()
    if int(port) > 65_535:
        raise ConfigError(f"{setting_name} holds '{endpoint}', whose port is above 65535")
    return Listener(name.upper(), bracketed or plain or "", int(port))
