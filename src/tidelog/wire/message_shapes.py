"""What kio's generated message classes say about their fields: shape, type and default.

kio's classes are the schema of every message; reader, converter and writer are made from them. This
is the one place that knows how a class spells null, array and default.
"""

import dataclasses
import datetime
import types
from collections.abc import Mapping
from typing import Final, NamedTuple, cast, get_args, get_origin

from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.static.protocol import Entity

EPOCH: Final = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)


class Shape(NamedTuple):
    """What the annotation of a field says."""

    element: type[Entity]  # Meaningless unless is_entity.
    is_entity: bool
    is_array: bool
    is_nullable: bool


def shape_of(annotation: object) -> Shape:
    """Takes the annotation of a field of one of kio's classes apart."""
    is_nullable = get_origin(annotation) is types.UnionType
    if is_nullable:
        (annotation,) = (one for one in get_args(annotation) if one is not types.NoneType)
    is_array = get_origin(annotation) is tuple
    element = cast("type[Entity]", get_args(annotation)[0] if is_array else annotation)
    return Shape(element, dataclasses.is_dataclass(element), is_array, is_nullable)


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
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "datetime_i64": EPOCH,
}


def default_of(field: dataclasses.Field[object]) -> object:
    """What a message that does not have `field` means: the schema's default, else zero."""
    if field.default is not dataclasses.MISSING:
        return field.default
    shape = shape_of(field.type)
    if shape.is_nullable:
        return None
    return _zero(shape, field.metadata.get("kafka_type"))


def _zero(shape: Shape, kafka_type: str | None) -> object:
    if shape.is_array:
        return ()
    if shape.is_entity:
        nested = dataclasses.fields(shape.element)
        return shape.element(**{field.name: default_of(field) for field in nested})
    assert kafka_type is not None
    return _DEFAULTS[kafka_type]


def zero_of(field: dataclasses.Field[object]) -> object:
    """The value of a field that may not be null where another version has null."""
    return _zero(shape_of(field.type), field.metadata.get("kafka_type"))
