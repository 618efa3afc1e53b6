"""`format("tidelog-archived")`: how tasks read the files of an archive that is not on a disk.

For `reading` alone. Spark has no file system for `s3://` without jars, and pyarrow has: a task for
each file, which gives its rows as they are, with the `date` and the `hour` that its folder has.
"""

import datetime
import re
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.json_values import archived_ddl
from tidelog.pipeline.archive.manifest import Manifest
from tidelog.pipeline.archive.manifest_log import manifest_of

FORMAT: Final = "tidelog-archived"

_HOUR: Final = re.compile(r"date=([-0-9]+)/hour=([0-9]+)/")


class ArchivedDataSource(DataSource):
    """Read only. Options: `root`, and `manifest` if that is not in it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return f"{archived_ddl(self._manifest().info.value_schema)}, date DATE, hour INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        paths = tuple(each.path for each in self._manifest().files())
        return ArchivedReader(self.options["root"], paths)

    def _manifest(self) -> Manifest:
        return manifest_of(self.options["root"], self.options.get("manifest"))


class ArchivedFilePartition(InputPartition):
    """A task: a file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class ArchivedReader(DataSourceReader):
    """All files that the manifest named when the job was planned."""

    def __init__(self, root: str, paths: tuple[str, ...]) -> None:
        self._root = root
        self._paths = paths

    def partitions(self) -> Sequence[InputPartition]:
        return [ArchivedFilePartition(each) for each in self._paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ArchivedFilePartition):
            return  # What Spark makes up where there is nothing to read.
        date, hour = _folder_of(partition.path)
        with ArchiveFiles(self._root).open(partition.path) as file:
            for batch in pq.ParquetFile(file).iter_batches():
                dates = pa.repeat(pa.scalar(date), batch.num_rows)
                hours = pa.repeat(pa.scalar(hour, pa.int32()), batch.num_rows)
                yield batch.append_column("date", dates).append_column("hour", hours)


def _folder_of(path: str) -> tuple[datetime.date, int]:
    found = _HOUR.match(path)
    assert found is not None
    return datetime.date.fromisoformat(found[1]), int(found[2])
