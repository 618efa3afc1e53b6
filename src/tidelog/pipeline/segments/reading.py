"""Read a slice on an executor: from the bytes of a file to Arrow batches.

    file ──▶ chunk of whole batches ──▶ visible? wanted by its header? ──▶ columns ──▶ rows
             one buffer, used again     checksum of each                   copied out of the buffer

Memory is bounded by a chunk, the largest batch and the rows of a few batches, however large the
slice. Every batch of the slice must be in its place and lead to the next, up to the very end of the
slice; so a slice is read wholly or not at all, whoever changes the files meanwhile.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.base.errors import CorruptBatch
from tidelog.pipeline.rows import record_batch
from tidelog.pipeline.segments.errors import DamagedSegment, SegmentsChanged
from tidelog.pipeline.segments.read_only_file import ReadOnlyFile
from tidelog.pipeline.segments.slices import SegmentSlice
from tidelog.pipeline.segments.transactions import with_records_between
from tidelog.pipeline.visible_batches import UnreadableBatch, VisibleBatches, payload_of
from tidelog.records.batch import (
    BATCH_LENGTH_MIN,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
)
from tidelog.records.columns import TIMESTAMP_MS_MAX, ColumnBuilder, new_column_builder
from tidelog.records.record import UNCOMPRESSED_BYTES_MAX
from tidelog.storage.segment import WALK

CHUNK_BYTES: Final = 1024 * 1024
"""Read at once, unless a batch is larger. What fits into a cache is read faster twice."""
ROWS_BYTES: Final = 4 * 1024 * 1024
"""Keys, values and headers of the rows of an Arrow batch: about so much, or one batch's."""
ROWS_MAX: Final = 65_536


