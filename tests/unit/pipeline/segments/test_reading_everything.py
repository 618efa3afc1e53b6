"""Whatever is asked for, slices hold each record that matches once, and no other (X6)."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.segments.partition_files import (
    Row,
    folder_of,
    new_partition,
    rows_of,
    small_reads,
    wanted,
)
from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch, log_config
from tidelog.pipeline.segments import plan_partition
from tidelog.records.batch import HEADER_SIZE_BYTES, Codec, read_header, stamp_log_append_time
from tidelog.records.record import Record, assemble, encode_plain_batch

times_ms = st.integers(NOW_MS - 20, NOW_MS + 20)


@dataclass(frozen=True)
class Batch:
    """Some records: how many offsets lie before each, when it was made, how long it is."""

    records: list[tuple[int, int, int]]
    codec: Codec
    offsets_behind: int
    is_log_append_time: bool


@dataclass(frozen=True)
class Lost:
    """Which indexes a copy has lost, by the number of a segment."""

    offset_indexes: list[int]
    time_indexes: list[int]


batches = st.builds(
    Batch,
    # Most offsets follow each other; compaction leaves gaps.
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 0, 3]), times_ms, st.integers(0, 60)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    st.sampled_from([0, 0, 0, 2]),
    st.sampled_from([False, False, True]),
)
segment_numbers = st.lists(st.integers(0, 8), max_size=2)
losses = st.builds(Lost, segment_numbers, segment_numbers)


def write(log_folder: LogFolder, written: list[Batch], *, is_stopped: bool) -> list[Row]:
    """All records, as they must be read."""
    log = log_folder.open_log()
    rows: list[Row] = []
    for each in written:
        offset = log.log_end_offset - 1
        records = []
        for gap, timestamp_ms, padding in each.records:
            offset += 1 + gap
            value = b"%d %b" % (offset, b"x" * padding)
            records.append(Record(offset, timestamp_ms, b"key", value, ()))
        batch = encode_plain_batch(records, each.codec)
        header = read_header(batch, 0)
        last_offset_delta = header.last_offset_delta + each.offsets_behind
        batch = assemble(
            header._replace(last_offset_delta=last_offset_delta), batch[HEADER_SIZE_BYTES:]
        )
        if each.is_log_append_time:
            stamp_log_append_time(batch, 0, header.max_timestamp_ms)
        append_batch(log, batch)
        rows += [
            Row(
                record.offset,
                header.max_timestamp_ms if each.is_log_append_time else record.timestamp_ms,
                record.value,
            )
            for record in records
        ]
    if is_stopped:
        log_folder.stop(log)
    else:  # Of a broker that is running, indexes are not complete.
        log_folder.crash(log)
    return rows


def lose(log_folder: LogFolder, lost: Lost) -> None:
    names = log_folder.disk.list_folder(log_folder.folder)
    for suffix, numbers in ((".index", lost.offset_indexes), (".timeindex", lost.time_indexes)):
        indexes = [name for name in names if name.endswith(suffix)]
        for number in numbers:
            for name in indexes[number : number + 1]:
                log_folder.disk.remove(log_folder.folder / name)


@given(
    written=st.lists(batches, min_size=8, max_size=25),
    segment_bytes=st.integers(200, 3_000),
    index_interval_bytes=st.sampled_from([0, 100, 1_000]),
    is_stopped=st.booleans(),
    lost=losses,
    offsets=st.none() | st.tuples(st.integers(0, 15), st.integers(10, 40)),
    start_ms=st.none() | times_ms,
    end_ms=st.none() | times_ms,
    high_watermark=st.none() | st.none() | st.integers(0, 60),
    log_start_offset=st.sampled_from([0, 0, 0, 5]),
    slice_bytes=st.integers(50, 1_500),
    chunk_bytes=st.integers(HEADER_SIZE_BYTES, 600),
    rows_max=st.integers(1, 20),
)
def test_slices_hold_each_record_that_matches_once(
    written: list[Batch],
    segment_bytes: int,
    index_interval_bytes: int,
    is_stopped: bool,
    lost: Lost,
    offsets: tuple[int, int] | None,
    start_ms: int | None,
    end_ms: int | None,
    high_watermark: int | None,
    log_start_offset: int,
    slice_bytes: int,
    chunk_bytes: int,
    rows_max: int,
) -> None:
    config = log_config(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    with new_partition(config) as log_folder:
        rows = write(log_folder, written, is_stopped=is_stopped)
        lose(log_folder, lost)
        plan = plan_partition(
            folder_of(
                log_folder.folder,
                high_watermark=high_watermark,
                log_start_offset=log_start_offset,
            ),
            wanted(offsets=offsets, start_ms=start_ms, end_ms=end_ms, slice_bytes=slice_bytes),
        )
        with small_reads(chunk_bytes=chunk_bytes, rows_max=rows_max):
            found = rows_of(plan.slices)
    assert all(each.size_bytes > 0 for each in plan.slices)
    start_offset, end_offset = offsets or (0, 2**63 - 1)
    assert found == [
        row
        for row in rows
        if max(start_offset, log_start_offset) <= row.offset < end_offset
        and (high_watermark is None or row.offset < high_watermark)
        and (start_ms is None or start_ms <= row.timestamp_ms)
        and (end_ms is None or row.timestamp_ms < end_ms)
    ]
