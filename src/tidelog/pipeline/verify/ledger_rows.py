"""Ledgers as a data frame. The format is in `tidelog.client.ledger`; files may be of any producer.

Lines that are none - what a writer that was killed left half-written - have no topic and no id, and
are counted by whoever reads them. Files and folders are read in parallel, large files in parts.

Of two objects on a line, as somebody leaves them who goes on where another's line end is missing,
Spark takes the first and does not look at the second. Lines are looked through for that, and what
is not taken is a row of its own that says nothing, as a line is that cannot be read.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from tidelog.pipeline.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA: Final = (
    "topic STRING, id STRING, id_base64 STRING, partition INT, offset BIGINT, crc32 BIGINT, "
    "producer STRING, number BIGINT, _line STRING"
)
_BETWEEN_OBJECTS: Final = "}{"
_ARRAY: Final = "ARRAY<STRUCT<topic: STRING>>"
# As Spark tells files that are its own, such as _SUCCESS, from data.
_PASSED_OVER: Final = ("_", ".")
_OF_PATTERNS: Final = re.compile(r"([\[\]{}*?\\])")


def read_ledger(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """Rows of `topic, id, partition, offset, crc32, producer, number`.

    A row is what one line says: what it does not say is null. `id` is bytes.
    """
    files = [_spark_path(path) for path in paths]
    lines = spark.read.schema(_SCHEMA).json(
        files, mode="PERMISSIVE", columnNameOfCorruptRecord="_line", recursiveFileLookup=True
    )
    is_line = F.col("_line").isNull()
    record_id = F.coalesce(
        F.col("id").cast("binary"), F.try_to_binary(F.col("id_base64"), F.lit("base64"))
    )
    rows = lines.select(
        F.when(is_line, F.col("topic")).alias("topic"),
        F.when(is_line, record_id).alias("id"),
        "partition",
        "offset",
        "crc32",
        "producer",
        "number",
    )
    return rows.unionByName(_behind_others(spark, files), allowMissingColumns=True)


def _spark_path(path: str) -> str:
    """To Spark, every path is a pattern. Raises OptionError for what it would pass over."""
    if "://" in path:
        return path
    local = Path(path)
    if not local.exists():
        raise OptionError(f"the ledger {path} does not exist")
    if local.is_file() and local.name.startswith(_PASSED_OVER):
        raise OptionError(
            f"the ledger {path} has a name that Spark passes over, as all do that begin with _ or "
            "a dot: give it another one"
        )
    return _OF_PATTERNS.sub(r"\\\1", path)


def _behind_others(spark: "SparkSession", files: Sequence[str]) -> "DataFrame":
    """A row without anything for each line with more than one object."""
    text = F.col("value")
    # In brackets, one object is an array, whatever is in its strings; two are nonsense.
    is_one = F.from_json(F.concat(F.lit("["), text, F.lit("]")), _ARRAY).isNotNull()
    begins_with_one = F.from_json(text, "topic STRING").isNotNull()
    return (
        spark.read.text(list(files), recursiveFileLookup=True)
        .where(text.contains(_BETWEEN_OBJECTS) & begins_with_one & ~is_one)
        .select(F.lit(None).cast("string").alias("topic"))
    )
