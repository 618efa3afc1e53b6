"""Writes kio's messages in the shape of any version, straight from the one they are in.

kio has a writer, but it takes two microseconds a field: a second for the settings of a thousand
topics, and the broker does nothing else meanwhile. Here, an array that appears many times in one
answer - the same object, as in the settings that many topics share - is written once.

Fields that a version does not have are left out, fields that the message does not have get their
defaults. Writers are made once per pair of classes; the recursion is over classes, not data.
"""

import datetime
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from functools import cache, partial
from operator import attrgetter
from typing import Final, cast

from kio.static.protocol import Entity

from tidelog.wire.message_shapes import EPOCH, Shape, default_of, shape_of, zero_of
from tidelog.wire.primitives import (
    NO_UUID,
    array_count,
    nullable_string,
    string,
    tagged_fields,
    uvarint,
)

# Arrays that have been written, by the identity of the array, which lives as long as the message
# that holds it, and of who wrote it: the same numbers may be of four bytes here and of eight there.
Memo = dict[tuple[int, int], bytes]
Write = Callable[[object, Memo], bytes]

_MILLISECOND = datetime.timedelta(milliseconds=1)
_NO_DATETIME_MS = -1


def write_message(message: Entity, target: type[Entity]) -> bytes:
    """`message` as `target`, the class of some version of it, is written."""
    return _structure_writer(type(message), target)(message, {})


@cache
def _structure_writer(source: type[Entity], target: type[Entity]) -> Write:
    present = {field.name: field for field in fields(source)}
    writes: list[Write] = []
    tagged: list[tuple[int, Callable[[object], object], object, Write]] = []
    for field in fields(target):
        origin = present.get(field.name)
        if origin is None:
            if field.metadata.get("tag") is None:
                writes.append(_constant(_field_writer(field, field, target)(default_of(field), {})))
            continue
        read, write = attrgetter(field.name), _field_writer(origin, field, target)
        tag = field.metadata.get("tag")
        if tag is None:
            writes.append(_reading(read, write))
        else:
            tagged.append((tag, read, default_of(field), write))
    if target.__flexible__:
        writes.append(partial(_write_tagged, sorted(tagged, key=lambda one: one[0])))

    def write_structure(message: object, memo: Memo) -> bytes:
        return b"".join([write(message, memo) for write in writes])

    return write_structure


def _constant(encoded: bytes) -> Write:
    return lambda _message, _memo: encoded


def _reading(read: Callable[[object], object], write: Write) -> Write:
    return lambda message, memo: write(read(message), memo)


def _write_tagged(
    tagged: Sequence[tuple[int, Callable[[object], object], object, Write]],
    message: object,
    memo: Memo,
) -> bytes:
    """The tagged fields of a structure; those that have their default are left out."""
    return tagged_fields(
        [
            (tag, write(value, memo))
            for tag, value, default, write in (
                (tag, read(message), default, write) for tag, read, default, write in tagged
            )
            if value != default
        ]
    )


def _field_writer(
    source: Field[object], target: Field[object], message_class: type[Entity]
) -> Write:
    shape = shape_of(target.type)
    flexible = message_class.__flexible__
    write = _element_writer(source, target, shape, flexible=flexible)
    if shape.is_array:
        write = _array_writer(write, flexible=flexible)
    if shape.is_nullable or not shape_of(source.type).is_nullable:
        return write
    # A name that may be null today had to be a string once.
    if_null = zero_of(target)
    return lambda value, memo: write(if_null if value is None else value, memo)


def _element_writer(
    source: Field[object], target: Field[object], shape: Shape, *, flexible: bool
) -> Write:
    is_nullable = shape.is_nullable and not shape.is_array
    if shape.is_entity:
        write = _structure_writer(shape_of(source.type).element, shape.element)
        return _nullable_structure(write) if is_nullable else write
    kafka_type = target.metadata["kafka_type"]
    primitive = _primitive(kafka_type, is_nullable=is_nullable, flexible=flexible)
    return lambda value, _memo: primitive(value)


def _nullable_structure(write: Write) -> Write:
    """KIP-893: one byte in front, negative for null."""

    def write_nullable(value: object, memo: Memo) -> bytes:
        return b"\xff" if value is None else b"\x01" + write(value, memo)

    return write_nullable


def _array_writer(write: Write, *, flexible: bool) -> Write:
    def write_array(values: object, memo: Memo) -> bytes:
        if values is None:
            return b"\x00" if flexible else b"\xff\xff\xff\xff"
        key = id(values), id(write)
        encoded = memo.get(key)
        if encoded is None:
            elements = cast("Sequence[object]", values)
            encoded = array_count(len(elements), flexible=flexible) + b"".join(
                [write(element, memo) for element in elements]
            )
            memo[key] = encoded
        return encoded

    return write_array


def _primitive(kafka_type: str, *, is_nullable: bool, flexible: bool) -> Callable[[object], bytes]:
    if kafka_type == "string":
        return cast(
            "Callable[[object], bytes]",
            partial(nullable_string if is_nullable else string, flexible=flexible),
        )
    if kafka_type in {"bytes", "records"}:
        return cast("Callable[[object], bytes]", partial(_data, flexible=flexible))
    return _PRIMITIVES[kafka_type]


def _data(value: bytes | None, *, flexible: bool) -> bytes:
    if value is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    size = uvarint(len(value) + 1) if flexible else _INT32.pack(len(value))
    return size + value


def _milliseconds(layout: struct.Struct, value: object) -> bytes:
    assert isinstance(value, datetime.timedelta)
    return layout.pack(value // _MILLISECOND)


def _datetime(value: object) -> bytes:
    if value is None:
        return _INT64.pack(_NO_DATETIME_MS)
    assert isinstance(value, datetime.datetime)
    return _INT64.pack((value - EPOCH) // _MILLISECOND)


def _uuid(value: object) -> bytes:
    return value.bytes if isinstance(value, uuid.UUID) else NO_UUID


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

_PRIMITIVES: Final[Mapping[str, Callable[[object], bytes]]] = {
    "bool": lambda value: b"\x01" if value else b"\x00",
    "int8": struct.Struct(">b").pack,
    "int16": _INT16.pack,
    "int32": _INT32.pack,
    "int64": _INT64.pack,
    "uint16": struct.Struct(">H").pack,
    "float64": struct.Struct(">d").pack,
    "uuid": _uuid,
    "error_code": _INT16.pack,
    "timedelta_i32": partial(_milliseconds, _INT32),
    "timedelta_i64": partial(_milliseconds, _INT64),
    "datetime_i64": _datetime,
}
