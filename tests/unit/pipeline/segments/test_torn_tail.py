"""What a crash leaves at the end of a log is refused by name, or read up to (X6)."""

from pathlib import Path

import pytest

from tests.unit.pipeline.segments.partition_files import Row, folder_of, read, wanted
from tests.unit.storage.log_folder import (
    LogFolder,
    append_records,
    batch_at,
    log_config,
    offsets_of,
)
from tidelog.pipeline.segments import (
    DamagedSegment,
    TornTail,
    choose_replicas,
    find_partitions,
    plan_partition,
    readable_range,
)
from tidelog.records.batch import write_checksum
from tidelog.storage.disk import RealDisk

FIRST, SECOND = f"{0:020d}.log", f"{4:020d}.log"


@pytest.fixture
def log_folder(tmp_path: Path) -> LogFolder:
    """Offsets 0 to 3 in a segment, 4 and 5 in the next, two in each batch."""
    config = log_config(segment_bytes=2 * len(batch_at(0, 2)), index_interval_bytes=0)
    log_folder = LogFolder(RealDisk(), tmp_path / "orders-3", config)
    log = log_folder.open_log()
    append_records(log, 3, count=2)
    log_folder.stop(log)
    return log_folder


def offsets(rows: list[Row]) -> list[int]:
    return [row.offset for row in rows]


BATCH_BYTES = len(batch_at(4, 2))


def test_a_batch_that_was_cut_off_anywhere_is_refused(log_folder: LogFolder) -> None:
    whole = log_folder.log_bytes(4)
    for left_bytes in range(1, BATCH_BYTES):
        (log_folder.folder / SECOND).write_bytes(whole[:left_bytes])
        with pytest.raises(TornTail, match="ignoreTornTail") as caught:
            plan_partition(folder_of(log_folder.folder), wanted())
        assert f"{SECOND} ends with {left_bytes} bytes from position 0 on" in str(caught.value)
        assert (caught.value.position, caught.value.offset) == (0, 4)


