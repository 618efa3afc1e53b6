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
    small_reads,
    wanted,
)
from tests.unit.storage.compacted_folder import Transactions, committed, compact
from tests.unit.storage.log_folder import LogFolder, log_config
from tidelog.base.ids import Offset, ProducerId
from tidelog.pipeline.segments import DamagedSegment, plan_partition
from tidelog.pipeline.segments.transactions import with_records_between
from tidelog.records.batch import HEADER_SIZE_BYTES
from tidelog.records.control import ControlType
from tidelog.storage.disk import RealDisk
from tidelog.storage.transaction_index import AbortedTransaction

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
# A segment takes three batches, so that transactions span segments.
CONFIG = log_config(segment_bytes=250, index_interval_bytes=1)

COMMITTED = wanted(is_committed_only=True)

Step = tuple[int, ControlType | None]


@pytest.fixture
def log_folder(tmp_path: Path) -> LogFolder:
    return LogFolder(RealDisk(), tmp_path / "orders-3", CONFIG)


def remove(log_folder: LogFolder, *suffixes: str) -> None:
    for path in log_folder.folder.iterdir():
        if path.suffix in suffixes:
            path.unlink()


def offsets(log_folder: LogFolder) -> list[int]:
    return [row.offset for row in read(folder_of(log_folder.folder), COMMITTED)]


steps_of_producers = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([None, None, None, COMMIT, ABORT])),
    min_size=10,
    max_size=30,
)


def write(log_folder: LogFolder, steps: list[Step], *, is_stopped: bool) -> None:
    """Each step is a record or a marker, and takes one offset."""
    transactions = Transactions(log_folder.open_log())
    for producer, how in steps:
        if how is None:
            transactions.write(producer, [(b"key", b"value")])
        else:
            transactions.end(producer, is_abort=how is ABORT)
    if is_stopped:
        transactions.log.close(clean=True, producers=transactions.entries())
    else:
        log_folder.crash(transactions.log)


@given(
    steps=steps_of_producers,
    is_stopped=st.booleans(),
    lost=st.sampled_from(
        [
            (),
            (".snapshot",),
            (".index", ".timeindex", ".txnindex"),
            (".index", ".timeindex", ".txnindex", ".snapshot"),
        ]
    ),
    slice_bytes=st.integers(50, 400),
    chunk_bytes=st.integers(HEADER_SIZE_BYTES, 400),
)
def test_it_is_what_no_abort_followed_up_to_the_first_that_is_open(
    steps: list[Step],
    is_stopped: bool,
    lost: tuple[str, ...],
    slice_bytes: int,
    chunk_bytes: int,
) -> None:
    with new_partition(CONFIG) as log_folder:
        write(log_folder, steps, is_stopped=is_stopped)
        remove(log_folder, *lost)
        what = wanted(is_committed_only=True, slice_bytes=slice_bytes)
        with small_reads(chunk_bytes=chunk_bytes, rows_max=7):
            found = [row.offset for row in read(folder_of(log_folder.folder), what)]
    assert found == _committed(steps, len(steps))


@given(
    steps=steps_of_producers,
    high_watermark=st.none() | st.integers(5, 30),
    offsets=st.tuples(st.integers(0, 8), st.integers(5, 25)),
    slice_bytes=st.integers(50, 400),
)
def test_a_range_has_what_is_committed_of_it_by_the_high_watermark(
    steps: list[Step],
    high_watermark: int | None,
    offsets: tuple[int, int],
    slice_bytes: int,
) -> None:
    """Also what is decided behind the range."""
    with new_partition(CONFIG) as log_folder:
        write(log_folder, steps, is_stopped=False)
        folder = folder_of(log_folder.folder, high_watermark=high_watermark)
        what = wanted(is_committed_only=True, offsets=offsets, slice_bytes=slice_bytes)
        found = [row.offset for row in read(folder, what)]
    start, end = offsets
    readable = len(steps) if high_watermark is None else high_watermark
    assert found == [offset for offset in _committed(steps, readable) if start <= offset < end]


def _committed(steps: list[Step], readable: int) -> list[int]:
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


def test_what_was_open_where_a_range_ends_may_be_committed_behind_it(
    log_folder: LogFolder,
) -> None:
    write(log_folder, [(1, None), (1, None), (1, COMMIT)], is_stopped=True)
    rows = read(folder_of(log_folder.folder), wanted(is_committed_only=True, offsets=(0, 1)))
    assert [row.offset for row in rows] == [0]


def test_what_a_producer_commits_after_an_abort_is_read_in_every_chunk(
    log_folder: LogFolder,
) -> None:
    log_folder.config = log_config()
    write(log_folder, [(1, None), (1, ABORT), (1, None), (1, COMMIT)], is_stopped=True)
    with small_reads(chunk_bytes=HEADER_SIZE_BYTES, rows_max=1):
        assert offsets(log_folder) == [2]


def test_without_a_transaction_index_and_with_others_it_is_noticed(log_folder: LogFolder) -> None:
    """There it says that nothing was aborted, and a marker says otherwise."""
    write(log_folder, [(1, None), (1, ABORT)], is_stopped=True)
    assert offsets(log_folder) == []
    remove(log_folder, ".txnindex")
    with pytest.raises(DamagedSegment, match="offset 1: it aborts a transaction of producer 1"):
        offsets(log_folder)


def test_a_damaged_transaction_index_is_replaced_by_the_markers(log_folder: LogFolder) -> None:
    write(log_folder, [(1, None), (2, None), (1, ABORT), (2, COMMIT)], is_stopped=True)
    for path in log_folder.folder.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-1])
    assert offsets(log_folder) == [1]


def test_a_damaged_snapshot_is_replaced_by_what_is_before_it(log_folder: LogFolder) -> None:
    write(log_folder, [(1, None), (2, None), (2, None), (2, COMMIT), (2, None)], is_stopped=False)
    (snapshot,) = log_folder.folder.glob("*.snapshot")
    snapshot.write_bytes(b"damaged")
    assert offsets(log_folder) == []


def test_a_slice_carries_the_transactions_of_its_own_records_alone(log_folder: LogFolder) -> None:
    write(log_folder, [(1, None), (1, ABORT)] * 20, is_stopped=True)
    plan = plan_partition(folder_of(log_folder.folder), COMMITTED)
    assert len(plan.slices) > 10
    assert all(len(each.aborted) <= 2 for each in plan.slices)


def test_transactions_that_reach_into_a_range_are_found() -> None:
    """By their markers in order: the first of these was open all the while."""
    short = AbortedTransaction(ProducerId(2), Offset(3), Offset(4), Offset(0))
    late = AbortedTransaction(ProducerId(2), Offset(6), Offset(7), Offset(0))
    long = AbortedTransaction(ProducerId(1), Offset(0), Offset(9), Offset(10))
    behind = AbortedTransaction(ProducerId(1), Offset(10), Offset(11), Offset(12))
    aborted = (short, late, long, behind)
    assert with_records_between(aborted, offset=0, end_offset=3) == (long,)
    assert with_records_between(aborted, offset=4, end_offset=5) == (short, long)
    assert with_records_between(aborted, offset=5, end_offset=7) == (late, long)
    assert with_records_between(aborted, offset=9, end_offset=11) == (long, behind)
    assert with_records_between(aborted, offset=12, end_offset=20) == ()


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
