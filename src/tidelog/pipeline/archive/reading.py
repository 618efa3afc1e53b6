"""What was archived as data frames: those files that the manifest names, and no others.

Who reads the folder as Parquet without asking the manifest also gets what a crash has left over,
until the next run removes it, and records twice while chunks are merged.
"""

from typing import TYPE_CHECKING

from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.manifest_log import manifest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def archived(
    spark: "SparkSession", root: str, *, manifest_root: str | None = None
) -> "DataFrame | None":
    """All records, with `date` and `hour`; None if none were archived yet.

    Raises ArchiveError if there is no archive.
    """
    files = ArchiveFiles(root)
    paths = [files.full_path(each.path) for each in manifest_of(root, manifest_root).files()]
    if not paths:
        return None
    if not files.is_local:
        return _through_pyarrow(spark, root, manifest_root)
    return spark.read.option("basePath", files.full_path("").rstrip("/")).parquet(*paths)


def _through_pyarrow(spark: "SparkSession", root: str, manifest_root: str | None) -> "DataFrame":
    from tidelog.pipeline.archive.read_source import (  # noqa: PLC0415 - needs the extra
        FORMAT,
        ArchivedDataSource,
    )

    spark.dataSource.register(ArchivedDataSource)
    reader = spark.read.format(FORMAT).option("root", root)
    return (reader if manifest_root is None else reader.option("manifest", manifest_root)).load()