def test_what_is_before_it_is_read_on_request(log_folder: LogFolder) -> None:
    whole = log_folder.log_bytes(4)
    for left_bytes in range(BATCH_BYTES + 1):
        (log_folder.folder / SECOND).write_bytes(whole[:left_bytes])
        rows = read(folder_of(log_folder.folder), wanted(is_torn_tail_ignored=True))
        assert offsets(rows) == ([0, 1, 2, 3, 4, 5] if left_bytes == BATCH_BYTES else [0, 1, 2, 3])


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("batch_count", [2, 9])
def test_it_ends_where_recovery_would_end_it(
    tmp_path: Path, has_index: bool, batch_count: int
) -> None:
    log_folder = LogFolder(RealDisk(), tmp_path / "orders-3", log_config(index_interval_bytes=0))
    log = log_folder.open_log()
    append_records(log, batch_count)
    log_folder.crash(log)
    whole = log_folder.log_bytes()
    # A page of zeros where the file system wrote the length before the bytes.
    log_folder.write(FIRST, whole[: len(whole) * 2 // 3] + bytes(len(whole) // 3))
    if not has_index:
        log_folder.disk.remove(log_folder.folder / f"{0:020d}.index")
    rows = read(folder_of(log_folder.folder), wanted(is_torn_tail_ignored=True))
    recovered = log_folder.open_log()
    assert offsets(rows) == offsets_of(recovered)
    assert len(rows) < batch_count


def test_it_is_no_matter_behind_the_high_watermark(log_folder: LogFolder) -> None:
    """A copy of a running broker's folder has half a batch more often than not."""
    log_folder.write(SECOND, log_folder.log_bytes(4)[:-1])
    assert offsets(read(folder_of(log_folder.folder, high_watermark=4), wanted())) == [0, 1, 2, 3]
    with pytest.raises(TornTail):
        read(folder_of(log_folder.folder, high_watermark=4), wanted(is_beyond_high_watermark=True))
    with pytest.raises(TornTail):
        read(folder_of(log_folder.folder, high_watermark=5), wanted())


def test_it_is_no_matter_to_who_does_not_read_that_far(log_folder: LogFolder) -> None:
    log_folder.write(SECOND, log_folder.log_bytes(4)[:-1])
    assert offsets(read(folder_of(log_folder.folder), wanted(offsets=(1, 4)))) == [1, 2, 3]


def test_it_does_not_count_as_readable(log_folder: LogFolder) -> None:
    log_folder.write(SECOND, log_folder.log_bytes(4)[:-1])
    found = readable_range(folder_of(log_folder.folder), is_beyond_high_watermark=False)
    assert found == (0, 4)


def test_a_replica_that_has_more_is_read_instead(tmp_path: Path, log_folder: LogFolder) -> None:
    other = tmp_path / "copy" / "orders-3"
    other.mkdir(parents=True)
    for name, data in log_folder.files().items():
        (other / name).write_bytes(data)
    log_folder.write(SECOND, log_folder.log_bytes(4)[:-1])
    found = find_partitions([str(log_folder.folder), str(other)], topics=None)
    (chosen,) = choose_replicas(found)
    assert chosen.path == other
    assert offsets(read(chosen, wanted())) == [0, 1, 2, 3, 4, 5]


# -- not a torn tail -------------------------------------------------------------------------------


def test_a_segment_amid_the_log_that_is_cut_off_is_damage(log_folder: LogFolder) -> None:
    log_folder.write(FIRST, log_folder.log_bytes()[:-1])
    with pytest.raises(DamagedSegment, match=f"{FIRST} is damaged at position {BATCH_BYTES}, off"):
        read(folder_of(log_folder.folder), wanted(is_torn_tail_ignored=True))


@pytest.mark.parametrize("at", [20, 40, BATCH_BYTES - 1])
def test_a_batch_amid_a_segment_is_never_passed_over(log_folder: LogFolder, at: int) -> None:
    data = bytearray(log_folder.log_bytes())
    data[at] ^= 1
    log_folder.write(FIRST, bytes(data))
    with pytest.raises(DamagedSegment, match=f"{FIRST} is damaged at position 0, offset 0: its"):
        read(folder_of(log_folder.folder), wanted(is_torn_tail_ignored=True))


@pytest.mark.parametrize("has_index", [True, False])
def test_a_bad_batch_that_a_good_one_follows_is_damage(tmp_path: Path, has_index: bool) -> None:
    """Also in the last segment, where a crash may have left it: nobody knows."""
    log_folder = LogFolder(RealDisk(), tmp_path / "orders-3", log_config(index_interval_bytes=0))
    log = log_folder.open_log()
    append_records(log, 5)
    log_folder.stop(log)
    data = bytearray(log_folder.log_bytes())
    data[3 * len(batch_at(0)) - 1] ^= 1
    log_folder.write(FIRST, bytes(data))
    if not has_index:
        log_folder.disk.remove(log_folder.folder / f"{0:020d}.index")
    place = f"{FIRST} is damaged at position {2 * len(batch_at(0))}, offset 2: its checksum"
    with pytest.raises(DamagedSegment, match=place):
        read(folder_of(log_folder.folder), wanted(is_torn_tail_ignored=True))


@pytest.mark.parametrize("offset", [0, 7])
def test_a_batch_whose_offset_cannot_be_is_damage(log_folder: LogFolder, offset: int) -> None:
    """No checksum covers it."""
    data = bytearray(log_folder.log_bytes())
    data[BATCH_BYTES : BATCH_BYTES + 8] = offset.to_bytes(8, "big")
    log_folder.write(FIRST, bytes(data))
    with pytest.raises(
        DamagedSegment, match=f"position {BATCH_BYTES}, offset 2: .* offset {offset}"
    ):
        read(folder_of(log_folder.folder), wanted())


def test_records_that_are_nonsense_under_a_right_checksum_are_damage(tmp_path: Path) -> None:
    log_folder = LogFolder(RealDisk(), tmp_path / "orders-3", log_config())
    log = log_folder.open_log()
    append_records(log, 1)
    log_folder.stop(log)
    data = bytearray(log_folder.log_bytes())
    data[61] = 3
    write_checksum(data, 0, len(data))
    log_folder.write(FIRST, bytes(data))
    with pytest.raises(DamagedSegment, match="position 0, offset 0"):
        read(folder_of(log_folder.folder), wanted())
