"""Taking batches off the end (R7), and what is left at every step of it."""

from contextlib import suppress

import pytest

from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    append_records,
    batch_at,
    log_config,
    offsets_of,
)
from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, ProducerId
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.log import Log
from tidelog.storage.transaction_index import AbortedTransaction


@pytest.fixture
def log(partition: LogFolder) -> Log:
    """Batches of two records, 0 to 39, in several segments."""
    partition.config = log_config(segment_bytes=500, index_interval_bytes=100)
    log = partition.open_log()
    append_records(log, 20, count=2)
    assert len(log.segments) > 3
    return log


@pytest.mark.parametrize("offset", range(0, 40, 2))
def test_everything_from_the_offset_on_is_gone(partition: LogFolder, log: Log, offset: int) -> None:
    log.truncate_to(Offset(offset))
    assert log.log_end_offset == offset
    assert offsets_of(log) == list(range(offset))
    append_records(log, 3, count=2)
    assert offsets_of(log) == list(range(offset + 6))
    partition.crash(log)
    assert offsets_of(partition.open_log()) == list(range(offset + 6))


def test_batch_that_holds_the_offset_goes_as_a_whole(log: Log) -> None:
    log.truncate_to(Offset(13))
    assert log.log_end_offset == 12


def test_offset_at_the_end_changes_nothing(partition: LogFolder, log: Log) -> None:
    before = partition.files()
    log.truncate_to(Offset(40))
    assert (log.log_end_offset, partition.files()) == (40, before)


def test_files_are_those_of_a_log_that_was_never_longer(
    partition: LogFolder, real_partition: LogFolder, log: Log
) -> None:
    log.truncate_to(Offset(26))
    partition.stop(log)
    real_partition.config = partition.config
    shorter = real_partition.open_log()
    append_records(shorter, 13, count=2)
    real_partition.stop(shorter)
    assert partition.files() == real_partition.files()


def test_recovery_point_moves_back_with_the_end(log: Log) -> None:
    log.flush(up_to=Offset(40))
    log.truncate_to(Offset(10))
    assert log.recovery_point == 10


def test_places_remembered_beyond_the_end_are_forgotten(log: Log) -> None:
    assert offsets_of(log) == list(range(40))
    log.truncate_to(Offset(20))
    append_batch(log, batch_at(20, 5, value=b"longer than before"))
    append_batch(log, batch_at(25, 15))
    assert offsets_of(log) == list(range(40))


def test_snapshots_beyond_the_end_are_removed(partition: LogFolder, log: Log) -> None:
    log.truncate_to(Offset(15))
    snapshots = [int(name[:20]) for name in partition.files() if name.endswith(".snapshot")]
    assert snapshots
    assert max(snapshots) <= 14


def test_log_starts_afresh_below_its_first_segment(partition: LogFolder, log: Log) -> None:
    log.detach(log.segments[:2])
    first = log.segments[0].base_offset
    log.truncate_to(Offset(first - 3))
    assert (log.log_start_offset, log.log_end_offset) == (first - 3, first - 3)
    append_batch(log, batch_at(first - 3))
    assert offsets_of(log) == [first - 3]


def test_log_that_starts_afresh_keeps_no_old_file(partition: LogFolder, log: Log) -> None:
    log.truncate_fully_and_start_at(Offset(100))
    assert {name[:20] for name in partition.files()} == {f"{100:020d}"}
    append_batch(log, batch_at(100))
    partition.crash(log)
    assert offsets_of(partition.open(log_start_offset=100).log) == [100]


def test_aborted_transactions_beyond_the_end_are_dropped(partition: LogFolder) -> None:
    log = partition.open_log()
    for offset in range(6):
        append_batch(log, batch_at(offset))
        if offset % 2:
            log.append_aborted(
                AbortedTransaction(
                    ProducerId(1), Offset(offset - 1), Offset(offset), Offset(offset + 1)
                )
            )
    assert len(log.aborted_transactions(Offset(0), end_offset=Offset(6))) == 3
    log.truncate_to(Offset(3))
    kept = log.aborted_transactions(Offset(0), end_offset=Offset(6))
    assert [aborted.last_offset for aborted in kept] == [1]


@pytest.mark.parametrize("operation", ["remove", "flush_folder", "truncate", "flush"])
def test_crash_in_the_middle_leaves_a_log_that_ends_somewhere(
    partition: LogFolder, operation: str
) -> None:
    """Whatever step fails, recovery finds a prefix at least as long as asked for."""
    for after in range(6):
        faulty = FaultyDisk(partition.disk)
        fragile = LogFolder(
            faulty,
            partition.folder.with_name(f"{operation}-{after}"),
            log_config(segment_bytes=500, index_interval_bytes=100),
        )
        log = fragile.open_log()
        append_records(log, 20, count=2)
        faulty.arm(operation, "*", StorageError, after=after)
        with suppress(StorageError):
            log.truncate_to(Offset(12))
        faulty.heal()
        fragile.crash(log)
        log = fragile.open_log(recovery_point=Offset(12))
        assert offsets_of(log) == list(range(log.log_end_offset))
        assert log.log_end_offset >= 12


def test_active_segment_is_known_after_a_truncation(log: Log) -> None:
    log.truncate_to(Offset(12))
    assert log.active_base_offset <= 12
    log.roll(producers=(), now_ms=NOW_MS)
    assert log.active_base_offset == 12
