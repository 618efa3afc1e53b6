"""How a network is steered: a JSON object on a line, answered by another, as often as one likes.

    {"command": "cut", "these": ["broker 1"], "those": ["broker 2", "clients"]}
    {"command": "slow", "these": ["broker 1"], "those": ["clients"], "delay_ms": 200}
    {"command": "heal", "these": ["broker 1"], "those": ["broker 2"]}
    {"command": "heal"}                                                     everything
    {"command": "add", "route": {"port": 12004, "party": "broker 4", ...}}  as in `network.json`
    {"command": "remove", "party": "broker 4"}                              its routes
    {"command": "status"}
    {"command": "stop"}

    {"ok": true}      {"ok": true, "status": {...}}      {"error": "a sentence"}

A refused command has changed nothing. Not here: whether the parties exist (`process.py`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, assert_never

from tidelog.lab.network.errors import CommandRefused, NetworkDied
from tidelog.lab.network.links import DELAY_MAX_MS
from tidelog.lab.network.parties import Party, parse_party
from tidelog.lab.network.routes import Route, decode_route
from tidelog.lab.network.status import LinkStatus, NetworkStatus, PairStatus
from tidelog.lab.processes import ProcessIdentity

LINE_MAX_BYTES: Final = 64 * 1024
_GROUP_MAX: Final = 1_000
_QUOTED_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Cut:
    these: tuple[Party, ...]
    those: tuple[Party, ...]


@dataclass(frozen=True, slots=True)
class Slow:
    these: tuple[Party, ...]
    those: tuple[Party, ...]
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Heal:
    these: tuple[Party, ...]
    those: tuple[Party, ...]


@dataclass(frozen=True, slots=True)
class HealAll:
    pass


@dataclass(frozen=True, slots=True)
class AddRoute:
    route: Route


@dataclass(frozen=True, slots=True)
class RemoveRoutes:
    party: Party


@dataclass(frozen=True, slots=True)
class AskStatus:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    pass


Command = Cut | Slow | Heal | HealAll | AddRoute | RemoveRoutes | AskStatus | Stop


def encode_command(command: Command) -> bytes:
    """One line, with its end."""
    match command:
        case Cut(these, those):
            content: dict[str, object] = {"command": "cut", "these": these, "those": those}
        case Slow(these, those, delay_ms):
            content = {"command": "slow", "these": these, "those": those, "delay_ms": delay_ms}
        case Heal(these, those):
            content = {"command": "heal", "these": these, "those": those}
        case HealAll():
            content = {"command": "heal"}
        case AddRoute(route):
            content = {"command": "add", "route": asdict(route)}
        case RemoveRoutes(party):
            content = {"command": "remove", "party": party}
        case AskStatus():
            content = {"command": "status"}
        case Stop():
            content = {"command": "stop"}
        case _:
            assert_never(command)
    return _line(content)


def decode_command(line: bytes) -> Command:
    """What somebody wants; CommandRefused says what is wrong with it."""
    content = _object(line)
    name = content.get("command")
    decode = _DECODERS.get(name) if isinstance(name, str) else None
    if decode is None:
        known = ", ".join(_DECODERS)
        raise CommandRefused(f"{_quoted(name)} is no command: they are {known}")
    return decode(content)


def encode_done() -> bytes:
    return _line({"ok": True})


def encode_refusal(reason: str) -> bytes:
    return _line({"error": reason})


def encode_status(status: NetworkStatus) -> bytes:
    return _line({"ok": True, "status": asdict(status)})


def decode_done(line: bytes) -> None:
    """Return if the answer is that it was done; CommandRefused with the reason if it was not."""
    _answer(line)


def decode_status(line: bytes) -> NetworkStatus:
    """The answer to AskStatus."""
    answer = _answer(line)
    try:
        return _status(answer["status"])
    except (ValueError, KeyError, TypeError) as error:
        raise NetworkDied(f"the network's answer is none: {error!r}") from error


def _status(content: object) -> NetworkStatus:
    if not isinstance(content, Mapping):
        raise TypeError("no object")
    return NetworkStatus(
        process=ProcessIdentity(**content["process"]),
        routes=tuple(Route(**each) for each in content["routes"]),
        links=tuple(LinkStatus(**each) for each in content["links"]),
        pairs=tuple(PairStatus(**each) for each in content["pairs"]),
        refused_count=int(content["refused_count"]),
    )


def _answer(line: bytes) -> Mapping[str, object]:
    try:
        content = _object(line)
    except CommandRefused as error:
        raise NetworkDied("the network gave no answer") from error
    if "ok" not in content:
        raise CommandRefused(str(content.get("error")))
    return content


def _heal(content: Mapping[str, object]) -> Heal | HealAll:
    if "these" not in content and "those" not in content:
        return HealAll()
    return Heal(*_groups(content))


def _route(content: Mapping[str, object]) -> Route:
    try:
        return decode_route(content.get("route"))
    except (ValueError, KeyError, TypeError) as error:
        raise CommandRefused(f"'route' is none: {error!r}") from error


def _groups(content: Mapping[str, object]) -> tuple[tuple[Party, ...], tuple[Party, ...]]:
    these, those = _group(content, "these"), _group(content, "those")
    both = set(these) & set(those)
    if both:
        raise CommandRefused(f"{min(both)} is on both sides of the link")
    return these, those


def _group(content: Mapping[str, object], key: str) -> tuple[Party, ...]:
    names = content.get(key)
    if not isinstance(names, list) or not 0 < len(names) <= _GROUP_MAX:
        raise CommandRefused(f"'{key}' has to be a list of parties")
    return tuple(_party(name) for name in names)


def _party(name: object) -> Party:
    if not isinstance(name, str):
        raise CommandRefused(f"{_quoted(name)} is no party's name")
    return parse_party(name)


def _delay_ms(content: Mapping[str, object]) -> int:
    delay_ms = content.get("delay_ms")
    # True is 1 to Python.
    if type(delay_ms) is not int or not 0 <= delay_ms <= DELAY_MAX_MS:
        raise CommandRefused(f"'delay_ms' is {_quoted(delay_ms)}, not 0 to {DELAY_MAX_MS}")
    return delay_ms


def _object(line: bytes) -> Mapping[str, object]:
    try:
        content = json.loads(line)
    # What is nested deeper than Python recurses is not read to its end.
    except (ValueError, RecursionError) as error:
        raise CommandRefused("a command is a JSON object on one line") from error
    if not isinstance(content, dict):
        raise CommandRefused("a command is a JSON object on one line")
    return content


def _line(content: Mapping[str, object]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}..."


_DECODERS: Final[Mapping[str, Callable[[Mapping[str, object]], Command]]] = {
    "cut": lambda content: Cut(*_groups(content)),
    "slow": lambda content: Slow(*_groups(content), _delay_ms(content)),
    "heal": _heal,
    "add": lambda content: AddRoute(_route(content)),
    "remove": lambda content: RemoveRoutes(_party(content.get("party"))),
    "status": lambda _content: AskStatus(),
    "stop": lambda _content: Stop(),
}
