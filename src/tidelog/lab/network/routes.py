"""Where a network listens, and whom it leads to: `network.json` in the cluster's folder.

    {"version": 1, "routes": [
      {"port": 12001, "target_host": "127.0.0.1", "target_port": 9092, "party": "broker 1"}, ...]}

A party may be behind several routes: a broker of Kafka's has one for clients and brokers, and one
for its controller. It says what a network is started with, never whether one runs, nor which
routes it was given later.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tidelog.lab.network.errors import NetworkError
from tidelog.lab.network.parties import Party, parse_party
from tidelog.lab.ports import PORT_MAX

LISTEN_HOST: Final = "127.0.0.1"
ROUTES_MAX: Final = 256
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Who connects to `port` of the loopback interface reaches `party`, which is at the target."""

    port: int
    target_host: str
    target_port: int
    party: Party


def write_routes(path: Path, routes: Sequence[Route]) -> None:
    """Replace the file; a reader sees the old content or the new."""
    content = {"version": _VERSION, "routes": [asdict(route) for route in routes]}
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def read_routes(path: Path) -> tuple[Route, ...]:
    """What was written; NetworkError if it is not there, or no set of routes."""
    try:
        return decode_routes(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise NetworkError(f"{path} does not say where to listen: {error!r}") from error


def decode_routes(text: str) -> tuple[Route, ...]:
    """ValueError, KeyError or TypeError for what is not the file's format."""
    content = json.loads(text)
    if content["version"] != _VERSION:
        raise ValueError(f"version {content['version']}")
    routes = tuple(decode_route(route) for route in content["routes"])
    if not 0 < len(routes) <= ROUTES_MAX:
        raise ValueError(f"{len(routes)} routes, not 1 to {ROUTES_MAX}")
    if len({route.port for route in routes}) < len(routes):
        raise ValueError("two routes with one port")
    return routes


def decode_route(content: object) -> Route:
    """One of them; raises the same, and NoSuchParty."""
    if not isinstance(content, Mapping):
        raise TypeError("no object")
    return Route(
        port=_port(content["port"]),
        target_host=str(content["target_host"]),
        target_port=_port(content["target_port"]),
        party=parse_party(str(content["party"])),
    )


def _port(value: object) -> int:
    if not isinstance(value, int) or not 0 < value <= PORT_MAX:
        raise ValueError(f"{value!r} is no port")
    return value
