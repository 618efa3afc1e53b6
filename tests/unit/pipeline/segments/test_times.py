"""The first record of a time on is the one that a broker would name (S4, X6)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.segments.partition_files import folder_of, new_partition
from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch, batch_at, log_config
from tidelog.base.ids import Offset
from tidelog.pipeline.segments import DamagedSegment, first_offset_from
from tidelog.records.batch import write_checksum
from tidelog.storage.disk import RealDisk

times_ms = st.integers(NOW_MS - 20, NOW_MS + 20)


@given(
    batches=st.lists(st.lists(times_ms, min_size=1, max_size=4), min_size=1, max_size=20),
    segment_bytes=st.integers(150, 1_500),
    log_start_offset=st.integers(0, 10),
    high_watermark=st.none() | st.integers(0, 60),
    has_indexes=st.booleans(),
    timestamp_ms=times_ms,
)
def test_it_is_the_one_that_a_broker_would_name(
    batches: list[list[int]],
    segment_bytes: int,
    log_start_offset: int,
    high_watermark: int | None,
    has_indexes: bool,
    timestamp_ms: int,
) -> None:
    with new_partition(log_config(segment_bytes=segment_bytes, index_interval_bytes=0)) as files:
        log = files.open_log()
        for each in batches:
            append_batch(log, batch_at(log.log_end_offset, len(each), timestamps_ms=each))
        log.advance_log_start(Offset(min(log_start_offset, log.log_end_offset)))
        named = log.offset_by_timestamp(timestamp_ms)
        files.crash(log)
        if not has_indexes:
            for path in files.folder.glob("*index"):
                path.unlink()
        found = first_offset_from(
            folder_of(
                files.folder, high_watermark=high_watermark, log_start_offset=log.log_start_offset
            ),
            timestamp_ms,
            is_beyond_high_watermark=False,
        )
    end_offset = log.log_end_offset if high_watermark is None else high_watermark
    assert found == (named.offset if named is not None and named.offset < end_offset else None)


def test_a_batch_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    files = LogFolder(RealDisk(), tmp_path / "orders-3", log_config())
    log = files.open_log()
    append_batch(log, batch_at(0))
    files.stop(log)
    data = bytearray(files.log_bytes())
    data[61] = 3
    write_checksum(data, 0, len(data))
    (files.folder / f"{0:020d}.log").write_bytes(data)
    with pytest.raises(DamagedSegment, match="position 0, offset 0"):
        first_offset_from(folder_of(files.folder), NOW_MS, is_beyond_high_watermark=False)
