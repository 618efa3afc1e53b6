"""What was archived as data frames: those files that the manifest names, and no others.

Who reads the folder as Parquet without asking the manifest also gets what a crash has left over,
until the next run removes it, and records twice while chunks are merged.
"""

from typing import TYPE_CHECKING

from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.manifest import Manifest
from tidelog.pipeline.archive.manifest_log import ManifestLog, wall_clock_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def manifest_of(root: str, manifest_root: str | None = None) -> Manifest:
    """As it is now. Raises ArchiveError if there is no archive."""
    files = ArchiveFiles(manifest_root or root)
    found = ManifestLog(files, now_ms=wall_clock_ms).load()
    if found is None:
        raise ArchiveError(f"there is no archive in {root}: it has no _manifest")
    return found


def archived(
    spark: "SparkSession", root: str, *, manifest_root: str | None = None
) -> "DataFrame | None":
    """All records, with `date` and `hour`; None if none were archived yet."""
    files = ArchiveFiles(root)
    paths = [files.full_path(each.path) for each in manifest_of(root, manifest_root).files()]
    if not paths:
        return None
    return spark.read.option("basePath", files.full_path("").rstrip("/")).parquet(*paths)
