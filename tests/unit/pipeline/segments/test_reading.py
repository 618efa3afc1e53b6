"""A slice becomes Arrow batches of a bounded size, with everything that a record has (X1, X6)."""

import struct
from pathlib import Path

import pytest

from tests.unit.pipeline.segments.partition_files import folder_of, wanted
from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch, batch_at, log_config
from tidelog.pipeline.rows import schema
from tidelog.pipeline.segments import DamagedSegment, SegmentSlice, plan_partition, read_slice
from tidelog.pipeline.segments.reading import CHUNK_BYTES, ROWS_BYTES, ROWS_MAX
from tidelog.records.batch import Codec, stamp_log_append_time
from tidelog.records.record import Record, encode_plain_batch
from tidelog.storage.disk import RealDisk


@pytest.fixture
def log_folder(tmp_path: Path) -> LogFolder:
    return LogFolder(RealDisk(), tmp_path / "orders-3", log_config())


def slice_of(log_folder: LogFolder, *batches: bytearray) -> SegmentSlice:
    log = log_folder.open_log()
    for batch in batches:
        append_batch(log, batch)
    log_folder.stop(log)
    (only,) = plan_partition(folder_of(log_folder.folder), wanted()).slices
    return only


def test_a_row_has_everything_that_its_record_has(log_folder: LogFolder) -> None:
    record = Record(0, NOW_MS, b"key", None, (("name", b"value"), ("none", None)))
    only = slice_of(log_folder, encode_plain_batch([record], Codec.ZSTD))
    (rows,) = read_slice(only, has_headers=True)
    assert rows.schema == schema(has_headers=True)
    (row,) = rows.to_pylist()
    assert (row["topic"], row["partition"], row["offset"]) == ("orders", 3, 0)
    assert (row["key"], row["value"], row["timestampType"]) == (b"key", None, 0)
    assert row["headers"] == [{"key": "name", "value": b"value"}, {"key": "none", "value": None}]


def test_rows_come_in_batches_of_some_megabytes(log_folder: LogFolder) -> None:
    count = 3 * ROWS_BYTES // 2**18
    batches = [batch_at(offset, value=bytes(2**18)) for offset in range(count)]
    parts = list(read_slice(slice_of(log_folder, *batches), has_headers=False))
    assert sum(part.num_rows for part in parts) == count
    assert len(parts) >= 3
    assert all(part.nbytes < ROWS_BYTES + 2**20 for part in parts)


def test_rows_without_anything_in_them_come_in_batches_as_well(log_folder: LogFolder) -> None:
    records = [Record(0, NOW_MS, None, None, ())] * 1_000
    count = 2 * ROWS_MAX // len(records)
    batches = [
        encode_plain_batch(
            [each._replace(offset=first + at) for at, each in enumerate(records)], Codec.NONE
        )
        for first in range(0, count * len(records), len(records))
    ]
    parts = list(read_slice(slice_of(log_folder, *batches), has_headers=False))
    assert max(part.num_rows for part in parts) < ROWS_MAX + len(records)


def test_batches_may_be_larger_than_what_is_read_at_once(log_folder: LogFolder) -> None:
    sizes = [10, CHUNK_BYTES + 1, 10, 3 * CHUNK_BYTES // 2, CHUNK_BYTES - 200, 10]
    batches = [batch_at(offset, value=bytes(size)) for offset, size in enumerate(sizes)]
    only = slice_of(log_folder, *batches)
    found = [
        (row["offset"], len(row["value"]))
        for part in read_slice(only, has_headers=False)
        for row in part.to_pylist()
    ]
    assert found == [(offset, 2 + size) for offset, size in enumerate(sizes)]


@pytest.mark.parametrize("length", [2**31 - 13, 200 * 2**20])
def test_a_length_that_cannot_be_takes_no_memory(log_folder: LogFolder, length: int) -> None:
    only = slice_of(log_folder, batch_at(0), batch_at(1))
    data = bytearray(only.path.read_bytes())
    struct.pack_into(">i", data, len(batch_at(0)) + 8, length)
    only.path.write_bytes(data)
    with pytest.raises(DamagedSegment, match=f"position {len(batch_at(0))}, offset 1: a batch of"):
        list(read_slice(only, has_headers=False))


def test_times_that_brokers_set_are_compared_before_anything_is_decompressed(
    log_folder: LogFolder,
) -> None:
    log = log_folder.open_log()
    for offset in range(3):
        batch = batch_at(offset, codec=Codec.GZIP)
        if offset != 1:
            batch[-6:] = bytes(6)  # Nobody can decompress it any more.
        stamp_log_append_time(batch, 0, NOW_MS + offset)
        append_batch(log, batch)
    log_folder.stop(log)
    (only,) = plan_partition(
        folder_of(log_folder.folder), wanted(start_ms=NOW_MS + 1, end_ms=NOW_MS + 2)
    ).slices
    (rows,) = read_slice(only, has_headers=False)
    assert rows.column("offset").to_pylist() == [1]
