"""Only what is wanted is read, in pieces of about the size that was asked for (X6)."""

import pickle
from pathlib import Path

import pytest

from tests.unit.pipeline.segments.partition_files import (
    PARTITION,
    folder_of,
    read,
    rows_of,
    wanted,
)
from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    append_records,
    batch_at,
    log_config,
)
from tidelog.base.ids import TopicPartition
from tidelog.pipeline.segments import (
    SegmentError,
    SegmentsChanged,
    pack_slices,
    plan_partition,
)
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import Log
from tidelog.storage.offset_index import OFFSET_ENTRY
from tidelog.storage.time_index import TIME_ENTRY

BATCH_BYTES = len(batch_at(0))


def new_folder(tmp_path: Path, *, segment_batches: int) -> LogFolder:
    """Batches of one record each, so many in a segment, each of them indexed."""
    config = log_config(segment_bytes=segment_batches * BATCH_BYTES, index_interval_bytes=0)
    return LogFolder(RealDisk(), tmp_path / "orders-3", config)


@pytest.fixture
def log_folder(tmp_path: Path) -> LogFolder:
    """Offsets 0 to 9 in two segments, a second apart."""
    log_folder = new_folder(tmp_path, segment_batches=5)
    log = log_folder.open_log()
    for offset in range(10):
        append_batch(log, batch_at(offset, timestamps_ms=[NOW_MS + 1_000 * offset]))
    log_folder.stop(log)
    return log_folder


def test_a_slice_travels_by_pickle(log_folder: LogFolder) -> None:
    plan = plan_partition(folder_of(log_folder.folder), wanted())
    assert pickle.loads(pickle.dumps(plan.slices)) == plan.slices


def test_only_segments_with_these_offsets_are_read(log_folder: LogFolder) -> None:
    plan = plan_partition(folder_of(log_folder.folder), wanted(offsets=(6, 8)))
    (only,) = plan.slices
    assert only.path.name == f"{5:020d}.log"
    assert (only.start_position, only.end_position) == (BATCH_BYTES, 3 * BATCH_BYTES)
    assert (plan.start_offset, plan.end_offset) == (6, 8)


def test_what_is_older_is_not_read(log_folder: LogFolder) -> None:
    plan = plan_partition(folder_of(log_folder.folder), wanted(start_ms=NOW_MS + 6_500))
    (only,) = plan.slices
    assert only.path.name == f"{5:020d}.log"
    assert only.start_position == 2 * BATCH_BYTES
    assert [row.offset for row in rows_of(plan.slices)] == [7, 8, 9]


def test_what_is_just_as_old_is_read(log_folder: LogFolder) -> None:
    rows = read(folder_of(log_folder.folder), wanted(start_ms=NOW_MS + 9_000))
    assert [row.offset for row in rows] == [9]


def test_nothing_is_read_if_all_is_older(log_folder: LogFolder) -> None:
    plan = plan_partition(folder_of(log_folder.folder), wanted(start_ms=NOW_MS + 9_001))
    assert plan.slices == ()


def test_a_time_index_that_ends_early_hides_nothing(log_folder: LogFolder) -> None:
    """Copied while the segment was being written, the log itself later."""
    index = log_folder.folder / f"{5:020d}.timeindex"
    index.write_bytes(index.read_bytes()[:12])
    rows = read(folder_of(log_folder.folder), wanted(start_ms=NOW_MS + 8_000))
    assert [row.offset for row in rows] == [8, 9]


def test_a_time_index_that_contradicts_its_batch_hides_nothing(log_folder: LogFolder) -> None:
    (log_folder.folder / f"{0:020d}.timeindex").write_bytes(TIME_ENTRY.pack(NOW_MS, 3))
    rows = read(folder_of(log_folder.folder), wanted(start_ms=NOW_MS + 1, offsets=(0, 5)))
    assert [row.offset for row in rows] == [1, 2, 3, 4]


