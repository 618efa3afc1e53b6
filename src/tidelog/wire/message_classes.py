"""Reads and converts kio's generated message classes. Imported only by messages.py.

kio's classes are the schema. Its reader is not used: it reserves memory for as many elements as a
request claims to hold, so that eleven bytes end the process. The reader here is made from the same
classes and walks the frame with `primitives.Reader`, which believes no length. Readers and
converters are made once per class; the recursion is over classes, not data. What writes is in
`message_writer.py`.
"""

import dataclasses
import datetime
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.schema.types import TopicName
from kio.static.protocol import Entity, Payload

from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, encode_request_header, encode_response_header
from tidelog.wire.message_shapes import EPOCH, default_of, shape_of, zero_of
from tidelog.wire.message_writer import write_message
from tidelog.wire.primitives import NO_UUID, Reader, frame

_Read = Callable[[Reader], object]
_Convert = Callable[[object], object]

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


def decode_response(api_key: ApiKey, version: int, reader: Reader) -> object:
    """The answer that `reader` stands at, as the newest class of its API."""
    source = load_response_schema(api_key, version)
    target = load_response_schema(api_key, _newest_version(api_key))
    message = _reader_of(source)(reader)
    return message if source is target else _converter(source, target)(message)


def encode_request(message: Payload, version: int, correlation_id: int, client_id: str) -> bytes:
    """The whole frame of a request of `version`."""
    api_key = ApiKey(type(message).__api_key__)
    # An older version says it in fields that the newest one does not have.
    assert api_key not in _UPGRADES or version == _newest_version(api_key)
    body = write_message(message, load_request_schema(api_key, version))
    return frame([encode_request_header(api_key, version, correlation_id, client_id), body])


def encode_response(message: Payload, version: int, correlation_id: int) -> bytes:
    """The whole frame that answers a request of `version`."""
    api_key = int(type(message).__api_key__)
    target = load_response_schema(api_key, version)
    body = write_message(message, target)
    return frame([encode_response_header(api_key, version, correlation_id), body])


@cache
def _newest_version(api_key: int) -> int:
    return max(schema_name_map[api_key_map[api_key]])


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
            absent[field.name] = default_of(field)

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
    shape = shape_of(annotation)
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
        return EPOCH + datetime.timedelta(milliseconds=milliseconds)
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
            absent[field.name] = default_of(field)

    def convert(message: object) -> object:
        values = dict(absent)
        for name, convert_field in shared:
            values[name] = convert_field(getattr(message, name))
        return target(**values)

    return convert


def _field_converter(
    source: dataclasses.Field[object], target: dataclasses.Field[object]
) -> _Convert:
    source_shape = shape_of(source.type)
    target_shape = shape_of(target.type)
    assert source_shape.is_array == target_shape.is_array
    assert source_shape.is_entity == target_shape.is_entity
    # A name that may be null today had to be a string once.
    if_null = None if target_shape.is_nullable else zero_of(target)
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


def _upgrade_delete_topics(old: object, new: object) -> object:
    """Up to version 5 the topics to delete were a list of names."""
    assert isinstance(new, DeleteTopicsRequest)
    names: tuple[TopicName, ...] = getattr(old, "topic_names", ())
    topics = [DeleteTopicState(name=name, topic_id=None) for name in names]
    return dataclasses.replace(new, topics=tuple(topics))


_UPGRADES: Final[Mapping[ApiKey, Callable[[object, object], object]]] = {
    ApiKey.DELETE_TOPICS: _upgrade_delete_topics,
}
