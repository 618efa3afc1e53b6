"""Finding records by time (S4), also where timestamps go up and down."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    batch_at,
    log_config,
)
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.records.batch import Codec, read_header
from tidelog.records.record import assemble
from tidelog.storage.log import Log
from tidelog.storage.memory_disk import MemoryDisk


def log_of(partition: LogFolder, *batches: list[int], codec: Codec = Codec.NONE) -> Log:
    log = partition.open_log()
    for timestamps_ms in batches:
        batch = batch_at(
            log.log_end_offset, len(timestamps_ms), timestamps_ms=timestamps_ms, codec=codec
        )
        append_batch(log, batch)
    return log


def found_at(log: Log, timestamp_ms: int) -> tuple[int, int] | None:
    found = log.offset_by_timestamp(timestamp_ms)
    return found and (found.offset, found.timestamp_ms)


def test_first_record_that_is_late_enough_is_found(partition: LogFolder) -> None:
    log = log_of(partition, [10, 20], [30], [40, 50])
    assert found_at(log, 0) == (0, 10)
    assert found_at(log, 20) == (1, 20)
    assert found_at(log, 21) == (2, 30)
    assert found_at(log, 50) == (4, 50)
    assert found_at(log, 51) is None


def test_timestamps_that_go_back_do_not_hide_records(partition: LogFolder) -> None:
    partition.config = log_config(index_interval_bytes=0, segment_bytes=300)
    log = log_of(partition, [100], [50], [60], [200], [10], [150], [300], [20])
    assert found_at(log, 40) == (0, 100)
    assert found_at(log, 101) == (3, 200)
    assert found_at(log, 201) == (6, 300)


def test_compressed_records_are_looked_into(partition: LogFolder) -> None:
    log = log_of(partition, [10, 20, 30], [40, 50, 60], codec=Codec.ZSTD)
    assert found_at(log, 15) == (1, 20)
    assert found_at(log, 55) == (5, 60)


def test_epoch_of_the_batch_is_told(partition: LogFolder) -> None:
    log = partition.open_log()
    append_batch(log, batch_at(0, leader_epoch=3))
    found = log.offset_by_timestamp(0)
    assert found is not None
    assert found.leader_epoch == 3


def test_records_below_log_start_are_not_found(partition: LogFolder) -> None:
    log = log_of(partition, [10, 20, 30], [40])
    log.advance_log_start(Offset(2))
    assert found_at(log, 0) == (2, 30)


def test_empty_log_has_no_records(partition: LogFolder) -> None:
    log = partition.open_log()
    assert log.offset_by_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_records_without_timestamp_have_no_maximum(partition: LogFolder) -> None:
    log = log_of(partition, [-1], [-1])
    assert log.offset_of_max_timestamp() is None


def test_largest_timestamp_is_found_at_its_first_record(partition: LogFolder) -> None:
    partition.config = log_config(segment_bytes=200)
    log = log_of(partition, [10], [90, 5], [90], [20], [90])
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, 90)


def test_lookup_notices_segments_that_came_and_went(partition: LogFolder) -> None:
    log = log_of(partition, [10], [20])
    log.roll(producers=(), now_ms=NOW_MS)
    append_batch(log, batch_at(2, timestamps_ms=[30]))
    assert found_at(log, 25) == (2, 30)
    log.roll(producers=(), now_ms=NOW_MS)
    append_batch(log, batch_at(3, timestamps_ms=[40]))
    assert found_at(log, 35) == (3, 40)
    log.detach(log.segments[:1])
    assert found_at(log, 0) == (2, 30)


def test_time_index_that_lies_is_made_again(partition: LogFolder) -> None:
    partition.config = log_config(index_interval_bytes=0)
    log = log_of(partition, *([number] for number in range(50)))
    log.roll(producers=(), now_ms=NOW_MS)
    partition.stop(log)
    name = "00000000000000000000.timeindex"
    intact = partition.files()[name]
    damaged = bytearray(intact)
    damaged[12 * 20 + 11] += 5
    partition.write(name, bytes(damaged))
    log = partition.open_log(clean=True)
    assert found_at(log, 21) == (21, 21)
    assert partition.files()[name] == intact


def test_time_index_of_the_active_segment_that_lies_is_done_without(partition: LogFolder) -> None:
    partition.config = log_config(index_interval_bytes=0)
    log = log_of(partition, *([number] for number in range(500)))
    partition.stop(log)
    name = "00000000000000000000.timeindex"
    damaged = bytearray(partition.files()[name])
    damaged[12 * 20 + 11] += 5
    partition.write(name, bytes(damaged))
    log = partition.open_log(clean=True)
    assert found_at(log, 21) == (21, 21)


def test_batch_of_nonsense_refuses_the_lookup_and_nothing_else(partition: LogFolder) -> None:
    """A producer may put anything behind a header; the disk is not to blame."""
    log = partition.open_log()
    header = read_header(batch_at(0, timestamps_ms=[10]), 0)
    append_batch(log, assemble(header, b"\xff" * 20))
    with pytest.raises(RequestRefused) as refused:
        log.offset_by_timestamp(5)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@given(
    batches=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), max_size=25),
    segment_bytes=st.integers(100, 800),
    index_interval_bytes=st.sampled_from([0, 100, 400]),
    timestamp_ms=st.integers(0, 31),
)
def test_lookup_agrees_with_looking_at_every_record(
    batches: list[list[int]], segment_bytes: int, index_interval_bytes: int, timestamp_ms: int
) -> None:
    disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    config = log_config(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    partition = LogFolder(disk, Path("/orders-3"), config)
    log = log_of(partition, *batches)
    flat = [time_ms for times in batches for time_ms in times]
    expected = next(((at, ms) for at, ms in enumerate(flat) if ms >= timestamp_ms), None)
    assert found_at(log, timestamp_ms) == expected
    largest = log.offset_of_max_timestamp()
    assert (largest and largest.offset) == (flat.index(max(flat)) if flat else None)
    partition.stop(log)
    assert found_at(partition.open_log(clean=True), timestamp_ms) == expected
