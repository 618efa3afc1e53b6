"""What a person points at in a record, as a column: null where a row does not have it.

What fields there are, and what they mean, is in `tidelog.client.record_fields`, which finds them in
a record. Here they are made of Spark's own functions, so that no row goes through Python.
"""

from typing import TYPE_CHECKING, Final

from tidelog.client.record_fields import HeaderField, JsonField, KeyField, RecordField

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "HeaderField",
    "JsonField",
    "KeyField",
    "RecordField",
    "as_bytes",
    "as_number",
    "as_text",
]

# Of a variant, in Spark's words. A double is what was written with an exponent, or was too long for
# a decimal.
_WITH_A_TEXT: Final = r"^(STRING|BOOLEAN|BIGINT|DECIMAL\(.*)$"


def as_bytes(field: RecordField) -> "Column":
    """Exactly, for comparing: what `field_finder` finds."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    match field:
        case KeyField():
            return f.col("key")
        case HeaderField(name):
            named = f.filter(f.col("headers"), lambda header: header["key"] == f.lit(name))
            return f.try_element_at(named, f.lit(-1))["value"]
        case JsonField():
            found = _variant(field)
            has_text = f.schema_of_variant(found).rlike(_WITH_A_TEXT)
            return f.when(has_text, found.cast("string")).cast("binary")


def as_text(field: RecordField) -> "Column":
    """For people and for JSON. Keys and headers are bytes, and are taken for UTF-8."""
    return as_bytes(field).cast("string")


def as_number(field: RecordField) -> "Column":
    """For calculating: a double, of numbers and of texts that are one."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    number = as_text(field).try_cast("double")
    if not isinstance(field, JsonField):
        return number
    found = _variant(field)
    is_double = f.schema_of_variant(found) == f.lit("DOUBLE")
    return f.coalesce(number, f.when(is_double, found.cast("double")))


def _variant(field: JsonField) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    text = f.col("value").cast("string")
    # Spark would read signs in place of what is no UTF-8: values that differ would be equal.
    value = f.try_parse_json(f.when(f.is_valid_utf8(text), text))
    return f.try_variant_get(value, field.path, "variant")
