"""Makes one chunk of several, and of their small files larger ones.

Runs in tasks, one for each merge. Within each hour files that are next to each other are written
anew as one, as far as they are small; an hour with nothing to merge keeps its file. The driver
commits; until then nothing has changed, and the files that came from it are left over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.archive.chunk_writer import ChunkWriter, WriteTerms, copied
from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.manifest import ArchivedFile, Chunk


@dataclass(frozen=True, slots=True)
class Merge:
    """Chunks without a hole between them, to become one."""

    chunks: tuple[Chunk, ...]
    terms: WriteTerms


def merged(merge: Merge) -> Chunk:
    """In a task."""
    first, last = merge.chunks[0], merge.chunks[-1]
    by_hour = sorted(
        (file for chunk in merge.chunks for file in chunk.files),
        key=lambda file: (file.hour, file.first_offset),
    )
    files: list[ArchivedFile] = []
    for _hour, of_hour in groupby(by_hour, key=lambda file: file.hour):
        for group in grouped(list(of_hour), target_bytes=merge.terms.target_bytes):
            files += group if len(group) == 1 else _rewritten(group, merge.terms, first.partition)
    whole = Chunk(
        partition=first.partition,
        start_offset=first.start_offset,
        end_offset=last.end_offset,
        files=tuple(files),
    )
    assert whole.record_count == sum(chunk.record_count for chunk in merge.chunks)
    return whole


def grouped(files: Sequence[ArchivedFile], *, target_bytes: int) -> list[list[ArchivedFile]]:
    """Files to make one of each, in order; one that is large enough stays alone."""
    groups: list[list[ArchivedFile]] = []
    size_bytes = 0
    for file in files:
        if not groups or size_bytes + file.size_bytes > target_bytes:
            groups.append([])
            size_bytes = 0
        groups[-1].append(file)
        size_bytes += file.size_bytes
    return groups


def _rewritten(
    files: Sequence[ArchivedFile], terms: WriteTerms, partition: int
) -> list[ArchivedFile]:
    # All of it into one file: together they have the size that was aimed at.
    whole = WriteTerms(root=terms.root, run=terms.run, target_bytes=2 * terms.target_bytes)
    return copied(_rows(ArchiveFiles(terms.root), files), ChunkWriter(whole, partition))


def _rows(system: ArchiveFiles, files: Sequence[ArchivedFile]) -> Iterator[pa.RecordBatch]:
    for each in files:
        with system.open(each.path) as file:
            yield from pq.ParquetFile(file).iter_batches()
