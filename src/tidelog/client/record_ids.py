"""Which record is which: ids that applications give their records, and where they put them.

    header:guid    the last header of that name; the broker looks there as well (D5)
    key            the record's key
    json:$.id      a field of the value, which is a JSON object; json:$.order.id is one further down

An id is bytes. Of JSON it is the text of a string or of a whole number, in UTF-8.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ConfigError

Headers = Sequence[tuple[str, bytes | None]]

_JSON_PATH: Final = re.compile(r"\$((?:\.[A-Za-z_][A-Za-z0-9_-]*)+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class HeaderId:
    """The last header called `name`."""

    name: str

    def __str__(self) -> str:
        return f"header:{self.name}"


@dataclass(frozen=True, slots=True)
class KeyId:
    """The key."""

    def __str__(self) -> str:
        return "key"


@dataclass(frozen=True, slots=True)
class JsonId:
    """A field of the value, by the names on the way to it."""

    names: tuple[str, ...]

    @property
    def path(self) -> str:
        return ".".join(("$", *self.names))

    def __str__(self) -> str:
        return f"json:{self.path}"


IdSource = HeaderId | KeyId | JsonId
DEFAULT_ID_SOURCE: Final = HeaderId("tidelog-id")


def parse_id_source(option: str, text: str) -> IdSource:
    """Raises ConfigError, which names the option."""
    kind, _, rest = text.partition(":")
    if text == "key":
        return KeyId()
    if kind == "header" and rest:
        return HeaderId(rest)
    path = _JSON_PATH.fullmatch(rest) if kind == "json" else None
    if path is not None:
        return JsonId(tuple(path[1][1:].split(".")))
    raise ConfigError(f"{option} is '{text}' but must be header:NAME, key or json:$.NAME")


def find_id(
    source: IdSource, *, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes | None:
    """The id of a record; None if it has none."""
    match source:
        case KeyId():
            return key
        case HeaderId(name):
            return next((data for other, data in reversed(headers) if other == name), None)
        case JsonId(names):
            return _field(value, names)


def _field(value: bytes | None, names: Sequence[str]) -> bytes | None:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    if isinstance(found, str) or (isinstance(found, int) and not isinstance(found, bool)):
        return str(found).encode(errors="surrogatepass")
    return None
