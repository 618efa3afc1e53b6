"""A batch of files begins and ends as one from brokers would, or is refused in its words (X6)."""

import shutil
from pathlib import Path

import pytest

from tests.unit.storage.compacted_folder import Transactions
from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch, batch_at, log_config
from tidelog.base.errors import TidelogError
from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.segment_options import segment_options
from tidelog.pipeline.segment_source import SegmentReader
from tidelog.pipeline.segments import MissingOffsets, TornTail
from tidelog.storage.disk import RealDisk

COUNT = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Offsets 0 to 19 a second apart, two in each batch, four in each segment."""
    path = tmp_path / "orders-3"
    batches = [
        batch_at(offset, 2, timestamps_ms=[NOW_MS + 1_000 * each for each in (offset, offset + 1)])
        for offset in range(0, COUNT, 2)
    ]
    config = log_config(segment_bytes=2 * len(batches[-1]), index_interval_bytes=0)
    files = LogFolder(RealDisk(), path, config)
    log = files.open_log()
    for batch in batches:
        append_batch(log, batch)
    files.stop(log)
    return path


def tasks_of(folder: Path, **options: str) -> list[list[int]]:
    """The offsets that each task reads."""
    reader = SegmentReader(segment_options({"path": str(folder), **options}))
    return [
        [offset for batch in reader.read(task) for offset in batch.column("offset").to_pylist()]
        for task in reader.partitions()
    ]


def offsets(folder: Path, **options: str) -> list[int]:
    return [offset for task in tasks_of(folder, **options) for offset in task]


def at(offset: int) -> str:
    return f'{{"orders": {{"3": {offset}}}}}'


def time(second: float) -> str:
    return str(NOW_MS + int(1_000 * second))


def test_all_is_read_by_default(folder: Path) -> None:
    assert offsets(folder) == [*range(COUNT)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"startingOffsets": at(21)},
            "startingOffsets begins orders-3 at 21, behind where endingOffsets ends it, 20",
        ),
        (
            {"startingOffsets": at(9), "endingOffsets": at(7)},
            "startingOffsets begins orders-3 at 9, behind where endingOffsets ends it, 7",
        ),
        (
            {"startingTimestamp": time(9), "endingTimestamp": time(7)},
            "startingTimestamp begins orders-3 at 9, behind where endingTimestamp ends it, 7",
        ),
        (
            {"startingOffsetsByTimestamp": at(NOW_MS + 9_000), "endingOffsets": at(7)},
            "startingOffsetsByTimestamp begins orders-3 at 9, "
            "behind where endingOffsets ends it, 7",
        ),
    ],
)
@pytest.mark.parametrize("fails_on_data_loss", ["true", "false"])
def test_a_batch_that_would_end_before_it_begins_is_refused(
    folder: Path, options: dict[str, str], said: str, fails_on_data_loss: str
) -> None:
    with pytest.raises(OptionError) as refusal:
        offsets(folder, failOnDataLoss=fails_on_data_loss, **options)
    assert str(refusal.value) == said


def test_a_range_may_be_empty(folder: Path) -> None:
    assert tasks_of(folder, startingOffsets=at(20)) == []
    assert tasks_of(folder, startingOffsets=at(7), endingOffsets=at(7)) == []
    assert tasks_of(folder, startingTimestamp=time(7), endingTimestamp=time(6.5)) == []


def test_an_end_behind_the_start_that_is_left_is_refused(folder: Path) -> None:
    for path in folder.glob(f"{0:020d}.*"):
        path.unlink()
    said = "startingOffsets begins orders-3 at 4, behind where endingOffsets ends it, 3"
    with pytest.raises(OptionError, match=said):
        offsets(folder, endingOffsets=at(3))


def test_an_end_that_is_not_there_is_refused_or_left_out(folder: Path) -> None:
    said = f"endingOffsets has 25 for orders-3, which ends at 20 in {folder}"
    with pytest.raises(MissingOffsets, match=said) as refusal:
        offsets(folder, endingOffsets=at(25))
    assert "set failOnDataLoss to false" in str(refusal.value)
    assert offsets(folder, endingOffsets=at(25), failOnDataLoss="false") == [*range(COUNT)]


def test_a_start_that_is_gone_is_refused_or_left_out(folder: Path) -> None:
    for path in folder.glob(f"{0:020d}.*"):
        path.unlink()
    with pytest.raises(MissingOffsets, match="begins at offset 4, and 2 was asked for"):
        offsets(folder, startingOffsets=at(2))
    assert offsets(folder, startingOffsets=at(2), failOnDataLoss="false") == [*range(4, COUNT)]
    assert offsets(folder, startingOffsets=at(-2)) == [*range(4, COUNT)]


@pytest.mark.parametrize("name", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_time_to_begin_at_that_no_record_has_is_refused_unless_told_otherwise(
    folder: Path, name: str
) -> None:
    given = {name: time(19.5) if name == "startingTimestamp" else at(NOW_MS + 19_500)}
    with pytest.raises(PipelineError) as refusal:
        offsets(folder, **given)
    assert str(refusal.value) == (
        "orders-3 has no record as young as the timestamp to begin at; "
        "startingOffsetsByTimestampStrategy=latest begins at the end there"
    )
    assert offsets(folder, startingOffsetsByTimestampStrategy="latest", **given) == []
    assert offsets(folder, endingTimestamp=time(19.5)) == [*range(COUNT)]


def test_a_torn_tail_is_told_of_before_what_may_be_in_it(folder: Path) -> None:
    last = max(folder.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-1])
    for options in ({"startingOffsets": at(19)}, {"endingOffsets": at(20)}):
        with pytest.raises(TornTail):
            offsets(folder, **options)
        with pytest.raises(TidelogError, match="18"):
            offsets(folder, ignoreTornTail="true", **options)


def test_what_is_not_decided_is_not_there_for_who_reads_committed(tmp_path: Path) -> None:
    """As brokers say it of a transaction that is open: they end, and find nothing, before it."""
    files = LogFolder(RealDisk(), tmp_path / "orders-3", log_config())
    transactions = Transactions(files.open_log())
    for _ in range(2):
        transactions.write(1, [(b"key", b"value")])
        transactions.end(1, is_abort=False)
    transactions.write(2, [(b"key", b"value")] * 3)
    files.crash(transactions.log)
    committed = {"kafka.isolation.level": "read_committed"}
    assert offsets(files.folder) == [0, 2, 4, 5, 6]
    assert offsets(files.folder, **committed) == [0, 2]
    with pytest.raises(MissingOffsets, match="endingOffsets has 6 for orders-3, which ends at 4"):
        offsets(files.folder, endingOffsets=at(6), **committed)
    said = "startingOffsets begins orders-3 at 6, behind where endingOffsets ends it, 4"
    with pytest.raises(OptionError, match=said):
        offsets(files.folder, startingOffsets=at(6), **committed)
    assert offsets(files.folder, startingOffsets=at(6)) == [6]


# -- how many offsets a task has -------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 4, 7, 19, 20, 1_000])
def test_no_task_has_more_records_than_it_may(folder: Path, most: int) -> None:
    tasks = tasks_of(folder, maxRecordsPerPartition=str(most))
    assert [offset for task in tasks for offset in task] == [*range(COUNT)]
    assert max(map(len, tasks)) <= most
    assert len(tasks) == -(-COUNT // most)


def test_few_records_for_a_task_are_counted_from_where_it_begins(folder: Path) -> None:
    options = {"startingOffsets": at(5), "endingOffsets": at(16), "maxRecordsPerPartition": "4"}
    assert tasks_of(folder, **options) == [[5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    within = {**options, "minTimestamp": time(7), "maxTimestamp": time(12)}
    assert [task for task in tasks_of(folder, **within) if task] == [[7], [8, 9, 10, 11], [12]]
    assert tasks_of(folder, startingOffsets=at(20), maxRecordsPerPartition="4") == []


# -- which topics ----------------------------------------------------------------------------------


def test_a_partition_whose_segments_are_gone_is_missed(folder: Path) -> None:
    """Its indexes say that there were some; beside it, a partition is whole."""
    shutil.copytree(folder, folder.parent / "orders-4")
    for path in folder.glob("*.log"):
        path.unlink()
    with pytest.raises(MissingOffsets, match=f"{folder} holds no segments: they were removed or"):
        offsets(folder.parent)
    assert offsets(folder.parent, failOnDataLoss="false") == [*range(COUNT)]
    replica = folder.parent / "broker-2"
    shutil.copytree(folder.parent / "orders-4", replica / "orders-3")
    assert offsets(folder.parent) == [*range(COUNT)] * 2


def test_a_topic_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(OptionError, match="subscribe has payments, which path does not hold"):
        offsets(folder.parent, subscribe="orders,payments")
    with pytest.raises(OptionError, match="assign has orders-4, which path does not hold"):
        offsets(folder.parent, assign='{"orders": [3, 4]}')
