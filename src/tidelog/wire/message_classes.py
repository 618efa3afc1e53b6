"""Reads, converts and writes kio's generated message classes. Imported only by messages.py.

kio's classes are the schema and its writer the encoder. Its reader is not used: it reserves memory
for as many elements as a request claims to hold, so that eleven bytes end the process. The reader
here is made from the same classes and walks the frame with `primitives.Reader`, which believes no
length. Readers and converters are made once per class; the recursion is over classes, not data.
"""

import dataclasses
import datetime
import io
import types
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, NamedTuple, cast, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.protocol import Entity, Payload

from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, encode_response_header
from tidelog.wire.primitives import NO_UUID, Reader, frame

_Read = Callable[[Reader], object]
_Convert = Callable[[object], object]

_NO_TIME = datetime.timedelta(0)
_EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
_NO_DATETIME_MS = -1


def decode_request(api_key: ApiKey, version: int, reader: Reader) -> object:
    """The request that `reader` stands at, as the newest class of its API."""
    source = load_request_schema(api_key, version)
    target = load_request_schema(api_key, _newest_version(api_key))
    message = _reader_of(source)(reader)
    if source is target:
        return message
    upgraded = _converter(source, target)(message)
    special = _UPGRADES.get(api_key)
    return upgraded if special is None else special(message, upgraded)


def encode_response(message: Payload, version: int, correlation_id: int) -> bytes:
    """The whole frame that answers a request of `version`."""
    source = type(message)
    api_key = int(source.__api_key__)
    target = load_response_schema(api_key, version)
    converted = message if source is target else _converter(source, target)(message)
    assert isinstance(converted, target)
    body = io.BytesIO()
    entity_writer(target)(body, converted)
    return frame([encode_response_header(api_key, version, correlation_id), body.getvalue()])


@cache
def _newest_version(api_key: int) -> int:
    return max(schema_name_map[api_key_map[api_key]])


class _Shape(NamedTuple):
    """What the annotation of a field says."""

    element: type[Entity]  # Meaningless unless is_entity.
    is_entity: bool
    is_array: bool
    is_nullable: bool


def _shape(annotation: object) -> _Shape:
    is_nullable = get_origin(annotation) is types.UnionType
    if is_nullable:
        (annotation,) = (one for one in get_args(annotation) if one is not types.NoneType)
    is_array = get_origin(annotation) is tuple
    element = cast("type[Entity]", get_args(annotation)[0] if is_array else annotation)
    return _Shape(element, dataclasses.is_dataclass(element), is_array, is_nullable)


@cache
def _reader_of(message_class: type[Entity]) -> _Read:
    """Reads one structure, its tagged fields included."""
    plain: list[tuple[str, _Read]] = []
    tagged: dict[int, tuple[str, _Read]] = {}
    absent: dict[str, object] = {}
    for field in dataclasses.fields(message_class):
        read = _field_reader(field.type, field.metadata.get("kafka_type"))
        tag = field.metadata.get("tag")
        if tag is None:
            plain.append((field.name, read))
        else:
            tagged[tag] = (field.name, read)
            absent[field.name] = _default(field)

    def read_structure(reader: Reader) -> object:
        values = dict(absent)
        for name, read in plain:
            values[name] = read(reader)
        for tag, content in reader.tagged_fields().items():
            if tag in tagged:
                name, read = tagged[tag]
                values[name] = read(content)
        return message_class(**values)

    return read_structure


def _field_reader(annotation: object, kafka_type: str | None) -> _Read:
    shape = _shape(annotation)
    if shape.is_entity:
        read = _reader_of(shape.element)
        if shape.is_nullable and not shape.is_array:
            read = _nullable_structure(read)
    else:
        assert kafka_type is not None
        nullable = _NULLABLE_READERS.get(kafka_type) if shape.is_nullable else None
        read = nullable if nullable and not shape.is_array else _READERS[kafka_type]
    return _array(read, is_nullable=shape.is_nullable) if shape.is_array else read


def _nullable_structure(read: _Read) -> _Read:
    """KIP-893: one byte in front, negative for null."""
    return lambda reader: None if reader.int8() < 0 else read(reader)


def _array(read: _Read, *, is_nullable: bool) -> _Read:
    def read_array(reader: Reader) -> object:
        count = reader.nullable_array_count()
        if count is None:
            if is_nullable:
                return None
            raise WireError("null where an array is required")
        return tuple([read(reader) for _ in range(count)])

    return read_array


def _read_error_code(reader: Reader) -> object:
    number = reader.int16()
    try:
        return MessageErrorCode(number)
    except ValueError as error:
        raise WireError(f"unknown error code {number}") from error


