"""What a person points at in a record, such as the id that an application gave it.

    key               the record's key
    header:guid       the last header of that name; the broker looks there as well (D5)
    json:$.order.id   a field of the value, which is JSON; also $.items[0].id and $['order id']

A field is bytes, and null where a record does not have it. Of JSON it is the text, in UTF-8, of

    a string           as it is
    true and false     as they are
    a number           in decimal and without zeros at its end: 7, 7.0 and 7.00 are all 7

Objects, arrays and null are no field. Nor is a number that is written with an exponent, or has more
than 38 digits or decimal places: nobody counts on its last digit. A value that is no JSON has no
fields, and the same is said of one that is not UTF-8, has half of a surrogate pair, or a name twice
in one object. What follows behind the first JSON value is not looked at.

`tidelog.pipeline.record_fields` makes Spark columns of the same meaning; a test holds them
together.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from tidelog.base.errors import ConfigError
from tidelog.client.outgoing_record import OutgoingRecord

DIGITS_MAX: Final = 38
"""Of a number, and of its decimal places: Spark's decimals have no more."""
NUMBER_CHARACTERS_MAX: Final = 1_000
"""A value with a longer number is no JSON: Spark's parser reads none."""

_STEP: Final = re.compile(r"\.([^\s.\[\]*'\"]+)|\[([0-9]{1,9})\]|\['([^']+)'\]")
_PATH: Final = re.compile(rf"\$(?:{_STEP.pattern})+")

Finder: TypeAlias = Callable[[OutgoingRecord], bytes | None]


@dataclass(frozen=True, slots=True)
class KeyField:
    """The key of a record."""

    def __str__(self) -> str:
        return "key"


@dataclass(frozen=True, slots=True)
class HeaderField:
    """The value of the last header called `name`."""

    name: str

    def __str__(self) -> str:
        return f"header:{self.name}"


@dataclass(frozen=True, slots=True)
class JsonField:
    """What a path such as `$.order.id` leads to in a value that is JSON."""

    path: str

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise ConfigError(f"'{self.path}' is no path in JSON such as $.order.id")

    @property
    def steps(self) -> tuple[str | int, ...]:
        """Names and indexes on the way."""
        return tuple(
            int(step[2]) if step[2] else step[1] or step[3] for step in _STEP.finditer(self.path)
        )

    def __str__(self) -> str:
        return f"json:{self.path}"


RecordField = KeyField | HeaderField | JsonField
DEFAULT_ID_FIELD: Final = HeaderField("tidelog-id")


def parse_field(option: str, text: str) -> RecordField:
    """Raises ConfigError, which names the option."""
    kind, _, rest = text.partition(":")
    match kind:
        case "key" if text == "key":
            return KeyField()
        case "header" if rest:
            return HeaderField(rest)
        case "json" if _PATH.fullmatch(rest):
            return JsonField(rest)
        case "json":
            raise ConfigError(
                f"{option} is '{text}', but a path in JSON is such as json:$.order.id"
            )
        case _:
            raise ConfigError(f"{option} is '{text}' but must be key, header:NAME or json:$.PATH")


def field_finder(field: RecordField) -> Finder:
    """A function that finds the field in a record; None if it does not have it."""
    match field:
        case KeyField():
            return lambda record: record.key
        case HeaderField(name):
            return lambda record: _last_header(record, name)
        case JsonField():
            steps = field.steps
            return lambda record: _json_field(record.value, steps)


def _last_header(record: OutgoingRecord, name: str) -> bytes | None:
    for other, data in reversed(record.headers):
        if other == name:
            return data
    return None


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def _number(text: str) -> _Number:
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise ValueError("a number is too long")
    return _Number(text)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_decode = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_number,
    parse_float=_number,
    parse_constant=_no_constant,
).raw_decode


def _json_field(value: bytes | None, steps: Sequence[str | int]) -> bytes | None:
    try:
        text = (value or b"").decode().lstrip(" \t\r\n")
        found, _ = _decode(text)
        if "\\u" in text:
            _require_whole_characters(found)
    except (ValueError, RecursionError):
        return None
    for step in steps:
        found = _inside(found, step)
    match found:
        case True | False:
            return b"true" if found else b"false"
        case _Number():
            return _decimal(found)
        case str():
            return found.encode()
        case _:
            return None


def _require_whole_characters(found: object) -> None:
    """Escapes can make half of a surrogate pair, which has no UTF-8."""
    json.dumps(found, ensure_ascii=False).encode()


def _inside(found: object, step: str | int) -> object:
    match found, step:
        case dict(), str():
            return found.get(step)
        case list(), int() if step < len(found):
            return found[step]
        case _:
            return None


def _decimal(number: _Number) -> bytes | None:
    if "e" in number or "E" in number:
        return None
    _, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)  # It is a letter for infinity alone.
    if len(digits) > DIGITS_MAX or -exponent > DIGITS_MAX:
        return None
    plain = number.rstrip("0").rstrip(".") if "." in number else str(number)
    return b"0" if plain == "-0" else plain.encode()