def test_an_offset_index_that_contradicts_its_batch_hides_nothing(log_folder: LogFolder) -> None:
    (log_folder.folder / f"{0:020d}.index").write_bytes(OFFSET_ENTRY.pack(1, 3 * BATCH_BYTES))
    rows = read(folder_of(log_folder.folder), wanted(offsets=(1, 5), slice_bytes=BATCH_BYTES))
    assert [row.offset for row in rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("is_crafted", [False, True])
def test_an_offset_index_that_points_amid_a_batch_is_not_used(
    tmp_path: Path, is_crafted: bool
) -> None:
    """Not even if somebody has put there what looks like one."""
    log_folder = LogFolder(RealDisk(), tmp_path / "orders-3", log_config())
    log = log_folder.open_log()
    batch = batch_at(0, 3, value=bytes(batch_at(1))[:-1] + b"?" if is_crafted else b"value")
    append_batch(log, batch)
    append_records(log, 2)
    log_folder.stop(log)
    position = batch.index(bytes(batch_at(1))[:-1]) if is_crafted else 10
    (log_folder.folder / f"{0:020d}.index").write_bytes(OFFSET_ENTRY.pack(1, position))
    rows = read(folder_of(log_folder.folder), wanted(offsets=(1, 5), slice_bytes=position + 1))
    assert [row.offset for row in rows] == [1, 2, 3, 4]


def test_zeros_behind_the_entries_of_an_index_are_none(log_folder: LogFolder) -> None:
    """Kafka's indexes of a segment that is being written are as long as they may become."""
    for suffix, entry_bytes in (("index", 8), ("timeindex", 12)):
        with (log_folder.folder / f"{5:020d}.{suffix}").open("ab") as file:
            file.write(bytes(entry_bytes * 1_000))
    folder = folder_of(log_folder.folder)
    (only,) = plan_partition(folder, wanted(start_ms=NOW_MS + 7_000)).slices
    assert only.start_position == 2 * BATCH_BYTES
    assert len(plan_partition(folder, wanted(slice_bytes=2 * BATCH_BYTES)).slices) == 6


def test_a_large_segment_is_cut(tmp_path: Path) -> None:
    log_folder = new_folder(tmp_path, segment_batches=1_000)
    log = log_folder.open_log()
    append_records(log, 100)
    log_folder.stop(log)
    plan = plan_partition(folder_of(log_folder.folder), wanted(slice_bytes=10 * BATCH_BYTES))
    assert len(plan.slices) >= 10
    assert all(each.size_bytes <= 11 * BATCH_BYTES for each in plan.slices)
    ends = [each.end_position for each in plan.slices]
    assert [each.start_position for each in plan.slices] == [0, *ends[:-1]]


def test_a_segment_without_an_index_is_read_in_one(log_folder: LogFolder) -> None:
    for path in log_folder.folder.glob("*index"):
        path.unlink()
    plan = plan_partition(folder_of(log_folder.folder), wanted(slice_bytes=BATCH_BYTES))
    assert len(plan.slices) == 2
    assert len(rows_of(plan.slices)) == 10


def test_offsets_that_are_not_there_are_seen_from_the_plan(log_folder: LogFolder) -> None:
    (log_folder.folder / f"{0:020d}.log").unlink()
    plan = plan_partition(folder_of(log_folder.folder), wanted(offsets=(2, 50)))
    assert (plan.start_offset, plan.end_offset) == (5, 10)


def test_a_range_of_another_partition_is_no_limit(log_folder: LogFolder) -> None:
    what = wanted()
    assert TopicPartition("orders", 4) not in what.offsets
    assert len(read(folder_of(log_folder.folder), what)) == 10
    assert PARTITION in wanted(offsets=(0, 1)).offsets


def test_an_empty_log_has_no_slices(tmp_path: Path) -> None:
    log_folder = new_folder(tmp_path, segment_batches=5)
    log_folder.stop(log_folder.open_log())
    plan = plan_partition(folder_of(log_folder.folder), wanted(is_committed_only=True))
    assert (plan.slices, plan.start_offset, plan.end_offset) == ((), 0, 0)


# -- files that change -----------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> tuple[LogFolder, Log]:
    log_folder = new_folder(tmp_path, segment_batches=5)
    log = log_folder.open_log()
    append_records(log, 8)
    return log_folder, log


def test_what_a_running_broker_adds_meanwhile_is_not_read(
    running: tuple[LogFolder, Log],
) -> None:
    log_folder, log = running
    plan = plan_partition(folder_of(log_folder.folder), wanted())
    append_records(log, 20)
    assert [row.offset for row in rows_of(plan.slices)] == list(range(8))


def test_a_segment_that_retention_removed_meanwhile_is_named(log_folder: LogFolder) -> None:
    plan = plan_partition(folder_of(log_folder.folder), wanted())
    plan.slices[0].path.unlink()
    with pytest.raises(SegmentsChanged, match=r"0\.log is not there"):
        rows_of(plan.slices)


def test_a_segment_that_is_shorter_meanwhile_is_named(log_folder: LogFolder) -> None:
    plan = plan_partition(folder_of(log_folder.folder), wanted())
    path = plan.slices[0].path
    path.write_bytes(path.read_bytes()[:BATCH_BYTES])
    with pytest.raises(SegmentsChanged, match="shorter than it was"):
        rows_of(plan.slices)


def test_a_folder_whose_compaction_was_interrupted_is_refused(log_folder: LogFolder) -> None:
    (log_folder.folder / f"{0:020d}.log.swap").touch()
    with pytest.raises(SegmentError, match="about to take the place"):
        plan_partition(folder_of(log_folder.folder), wanted())


def test_a_folder_without_segments_is_refused(log_folder: LogFolder) -> None:
    for path in log_folder.folder.glob("*.log"):
        path.unlink()
    with pytest.raises(SegmentsChanged, match="has no segments"):
        plan_partition(folder_of(log_folder.folder), wanted())


def test_files_that_may_only_be_read_are_read(log_folder: LogFolder) -> None:
    for path in log_folder.folder.iterdir():
        path.chmod(0o400)
    assert len(read(folder_of(log_folder.folder), wanted(is_committed_only=True))) == 10


# -- many small segments ---------------------------------------------------------------------------


def test_small_slices_are_packed_in_order(log_folder: LogFolder) -> None:
    slices = plan_partition(
        folder_of(log_folder.folder), wanted(slice_bytes=2 * BATCH_BYTES)
    ).slices
    packs = pack_slices(slices, max_bytes=4 * BATCH_BYTES)
    assert [each for pack in packs for each in pack] == list(slices)
    assert all(sum(each.size_bytes for each in pack) <= 4 * BATCH_BYTES for pack in packs)
    assert len(packs) < len(slices)


def test_one_that_is_too_large_is_alone(log_folder: LogFolder) -> None:
    slices = plan_partition(folder_of(log_folder.folder), wanted()).slices
    assert pack_slices(slices, max_bytes=1) == [(each,) for each in slices]
    assert pack_slices([], max_bytes=1) == []
