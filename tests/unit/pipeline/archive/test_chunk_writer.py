"""Rows of a chunk as files: by hour, of a bounded size, under names of their own."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipeline.archive.chunk_writer import (
    OPEN_FILES_MAX,
    ChunkWriter,
    WriteTerms,
    copied,
    hour_folder,
    run_of,
)
from tidelog.pipeline.archive.compaction import Merge, grouped, merged
from tidelog.pipeline.archive.manifest import Chunk
from tidelog.pipeline.rows import schema
from tidelog.records.columns import TIMESTAMP_MS_MAX

HOUR_MS = 3_600_000
NINE_MS = 1_763_370_000_000  # 2025-11-17T09:00:00Z


def rows(timestamps_ms: list[int], *, start_offset: int = 0, value: bytes = b"v") -> pa.RecordBatch:
    count = len(timestamps_ms)
    return pa.RecordBatch.from_pydict(
        {
            "key": [b"k"] * count,
            "value": [value] * count,
            "topic": ["orders"] * count,
            "partition": [3] * count,
            "offset": list(range(start_offset, start_offset + count)),
            "timestamp": [each * 1000 for each in timestamps_ms],
            "timestampType": [0] * count,
            "headers": [[{"key": "h", "value": b"1"}]] * count,
        },
        schema=schema(has_headers=True),
    )


def writer(root: Path, *, target_bytes: int = 1_000_000_000, run: str = "abc") -> ChunkWriter:
    return ChunkWriter(WriteTerms(root=str(root), run=run, target_bytes=target_bytes), 3)


def test_there_is_a_file_for_each_hour(tmp_path: Path) -> None:
    files = copied([rows([NINE_MS, NINE_MS + HOUR_MS, NINE_MS + 1])], writer(tmp_path))
    assert [(each.hour, each.first_offset, each.last_offset) for each in files] == [
        ("date=2025-11-17/hour=09", 0, 2),
        ("date=2025-11-17/hour=10", 1, 1),
    ]
    assert [each.record_count for each in files] == [2, 1]
    assert (files[0].first_timestamp_ms, files[0].last_timestamp_ms) == (NINE_MS, NINE_MS + 1)
    read = pq.read_table(tmp_path / files[0].path, partitioning=None)
    assert read.column("offset").to_pylist() == [0, 2]
    assert (tmp_path / files[0].path).stat().st_size == files[0].size_bytes


def test_times_that_no_calendar_has_are_archived(tmp_path: Path) -> None:
    """As from who takes microseconds for milliseconds. The records keep the time that they have."""
    times_ms = [-1, NINE_MS * 1000, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX, 2**53]
    files = copied([rows(times_ms)], writer(tmp_path))
    assert [(each.hour, each.record_count) for each in files] == [
        ("date=0001-01-01/hour=00", 1),
        ("date=1969-12-31/hour=23", 1),
        ("date=9999-12-31/hour=23", 3),
    ]
    read = pq.read_table(tmp_path / files[2].path, partitioning=None)
    assert read.column("timestamp").cast(pa.int64()).to_pylist() == [
        each * 1000 for each in (NINE_MS * 1000, TIMESTAMP_MS_MAX, 2**53)
    ]


def test_times_before_1970_have_their_hour() -> None:
    assert hour_folder(-1) == "date=1969-12-31/hour=23"


def test_records_without_a_time_are_archived(tmp_path: Path) -> None:
    [file] = copied([rows([-1])], writer(tmp_path))
    assert file.hour == "date=1969-12-31/hour=23"


def test_an_attempt_never_writes_into_the_file_of_another(tmp_path: Path) -> None:
    first = copied([rows([NINE_MS])], writer(tmp_path))
    second = copied([rows([NINE_MS])], writer(tmp_path))
    assert first[0].path != second[0].path
    assert [run_of(each.path) for each in (*first, *second)] == ["abc", "abc"]
    assert run_of("date=2025-11-17/hour=09/somebody-elses.parquet") is None


def test_a_file_that_has_reached_the_target_is_closed(tmp_path: Path) -> None:
    """However many rows come at once."""
    values = [os.urandom(1_000) for _ in range(500)]
    batch = rows([NINE_MS] * 500).set_column(1, "value", pa.array(values))
    files = copied([batch], writer(tmp_path, target_bytes=100_000))
    assert sum(each.record_count for each in files) == 500
    assert max(each.size_bytes for each in files) < 170_000
    assert min(each.size_bytes for each in files[:-1]) >= 100_000
    firsts = [each.first_offset for each in files]
    lasts = [each.last_offset for each in files]
    assert firsts == [0, *(last + 1 for last in lasts[:-1])]
    assert lasts[-1] == 499


def test_timestamps_all_over_the_calendar_cost_files_and_not_memory(tmp_path: Path) -> None:
    hours = [NINE_MS + n * HOUR_MS for n in range(2 * OPEN_FILES_MAX)]
    subject = writer(tmp_path)
    subject.write(rows(hours))
    subject.write(rows(hours, start_offset=len(hours)))
    files = subject.close()
    assert sum(each.record_count for each in files) == 4 * OPEN_FILES_MAX
    assert len({each.path for each in files}) == len(files) == 4 * OPEN_FILES_MAX


def test_chunks_become_one_with_a_file_for_each_hour(tmp_path: Path) -> None:
    chunks = [_chunk(tmp_path, start) for start in (0, 10, 20)]
    terms = WriteTerms(root=str(tmp_path), run="def", target_bytes=1_000_000)
    whole = merged(Merge(tuple(chunks), terms))
    assert (whole.start_offset, whole.end_offset, whole.record_count) == (0, 30, 12)
    assert [each.hour for each in whole.files] == [
        "date=2025-11-17/hour=09",
        "date=2025-11-17/hour=10",
    ]
    offsets = [
        pq.read_table(tmp_path / each.path, partitioning=None).column("offset").to_pylist()
        for each in whole.files
    ]
    assert offsets == [[0, 1, 10, 11, 20, 21], [2, 3, 12, 13, 22, 23]]


def test_an_hour_with_nothing_to_merge_keeps_its_file(tmp_path: Path) -> None:
    chunks = [_chunk(tmp_path, 0), _chunk(tmp_path, 10, shift_ms=HOUR_MS)]
    terms = WriteTerms(root=str(tmp_path), run="def", target_bytes=1_000_000)
    whole = merged(Merge(tuple(chunks), terms))
    assert [run_of(each.path) for each in whole.files] == ["abc", "def", "abc"]


def test_files_that_are_large_enough_are_not_rewritten(tmp_path: Path) -> None:
    files = [_chunk(tmp_path, start).files[0] for start in (0, 10, 20)]
    assert grouped(files, target_bytes=files[0].size_bytes) == [[each] for each in files]


def _chunk(root: Path, start_offset: int, *, shift_ms: int = 0) -> Chunk:
    nine = NINE_MS + shift_ms
    times = [nine, nine, nine + HOUR_MS, nine + HOUR_MS]
    files = copied([rows(times, start_offset=start_offset)], writer(root))
    return Chunk(
        partition=3, start_offset=start_offset, end_offset=start_offset + 10, files=tuple(files)
    )
