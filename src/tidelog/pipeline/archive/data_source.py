"""`format("tidelog-archive")`: how the tasks of a Spark job write chunks.

For `archiver` alone, which says in options which chunks there are to be. Each task finds the one
that its rows are of. What the tasks have written is handed to the driver in a file of its own
(`receipt`), and the driver commits: Spark calls `commit` here in a process that may outlive it.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.archive.chunk_writer import ChunkWriter, WriteTerms
from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.archive.json_values import UNPARSED
from tidelog.pipeline.archive.manifest import ArchivedFile, Chunk
from tidelog.pipeline.ranges import OffsetRange

FORMAT: Final = "tidelog-archive"

_NONE: Final[dict[str, list[object]]] = {"files": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkJob:
    """Chunks to write, and where to say what was written."""

    terms: WriteTerms
    ranges: tuple[OffsetRange, ...]
    receipt: str

    def to_options(self) -> dict[str, str]:
        ranges = [
            [each.partition.topic, each.partition.partition, each.start_offset, each.end_offset]
            for each in self.ranges
        ]
        return {
            "job": json.dumps(
                {"terms": asdict(self.terms), "ranges": ranges, "receipt": self.receipt}
            )
        }

    @staticmethod
    def from_options(text: str) -> "ChunkJob":
        found = json.loads(text)
        return ChunkJob(
            terms=WriteTerms(**found["terms"]),
            ranges=tuple(
                OffsetRange(TopicPartition(topic, partition), start_offset, end_offset)
                for topic, partition, start_offset, end_offset in found["ranges"]
            ),
            receipt=found["receipt"],
        )


class ArchiveDataSource(DataSource):
    """Write only."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return ArchiveWriter(ChunkJob.from_options(self.options["job"]))


@dataclass
class ChunkWritten(WriterCommitMessage):
    """What a task tells the driver: which of the ranges, its files, and what it counted."""

    range_index: int
    files: list[ArchivedFile]
    unparsed_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What all tasks have written: nothing of it counts yet."""

    chunks: tuple[Chunk, ...]
    unparsed_count: int


class ArchiveWriter(DataSourceArrowWriter):
    """A task that has no rows at all need not be heard of: its chunk has no file."""

    def __init__(self, job: ChunkJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = (batch for batch in iterator if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return WriterCommitMessage()  # Spark takes None for a mistake.
        index = self._index_of(first)
        wanted = self._job.ranges[index]
        writer = ChunkWriter(self._job.terms, wanted.partition.partition)
        unparsed_count = 0
        for batch in chain([first], batches):
            writer.write(_of_range(batch, wanted))
            unparsed_count += _unparsed_count(batch)
        return ChunkWritten(index, writer.close(), unparsed_count)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = {
            each.range_index: {
                "files": [asdict(file) for file in each.files],
                "unparsed": each.unparsed_count,
            }
            for each in messages
            if isinstance(each, ChunkWritten)
        }
        Path(self._job.receipt).write_text(json.dumps(written), encoding="utf-8")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written is in no manifest, and is removed when the next run begins."""

    def _index_of(self, batch: pa.RecordBatch) -> int:
        partition, offset = batch.column("partition")[0].as_py(), batch.column("offset")[0].as_py()
        for index, each in enumerate(self._job.ranges):
            if (
                each.partition.partition == partition
                and each.start_offset <= offset < each.end_offset
            ):
                return index
        raise ArchiveError(f"offset {offset} of partition {partition} was not asked for")


def what_was_written(job: ChunkJob) -> Written:
    """On the driver, when the job is done: all chunks that were asked for."""
    receipt = json.loads(Path(job.receipt).read_text(encoding="utf-8"))
    chunks = tuple(
        Chunk(
            partition=each.partition.partition,
            start_offset=each.start_offset,
            end_offset=each.end_offset,
            files=tuple(ArchivedFile(**file) for file in receipt.get(str(index), _NONE)["files"]),
        )
        for index, each in enumerate(job.ranges)
    )
    unparsed_count = sum(each["unparsed"] for each in receipt.values())
    return Written(chunks=chunks, unparsed_count=unparsed_count)


def _unparsed_count(batch: pa.RecordBatch) -> int:
    at = batch.schema.get_field_index(UNPARSED)
    return 0 if at < 0 else batch.num_rows - batch.column(at).null_count


def _of_range(batch: pa.RecordBatch, wanted: OffsetRange) -> pa.RecordBatch:
    """A task has the rows of one range, in order; if Spark cut otherwise, chunks would be wrong."""
    offsets = batch.column("offset")
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if not wanted.start_offset <= first <= last < wanted.end_offset:
        raise ArchiveError(f"a task of {wanted} was given offsets {first} to {last}")
    return batch
