"""Folders of partitions on a real disk, written as brokers write them, and what is read of them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from tests.unit.storage.log_folder import LogFolder, log_config
from tidelog.base.ids import TopicPartition
from tidelog.pipeline.segments import (
    PartitionFolder,
    SegmentSlice,
    Wanted,
    plan_partition,
    read_slice,
    reading,
)
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import LogConfig

PARTITION = TopicPartition("orders", 3)


class Row(NamedTuple):
    """A record as it was written, and as it is read."""

    offset: int
    timestamp_ms: int
    value: bytes | None


def wanted(
    *,
    offsets: tuple[int, int] | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
    is_committed_only: bool = False,
    is_beyond_high_watermark: bool = False,
    is_torn_tail_ignored: bool = False,
    slice_bytes: int = 2**30,
) -> Wanted:
    return Wanted(
        offsets={} if offsets is None else {PARTITION: offsets},
        start_ms=start_ms,
        end_ms=end_ms,
        is_committed_only=is_committed_only,
        is_beyond_high_watermark=is_beyond_high_watermark,
        is_torn_tail_ignored=is_torn_tail_ignored,
        slice_bytes=slice_bytes,
    )


def folder_of(
    path: Path, *, high_watermark: int | None = None, log_start_offset: int = 0
) -> PartitionFolder:
    return PartitionFolder(PARTITION, path, None, log_start_offset, high_watermark)


def rows_of(slices: Iterable[SegmentSlice]) -> list[Row]:
    """All that is read, slice after slice; each in order."""
    found: list[Row] = []
    for each in slices:
        rows = [
            Row(row["offset"], round(row["timestamp"].timestamp() * 1000), row["value"])
            for batch in read_slice(each, has_headers=False)
            for row in batch.to_pylist()
        ]
        assert rows == sorted(rows, key=lambda row: row.offset)
        found += rows
    return found


def read(folder: PartitionFolder, what: Wanted) -> list[Row]:
    return rows_of(plan_partition(folder, what).slices)


@contextmanager
def new_partition(config: LogConfig | None = None) -> Iterator[LogFolder]:
    with TemporaryDirectory() as root:
        yield LogFolder(RealDisk(), Path(root) / "orders-3", config or log_config())


@contextmanager
def small_reads(*, chunk_bytes: int, rows_max: int) -> Iterator[None]:
    """So that a few batches are many chunks and many Arrow batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(reading, "ROWS_MAX", rows_max)
        yield
