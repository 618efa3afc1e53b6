"""Ledgers as a data frame. The format is in `tidelog.client.ledger`; files may be of any producer.

Lines that are none - what a writer that was killed left half-written - have no topic and no id, and
are counted by whoever reads them. Files and folders are read in parallel, large files in parts.
"""

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


def read_ledger(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """Rows of `topic, id, partition, offset, crc32, producer, number`.

    A row is what one line says: what it does not say is null. `id` is bytes.
    """
    for path in paths:
        if "://" not in path and not Path(path).exists():
            raise OptionError(f"the ledger {path} does not exist")
    lines = spark.read.schema(_SCHEMA).json(
        list(paths), mode="PERMISSIVE", columnNameOfCorruptRecord="_line"
    )
    is_line = F.col("_line").isNull()
    record_id = F.coalesce(
        F.col("id").cast("binary"), F.try_to_binary(F.col("id_base64"), F.lit("base64"))
    )
    return lines.select(
        F.when(is_line, F.col("topic")).alias("topic"),
        F.when(is_line, record_id).alias("id"),
        "partition",
        "offset",
        "crc32",
        "producer",
        "number",
    )
