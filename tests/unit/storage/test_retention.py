"""Which segments go, and how (S5)."""

from pathlib import Path

import pytest

from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    batch_at,
    log_config,
    offsets_of,
)
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.log import Log

HOUR_MS = 3_600_000


def log_by_the_hour(partition: LogFolder) -> Log:
    """Five segments of one batch, each an hour younger than the one before; the last is new."""
    log = partition.open_log()
    for number in range(5):
        log.roll(producers=(), now_ms=NOW_MS)
        append_batch(log, batch_at(number, timestamps_ms=[NOW_MS - (4 - number) * HOUR_MS]))
    assert len(log.segments) == 5
    return log


def expired(log: Log, *, high_watermark: int = 5, now_ms: int = NOW_MS) -> list[int]:
    segments = log.expired_segments(high_watermark=Offset(high_watermark), now_ms=now_ms)
    return [segment.base_offset for segment in segments]


def test_nothing_goes_without_a_limit(partition: LogFolder) -> None:
    assert expired(log_by_the_hour(partition), now_ms=NOW_MS + 10**12) == []


def test_segments_older_than_retention_ms_go(partition: LogFolder) -> None:
    partition.config = log_config(retention_ms=2 * HOUR_MS)
    assert expired(log_by_the_hour(partition)) == [0, 1]


def test_young_segment_protects_older_looking_ones_behind_it(partition: LogFolder) -> None:
    partition.config = log_config(retention_ms=HOUR_MS)
    log = partition.open_log()
    for offset, timestamp_ms in enumerate((NOW_MS, 0, 0)):
        log.roll(producers=(), now_ms=NOW_MS)
        append_batch(log, batch_at(offset, timestamps_ms=[timestamp_ms]))
    assert expired(log, high_watermark=3) == []


def test_segments_beyond_retention_bytes_go(partition: LogFolder) -> None:
    size_bytes = len(batch_at(0))
    partition.config = log_config(retention_bytes=3 * size_bytes)
    assert expired(log_by_the_hour(partition)) == [0, 1]


def test_log_keeps_at_least_retention_bytes(partition: LogFolder) -> None:
    partition.config = log_config(retention_bytes=3 * len(batch_at(0)) + 1)
    assert expired(log_by_the_hour(partition)) == [0]


def test_what_is_not_committed_stays(partition: LogFolder) -> None:
    partition.config = log_config(retention_ms=0)
    log = log_by_the_hour(partition)
    assert expired(log, high_watermark=2, now_ms=NOW_MS + 1) == [0, 1]


def test_old_active_segment_goes_as_well(partition: LogFolder) -> None:
    partition.config = log_config(retention_ms=HOUR_MS)
    log = log_by_the_hour(partition)
    later_ms = NOW_MS + 2 * HOUR_MS
    assert expired(log, now_ms=later_ms) == [0, 1, 2, 3, 4]
    segments = log.expired_segments(high_watermark=Offset(5), now_ms=later_ms)
    log.roll(producers=(), now_ms=later_ms)
    log.detach(segments)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)


def test_empty_active_segment_stays(partition: LogFolder) -> None:
    partition.config = log_config(retention_ms=0, retention_bytes=0)
    assert expired(partition.open_log(), high_watermark=0, now_ms=NOW_MS + HOUR_MS) == []


def test_only_deleted_records_go_from_a_compacted_topic(partition: LogFolder) -> None:
    partition.config = log_config(retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    log = log_by_the_hour(partition)
    assert expired(log) == []
    log.advance_log_start(Offset(2))
    assert expired(log) == [0, 1]


def test_segments_below_log_start_go(partition: LogFolder) -> None:
    log = log_by_the_hour(partition)
    log.advance_log_start(Offset(3))
    assert expired(log) == [0, 1, 2]


def test_active_segment_stays_when_all_records_are_deleted(partition: LogFolder) -> None:
    log = log_by_the_hour(partition)
    log.advance_log_start(Offset(5))
    assert expired(log) == [0, 1, 2, 3]


def test_records_without_timestamp_are_as_old_as_their_file(partition: LogFolder) -> None:
    partition.config = log_config(retention_ms=HOUR_MS)
    log = partition.open_log()
    append_batch(log, batch_at(0, timestamps_ms=[-1]))
    log.roll(producers=(), now_ms=NOW_MS)
    append_batch(log, batch_at(1))
    assert expired(log, high_watermark=2, now_ms=NOW_MS + HOUR_MS) == []
    assert expired(log, high_watermark=1, now_ms=NOW_MS + HOUR_MS + 1) == [0]


def test_age_is_known_after_a_restart(partition: LogFolder) -> None:
    partition.config = log_config(retention_ms=2 * HOUR_MS)
    partition.stop(log_by_the_hour(partition))
    assert expired(partition.open_log(clean=True)) == [0, 1]


def test_detached_segment_is_out_of_reach_at_once(partition: LogFolder) -> None:
    log = log_by_the_hour(partition)
    log.detach(log.segments[:2])
    assert log.log_start_offset == 2
    assert offsets_of(log) == [2, 3, 4]
    with pytest.raises(RequestRefused) as refused:
        log.read(Offset(1), end_offset=Offset(5), max_bytes=100, at_least_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_removed_segment_is_renamed_first(partition: LogFolder) -> None:
    log = log_by_the_hour(partition)
    segments = log.segments[:2]
    log.detach(segments)
    renamed = log.remove_detached(segments)
    names = [path.name for path in renamed]
    assert all(name.endswith(".deleted") for name in names)
    assert f"{1:020d}.snapshot.deleted" in names
    assert set(names) <= set(partition.files())
    assert {int(name[:20]) for name in partition.files() if name.endswith(".log")} == {2, 3, 4}


def test_crash_before_removal_is_finished_at_the_next_start(partition: LogFolder) -> None:
    log = log_by_the_hour(partition)
    segments = log.segments[:2]
    log.detach(segments)
    log.remove_detached(segments)
    partition.crash(log)
    log = partition.open_log()
    assert offsets_of(log) == [2, 3, 4]
    assert not [name for name in partition.files() if "deleted" in name]


class _DeletingDisk(FaultyDisk):
    """Deletes a log's first segment just when somebody opens it."""

    victim: Log | None = None

    def attempt(self, operation: str, path: Path) -> None:
        victim, self.victim = self.victim, None
        if victim is not None and operation == "open":
            first = victim.segments[:1]
            victim.detach(first)
            victim.remove_detached(first)


def test_reader_whose_segment_expires_under_its_hands_is_told_so(partition: LogFolder) -> None:
    """A file that is gone would otherwise look like a broken disk."""
    partition.stop(log_by_the_hour(partition))
    disk = _DeletingDisk(partition.disk)
    partition.disk = disk
    log = partition.open_log(clean=True)
    disk.victim = log
    with pytest.raises(RequestRefused) as refused:
        log.read(Offset(0), end_offset=Offset(5), max_bytes=100, at_least_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets_of(log) == [1, 2, 3, 4]
