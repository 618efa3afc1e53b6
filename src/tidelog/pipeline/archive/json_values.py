"""Values that are JSON, as columns: the schema is given, or found in records once and kept.

    value       a struct of the schema; null where the record has no value, or it does not fit
    unparsed    all bytes of a value that the struct does not say everything of

A value does not fit if it is no JSON object, or has a field of another type; then there is no
struct. Beside a struct there are bytes if the JSON has a field that the schema lacks, says null, or
has a number or a text that would be written otherwise (1 in a DOUBLE is 1.0). So nothing is
lost: who writes values back takes the bytes where there are any, and what is written without them
differs from what was there in the order of fields and in white space at most.

That is found out by writing the struct as JSON. Mostly the two are the same but for white space,
since a schema that is found has its fields in the order in which records have them. What is not is
compared with all fields in one order (`try_parse_json`), which takes twice as long. Variants take 1
and 1.0 for the same, and numbers of more digits than a decimal has for what is left of them in a
double; the lengths of the texts tell those apart.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.rows import ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

SAMPLE_RECORDS: Final = 10_000
ORDER_RECORDS: Final = 100
"""By so many of them it is told in which order records have their fields."""
UNPARSED: Final = "unparsed"

_Path = tuple[str, ...]

_MISFIT: Final = "_tidelog_misfit"
_WHITE_SPACE: Final = " \t\n\r"
# Variants are read up to the end of the first value; nobody ends a text of garbage like that.
_END: Final = '"tidelog-end-8f14e45f"]'
# Whatever time zone the session has that writes or reads: what was compared is what is written.
_TEXT_OPTIONS: Final = {"ignoreNullFields": "true", "timeZone": "UTC"}


def checked_schema(text: str) -> str:
    """The same schema as Spark spells it. Raises OptionError."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - needs the extra
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "")
        raise OptionError(
            f"the schema {text!r} is not one such as 'id BIGINT, name STRING': {reason.strip()}"
        ) from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise OptionError(f"the schema {text!r} has no field: it is such as 'id BIGINT'")
    return _text_of(schema)


def _text_of(schema: "StructType") -> str:
    """Spark puts names into quotes that need them, however deep."""
    return schema.toDDL()


def inferred_schema(sample: "DataFrame", topic: str) -> str:
    """Of the JSON objects in the column `value`. Raises ArchiveError if there are none."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra
    from pyspark.sql.types import StructType  # noqa: PLC0415

    values = sample.where(f.col("value").isNotNull()).limit(SAMPLE_RECORDS)
    texts = values.select(f.col("value").cast("string").alias("value"))
    found = sample.sparkSession.read.option("columnNameOfCorruptRecord", _MISFIT).json(
        texts.rdd.map(lambda row: row["value"])
    )
    fields = [field for field in found.schema.fields if field.name != _MISFIT]
    if not fields:
        raise ArchiveError(
            f"no JSON object is among the first records of {topic}: give the schema, or archive "
            "values as they are"
        )
    first = [row["value"] for row in texts.limit(ORDER_RECORDS).collect()]
    return _text_of(in_order_of(StructType(fields), first))


def in_order_of(schema: "StructType", texts: Iterable[str]) -> "StructType":
    """The same fields, in the order in which they first come in JSON texts."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - needs the extra

    paths = dict.fromkeys(path for text in texts for path in _paths(text))
    order = {path: number for number, path in enumerate(paths)}
    ordered = schema.jsonValue()
    # A list of what is left rather than recursion: how deep it is, records say.
    todo: list[tuple[_Path, Any]] = [((), ordered)]
    while todo:
        above, found = todo.pop()
        if not isinstance(found, dict):
            continue
        if found["type"] == "array":
            todo.append((above, found["elementType"]))
            continue
        fields = {(*above, each["name"]): each for each in found["fields"]}
        found["fields"] = [fields[path] for path in sorted(fields, key=_place_in(order))]
        todo += [(path, each["type"]) for path, each in fields.items()]
    return StructType.fromJson(ordered)


def _place_in(order: Mapping[_Path, int]) -> Callable[[_Path], int]:
    return lambda path: order.get(path, len(order))


def _paths(text: str) -> Iterator[_Path]:
    """Of all fields; those of objects in a list have the path of the list."""
    try:
        todo: list[tuple[_Path, object]] = [((), json.loads(text))]
    except (ValueError, RecursionError):
        return
    while todo:
        above, found = todo.pop()
        if isinstance(found, list):
            todo += [(above, each) for each in reversed(found)]
        elif isinstance(found, dict):
            inner = [((*above, name), each) for name, each in found.items()]
            yield from (path for path, _ in inner)
            todo += inner


def with_parsed_values(rows: "DataFrame", schema: str) -> "DataFrame":
    """`value` as a struct, and `unparsed` beside it."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    text = f.col("value").cast("string")
    parsed = f.from_json(
        text,
        f"{schema}, `{_MISFIT}` STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT},
    )
    is_fit = f.col("_parsed").isNotNull() & f.col(f"_parsed.{_MISFIT}").isNull()
    is_whole = f.is_valid_utf8(text) & _is_same_json(text, f.col("_written"))
    return (
        rows.withColumn("_parsed", parsed)
        .withColumn("_parsed", f.when(is_fit, f.col("_parsed").dropFields(_MISFIT)))
        .withColumn("_written", f.to_json("_parsed", _TEXT_OPTIONS))
        .withColumn(UNPARSED, f.when(~f.coalesce(is_whole, f.lit(False)), f.col("value")))
        .withColumn("value", f.col("_parsed"))
        .drop("_parsed", "_written")
    )


def _is_same_json(text: "Column", written: "Column") -> "Column":
    """But for white space and the order of fields; null where the text is no JSON at all."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    def dense(json: "Column") -> "Column":
        return f.translate(json, _WHITE_SPACE, "")

    def in_order(json: "Column") -> "Column":
        return f.to_json(f.try_parse_json(f.concat(f.lit("["), json, f.lit(f",{_END}"))))

    is_as_long = f.length(dense(text)) == f.length(dense(written))
    is_equal_in_order = is_as_long & (in_order(text) == in_order(written))
    # From left to right, as far as it is needed.
    return (text == written) | (dense(text) == dense(written)) | is_equal_in_order


def archived_ddl(value_schema: str | None) -> str:
    """The columns of files: as text, since there is no session where Spark asks a source for it."""
    plain = ddl(has_headers=True)
    if value_schema is None:
        return plain
    parsed = plain.replace("value BINARY", f"value STRUCT<{value_schema}>", 1)
    return f"{parsed}, {UNPARSED} BINARY"


def with_written_values(rows: "DataFrame") -> "DataFrame":
    """`value` as bytes again, of what `with_parsed_values` has made."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    text = f.to_json(f.col("value"), _TEXT_OPTIONS).cast("binary")
    return rows.withColumn("value", f.coalesce(f.col(UNPARSED), text)).drop(UNPARSED)
