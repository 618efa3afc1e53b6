"""A segment that is not there is noticed, and what compaction took is not one (X6)."""

from pathlib import Path

import pytest

from tests.unit.pipeline.segments.partition_files import folder_of, read, wanted
from tests.unit.storage.compacted_folder import append_pairs, compact
from tests.unit.storage.log_folder import LogFolder, append_records, batch_at, log_config
from tidelog.pipeline.segments import (
    DamagedSegment,
    PartitionFolder,
    choose_replicas,
    plan_partition,
)
from tidelog.storage.disk import RealDisk

BATCH_BYTES = len(batch_at(10, 2))
SEGMENT_COUNT = 5


def new_folder(folder: Path) -> LogFolder:
    """Offsets 0 to 19 in five segments, two in each batch."""
    config = log_config(segment_bytes=2 * BATCH_BYTES, index_interval_bytes=0)
    log_folder = LogFolder(RealDisk(), folder, config)
    log = log_folder.open_log()
    append_records(log, 2 * SEGMENT_COUNT, count=2)
    log_folder.stop(log)
    return log_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_folder(tmp_path / "orders-3").folder


def remove(folder: Path, base_offset: int, *, suffix: str = "*") -> None:
    for path in folder.glob(f"{base_offset:020d}.{suffix}"):
        path.unlink()


def missing(folder: PartitionFolder, offsets: tuple[int, int] | None = None) -> list[str]:
    return [str(each) for each in plan_partition(folder, wanted(offsets=offsets)).missing]


def test_nothing_is_missing_from_a_whole_log(folder: Path) -> None:
    assert missing(folder_of(folder)) == []
    assert missing(folder_of(folder, high_watermark=20)) == []


@pytest.mark.parametrize("has_index", [True, False])
def test_a_segment_that_is_not_there_is_noticed(folder: Path, has_index: bool) -> None:
    remove(folder, 4)
    remove(folder, 8)
    if not has_index:
        for path in folder.glob("*index"):
            path.unlink()
    assert missing(folder_of(folder)) == [
        f"{folder} lacks offsets 4 to 11: a segment was removed or not copied between "
        f"{0:020d}.log and {12:020d}.log"
    ]


def test_it_is_no_matter_to_who_does_not_want_it(folder: Path) -> None:
    remove(folder, 8)
    assert missing(folder_of(folder), (0, 8)) == []
    assert missing(folder_of(folder), (12, 20)) == []
    assert missing(folder_of(folder, high_watermark=8)) == []
    assert missing(folder_of(folder, log_start_offset=12)) == []
    [found] = missing(folder_of(folder), (9, 10))
    assert found.startswith(f"{folder} lacks offset 9: ")


def test_a_segment_without_a_byte_is_noticed(folder: Path) -> None:
    (folder / f"{8:020d}.log").write_bytes(b"")
    [found] = missing(folder_of(folder))
    assert found == f"{folder} lacks offsets 8 to 11: {8:020d}.log is empty"


def test_a_segment_without_its_last_batch_is_noticed(folder: Path) -> None:
    path = folder / f"{8:020d}.log"
    path.write_bytes(path.read_bytes()[: len(batch_at(8, 2))])
    [found] = missing(folder_of(folder))
    assert found.startswith(f"{folder} lacks offsets 10 to 11: ")


def test_half_a_batch_amid_a_log_is_damage(folder: Path) -> None:
    """And does not keep anybody from what is before it."""
    path = folder / f"{8:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    assert len(read(folder_of(folder), wanted(offsets=(0, 8)))) == 8
    with pytest.raises(DamagedSegment, match=rf"{8:020d}\.log is damaged"):
        read(folder_of(folder), wanted())


# -- at the ends -----------------------------------------------------------------------------------


def test_a_log_that_retention_cut_lacks_nothing(folder: Path) -> None:
    remove(folder, 0)
    assert missing(folder_of(folder)) == []


def test_a_first_segment_whose_index_is_there_is_noticed(folder: Path) -> None:
    remove(folder, 0, suffix="log")
    [found] = missing(folder_of(folder))
    assert found.startswith(f"{folder} lacks offsets 0 to 3: of {0:020d}.log there is an index")
    assert missing(folder_of(folder, log_start_offset=4)) == []


def test_a_last_segment_whose_index_is_there_is_noticed(folder: Path) -> None:
    remove(folder, 16, suffix="log")
    [found] = missing(folder_of(folder))
    assert found.startswith(f"{folder} lacks offsets 16 to 19: of {16:020d}.log there is an index")


def test_an_index_of_a_segment_that_is_just_begun_is_no_sign(folder: Path) -> None:
    (folder / f"{20:020d}.index").touch()
    assert missing(folder_of(folder)) == []


def test_a_log_that_ends_before_what_was_committed_is_noticed(folder: Path) -> None:
    remove(folder, 16)
    [found] = missing(folder_of(folder, high_watermark=20))
    assert found.startswith(f"{folder} lacks offsets 16 to 19: replication-offset-checkpoint says")
    assert missing(folder_of(folder)) == []


# -- compaction ------------------------------------------------------------------------------------


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """Keys that come again and again, so that most of the first segments is gone."""
    config = log_config(
        segment_bytes=4 * BATCH_BYTES, index_interval_bytes=0, cleanup_policy=("compact",)
    )
    log_folder = LogFolder(RealDisk(), tmp_path / "orders-3", config)
    log = log_folder.open_log()
    for number in range(60):
        kept = b"kept-%d" % number if number % 7 == 0 else b"again"
        append_pairs(log, [(kept, b"value"), (b"again", b"value")])
    compact(log)
    log_folder.stop(log)
    return log_folder.folder


def test_what_compaction_took_is_not_missing(compacted: Path) -> None:
    rows = plan_partition(folder_of(compacted), wanted())
    assert len(rows.slices) > 2
    assert missing(folder_of(compacted)) == []


def test_what_the_cleaner_says_it_compacted_is_not_missing(folder: Path) -> None:
    """Also where nothing else shows it."""
    remove(folder, 4)
    plain = folder_of(folder)
    assert missing(PartitionFolder(plain.partition, folder, None, 0, None, cleaned_offset=8)) == []
    [_] = missing(PartitionFolder(plain.partition, folder, None, 0, None, cleaned_offset=4))


# -- several replicas ------------------------------------------------------------------------------


def test_of_equal_replicas_one_that_lacks_nothing_is_read(tmp_path: Path) -> None:
    holed, whole = (new_folder(tmp_path / name / "orders-3").folder for name in "ab")
    remove(holed, 8)
    assert choose_replicas([folder_of(holed), folder_of(whole)]) == [folder_of(whole)]


def test_a_replica_that_ends_earlier_hides_nothing(tmp_path: Path) -> None:
    """Better to say what one lacks than to leave out what only that one has."""
    holed, short = (new_folder(tmp_path / name / "orders-3").folder for name in "ab")
    remove(holed, 8)
    remove(short, 16)
    assert choose_replicas([folder_of(short), folder_of(holed)]) == [folder_of(holed)]
