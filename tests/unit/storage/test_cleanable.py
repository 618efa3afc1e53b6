"""What compaction would find in a log, and whether it is due (S5)."""

from dataclasses import replace

import pytest

from tests.unit.storage.compacted_folder import append_pairs, cleanable_of, keyed_batch
from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch
from tidelog.base.ids import Offset
from tidelog.config.topic import TopicConfig
from tidelog.storage.log import Log

COMPACTED = TopicConfig(cleanup_policy=("compact",))


@pytest.fixture
def log(partition: LogFolder) -> Log:
    """Four segments of one record, a minute apart, and an active one."""
    partition.config = COMPACTED
    log = partition.open_log()
    for number in range(4):
        batch = keyed_batch(number, [(b"a", b"1")], timestamp_ms=NOW_MS + number * 60_000)
        append_batch(log, batch)
        log.roll(producers=(), now_ms=NOW_MS)
    append_pairs(log, [(b"a", b"1")])
    append_batch(log, keyed_batch(5, [(b"a", b"1")]))
    return log


def test_log_that_was_never_compacted_is_dirty_up_to_its_active_segment(log: Log) -> None:
    cleanable = cleanable_of(log)
    assert (cleanable.first_dirty_offset, cleanable.first_uncleanable_offset) == (0, 5)
    assert cleanable.clean_bytes == 0
    assert cleanable.cleanable_bytes == sum(one.size_bytes for one in log.segments[:-1])
    assert cleanable.ratio == 1.0


def test_what_was_compacted_counts_as_clean(log: Log) -> None:
    cleanable = cleanable_of(log, cleaned_offset=3)
    assert (cleanable.first_dirty_offset, cleanable.first_uncleanable_offset) == (3, 5)
    assert cleanable.ratio == pytest.approx(2 / 5)


def test_segment_with_the_last_stable_offset_is_left_out(log: Log) -> None:
    append_pairs(log, [(b"a", b"1"), (b"b", b"1")], [(b"c", b"1")])
    assert cleanable_of(log, last_stable_offset=6).first_uncleanable_offset == 5
    assert cleanable_of(log, last_stable_offset=8).first_uncleanable_offset == 8


@pytest.mark.parametrize("cleaned_offset", [99, 1])
def test_offset_outside_of_the_log_means_all_of_it(log: Log, cleaned_offset: int) -> None:
    log.advance_log_start(Offset(2))
    assert cleanable_of(log, cleaned_offset=cleaned_offset).first_dirty_offset == 2


def test_young_records_are_left_out_and_all_behind_them(log: Log) -> None:
    log.reconfigure(replace(COMPACTED, min_compaction_lag_ms=60_000))
    now_ms = NOW_MS + 3 * 60_000
    # The segment of offset 4 is old again, but lies behind two young ones.
    assert cleanable_of(log, now_ms=now_ms).first_uncleanable_offset == 3
    assert cleanable_of(log, now_ms=NOW_MS).cleanable_bytes == 0
    assert cleanable_of(log, now_ms=NOW_MS + 10**9).first_uncleanable_offset == 5


def test_dirty_ratio_has_to_be_exceeded(log: Log) -> None:
    cleanable = cleanable_of(log, cleaned_offset=3)
    assert cleanable.is_due(min_cleanable_dirty_ratio=0.39)
    assert not cleanable.is_due(min_cleanable_dirty_ratio=cleanable.ratio)


def test_old_record_makes_it_due_whatever_the_ratio(log: Log) -> None:
    log.reconfigure(replace(COMPACTED, max_compaction_lag_ms=60_000))
    due = cleanable_of(log, cleaned_offset=4, now_ms=NOW_MS + 60_001)
    assert due.overdue_ms == 1
    assert due.is_due(min_cleanable_dirty_ratio=1.0)
    early = cleanable_of(log, cleaned_offset=4, now_ms=NOW_MS + 60_000)
    assert not early.is_due(min_cleanable_dirty_ratio=1.0)


def test_active_segment_is_closed_when_its_records_may_be_overdue(log: Log) -> None:
    log.reconfigure(replace(COMPACTED, max_compaction_lag_ms=60_000))
    late = NOW_MS + 60_001

    def is_needed() -> bool:
        return log.roll_needed(
            size_bytes=1, max_timestamp_ms=late, now_ms=late, last_offset=Offset(6)
        )

    assert is_needed()
    log.reconfigure(replace(COMPACTED, max_compaction_lag_ms=60_000, cleanup_policy=("delete",)))
    assert not is_needed()


def test_log_with_nothing_but_an_active_segment_is_never_due(partition: LogFolder) -> None:
    log = partition.open_log()
    append_batch(log, keyed_batch(0, [(b"a", b"1")]))
    cleanable = cleanable_of(log)
    assert (cleanable.ratio, cleanable.cleanable_bytes) == (0.0, 0)
    assert not cleanable.is_due(min_cleanable_dirty_ratio=0.0)


def test_index_that_is_damaged_is_made_again(partition: LogFolder, log: Log) -> None:
    log.reconfigure(replace(COMPACTED, min_compaction_lag_ms=60_000))
    log.flush(up_to=log.log_end_offset)
    segment = log.segments[0]
    before = partition.files()[f"{0:020d}.timeindex"]
    partition.write(f"{0:020d}.timeindex", before[:-1])
    log.files.forget_folder(partition.folder)
    segment.forget_indexes()
    assert cleanable_of(log, now_ms=NOW_MS + 10**9).first_uncleanable_offset == 5
    assert partition.files()[f"{0:020d}.timeindex"] == before
