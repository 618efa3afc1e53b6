"""Says whether an archive is complete: no offset missing, none twice, every file as it was written.

Overlaps cannot come of commits (`manifest` refuses them); that is looked at anyway, from the files:
the offsets that Parquet itself says are in them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.archive.archiver import CountWatch
from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.manifest import ArchivedFile, Chunk, Manifest
from tidelog.pipeline.archive.manifest_log import manifest_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_PER_TASK: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """Of one partition."""

    partition: int
    start_offset: int
    end_offset: int
    chunk_count: int
    file_count: int
    record_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """Of all of it."""

    topic: str
    version: int
    partitions: tuple[PartitionReport, ...]
    problems: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        return not self.problems


def check_archive(
    spark: "SparkSession",
    root: str,
    *,
    manifest_root: str | None = None,
    on_progress: CountWatch = lambda _done, _all: None,
) -> ArchiveReport:
    """Look at every file's footer, in tasks. Raises ArchiveError if there is no archive."""
    manifest = manifest_of(root, manifest_root)
    file_count = sum(1 for _ in manifest.files())
    looked_at_count = 0
    problems: list[str] = []
    on_progress(0, file_count)
    for chunks in _portions(list(manifest.all_chunks()), spark.sparkContext.defaultParallelism):
        rows = spark.sparkContext.parallelize(chunks, min(len(chunks), _tasks_of(chunks)))
        problems += rows.mapPartitions(partial(_problems_of_chunks, root)).collect()
        looked_at_count += sum(len(chunk.files) for chunk in chunks)
        on_progress(looked_at_count, file_count)
    holes = [
        f"partition {partition}: offsets {start} to {end - 1} were not archived"
        for partition, start, end in manifest.holes()
    ]
    return ArchiveReport(
        topic=manifest.info.topic,
        version=manifest.version,
        partitions=tuple(_partition_reports(manifest)),
        problems=(*holes, *problems),
    )


def _portions(chunks: Sequence[Chunk], core_count: int) -> Iterator[list[Chunk]]:
    """Of as many files as keep all cores busy for a while: progress is told behind each."""
    portion: list[Chunk] = []
    file_count = 0
    for chunk in chunks:
        portion.append(chunk)
        file_count += len(chunk.files)
        if file_count >= _FILES_PER_TASK * core_count:
            yield portion
            portion, file_count = [], 0
    if portion:
        yield portion


def _tasks_of(chunks: Sequence[Chunk]) -> int:
    return 1 + sum(len(chunk.files) for chunk in chunks) // _FILES_PER_TASK


def _partition_reports(manifest: Manifest) -> Iterator[PartitionReport]:
    for partition, chunks in sorted(manifest.chunks.items()):
        yield PartitionReport(
            partition=partition,
            start_offset=chunks[0].start_offset,
            end_offset=chunks[-1].end_offset,
            chunk_count=len(chunks),
            file_count=sum(len(chunk.files) for chunk in chunks),
            record_count=sum(chunk.record_count for chunk in chunks),
            size_bytes=sum(chunk.size_bytes for chunk in chunks),
        )


def _problems_of_chunks(root: str, chunks: Iterable[Chunk]) -> Iterator[str]:
    files = ArchiveFiles(root)
    for chunk in chunks:
        for file in chunk.files:
            yield from problems_of(files, chunk, file)


def problems_of(files: ArchiveFiles, chunk: Chunk, file: ArchivedFile) -> Iterator[str]:
    """What a file has to say that the manifest does not."""
    size_bytes = files.size_bytes(file.path)
    if size_bytes is None:
        yield f"{file.path} is missing: {file.record_count} records of {chunk}"
        return
    if size_bytes != file.size_bytes:
        yield f"{file.path} has {size_bytes} bytes and not {file.size_bytes}"
        return
    try:
        with files.open(file.path) as opened:
            found = pq.read_metadata(opened)
    except (ArchiveError, pa.ArrowException, OSError) as error:
        yield f"{file.path} cannot be read: {error}"
        return
    if found.num_rows != file.record_count:
        yield f"{file.path} has {found.num_rows} records and not {file.record_count}"
    first, last = _offsets(found)
    if not chunk.start_offset <= first <= last < chunk.end_offset:
        yield f"{file.path} has offsets {first} to {last}, which are not all of {chunk}"


def _offsets(found: pq.FileMetaData) -> tuple[int, int]:
    position = next(
        index for index in range(found.num_columns) if found.schema.column(index).path == "offset"
    )
    groups = [found.row_group(index).column(position) for index in range(found.num_row_groups)]
    return (
        min(each.statistics.min for each in groups),
        max(each.statistics.max for each in groups),
    )
