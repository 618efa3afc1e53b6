"""Values that are JSON, as columns: the schema is given, or found in records once and kept.

    value       a struct of the schema; null where the record has no value, or it does not fit
    unparsed    the bytes of a value that does not fit: no JSON, or a field of another type

Fields that the schema does not have are not archived. What is archived can be written back as JSON,
not byte for byte as it was: for that, values are archived as they are.
"""

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.rows import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SAMPLE_RECORDS: Final = 10_000
UNPARSED: Final = "unparsed"

_MISFIT: Final = "_tidelog_misfit"


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
    return _text_of(StructType(fields))


def with_parsed_values(rows: "DataFrame", schema: str) -> "DataFrame":
    """`value` as a struct, and `unparsed` beside it."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - needs the extra

    parsed = f.from_json(
        f.col("value").cast("string"),
        f"{schema}, `{_MISFIT}` STRING",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MISFIT},
    )
    with_misfits = rows.withColumn("_parsed", parsed)
    is_misfit = f.col("value").isNotNull() & (
        f.col("_parsed").isNull() | f.col(f"_parsed.{_MISFIT}").isNotNull()
    )
    return (
        with_misfits.withColumn(UNPARSED, f.when(is_misfit, f.col("value")))
        .withColumn("value", f.when(~is_misfit, f.col("_parsed").dropFields(_MISFIT)))
        .drop("_parsed")
    )


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

    text = f.to_json(f.col("value"), {"ignoreNullFields": "true"}).cast("binary")
    return rows.withColumn("value", f.coalesce(f.col(UNPARSED), text)).drop(UNPARSED)
