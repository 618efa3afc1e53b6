"""Reading by offset (S4): whole batches, in order, never beyond the end that is allowed."""

import struct

import pytest

from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    append_records,
    batch_at,
    log_config,
    offsets_of,
    records_in,
)
from tidelog.base.errors import DamagedLog, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.log import Log, LogRead

INDEX = "00000000000000000000.index"


def read(
    log: Log,
    offset: int,
    *,
    end_offset: int | None = None,
    max_bytes: int = 10**6,
    first: bool = True,
) -> LogRead:
    end = log.log_end_offset if end_offset is None else Offset(end_offset)
    return log.read(Offset(offset), end_offset=end, max_bytes=max_bytes, at_least_one=first)


def read_cached(log: Log, offset: int, *, max_bytes: int = 10**6) -> LogRead | None:
    return log.read_cached(
        Offset(offset), end_offset=log.log_end_offset, max_bytes=max_bytes, at_least_one=True
    )


def offsets_in(part: LogRead) -> list[int]:
    return [record.offset for record in records_in(part.data)] if part.data else []


@pytest.fixture
def log(partition: LogFolder) -> Log:
    """Batches of two records, 0 to 19."""
    log = partition.open_log()
    append_records(log, 10, count=2)
    return log


def test_read_starts_with_the_batch_that_holds_the_offset(log: Log) -> None:
    assert offsets_in(read(log, 5))[0] == 4


def test_read_at_the_end_is_empty(log: Log) -> None:
    assert read(log, 20) == LogRead(b"", Offset(20))


@pytest.mark.parametrize("offset", [-1, 21, 10**9])
def test_offset_outside_the_log_is_refused(log: Log, offset: int) -> None:
    for attempt in (read, read_cached):
        with pytest.raises(RequestRefused) as refused:
            attempt(log, offset)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_offset_below_log_start_is_refused(log: Log) -> None:
    log.advance_log_start(Offset(7))
    assert offsets_in(read(log, 7))[0] == 6
    with pytest.raises(RequestRefused):
        read(log, 6)


def test_read_goes_on_where_the_last_one_ended(log: Log) -> None:
    size_bytes = len(batch_at(0, 2))
    seen = []
    offset = 0
    while offset < 20:
        part = read(log, offset, max_bytes=3 * size_bytes)
        seen.append(len(part.data) // size_bytes)
        offset = part.end_offset
    assert sum(seen) == 10
    assert max(seen) == 3


@pytest.mark.parametrize("max_bytes", [0, 1, 26, 27, 60, 61, 90])
def test_first_batch_is_whole_even_if_it_is_too_large(log: Log, max_bytes: int) -> None:
    part = read(log, 4, max_bytes=max_bytes)
    assert offsets_in(part) == [4, 5]
    assert part.end_offset == 6


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 88])
def test_first_batch_that_is_too_large_is_left_out_unless_asked_for(
    log: Log, max_bytes: int
) -> None:
    assert read(log, 4, max_bytes=max_bytes, first=False) == LogRead(b"", Offset(4))


def test_batch_that_does_not_fit_is_left_to_the_next_read(log: Log) -> None:
    size_bytes = len(batch_at(0, 2))
    for max_bytes in range(size_bytes, 2 * size_bytes):
        part = read(log, 0, max_bytes=max_bytes)
        assert offsets_in(part) == [0, 1]
        assert part.end_offset == 2


@pytest.mark.parametrize("end_offset", [2, 4, 18, 19, 20])
def test_nothing_beyond_the_end_offset_is_returned(log: Log, end_offset: int) -> None:
    part = read(log, 0, end_offset=end_offset)
    assert offsets_in(part) == list(range(end_offset - end_offset % 2))


def test_end_offset_before_the_offset_is_an_empty_read(log: Log) -> None:
    assert read(log, 10, end_offset=4) == LogRead(b"", Offset(10))


def test_first_batch_is_not_returned_if_it_crosses_the_end_offset(log: Log) -> None:
    assert not read(log, 4, end_offset=5).data


