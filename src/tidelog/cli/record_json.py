"""A record as one line of JSON: `consume --json` writes it, `produce --input json` reads it.

    {"partition": 0, "offset": 7, "timestamp": 1741000000000, "key": "k", "value": "v",
     "headers": [{"name": "trace", "value": "1"}]}

Keys and values are bytes and JSON is text. Bytes that are not UTF-8 are written as base64, and a
field next to them says so: `"value": "/w==", "value_encoding": "base64"`. A header has `encoding`.
Reading what was written gives the same bytes. `headers` is null where they cannot be read.
"""

import base64
import json
from collections.abc import Iterable, Mapping

from tidelog.base.errors import ConfigError
from tidelog.client.outgoing_record import Header, OutgoingRecord
from tidelog.client.reader import FetchedRecord

_BASE64 = "base64"
_TIMESTAMP_MS_MAX = 2**63 - 1
# json.dumps() with an argument builds an encoder for every call.
_encode = json.JSONEncoder(ensure_ascii=False).encode


def record_to_json(record: FetchedRecord) -> str:
    """The record on one line, without its end."""
    fields: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    _put(fields, "key", "key_encoding", record.key)
    _put(fields, "value", "value_encoding", record.value)
    headers = record.headers
    fields["headers"] = None if headers is None else [_header(*header) for header in headers]
    return _encode(fields)


def record_from_json(line: bytes, where: str) -> OutgoingRecord:
    """The record that a line describes; ConfigError saying `where` it does not.

    Partition, offset and what is not known here are passed over: they are for the topic that is
    written to, to give. Only `value` has to be there.
    """
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict) or "value" not in fields:
            raise ValueError("an object with a value was expected")
        return OutgoingRecord(
            key=_bytes(fields, "key", "key_encoding"),
            value=_bytes(fields, "value", "value_encoding"),
            headers=_parse_headers(fields.get("headers") or []),
            timestamp_ms=_timestamp(fields.get("timestamp")),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(f"{where} is not a record in JSON: {error}") from error


def _header(name: str, value: bytes | None) -> dict[str, object]:
    fields: dict[str, object] = {"name": name}
    _put(fields, "value", "encoding", value)
    return fields


def _put(fields: dict[str, object], name: str, marker: str, data: bytes | None) -> None:
    try:
        fields[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        fields[name] = base64.b64encode(data).decode()
        fields[marker] = _BASE64


def _parse_headers(headers: Iterable[Mapping[str, object]]) -> tuple[Header, ...]:
    return tuple((_header_name(header), _bytes(header, "value", "encoding")) for header in headers)


def _header_name(header: Mapping[str, object]) -> str:
    if not isinstance(header, dict):
        raise TypeError("a header must be an object with a name")
    name = header["name"]
    if not isinstance(name, str):
        raise TypeError("the name of a header must be text")
    # librdkafka's wrapper crashes on what is no UTF-8, and ends a name at its first NUL.
    if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise ValueError("the name of a header must be text without NUL and halves of surrogates")
    return name


def _bytes(fields: Mapping[str, object], name: str, marker: str) -> bytes | None:
    text = fields.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{name} must be text")
    match fields.get(marker):
        case None:
            return text.encode()
        case "base64":
            return base64.b64decode(text, validate=True)
        case other:
            raise ValueError(f"{marker} is '{other}' but only {_BASE64} is known")


def _timestamp(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("timestamp must be milliseconds since 1970")
    if not 0 <= value <= _TIMESTAMP_MS_MAX:
        raise ValueError("timestamp must be milliseconds since 1970")
    return value
