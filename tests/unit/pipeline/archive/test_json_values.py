"""The schema that is found has its fields in the order that records have them (X4)."""

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from tidelog.pipeline.archive.json_values import in_order_of


def struct(**fields: object) -> StructType:
    """As Spark infers it: names in order of the alphabet."""
    found = [StructField(name, of) for name, of in sorted(fields.items())]  # type: ignore[arg-type]
    return StructType(found)


def names(schema: object) -> list[str]:
    assert isinstance(schema, StructType)
    return schema.names


def test_fields_are_in_the_order_in_which_they_come() -> None:
    inner = struct(x=LongType(), a=StringType())
    schema = struct(a=LongType(), b=inner, c=ArrayType(ArrayType(inner)), z=LongType())
    texts = ['{"z":1,"c":[[{"x":1}],[{"a":"t"}]]}', '{"b":{"x":1,"a":"t"},"a":2}']
    ordered = in_order_of(schema, texts)
    assert names(ordered) == ["z", "c", "b", "a"]
    assert names(ordered["b"].dataType) == ["x", "a"]
    assert ordered["c"].dataType == ArrayType(ArrayType(ordered["b"].dataType))


def test_no_field_is_lost_whatever_the_records_are() -> None:
    schema = struct(a=LongType(), b=LongType(), c=LongType())
    deep = "[" * 100_000
    texts = ["", "null", "3", '{"b":', deep, '[{"c":1}]', '{"other":{"a":1}}']
    assert names(in_order_of(schema, texts)) == ["c", "a", "b"]