def test_read_ends_with_its_segment(partition: LogFolder) -> None:
    partition.config = log_config(segment_bytes=500)
    log = partition.open_log()
    append_records(log, 30)
    assert read(log, 0).end_offset == log.segments[1].base_offset
    assert offsets_of(log) == list(range(30))


def test_offset_in_a_gap_is_read_from_the_next_batch(partition: LogFolder) -> None:
    """What compaction leaves, within a segment and at its end."""
    log = partition.open_log()
    append_batch(log, batch_at(0))
    append_batch(log, batch_at(10))
    log.roll(producers=(), now_ms=NOW_MS)
    append_batch(log, batch_at(30))
    assert offsets_in(read(log, 5)) == [10]
    assert offsets_in(read(log, 20)) == [30]
    assert read(log, 20, end_offset=25) == LogRead(b"", Offset(25))


def test_thousands_of_small_batches_in_one_read(partition: LogFolder) -> None:
    partition.config = log_config(index_interval_bytes=1000)
    log = partition.open_log()
    append_records(log, 2_000)
    for max_bytes in (5_000, 50_000, 99_999):
        part = read(log, 500, max_bytes=max_bytes)
        found = offsets_in(part)
        assert found == list(range(500, 500 + len(found)))
        assert part.end_offset == 500 + len(found)
        assert max_bytes - 100 < len(part.data) <= max_bytes


def test_every_offset_of_a_thousand_segments_is_found(partition: LogFolder) -> None:
    partition.config = log_config(segment_bytes=250, index_interval_bytes=100)
    log = partition.open_log()
    append_records(log, 3_000)
    assert len(log.segments) >= 1_000
    for offset in (0, 1, 999, 1_500, 2_998, 2_999):
        assert offsets_in(read(log, offset, max_bytes=1)) == [offset]
    partition.stop(log)
    log = partition.open_log(clean=True)
    assert offsets_of(log) == list(range(3_000))


class TestWithoutWaiting:
    @pytest.fixture
    def cold(self, partition: LogFolder) -> FaultyDisk:
        disk = FaultyDisk(partition.disk)
        partition.disk = disk
        return disk

    def test_what_is_in_memory_is_read(self, log: Log) -> None:
        read(log, 3)  # Opens the index.
        part = read_cached(log, 5)
        assert part is not None
        assert offsets_in(part)[0] == 4

    def test_what_is_not_in_memory_is_none(self, partition: LogFolder, cold: FaultyDisk) -> None:
        log = partition.open_log()
        append_records(log, 5)
        cold.is_cold = True
        assert read_cached(log, 0) is None
        assert offsets_in(read(log, 0)) == [0, 1, 2, 3, 4]

    def test_closed_segment_that_is_not_open_is_none(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=300)
        log = partition.open_log()
        append_records(log, 20)
        log.flush(up_to=Offset(20))
        partition.stop(log)
        log = partition.open_log(clean=True)
        assert read_cached(log, 0) is None
        read(log, 0)
        assert read_cached(log, 0) is not None

    def test_tail_is_read_without_an_index(self, partition: LogFolder, cold: FaultyDisk) -> None:
        """A reader that keeps up never searches."""
        log = partition.open_log()
        append_records(log, 5)
        cold.arm("open", "*.index", StorageError)
        cold.arm("read", "*.index", StorageError)
        for _ in range(100):
            offset = log.log_end_offset
            append_batch(log, batch_at(offset))
            part = read_cached(log, offset)
            assert part is not None
            assert offsets_in(part) == [offset]

    def test_damaged_index_is_left_to_a_thread(self, partition: LogFolder) -> None:
        partition.config = log_config(index_interval_bytes=100)
        log = partition.open_log()
        append_records(log, 50)
        log.roll(producers=(), now_ms=NOW_MS)
        partition.stop(log)
        partition.write(INDEX, b"\x01")
        log = partition.open_log(clean=True)
        assert read_cached(log, 30) is None


