"""After a crash the log is what was written, up to the first byte in doubt (S6)."""

import struct
from pathlib import Path

import pytest

from tests.unit.storage.log_folder import (
    LogFolder,
    append_batch,
    append_records,
    batch_at,
    log_config,
    offsets_of,
)
from tidelog.base.ids import Offset
from tidelog.records.batch import HEADER_SIZE_BYTES

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"

# Offset and size of every field of a batch header.
HEADER_FIELDS = {
    "base offset": (0, 8),
    "batch length": (8, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
}


def crashed_with(partition: LogFolder, batches: int) -> None:
    log = partition.open_log()
    append_records(log, batches, count=2)
    partition.crash(log)


def test_batch_torn_at_any_byte_is_cut_off(partition: LogFolder) -> None:
    crashed_with(partition, 3)
    whole = partition.log_bytes()
    size_bytes = len(batch_at(4, 2))
    for kept in range(size_bytes):
        partition.write(LOG, whole[: len(whole) - size_bytes + kept])
        opened = partition.open()
        assert opened.log.log_end_offset == 4
        assert opened.cut_bytes == kept
        assert offsets_of(opened.log) == [0, 1, 2, 3]
        assert partition.log_bytes() == whole[: len(whole) - size_bytes]


def test_torn_batch_names_its_file(partition: LogFolder) -> None:
    crashed_with(partition, 2)
    partition.write(LOG, partition.log_bytes()[:-1])
    partition.open()
    assert len(partition.warnings) == 1
    assert str(partition.folder / LOG) in partition.warnings[0]


def test_log_goes_on_after_a_torn_batch(partition: LogFolder) -> None:
    crashed_with(partition, 2)
    partition.write(LOG, partition.log_bytes()[:-1])
    log = partition.open_log()
    append_records(log, 2, count=2)
    assert offsets_of(log) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_flipped_bit_in_a_header_ends_the_log(partition: LogFolder, field: str) -> None:
    crashed_with(partition, 3)
    whole = partition.log_bytes()
    start, size_bytes = HEADER_FIELDS[field]
    middle = len(whole) // 3
    for position in range(start, start + size_bytes):
        for bit in (0, 3, 7):
            damaged = bytearray(whole)
            damaged[middle + position] ^= 1 << bit
            partition.write(LOG, bytes(damaged))
            opened = partition.open(recovery_point=Offset(0))
            assert opened.log.log_end_offset == 2
            assert offsets_of(opened.log) == [0, 1]


def test_leader_epoch_is_not_covered_by_the_checksum(partition: LogFolder) -> None:
    crashed_with(partition, 3)
    damaged = bytearray(partition.log_bytes())
    damaged[len(damaged) // 3 + 15] ^= 1
    partition.write(LOG, bytes(damaged))
    assert offsets_of(partition.open_log()) == [0, 1, 2, 3, 4, 5]


def test_flipped_bit_in_the_records_ends_the_log(partition: LogFolder) -> None:
    crashed_with(partition, 3)
    whole = partition.log_bytes()
    size_bytes = len(whole) // 3
    for position in range(HEADER_SIZE_BYTES, size_bytes):
        damaged = bytearray(whole)
        damaged[size_bytes + position] ^= 0x10
        partition.write(LOG, bytes(damaged))
        assert offsets_of(partition.open_log()) == [0, 1]


def test_good_batch_behind_a_bad_one_is_dropped(partition: LogFolder) -> None:
    """R2: it may be left over from before a truncation."""
    crashed_with(partition, 4)
    damaged = bytearray(partition.log_bytes())
    damaged[len(damaged) // 4 + HEADER_SIZE_BYTES] ^= 1
    partition.write(LOG, bytes(damaged))
    assert offsets_of(partition.open_log()) == [0, 1]


def test_zeros_behind_the_last_batch_are_cut_off(partition: LogFolder) -> None:
    crashed_with(partition, 2)
    whole = partition.log_bytes()
    partition.write(LOG, whole + bytes(5000))
    opened = partition.open()
    assert opened.cut_bytes == 5000
    assert partition.log_bytes() == whole


def test_segments_behind_a_bad_batch_are_removed(partition: LogFolder) -> None:
    partition.config = log_config(segment_bytes=300)
    log = partition.open_log()
    append_records(log, 12)
    assert len(log.segments) > 3
    second = log.segments[1].base_offset
    partition.crash(log)
    name = f"{second:020d}.log"
    damaged = bytearray(partition.files()[name])
    damaged[-1] ^= 1
    partition.write(name, bytes(damaged))
    log = partition.open_log()
    assert len(log.segments) == 2
    assert offsets_of(log) == list(range(log.log_end_offset))
    assert {int(name[:20]) for name in partition.files() if name.endswith(".log")} == {0, second}


def test_recovery_twice_is_the_same_as_once(partition: LogFolder) -> None:
    """R4, with every kind of damage at once."""
    partition.config = log_config(segment_bytes=2000, index_interval_bytes=100)
    log = partition.open_log()
    append_records(log, 60, count=3)
    last = log.segments[-1].base_offset
    partition.crash(log)
    partition.write(f"{last:020d}.log", partition.log_bytes(last)[:-7])
    partition.write(f"{last:020d}.index", b"\x01")
    partition.disk.remove(partition.folder / TIME_INDEX)
    partition.crash(partition.open_log())
    once = partition.files()
    partition.crash(partition.open_log())
    assert partition.files() == once


@pytest.mark.parametrize("recovery_point", [0, 1, 50, 100, 131, 150])
def test_recovery_from_any_point_leaves_the_same_files(
    partition: LogFolder, recovery_point: int
) -> None:
    partition.config = log_config(segment_bytes=3000, index_interval_bytes=300)
    log = partition.open_log()
    append_records(log, 50, count=3)
    partition.crash(log)
    partition.crash(partition.open_log(recovery_point=Offset(0)))
    expected = partition.files()
    partition.crash(partition.open_log(recovery_point=Offset(recovery_point)))
    assert partition.files() == expected


def test_flushed_bytes_are_not_read_again(partition: LogFolder) -> None:
    """R1: only what follows the last index entry before the recovery point is scanned."""
    partition.config = log_config(index_interval_bytes=500)
    log = partition.open_log()
    append_records(log, 200)
    flushed = log.flush(up_to=log.log_end_offset)
    size_bytes = log.size_bytes
    log.close(clean=True, producers=())
    opened = partition.open(recovery_point=flushed)
    assert opened.log.log_end_offset == 200
    assert 0 < opened.scanned_bytes <= 700 < size_bytes


def test_damage_before_the_recovery_point_is_not_looked_for(partition: LogFolder) -> None:
    partition.config = log_config(index_interval_bytes=500)
    log = partition.open_log()
    append_records(log, 200)
    log.flush(up_to=log.log_end_offset)
    log.close(clean=True, producers=())
    damaged = bytearray(partition.log_bytes())
    damaged[HEADER_SIZE_BYTES] ^= 1
    partition.write(LOG, bytes(damaged))
    assert partition.open_log(recovery_point=Offset(200)).log_end_offset == 200


def test_lost_recovery_point_scans_everything(partition: LogFolder) -> None:
    log = partition.open_log()
    append_records(log, 200)
    partition.stop(log)
    opened = partition.open(recovery_point=None)
    assert opened.scanned_bytes == opened.log.size_bytes


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\x00", bytes(8), bytes(80), b"\xff" * 16, struct.pack(">ii", 3, 2**31 - 1)],
    ids=["empty", "one byte", "a zero entry", "zeros", "negative", "past the end"],
)
def test_damaged_index_is_made_again(partition: LogFolder, damaged: bytes) -> None:
    """R3, also where the recovery point says the log itself is fine."""
    partition.config = log_config(index_interval_bytes=200)
    log = partition.open_log()
    append_records(log, 50)
    partition.stop(log)
    intact = partition.files()
    for recovery_point in (Offset(0), Offset(50)):
        partition.write(INDEX, damaged)
        partition.crash(partition.open_log(recovery_point=recovery_point))
        assert partition.files()[INDEX] == intact[INDEX]


def test_index_that_points_between_batches_is_made_again(partition: LogFolder) -> None:
    partition.config = log_config(index_interval_bytes=200)
    log = partition.open_log()
    append_records(log, 50)
    partition.stop(log)
    intact = partition.files()[INDEX]
    entries = [list(entry) for entry in struct.iter_unpack(">ii", intact)]
    entries[-1][1] += 1
    partition.write(INDEX, b"".join(struct.pack(">ii", *entry) for entry in entries))
    partition.crash(partition.open_log(recovery_point=Offset(50)))
    assert partition.files()[INDEX] == intact


@pytest.mark.parametrize("name", [INDEX, TIME_INDEX])
def test_lost_index_is_made_again(partition: LogFolder, name: str) -> None:
    partition.config = log_config(index_interval_bytes=200)
    log = partition.open_log()
    append_records(log, 50)
    partition.crash(log)
    partition.crash(partition.open_log())
    intact = partition.files()
    partition.disk.remove(partition.folder / name)
    partition.crash(partition.open_log(recovery_point=Offset(50)))
    assert partition.files() == intact


def test_index_longer_than_its_log_is_made_again(partition: LogFolder) -> None:
    partition.config = log_config(index_interval_bytes=200)
    log = partition.open_log()
    append_records(log, 50)
    partition.crash(log)
    partition.crash(partition.open_log())
    intact = partition.files()
    partition.write(INDEX, intact[INDEX] + struct.pack(">ii", 60, 10**6) * 3)
    partition.write(TIME_INDEX, intact[TIME_INDEX] + bytes(12 * 100))
    partition.crash(partition.open_log(recovery_point=Offset(0)))
    assert partition.files() == intact


def test_recovered_log_is_not_called_flushed(partition: LogFolder) -> None:
    crashed_with(partition, 3)
    log = partition.open_log(recovery_point=Offset(2))
    assert log.recovery_point == 2


def test_recovery_point_beyond_the_end_is_lowered(partition: LogFolder) -> None:
    crashed_with(partition, 3)
    log = partition.open_log(recovery_point=Offset(99))
    assert log.log_end_offset == 6
    assert log.recovery_point == 6


class TestSegmentThatEndedEarly:
    """R6: its last batches never reached the disk, those of the next segment did."""

    @pytest.fixture
    def cut(self, partition: LogFolder) -> tuple[LogFolder, int]:
        partition.config = log_config(segment_bytes=500)
        log = partition.open_log()
        append_records(log, 20)
        middle, following = log.segments[1].base_offset, log.segments[2].base_offset
        partition.crash(log)
        size_bytes = len(batch_at(following - 1))
        partition.write(f"{middle:020d}.log", partition.log_bytes(middle)[:-size_bytes])
        return partition, middle

    def test_it_ends_the_log(self, cut: tuple[LogFolder, int]) -> None:
        partition, middle = cut
        log = partition.open_log(recovery_point=Offset(1))
        assert log.segments[-1].base_offset == middle
        assert offsets_of(log) == list(range(log.log_end_offset))

    def test_gap_is_normal_under_compaction(self, cut: tuple[LogFolder, int]) -> None:
        partition, _ = cut
        partition.config = log_config(segment_bytes=500, cleanup_policy=("compact",))
        assert partition.open_log(recovery_point=Offset(1)).log_end_offset == 20

    def test_gap_is_kept_when_the_recovery_point_is_lost(self, cut: tuple[LogFolder, int]) -> None:
        partition, _ = cut
        assert partition.open_log(recovery_point=None).log_end_offset == 20

    def test_gap_below_the_recovery_point_is_kept(self, cut: tuple[LogFolder, int]) -> None:
        partition, middle = cut
        next_base = partition.open_log().segments[2].base_offset
        assert middle < next_base
        assert partition.open_log(recovery_point=Offset(next_base)).log_end_offset == 20


def test_segments_that_overlap_end_the_log(partition: LogFolder) -> None:
    log = partition.open_log()
    append_records(log, 5)
    partition.crash(log)
    partition.write("00000000000000000003.log", bytes(batch_at(3)))
    log = partition.open_log()
    assert offsets_of(log) == [0, 1, 2, 3, 4]
    assert len(log.segments) == 1


def test_offsets_that_go_back_end_the_log(partition: LogFolder) -> None:
    log = partition.open_log()
    append_batch(log, batch_at(0, 3))
    partition.crash(log)
    partition.write(LOG, partition.log_bytes() + bytes(batch_at(1)) + bytes(batch_at(4)))
    assert offsets_of(partition.open_log()) == [0, 1, 2]


def test_epochs_behind_the_checkpoint_come_from_the_log(partition: LogFolder) -> None:
    log = partition.open_log()
    for epoch, offset in ((0, 0), (0, 1), (2, 2), (5, 3), (5, 4)):
        append_batch(log, batch_at(offset, leader_epoch=epoch))
    partition.crash(log)
    partition.write("leader-epoch-checkpoint", b"0\n1\n0 0\n")
    assert partition.open(recovery_point=Offset(0)).leader_epochs == ((0, 0), (2, 2), (5, 3))


def test_batch_larger_than_one_read_is_recovered(partition: LogFolder) -> None:
    log = partition.open_log()
    append_batch(log, batch_at(0))
    append_batch(log, batch_at(1, value=b"x" * 3_000_000))
    append_batch(log, batch_at(2))
    partition.crash(log)
    assert offsets_of(partition.open_log()) == [0, 1, 2]


def test_empty_log_needs_no_recovery(partition: LogFolder) -> None:
    partition.crash(partition.open_log())
    opened = partition.open()
    assert (opened.scanned_bytes, opened.cut_bytes, opened.log.log_end_offset) == (0, 0, 0)
    assert partition.warnings == []


def test_recovery_works_on_a_real_disk(real_partition: LogFolder, tmp_path: Path) -> None:
    real_partition.config = log_config(segment_bytes=4000, index_interval_bytes=200)
    log = real_partition.open_log()
    append_records(log, 100, count=2)
    last = log.segments[-1].base_offset
    real_partition.crash(log)
    path = tmp_path / "orders-3" / f"{last:020d}.log"
    path.write_bytes(path.read_bytes()[:-3])
    log = real_partition.open_log()
    assert offsets_of(log) == list(range(log.log_end_offset))
    assert log.log_end_offset == 198
