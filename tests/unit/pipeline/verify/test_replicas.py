"""X5: replicas that differ in a byte, lack a batch or are behind are told apart from equal ones."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.log_folder import LogFolder, append_batch, batch_at, log_config
from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.segments import PartitionFolder, find_partitions
from tidelog.pipeline.verify import replica_ranges, replicas
from tidelog.pipeline.verify.replica_ranges import MissingRange, compare_range
from tidelog.pipeline.verify.replicas import PartitionComparison, ReplicasReport, plan_replicas
from tidelog.storage.disk import RealDisk

PARTITION = TopicPartition("orders", 3)
BATCHES = 60
RECORDS = 3
ALL = range(0, BATCHES * RECORDS, RECORDS)

WriteReplica = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteReplica:
    """Writes a replica in a log dir of its own, from batches by base offset."""

    def replica(
        *, segment_bytes: int = 1_000, offsets: range | list[int] = ALL, odd: int | None = None
    ) -> Path:
        log_dir = tmp_path / f"broker-{len(list(tmp_path.iterdir()))}"
        _write_replica(log_dir, segment_bytes=segment_bytes, offsets=offsets, odd=odd)
        return log_dir

    return replica


def _write_replica(
    log_dir: Path, *, segment_bytes: int, offsets: range | list[int], odd: int | None
) -> None:
    config = log_config(segment_bytes=segment_bytes, index_interval_bytes=200)
    folder = LogFolder(RealDisk(), log_dir / "orders-3", config)
    log = folder.open_log()
    for offset in offsets:
        value = b"other" if offset == odd else b"value"
        append_batch(log, batch_at(offset, RECORDS, value=value))
    folder.stop(log)


def _compared(
    *log_dirs: Path, high_watermark: int | None = None, log_start: int = 0
) -> PartitionComparison:
    folders = [
        PartitionFolder(each.partition, each.path, None, log_start, high_watermark)
        for each in find_partitions(map(str, log_dirs), topics=None)
    ]
    (plan,), alone = plan_replicas(folders)
    assert not alone
    return plan.merged([compare_range(task) for task in plan.tasks()])


def _is_clean(comparison: PartitionComparison, *, is_behind_allowed: bool = False) -> bool:
    return ReplicasReport(
        partitions=(comparison,), alone=(), is_behind_allowed=is_behind_allowed
    ).is_clean


def test_replicas_with_other_segments_are_equal(write: WriteReplica) -> None:
    found = _compared(write(segment_bytes=1_000), write(segment_bytes=777), write())
    assert found.is_equal
    assert (found.start_offset, found.end_offset, found.behind) == (0, BATCHES * RECORDS, 0)
    assert found.compared_bytes == sum(len(batch_at(each, RECORDS)) for each in ALL)


def test_tasks_together_see_what_one_does(
    write: WriteReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dirs = write(), write(odd=90)
    whole = _compared(*log_dirs)
    monkeypatch.setattr(replicas, "TASK_BYTES", 2_000)
    monkeypatch.setattr(replica_ranges, "PIECE_BYTES", 100)
    assert _compared(*log_dirs) == whole


def test_differing_byte_is_found_with_its_place(write: WriteReplica) -> None:
    one, other = write(), write(odd=90)
    found = _compared(one, other)
    assert (found.differing_batches, found.missing_offsets) == (1, 0)
    difference = found.first_difference
    assert difference is not None
    assert difference.offset == 90
    for place, log_dir in zip(difference.places, (one, other), strict=True):
        assert place.file is not None
        assert place.file.is_relative_to(log_dir)
        assert "offsets 90 to 92" in place.what
    bytes_there = [
        place.file.read_bytes()[place.position : place.position + 1]
        for place in difference.places
        if place.file is not None
    ]
    assert bytes_there[0] != bytes_there[1]
    assert not _is_clean(found, is_behind_allowed=True)


def test_one_flipped_bit_is_found(write: WriteReplica) -> None:
    one, other = write(), write()
    path = sorted((other / "orders-3").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    difference = _compared(one, other).first_difference
    assert difference is not None
    assert difference.places[1].file == path
    assert difference.places[1].position == 70
    assert [place.what.endswith("wrong") for place in difference.places] == [False, True]


def test_wrong_byte_in_the_last_batch_is_a_difference(write: WriteReplica) -> None:
    one, other = write(), write()
    path = sorted((other / "orders-3").glob("*.log"))[-1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = _compared(one, other)
    assert (found.behind, found.differing_batches) == (0, 1)
    assert found.first_difference is not None
    assert found.first_difference.places[1].position == len(data) - 1


def test_torn_tail_is_told_with_how_far_it_is_behind(write: WriteReplica) -> None:
    one, other = write(), write()
    path = sorted((other / "orders-3").glob("*.log"))[-1]
    path.write_bytes(path.read_bytes()[:-1])
    found = _compared(one, other)
    assert [each.behind for each in found.replicas] == [0, RECORDS]
    assert found.replicas[1].excess_bytes == len(batch_at(ALL[-1], RECORDS)) - 1


def test_missing_batches_are_one_range(write: WriteReplica) -> None:
    found = _compared(write(), write(offsets=[each for each in ALL if each not in (60, 63, 120)]))
    folder = found.replicas[1].folder
    assert found.missing == (MissingRange(folder, 60, 66), MissingRange(folder, 120, 123))
    assert (found.missing_offsets, found.differing_batches) == (9, 0)
    assert found.first_difference is not None
    assert found.first_difference.offset == 60


@pytest.mark.parametrize("piece_bytes", [50, 10**6])
def test_lost_segment_is_found_where_others_have_no_segment(
    write: WriteReplica, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """What follows it begins a segment there, and goes on amid one elsewhere."""
    monkeypatch.setattr(replica_ranges, "PIECE_BYTES", piece_bytes)
    one, other = write(segment_bytes=100_000), write()
    lost, following = sorted((other / "orders-3").glob("*.log"))[1:3]
    lost.unlink()
    found = _compared(one, other)
    start, end = int(lost.stem), int(following.stem)
    assert found.missing == (MissingRange(other / "orders-3", start, end),)
    assert found.missing_offsets == end - start
    assert not _is_clean(found)


@given(
    segment_bytes=st.lists(st.integers(200, 3_000), min_size=2, max_size=3),
    task_bytes=st.sampled_from([500, 10**9]),
    piece_bytes=st.sampled_from([64, 10**6]),
    harm=st.sampled_from(["flip", "cut", "insert"]),
    where=st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=40)
def test_harm_to_any_byte_of_a_replica_is_found(
    segment_bytes: list[int], task_bytes: int, piece_bytes: int, harm: str, where: float
) -> None:
    """Whatever segments the others have, and however the work is cut."""
    with TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicas, "TASK_BYTES", task_bytes)
        patch.setattr(replica_ranges, "PIECE_BYTES", piece_bytes)
        log_dirs = [Path(root) / f"broker-{number}" for number in range(len(segment_bytes))]
        for log_dir, size_bytes in zip(log_dirs, segment_bytes, strict=True):
            _write_replica(log_dir, segment_bytes=size_bytes, offsets=ALL[:20], odd=None)
        assert _is_clean(_compared(*log_dirs))
        files = sorted((log_dirs[-1] / "orders-3").glob("*.log"))
        file = files[int(where * len(files))]
        data = bytearray(file.read_bytes())
        at = int(where * len(data))
        match harm:
            case "flip":
                data[at] ^= 1
            case "cut":
                del data[at:]
            case _:
                data[at:at] = b"?"
        file.write_bytes(data)
        assert not _is_clean(_compared(*log_dirs))


def test_replica_that_ends_early_is_behind_and_others_are_still_compared(
    write: WriteReplica,
) -> None:
    log_dirs = write(), write(offsets=range(0, 90, RECORDS)), write(odd=120)
    found = _compared(*log_dirs, high_watermark=150)
    assert [each.behind for each in found.replicas] == [0, 60, 0]
    assert found.first_difference is not None
    assert found.first_difference.offset == 120
    assert [place.folder.parent for place in found.first_difference.places] == [
        log_dirs[0],
        log_dirs[2],
    ]


def test_all_are_behind_if_more_was_committed_than_any_has(write: WriteReplica) -> None:
    found = _compared(write(), write(), high_watermark=200)
    assert (found.is_equal, found.end_offset) == (True, BATCHES * RECORDS)
    assert [each.behind for each in found.replicas] == [20, 20]
    assert not _is_clean(found)


def test_one_without_segments_is_behind_with_everything(
    write: WriteReplica, tmp_path: Path
) -> None:
    one, indexes_alone, linked = write(), write(), tmp_path / "broker-9"
    for path in (indexes_alone / "orders-3").glob("*.log"):
        path.unlink()
    linked.mkdir()
    (linked / "orders-3").symlink_to(tmp_path / "unmounted")
    found = _compared(one, indexes_alone, linked)
    assert [each.behind for each in found.replicas] == [0, *[BATCHES * RECORDS] * 2]
    assert not _is_clean(found)


def test_being_behind_may_be_allowed(write: WriteReplica) -> None:
    found = _compared(write(), write(offsets=range(0, 90, RECORDS)))
    assert found.is_equal
    assert not _is_clean(found)
    assert _is_clean(found, is_behind_allowed=True)


def test_what_is_not_committed_may_differ(write: WriteReplica) -> None:
    found = _compared(write(), write(odd=120), high_watermark=120)
    assert (found.is_equal, found.end_offset) == (True, 120)


def test_segments_that_one_has_deleted_are_not_missing(write: WriteReplica) -> None:
    one, other = write(), write()
    first, *_ = sorted((other / "orders-3").glob("*.log"))
    for path in (other / "orders-3").glob(f"{first.stem}.*"):
        path.unlink()
    found = _compared(one, other)
    assert found.is_equal
    assert found.start_offset > 0


def test_log_that_starts_amid_a_batch_is_compared_from_that_batch(write: WriteReplica) -> None:
    found = _compared(write(), write(odd=90), log_start=91)
    assert found.first_difference is not None
    assert found.first_difference.offset == 90


@pytest.mark.parametrize("segment_number", [0, 1])
def test_damage_that_ends_the_walk_is_told(write: WriteReplica, segment_number: int) -> None:
    one, other = write(), write()
    path = sorted((other / "orders-3").glob("*.log"))[segment_number]
    data = bytearray(path.read_bytes())
    data[16] = 0  # The magic of its first batch.
    path.write_bytes(data)
    found = _compared(one, other)
    assert found.first_difference is not None
    assert found.first_difference.places[1].what == "damaged"
    assert found.first_difference.places[1].file == path
    assert found.missing_offsets > 0


def test_partition_with_one_replica_is_only_named(write: WriteReplica) -> None:
    plans, alone = plan_replicas(find_partitions([str(write())], topics=None))
    assert (plans, alone) == ([], (PARTITION,))


def test_topics_with_different_ids_are_no_replicas(write: WriteReplica, tmp_path: Path) -> None:
    one = write()
    other = tmp_path / "broker-9"
    shutil.copytree(one, other)
    for log_dir, last in ((one, "A"), (other, "Q")):
        text = f"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAA{last}\n"
        (log_dir / "orders-3" / "partition.metadata").write_text(text)
    with pytest.raises(OptionError, match="different ids"):
        plan_replicas(find_partitions([str(one), str(other)], topics=None))