@pytest.mark.parametrize(
    "damage",
    [
        b"\x00",
        struct.pack(">ii", 0, 10**9),
        struct.pack(">ii", 0, 13),
        struct.pack(">ii", 0, 2000),
        struct.pack(">ii", 20, -1),
    ],
    ids=["half an entry", "past the end", "between batches", "skips batches", "negative"],
)
def test_index_that_lies_is_made_again_while_the_log_is_read(
    partition: LogFolder, damage: bytes
) -> None:
    partition.config = log_config(index_interval_bytes=100)
    log = partition.open_log()
    append_records(log, 50)
    log.roll(producers=(), now_ms=NOW_MS)
    append_records(log, 1)
    partition.stop(log)
    intact = partition.files()[INDEX]
    partition.write(INDEX, damage)
    log = partition.open_log(clean=True)
    for offset in (30, 49, 10):
        assert offsets_in(read(log, offset, max_bytes=1)) == [offset]
    assert partition.files()[INDEX] == intact


def test_index_of_the_active_segment_that_lies_is_done_without(partition: LogFolder) -> None:
    partition.config = log_config(index_interval_bytes=100)
    log = partition.open_log()
    append_records(log, 500)
    partition.stop(log)
    entries = bytearray(partition.files()[INDEX])
    entries[7] ^= 1  # The first entry; only the last is looked at when the log is opened.
    partition.write(INDEX, bytes(entries))
    log = partition.open_log(clean=True)
    assert offsets_in(read(log, 2, max_bytes=1)) == [2]
    append_records(log, 5)
    log.roll(producers=(), now_ms=NOW_MS)
    assert offsets_in(read(log, 3, max_bytes=1)) == [3]
    assert offsets_of(log) == list(range(505))


@pytest.mark.parametrize("max_bytes", [10, 10**6])
def test_log_that_is_not_batches_names_file_and_position(
    partition: LogFolder, max_bytes: int
) -> None:
    log = partition.open_log()
    append_records(log, 5)
    log.roll(producers=(), now_ms=NOW_MS)
    partition.stop(log)
    partition.write("00000000000000000000.log", bytes(1000))
    log = partition.open_log(clean=True)
    with pytest.raises(DamagedLog, match=r"0000\.log: no record batch at position 0"):
        read(log, 3, max_bytes=max_bytes)


@pytest.mark.parametrize("max_bytes", [10, 10**6])
def test_batch_that_is_cut_off_is_damage_and_not_the_end(
    partition: LogFolder, max_bytes: int
) -> None:
    """A client takes it for a batch that did not fit, and asks for it again for ever."""
    log = partition.open_log()
    append_records(log, 5)
    log.roll(producers=(), now_ms=NOW_MS)
    append_records(log, 1)
    partition.stop(log)
    content = partition.files()["00000000000000000000.log"]
    partition.write("00000000000000000000.log", content[:-1])
    log = partition.open_log(clean=True)
    with pytest.raises(DamagedLog, match="no record batch"):
        read(log, 4, max_bytes=max_bytes)
    assert offsets_in(read(log, 5)) == [5]


def test_damaged_segment_that_lost_its_index_costs_nothing_but_the_damaged(
    partition: LogFolder,
) -> None:
    """The log did not open, and its directory went offline with all that was in it."""
    partition.config = log_config(index_interval_bytes=100)
    log = partition.open_log()
    append_records(log, 50)
    log.roll(producers=(), now_ms=NOW_MS)
    append_records(log, 1)
    partition.stop(log)
    content = bytearray(partition.files()["00000000000000000000.log"])
    half = len(content) // 2
    content[half : half + 200] = bytes(200)
    partition.write("00000000000000000000.log", bytes(content))
    partition.disk.remove(partition.folder / INDEX)
    log = partition.open_log(clean=True)
    assert offsets_in(read(log, 20, max_bytes=1)) == [20]
    assert offsets_in(read(log, 50)) == [50]
    with pytest.raises(DamagedLog, match="no record batch"):
        read(log, 40, max_bytes=1)


def test_segment_shorter_than_it_was_is_reported(partition: LogFolder) -> None:
    log = partition.open_log()
    append_records(log, 5)
    partition.disk.open_existing(log.segments[0].log_path).truncate(100)
    with pytest.raises(StorageError, match="shorter"):
        read(log, 0)
