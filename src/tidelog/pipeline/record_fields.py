"""What a person points at in a record: `key`, `header:guid`, `json:$.order.id`, `timestamp`.

A field is a column of text, null where a record does not have it. Keys and headers are bytes; as
text they are taken for UTF-8.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import Column

_JSON_PATH: Final = re.compile(r"\$(\.[^.\[\]*'\"]+|\[\d+\]|\['[^']+'\])+")


@dataclass(frozen=True, slots=True)
class KeyField:
    """The key of a record."""


@dataclass(frozen=True, slots=True)
class HeaderField:
    """The value of the last header of this name, as brokers take ids from there (D5)."""

    name: str


@dataclass(frozen=True, slots=True)
class JsonField:
    """What a path leads to in a value that is JSON."""

    path: str


RecordField = KeyField | HeaderField | JsonField


def parse_field(option: str, text: str) -> RecordField:
    """Raises OptionError naming `option`."""
    kind, _, rest = text.partition(":")
    match kind:
        case "key" if not rest:
            return KeyField()
        case "header" if rest:
            return HeaderField(rest)
        case "json" if _JSON_PATH.fullmatch(rest):
            return JsonField(rest)
        case "json":
            raise OptionError(
                f"{option} is {text!r}, but a path in JSON is such as json:$.order.id"
            )
        case _:
            raise OptionError(f"{option} is {text!r} but must be key, header:NAME or json:$.PATH")


def as_bytes(field: RecordField) -> "Column":
    """Exactly, for comparing."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    match field:
        case KeyField():
            return f.col("key")
        case HeaderField(name):
            named = f.filter(f.col("headers"), lambda header: header["key"] == f.lit(name))
            return f.try_element_at(named, f.lit(-1))["value"]
        case JsonField(path):
            return f.get_json_object(f.col("value").cast("string"), path).cast("binary")


def as_text(field: RecordField) -> "Column":
    """For people and for JSON."""
    return as_bytes(field).cast("string")
