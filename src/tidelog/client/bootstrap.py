"""The address list a client starts from, and whether anybody is there.

librdkafka keeps trying an address for minutes and reports failures on its own thread. A person at
a terminal wants to hear of a refused connection at once, so every client here knocks first.
"""

import socket
from typing import NamedTuple

from tidelog.base.errors import ConfigError
from tidelog.client.errors import ClusterUnreachable

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_PORT_DIGITS_MAX = 5


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """The addresses in `host:port,host:port`; ConfigError if it is anything else."""
    return tuple(_parse_address(part.strip(), text) for part in text.split(","))


def require_reachable(bootstrap: str, *, timeout_s: float) -> None:
    """Raise ClusterUnreachable unless one of the addresses accepts a connection."""
    refusals = []
    for address in parse_bootstrap(bootstrap):
        try:
            socket.create_connection(address, timeout=timeout_s).close()
        except OSError as error:
            refusals.append(f"{address} ({error.strerror or error})")
        except UnicodeError:
            # What Python says of an empty or overlong part of a name, before anybody is asked.
            refusals.append(f"{address} (not the name of a host)")
        else:
            return
    raise ClusterUnreachable(f"no broker answers at {', '.join(refusals)}")


def _parse_address(part: str, text: str) -> Address:
    host, colon, port = part.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ConfigError(f"bootstrap is '{text}' but must be host:port[,host:port...]")
    if len(port) > _PORT_DIGITS_MAX or not 0 < int(port) < 65_536:
        raise ConfigError(f"bootstrap is '{text}' but a port must be between 1 and 65535")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