def _read_uuid(reader: Reader) -> object:
    data = reader.uuid()
    return None if data == NO_UUID else uuid.UUID(bytes=data)


def _read_timedelta_i64(reader: Reader) -> object:
    milliseconds = reader.int64()
    try:
        return datetime.timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise WireError(f"duration of {milliseconds} ms") from error


def _read_datetime(reader: Reader) -> object:
    milliseconds = reader.int64()
    try:
        return _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise WireError(f"time of {milliseconds} ms") from error


def _read_nullable_datetime(reader: Reader) -> object:
    start = reader.position
    if reader.int64() == _NO_DATETIME_MS:
        return None
    reader.position = start
    return _read_datetime(reader)


_READERS: Final[Mapping[str, _Read]] = {
    "bool": Reader.boolean,
    "int8": Reader.int8,
    "int16": Reader.int16,
    "int32": Reader.int32,
    "int64": Reader.int64,
    "uint16": Reader.uint16,
    "float64": Reader.float64,
    "string": Reader.string,
    "bytes": Reader.data,
    "records": Reader.data,
    "uuid": _read_uuid,
    "error_code": _read_error_code,
    "timedelta_i32": lambda reader: datetime.timedelta(milliseconds=reader.int32()),
    "timedelta_i64": _read_timedelta_i64,
    "datetime_i64": _read_datetime,
}

_NULLABLE_READERS: Final[Mapping[str, _Read]] = {
    "string": Reader.nullable_string,
    "bytes": Reader.nullable_data,
    "records": Reader.nullable_data,
    "datetime_i64": _read_nullable_datetime,
}

_DEFAULTS: Final[Mapping[str, object]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "error_code": MessageErrorCode.none,
    "timedelta_i32": _NO_TIME,
    "timedelta_i64": _NO_TIME,
    "datetime_i64": _EPOCH,
}


def _default(field: dataclasses.Field[object]) -> object:
    """What a message that does not have `field` means: the schema's default, else zero."""
    if field.default is not dataclasses.MISSING:
        return field.default
    shape = _shape(field.type)
    if shape.is_nullable:
        return None
    return _zero(shape, field.metadata.get("kafka_type"))


def _zero(shape: _Shape, kafka_type: str | None) -> object:
    if shape.is_array:
        return ()
    if shape.is_entity:
        nested = dataclasses.fields(shape.element)
        return shape.element(**{field.name: _default(field) for field in nested})
    assert kafka_type is not None
    return _DEFAULTS[kafka_type]


@cache
def _converter(source: type[Entity], target: type[Entity]) -> _Convert:
    """Turns a `source` into a `target`, field by field of the same name."""
    present = {field.name: field for field in dataclasses.fields(source)}
    absent: dict[str, object] = {}
    shared: list[tuple[str, _Convert]] = []
    for field in dataclasses.fields(target):
        if field.name in present:
            shared.append((field.name, _field_converter(present[field.name], field)))
        else:
            absent[field.name] = _default(field)

    def convert(message: object) -> object:
        values = dict(absent)
        for name, convert_field in shared:
            values[name] = convert_field(getattr(message, name))
        return target(**values)

    return convert


def _field_converter(
    source: dataclasses.Field[object], target: dataclasses.Field[object]
) -> _Convert:
    source_shape = _shape(source.type)
    target_shape = _shape(target.type)
    assert source_shape.is_array == target_shape.is_array
    assert source_shape.is_entity == target_shape.is_entity
    # A name that may be null today had to be a string once.
    if_null = None if target_shape.is_nullable else _zero_of(target, target_shape)
    if not target_shape.is_entity:
        return lambda value: if_null if value is None else value
    convert = _converter(source_shape.element, target_shape.element)
    if not target_shape.is_array:
        return lambda value: if_null if value is None else convert(value)

    def convert_array(value: object) -> object:
        if value is None:
            return if_null
        assert isinstance(value, tuple | list)
        return tuple([convert(element) for element in value])

    return convert_array


def _zero_of(field: dataclasses.Field[object], shape: _Shape) -> object:
    return _zero(shape, field.metadata.get("kafka_type"))


def _upgrade_delete_topics(old: object, new: object) -> object:
    """Up to version 5 the topics to delete were a list of names."""
    assert isinstance(new, DeleteTopicsRequest)
    names: tuple[TopicName, ...] = getattr(old, "topic_names", ())
    topics = [DeleteTopicState(name=name, topic_id=None) for name in names]
    return dataclasses.replace(new, topics=tuple(topics))


_UPGRADES: Final[Mapping[ApiKey, Callable[[object, object], object]]] = {
    ApiKey.DELETE_TOPICS: _upgrade_delete_topics,
}
