"""kio as the other side of the wire: builds, encodes, decodes and invents its messages.

Values are written down once, in the newest shape, as nested dictionaries; `build` takes from them
what a version has. `messages` invents any message of any class, `example` the same one every time.
"""

import dataclasses
import datetime
import io
import types
import uuid
from collections.abc import Mapping, Sequence
from typing import cast, get_args, get_origin

from hypothesis import settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.protocol import Entity

Values = Mapping[str, object]

# A test that runs for every version needs fewer examples of each: most code is common to many.
PER_VERSION = settings(max_examples=settings().max_examples // 4)

_EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)


def kio_versions(api_key: int) -> list[int]:
    return sorted(schema_name_map[api_key_map[api_key]])


def milliseconds(number: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=number)


def moment(number: int) -> datetime.datetime | None:
    """kio's spelling of a timestamp that may be -1."""
    return None if number == -1 else _EPOCH + milliseconds(number)


def topic_uuid(data: bytes | None) -> uuid.UUID | None:
    """kio's spelling of a topic id."""
    return None if data is None or data == bytes(16) else uuid.UUID(bytes=data)


def request_bytes(api_key: int, version: int, values: Values) -> bytes:
    """The body of a request, as kio writes it."""
    return encode(build(load_request_schema(api_key, version), values))


def response_bytes(api_key: int, version: int, values: Values) -> bytes:
    """The body of a response, as kio writes it."""
    return encode(build(load_response_schema(api_key, version), values))


def build(message_class: type[Entity], values: Values) -> Entity:
    """A message with those of `values` that this version has."""
    arguments: dict[str, object] = {}
    for field in dataclasses.fields(message_class):
        if field.name not in values:
            continue
        value = values[field.name]
        element, is_array, _ = _shape(field.type)
        if dataclasses.is_dataclass(element) and value is not None:
            nested = cast("type[Entity]", element)
            if is_array:
                parts = cast("Sequence[Values]", value)
                value = tuple(build(nested, part) for part in parts)
            else:
                value = build(nested, cast("Values", value))
        arguments[field.name] = value
    return message_class(**arguments)


def encode(message: Entity) -> bytes:
    output = io.BytesIO()
    entity_writer(type(message))(output, message)
    return output.getvalue()


def decode(message_class: type[Entity], data: bytes) -> Entity:
    """Only for bytes that are known to be good: kio's reader believes every length."""
    message, size_bytes = entity_reader(message_class)(data, 0)
    assert size_bytes == len(data)
    return message


def messages(message_class: type[Entity]) -> st.SearchStrategy[Entity]:
    """Any message of this class."""
    return st.builds(
        message_class,
        **{field.name: _field_values(field) for field in dataclasses.fields(message_class)},
    )


def _field_values(field: dataclasses.Field[object]) -> st.SearchStrategy[object]:
    element, is_array, is_nullable = _shape(field.type)
    values: st.SearchStrategy[object]
    if dataclasses.is_dataclass(element):
        values = messages(cast("type[Entity]", element))
    else:
        values = _PRIMITIVES[field.metadata["kafka_type"]]
    if is_array:
        values = st.lists(values, max_size=2).map(tuple)
    # A tagged field is null by being absent, which is its default.
    if is_nullable and ("tag" not in field.metadata or field.default is None):
        values = st.none() | values
    return values


def example(message_class: type[Entity]) -> Entity:
    """One message in which every array has one element and nothing is null."""
    return message_class(
        **{field.name: _field_example(field) for field in dataclasses.fields(message_class)}
    )


def _field_example(field: dataclasses.Field[object]) -> object:
    element, is_array, _ = _shape(field.type)
    value: object
    if dataclasses.is_dataclass(element):
        value = example(cast("type[Entity]", element))
    else:
        value = _EXAMPLES[field.metadata["kafka_type"]]
    return (value,) if is_array else value


def _shape(annotation: object) -> tuple[object, bool, bool]:
    """Element, whether it is an array, whether null is allowed."""
    is_nullable = get_origin(annotation) is types.UnionType
    if is_nullable:
        (annotation,) = (one for one in get_args(annotation) if one is not types.NoneType)
    is_array = get_origin(annotation) is tuple
    return (get_args(annotation)[0] if is_array else annotation), is_array, is_nullable


int8s = st.integers(-(2**7), 2**7 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=40)
topic_ids = st.binary(min_size=16, max_size=16)

_PRIMITIVES: Mapping[str, st.SearchStrategy[object]] = {
    "bool": st.booleans(),
    "int8": int8s,
    "int16": int16s,
    "int32": int32s,
    "int64": int64s,
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False),
    "string": names,
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=40),
    "uuid": st.uuids(),
    "error_code": st.sampled_from(list(MessageErrorCode)),
    "timedelta_i32": int32s.map(milliseconds),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(milliseconds),
    "datetime_i64": st.integers(0, 2**41).map(lambda number: _EPOCH + milliseconds(number)),
}

_EXAMPLES: Mapping[str, object] = {
    "bool": True,
    "int8": 1,
    "int16": 1,
    "int32": 1,
    "int64": 1,
    "uint16": 1,
    "float64": 1.0,
    "string": "topic",
    "bytes": b"bytes",
    "records": b"records",
    "uuid": uuid.UUID(int=1),
    "error_code": MessageErrorCode.none,
    "timedelta_i32": milliseconds(1),
    "timedelta_i64": milliseconds(1),
    "datetime_i64": _EPOCH,
}