def read_slice(slice_: SegmentSlice, *, has_headers: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a slice, in the order of their offsets, in batches of some megabytes.

    Raises DamagedSegment, SegmentsChanged.
    """
    builder = new_column_builder(has_headers=has_headers)
    for _ in _added(slice_, builder):
        if builder.size_bytes >= ROWS_BYTES or builder.row_count >= ROWS_MAX:
            yield from _taken(slice_, builder)
    yield from _taken(slice_, builder)


def _taken(slice_: SegmentSlice, builder: ColumnBuilder) -> Iterator[pa.RecordBatch]:
    partition = slice_.partition
    rows = record_batch(builder.take(), topic=partition.topic, partition=partition.partition)
    rows = _within_time(rows, slice_)
    if rows.num_rows:
        yield rows


def _within_time(rows: pa.RecordBatch, slice_: SegmentSlice) -> pa.RecordBatch:
    timestamps_us = rows.column("timestamp").view(pa.int64())
    if slice_.start_ms is not None:
        is_in_time = pc.greater_equal(timestamps_us, _microseconds(slice_.start_ms))
        rows, timestamps_us = rows.filter(is_in_time), timestamps_us.filter(is_in_time)
    if slice_.end_ms is not None:
        rows = rows.filter(pc.less(timestamps_us, _microseconds(slice_.end_ms)))
    return rows


def _microseconds(timestamp_ms: int) -> pa.Scalar:
    return pa.scalar(max(-TIMESTAMP_MS_MAX, min(TIMESTAMP_MS_MAX, timestamp_ms)) * 1000, pa.int64())


def _added(slice_: SegmentSlice, builder: ColumnBuilder) -> Iterator[None]:
    """Put the records of one batch after the other into `builder`."""
    visible = VisibleBatches(is_committed_only=slice_.is_committed_only)
    with ReadOnlyFile(slice_.path) as file:
        for chunk in _Chunks(file, slice_):
            aborted = with_records_between(
                slice_.aborted, offset=chunk.first_offset, end_offset=chunk.end_offset
            )
            try:
                for position, header, batch in visible.compressed(chunk.batches, aborted):
                    if _is_wanted(slice_, header):
                        _add(slice_, builder, position, header, batch)
                        yield
            except UnreadableBatch as error:
                raise DamagedSegment(
                    slice_.path,
                    position=chunk.position + error.position,
                    offset=error.offset,
                    problem=error.problem,
                ) from error


def _is_wanted(slice_: SegmentSlice, header: BatchHeader) -> bool:
    """Whether there may be something in it, as far as the header tells."""
    if header.end_offset <= slice_.start_offset or header.base_offset >= slice_.end_offset:
        return False
    if slice_.start_ms is not None and header.max_timestamp_ms < slice_.start_ms:
        return False
    # Only then is the largest timestamp that of every record.
    return not (
        slice_.end_ms is not None
        and header.is_log_append_time
        and header.max_timestamp_ms >= slice_.end_ms
    )


def _add(
    slice_: SegmentSlice,
    builder: ColumnBuilder,
    position: int,
    header: BatchHeader,
    batch: memoryview,
) -> None:
    payload = payload_of(position, header, batch)
    try:
        builder.add(header, payload, start_offset=slice_.start_offset, end_offset=slice_.end_offset)
    except CorruptBatch as error:
        raise UnreadableBatch(str(error), position=position, offset=header.base_offset) from error


class _Chunk:
    """Some whole batches. Gone when the next is asked for."""

    def __init__(
        self, batches: memoryview, *, position: int, first_offset: int, end_offset: int
    ) -> None:
        self.batches = batches
        self.position = position
        self.first_offset = first_offset
        self.end_offset = end_offset


class _Chunks:
    """All batches of a slice, some at a time, each in its place."""

    def __init__(self, file: ReadOnlyFile, slice_: SegmentSlice) -> None:
        self._file = file
        self._slice = slice_
        self._position = slice_.start_position
        self._next_offset = slice_.first_base_offset
        self._buffer = memoryview(bytearray(min(CHUNK_BYTES, slice_.size_bytes)))

    def __iter__(self) -> Iterator[_Chunk]:
        while self._position < self._slice.end_position:
            wanted_bytes = min(len(self._buffer), self._slice.end_position - self._position)
            chunk = self._buffer[:wanted_bytes]
            if self._file.read_into(chunk, self._position) < wanted_bytes:
                raise SegmentsChanged(
                    f"{self._slice.path} is shorter than it was when the job was planned"
                )
            first_offset = self._next_offset
            whole_bytes = self._step_over(chunk)
            if whole_bytes:
                yield _Chunk(
                    chunk[:whole_bytes],
                    position=self._position,
                    first_offset=first_offset,
                    end_offset=self._next_offset,
                )
                self._position += whole_bytes

    def _step_over(self, chunk: memoryview) -> int:
        """How many bytes of `chunk` are whole batches. If not even one is, there will be room."""
        at = 0
        next_offset, end_base_offset = self._next_offset, self._slice.end_base_offset
        chunk_bytes = len(chunk)
        while chunk_bytes - at >= WALK.size:
            base_offset, length, magic, last_offset_delta = WALK.unpack_from(chunk, at)
            if magic != MAGIC or length < BATCH_LENGTH_MIN:
                raise self._damaged(at, next_offset, "what is there is no batch")
            if not next_offset <= base_offset < end_base_offset or last_offset_delta < 0:
                problem = f"the batch there says that it begins at offset {base_offset}"
                raise self._damaged(at, next_offset, problem)
            if chunk_bytes - at < length + LOG_OVERHEAD_BYTES:
                break
            at += length + LOG_OVERHEAD_BYTES
            next_offset = base_offset + last_offset_delta + 1
        self._next_offset = next_offset
        if at == 0:
            self._make_room(chunk)
        return at

    def _make_room(self, chunk: memoryview) -> None:
        left_bytes = self._slice.end_position - self._position
        size_bytes = 0
        if len(chunk) >= WALK.size:
            size_bytes = WALK.unpack_from(chunk)[1] + LOG_OVERHEAD_BYTES
        if not len(chunk) < size_bytes <= left_bytes:
            problem = f"a batch of {size_bytes} bytes does not fit into the {left_bytes} left"
            raise self._damaged(0, self._next_offset, problem)
        if size_bytes > UNCOMPRESSED_BYTES_MAX:
            problem = f"a batch of {size_bytes} bytes is more than {UNCOMPRESSED_BYTES_MAX}"
            raise self._damaged(0, self._next_offset, problem)
        self._buffer = memoryview(bytearray(size_bytes))

    def _damaged(self, at: int, offset: int, problem: str) -> DamagedSegment:
        return DamagedSegment(
            self._slice.path, position=self._position + at, offset=offset, problem=problem
        )
