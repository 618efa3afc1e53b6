"""Of transactions a reader sees from files what a consumer sees through a broker (D3, X6)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pipeline.segments.partition_files import (
    Row,
    folder_of,
    new_partition,
    read,
    rows_of,
    small_reads,
    wanted,
)
from tests.unit.storage.compacted_folder import Transactions, committed, compact
from tests.unit.storage.log_folder import LogFolder, log_config
from tests.unit.storage.test_aborted import Writer
from tidelog.pipeline.segments import DamagedSegment, plan_partition
from tidelog.records.control import ControlType
from tidelog.storage.disk import RealDisk

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
# A segment takes three batches, so that transactions span segments.
CONFIG = log_config(segment_bytes=250, index_interval_bytes=1)

COMMITTED = wanted(is_committed_only=True)


@pytest.fixture
def log_folder(tmp_path: Path) -> LogFolder:
    return LogFolder(RealDisk(), tmp_path / "orders-3", CONFIG)


def remove(log_folder: LogFolder, *suffixes: str) -> None:
    for path in log_folder.folder.iterdir():
        if path.suffix in suffixes:
            path.unlink()


def offsets(log_folder: LogFolder) -> list[int]:
    return [row.offset for row in read(folder_of(log_folder.folder), COMMITTED)]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([None, None, None, COMMIT, ABORT])),
        min_size=1,
        max_size=30,
    ),
    is_stopped=st.booleans(),
    lost=st.sampled_from(
        [
            (),
            (".snapshot",),
            (".index", ".timeindex", ".txnindex"),
            (".index", ".timeindex", ".txnindex", ".snapshot"),
        ]
    ),
    high_watermark=st.none() | st.integers(0, 30),
    wanted_offsets=st.none() | st.tuples(st.integers(0, 20), st.integers(0, 30)),
    slice_bytes=st.integers(50, 400),
    chunk_bytes=st.integers(61, 600),
)
def test_it_is_what_no_abort_followed_up_to_the_first_that_is_open(
    steps: list[tuple[int, ControlType | None]],
    is_stopped: bool,
    lost: tuple[str, ...],
    high_watermark: int | None,
    wanted_offsets: tuple[int, int] | None,
    slice_bytes: int,
    chunk_bytes: int,
) -> None:
    with new_partition(CONFIG) as log_folder:
        writer = Writer(log_folder.open_log())
        for producer, how in steps:
            if how is None:
                writer.write(producer)
            else:
                writer.end(producer, how)
        if is_stopped:
            writer.log.close(clean=True, producers=writer.producers.entries())
        else:
            log_folder.crash(writer.log)
        remove(log_folder, *lost)
        plan = plan_partition(
            folder_of(log_folder.folder, high_watermark=high_watermark),
            wanted(is_committed_only=True, offsets=wanted_offsets, slice_bytes=slice_bytes),
        )
        with small_reads(chunk_bytes=chunk_bytes, rows_max=7):
            found = [row.offset for row in rows_of(plan.slices)]
    start, end = wanted_offsets or (0, len(steps))
    readable = len(steps) if high_watermark is None else high_watermark
    assert found == [offset for offset in _committed(steps, readable) if start <= offset < end]


def _committed(steps: list[tuple[int, ControlType | None]], readable: int) -> list[int]:
    """What is committed of the steps that can be read, each of them a record or a marker."""
    open_offsets: dict[int, list[int]] = {}
    committed: list[int] = []
    for offset, (producer, how) in enumerate(steps[:readable]):
        if how is None:
            open_offsets.setdefault(producer, []).append(offset)
        else:
            ended = open_offsets.pop(producer, [])
            committed += ended if how is COMMIT else []
    last_stable_offset = min((found[0] for found in open_offsets.values()), default=readable)
    return sorted(offset for offset in committed if offset < last_stable_offset)


def test_without_a_transaction_index_and_with_others_it_is_noticed(log_folder: LogFolder) -> None:
    """There it says that nothing was aborted, and a marker says otherwise."""
    writer = Writer(log_folder.open_log())
    writer.write(1)
    writer.end(1, ABORT)
    log_folder.stop(writer.log)
    assert offsets(log_folder) == []
    remove(log_folder, ".txnindex")
    with pytest.raises(DamagedSegment, match="offset 1: it aborts a transaction of producer 1"):
        offsets(log_folder)


def test_a_damaged_transaction_index_is_replaced_by_the_markers(log_folder: LogFolder) -> None:
    writer = Writer(log_folder.open_log())
    writer.write(1)
    writer.write(2)
    writer.end(1, ABORT)
    writer.end(2, COMMIT)
    log_folder.stop(writer.log)
    for path in log_folder.folder.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-1])
    assert offsets(log_folder) == [1]


def test_a_damaged_snapshot_is_replaced_by_an_older_one(log_folder: LogFolder) -> None:
    writer = Writer(log_folder.open_log())
    writer.write(1)
    for _ in range(3):
        writer.write(2)
    writer.end(2, COMMIT)
    log_folder.crash(writer.log)
    (snapshot,) = log_folder.folder.glob("*.snapshot")
    snapshot.write_bytes(b"damaged")
    assert offsets(log_folder) == []


def test_a_slice_carries_the_transactions_of_its_own_records_alone(log_folder: LogFolder) -> None:
    writer = Writer(log_folder.open_log())
    for _ in range(20):
        writer.write(1)
        writer.end(1, ABORT)
    log_folder.stop(writer.log)
    plan = plan_partition(folder_of(log_folder.folder), COMMITTED)
    assert len(plan.slices) > 10
    assert all(len(each.aborted) <= 2 for each in plan.slices)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([1, 2, 3]),
            st.sampled_from([b"a", b"b", b"c"]) | st.sampled_from([COMMIT, ABORT]),
        ),
        min_size=1,
        max_size=40,
    ),
    slice_bytes=st.integers(50, 400),
)
def test_after_compaction_it_is_still_what_a_consumer_sees(
    steps: list[tuple[int, bytes | ControlType]], slice_bytes: int
) -> None:
    config = log_config(segment_bytes=250, index_interval_bytes=1, cleanup_policy=("compact",))
    with new_partition(config) as log_folder:
        log = log_folder.open_log()
        transactions = Transactions(log)
        for number, (producer, step) in enumerate(steps):
            if isinstance(step, ControlType):
                transactions.end(producer, is_abort=step is ABORT)
            else:
                transactions.write(producer, [(step, b"%d" % number)])
        stable = transactions.last_stable_offset
        compact(log, last_stable_offset=stable, producers=transactions.entries())
        expected = [
            Row(record.offset, record.timestamp_ms, record.value)
            for record in committed(log, end_offset=stable)
        ]
        log_folder.crash(log)
        found = read(
            folder_of(log_folder.folder), wanted(is_committed_only=True, slice_bytes=slice_bytes)
        )
    assert found == expected
