"""Appending, rolling, flushing and closing (S2, S3, S5, S9)."""

from pathlib import Path

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
from tidelog.base.errors import DiskFull, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.batch import read_header
from tidelog.storage import layout
from tidelog.storage.checkpoints import read_leader_epochs
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.log import Log
from tidelog.storage.memory_disk import MemoryDisk, MemoryLogFile

HOUR_MS = 3_600_000


@pytest.fixture
def faulty(memory_disk: MemoryDisk) -> FaultyDisk:
    memory_disk.make_folder(Path("/logs"))
    return FaultyDisk(memory_disk)


@pytest.fixture
def fragile(faulty: FaultyDisk) -> LogFolder:
    """A folder on a disk that fails on demand, with an index entry for every batch."""
    return LogFolder(faulty, Path("/logs/orders-3"), log_config(index_interval_bytes=0))


def roll_needed(log: Log, batch: bytearray, *, now_ms: int = NOW_MS) -> bool:
    header = read_header(batch, 0)
    return log.roll_needed(
        size_bytes=len(batch),
        max_timestamp_ms=header.max_timestamp_ms,
        now_ms=now_ms,
        last_offset=Offset(header.last_offset),
    )


def test_new_log_is_one_empty_segment(partition: LogFolder) -> None:
    log = partition.open_log()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert sorted(partition.files()) == [
        f"{0:020d}{end}" for end in (".index", ".log", ".timeindex")
    ]


def test_appended_batches_are_stored_as_they_are(partition: LogFolder) -> None:
    log = partition.open_log()
    batches = [batch_at(0, 3), batch_at(3), batch_at(4, 2)]
    for batch in batches:
        append_batch(log, batch)
    assert log.log_end_offset == 6
    assert partition.log_bytes() == b"".join(batches)
    assert log.size_bytes == len(partition.log_bytes())


def test_batch_that_would_go_back_is_a_bug(partition: LogFolder) -> None:
    log = partition.open_log()
    append_records(log, 2)
    with pytest.raises(AssertionError):
        append_batch(log, batch_at(1))


def test_offsets_may_skip(partition: LogFolder) -> None:
    log = partition.open_log()
    for offset in (0, 7, 100):
        append_batch(log, batch_at(offset))
    assert offsets_of(log) == [0, 7, 100]
    assert log.log_end_offset == 101


class TestRolling:
    def test_segment_is_named_by_its_first_offset(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=200)
        log = partition.open_log()
        append_records(log, 5)
        bases = [segment.base_offset for segment in log.segments]
        assert bases == [0, 2, 4]
        assert [int(name[:20]) for name in partition.files() if name.endswith(".log")] == bases
        assert log.active_base_offset == 4

    def test_full_segment_is_rolled_before_it_grows_past_its_size(
        self, partition: LogFolder
    ) -> None:
        batch = batch_at(0)
        partition.config = log_config(segment_bytes=2 * len(batch))
        log = partition.open_log()
        append_batch(log, batch)
        assert not roll_needed(log, batch_at(1))
        append_batch(log, batch_at(1))
        assert roll_needed(log, batch_at(2))

    def test_empty_segment_takes_a_batch_of_any_size(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=10)
        assert not roll_needed(partition.open_log(), batch_at(0))

    def test_segment_is_rolled_when_its_first_batch_is_old(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_ms=HOUR_MS)
        log = partition.open_log()
        append_batch(log, batch_at(0, timestamps_ms=[NOW_MS]))
        assert not roll_needed(log, batch_at(1, timestamps_ms=[NOW_MS + HOUR_MS]))
        assert roll_needed(log, batch_at(1, timestamps_ms=[NOW_MS + HOUR_MS + 1]))

    def test_age_without_timestamps_is_that_of_the_segment(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_ms=HOUR_MS)
        log = partition.open_log()
        append_batch(log, batch_at(0, timestamps_ms=[-1]))
        batch = batch_at(1, timestamps_ms=[-1])
        assert not roll_needed(log, batch, now_ms=NOW_MS + HOUR_MS)
        assert roll_needed(log, batch, now_ms=NOW_MS + HOUR_MS + 1)

    def test_age_is_remembered_over_a_restart(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_ms=HOUR_MS, index_interval_bytes=0)
        log = partition.open_log()
        append_records(log, 5)
        partition.stop(log)
        log = partition.open_log(clean=True)
        assert roll_needed(log, batch_at(5, timestamps_ms=[NOW_MS + HOUR_MS + 1]))

    def test_offset_too_far_for_an_index_entry_rolls(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_batch(log, batch_at(0))
        assert not roll_needed(log, batch_at(2**31 - 1))
        assert roll_needed(log, batch_at(2**31))

    def test_full_index_rolls(self, partition: LogFolder) -> None:
        partition.config = log_config(index_interval_bytes=0, segment_index_bytes=80)
        log = partition.open_log()
        append_records(log, 100)
        assert len(log.segments) > 5
        assert all(len(data) <= 80 for name, data in partition.files().items() if "index" in name)
        assert offsets_of(log) == list(range(100))

    def test_rolling_an_empty_segment_does_nothing(self, partition: LogFolder) -> None:
        log = partition.open_log()
        log.roll(producers=(), now_ms=NOW_MS)
        assert len(log.segments) == 1

    def test_new_settings_apply_to_the_next_batch(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_records(log, 3)
        log.reconfigure(log_config(segment_bytes=100))
        assert roll_needed(log, batch_at(3))

    def test_reader_keeps_the_segments_it_saw(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_records(log, 3)
        seen = log.segments
        log.roll(producers=(), now_ms=NOW_MS)
        assert len(seen) == 1
        assert len(log.segments) == 2

    def test_jitter_takes_something_off_the_age(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_ms=HOUR_MS)
        object.__setattr__(partition.config, "segment_jitter_ms", HOUR_MS)
        log = partition.open_log()
        append_batch(log, batch_at(0))
        ages = [age for age in range(0, HOUR_MS, 1000) if roll_needed(log, _aged(age))]
        assert 0 < len(ages) <= HOUR_MS // 1000


def _aged(age_ms: int) -> bytearray:
    return batch_at(1, timestamps_ms=[NOW_MS + age_ms])


class TestFlushing:
    def test_recovery_point_moves_to_what_is_durable(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=300)
        log = partition.open_log()
        append_records(log, 10)
        assert log.recovery_point == 0
        assert log.flush(up_to=Offset(7)) == 7
        assert log.recovery_point == 7

    def test_recovery_point_never_moves_back(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_records(log, 10)
        log.flush(up_to=Offset(10))
        assert log.flush(up_to=Offset(3)) == 10

    def test_log_is_flushed_before_the_recovery_point_moves(
        self, fragile: LogFolder, faulty: FaultyDisk
    ) -> None:
        log = fragile.open_log()
        append_records(log, 3)
        faulty.arm("flush", "*.log", StorageError)
        with pytest.raises(StorageError):
            log.flush(up_to=Offset(3))
        assert log.recovery_point == 0

    def test_segments_before_the_active_one_can_be_flushed_alone(
        self, fragile: LogFolder, faulty: FaultyDisk
    ) -> None:
        log = fragile.open_log()
        append_records(log, 3)
        log.roll(producers=(), now_ms=NOW_MS)
        append_records(log, 2)
        faulty.arm("flush", f"{3:020d}.log", StorageError)
        assert log.flush(up_to=log.active_base_offset) == 3

    def test_flushed_segment_is_not_flushed_again(
        self, fragile: LogFolder, faulty: FaultyDisk
    ) -> None:
        log = fragile.open_log()
        append_records(log, 3)
        log.roll(producers=(), now_ms=NOW_MS)
        append_records(log, 2)
        log.flush(up_to=Offset(5))
        faulty.arm("flush", f"{0:020d}.*", StorageError)
        append_records(log, 2)
        assert log.flush(up_to=Offset(7)) == 7


class TestWriting:
    """The system is asked to write what has gathered, before it does so all at once (T4)."""

    @pytest.fixture(autouse=True)
    def two_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tidelog.storage.log.WRITING_BYTES", 2 * len(batch_at(0)))

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
        asked: list[tuple[str, int, int]] = []

        def note(file: MemoryLogFile, position: int, size_bytes: int) -> None:
            asked.append((file.path.name, position, size_bytes))

        monkeypatch.setattr(MemoryLogFile, "start_writing", note)
        return asked

    def test_it_is_due_when_enough_has_gathered(
        self, fragile: LogFolder, asked: list[tuple[str, int, int]]
    ) -> None:
        log, size_bytes = fragile.open_log(), len(batch_at(0))
        due = []
        for offset in range(5):
            append_batch(log, batch_at(offset))
            due.append(log.is_writing_due)
            if log.is_writing_due:
                log.start_writing()()
        assert due == [False, True, False, True, False]
        name = f"{0:020d}.log"
        assert asked == [(name, 0, 2 * size_bytes), (name, 2 * size_bytes, 2 * size_bytes)]

    def test_a_new_segment_begins_anew(self, fragile: LogFolder) -> None:
        log = fragile.open_log()
        append_batch(log, batch_at(0))
        log.roll(producers=(), now_ms=NOW_MS)
        append_batch(log, batch_at(1))
        assert not log.is_writing_due
        append_batch(log, batch_at(2))
        assert log.is_writing_due

    def test_what_was_there_at_opening_or_cut_off_does_not_count(
        self, fragile: LogFolder, asked: list[tuple[str, int, int]]
    ) -> None:
        size_bytes = len(batch_at(0))
        log = fragile.open_log()
        for offset in range(4):
            append_batch(log, batch_at(offset))
        log.close(clean=True, producers=())
        log = fragile.open_log()
        log.truncate_to(Offset(1))
        for offset in (1, 2):
            append_batch(log, batch_at(offset))
        assert log.is_writing_due
        log.start_writing()()
        assert asked == [(f"{0:020d}.log", size_bytes, 2 * size_bytes)]


class TestFullDisk:
    """Nothing is half done, and it goes on when there is room again."""

    def test_append_leaves_the_log_as_it_was(self, fragile: LogFolder, faulty: FaultyDisk) -> None:
        log = fragile.open_log()
        append_records(log, 3)
        before = fragile.log_bytes()
        faulty.arm("append", "*.log", DiskFull)
        with pytest.raises(DiskFull):
            append_batch(log, batch_at(3))
        assert (log.log_end_offset, fragile.log_bytes()) == (3, before)
        assert offsets_of(log) == [0, 1, 2]

        faulty.heal()
        append_batch(log, batch_at(3))
        assert offsets_of(log) == [0, 1, 2, 3]

    def test_append_that_has_no_room_for_index_entries_is_not_made(
        self, fragile: LogFolder, faulty: FaultyDisk
    ) -> None:
        log = fragile.open_log()
        faulty.arm("append", "*.index", DiskFull)
        with pytest.raises(DiskFull):
            append_records(log, 2_000)
        end_offset = log.log_end_offset
        assert 0 < end_offset < 2_000
        assert offsets_of(log) == list(range(end_offset))

        faulty.heal()
        append_records(log, 100)
        fragile.crash(log)
        before = fragile.files()
        fragile.crash(fragile.open_log())
        assert fragile.files()[f"{0:020d}.log"] == before[f"{0:020d}.log"]

    @pytest.mark.parametrize(
        ("operation", "pattern"),
        [
            ("append", "*.index"),
            ("append", "*.timeindex"),
            ("append", "*.snapshot"),
            ("open", f"{3:020d}.snapshot"),
            ("open", f"{3:020d}.index"),
            ("open", f"{3:020d}.timeindex"),
            ("open", f"{3:020d}.log"),
        ],
    )
    def test_roll_that_fails_can_be_tried_again(
        self, fragile: LogFolder, faulty: FaultyDisk, operation: str, pattern: str
    ) -> None:
        log = fragile.open_log()
        append_records(log, 3)
        faulty.arm(operation, pattern, DiskFull)
        with pytest.raises(DiskFull):
            log.roll(producers=(), now_ms=NOW_MS)
        assert len(log.segments) == 1
        append_batch(log, batch_at(3))
        assert offsets_of(log) == [0, 1, 2, 3]

        faulty.heal()
        log.roll(producers=(), now_ms=NOW_MS)
        append_batch(log, batch_at(4))
        assert offsets_of(log) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize("pattern", ["*.index", "*.snapshot", f"{3:020d}.log"])
    def test_crash_after_a_roll_that_failed_loses_nothing(
        self, fragile: LogFolder, faulty: FaultyDisk, pattern: str
    ) -> None:
        log = fragile.open_log()
        append_records(log, 3)
        faulty.arm("open", pattern, DiskFull)
        with pytest.raises(DiskFull):
            log.roll(producers=(), now_ms=NOW_MS)
        append_batch(log, batch_at(3))
        faulty.heal()
        fragile.crash(log)
        assert offsets_of(fragile.open_log(recovery_point=Offset(0))) == [0, 1, 2, 3]


class TestBrokenDisk:
    def test_failed_read_names_the_file(self, fragile: LogFolder, faulty: FaultyDisk) -> None:
        log = fragile.open_log()
        append_records(log, 3)
        faulty.arm("read", "*.log", StorageError)
        with pytest.raises(StorageError, match=r"00000000000000000000\.log"):
            offsets_of(log)

    def test_failed_append_is_not_called_a_full_disk(
        self, fragile: LogFolder, faulty: FaultyDisk
    ) -> None:
        log = fragile.open_log()
        faulty.arm("append", "*.log", StorageError)
        with pytest.raises(StorageError) as raised:
            append_records(log, 1)
        assert not isinstance(raised.value, DiskFull)
        assert log.log_end_offset == 0


class TestClosing:
    def test_clean_stop_needs_no_scan(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=1000, index_interval_bytes=100)
        log = partition.open_log()
        append_records(log, 50)
        partition.stop(log)
        opened = partition.open(clean=True)
        assert opened.scanned_bytes == 0
        assert opened.log.log_end_offset == 50
        assert opened.log.recovery_point == 50
        assert partition.warnings == []

    def test_idle_log_writes_nothing_when_it_stops(
        self, fragile: LogFolder, faulty: FaultyDisk
    ) -> None:
        log = fragile.open_log()
        append_records(log, 5)
        fragile.stop(log)
        before = fragile.files()
        log = fragile.open_log(clean=True)
        for operation in ("append", "flush", "flush_folder", "truncate", "replace_file"):
            faulty.arm(operation, "*", StorageError)
        log.close(clean=True, producers=())
        assert fragile.files() == before

    def test_stopped_and_started_log_is_appended_to(self, partition: LogFolder) -> None:
        partition.config = log_config(index_interval_bytes=150)
        log = partition.open_log()
        for _ in range(4):
            append_records(log, 5)
            partition.stop(log)
            log = partition.open_log(clean=True)
        assert offsets_of(log) == list(range(20))

    def test_indexes_do_not_depend_on_restarts(
        self, partition: LogFolder, real_partition: LogFolder
    ) -> None:
        config = log_config(index_interval_bytes=300)
        partition.config = real_partition.config = config
        log = partition.open_log()
        append_records(log, 40)
        partition.stop(log)
        log = real_partition.open_log()
        for _ in range(8):
            append_records(log, 5)
            real_partition.stop(log)
            log = real_partition.open_log(clean=True)
        for name in (f"{0:020d}.log", f"{0:020d}.index"):
            assert real_partition.files()[name] == partition.files()[name]

    def test_reader_that_comes_too_late_is_told_the_partition_is_gone(
        self, fragile: LogFolder, faulty: FaultyDisk
    ) -> None:
        log = fragile.open_log()
        append_records(log, 3)
        log.close(clean=False, producers=())
        faulty.remove_folder(fragile.folder)
        with pytest.raises(RequestRefused) as refused:
            offsets_of(log)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_work_that_comes_after_the_end_of_a_log_does_nothing(partition: LogFolder) -> None:
    """It was handed to a thread before the topic was deleted."""
    partition.config = log_config(segment_bytes=300, retention_ms=0)
    log = partition.open_log()
    append_records(log, 10)
    log.close(clean=False, producers=())
    partition.disk.remove_folder(partition.folder)
    log.roll(producers=(), now_ms=NOW_MS)
    log.note_leader_epochs((), are_written=False)
    log.write_leader_epochs()
    log.truncate_to(Offset(5))
    assert log.flush(up_to=Offset(10)) == 0
    assert log.expired_segments(high_watermark=Offset(10), now_ms=NOW_MS + 1) == ()
    assert log.remove_detached(log.segments[:1]) == ()
    assert not partition.disk.exists(partition.folder)


def test_leader_epochs_are_written_and_read(partition: LogFolder) -> None:
    log = partition.open_log()
    append_records(log, 5)
    epochs = ((LeaderEpoch(0), Offset(0)), (LeaderEpoch(3), Offset(2)))
    log.note_leader_epochs(epochs, are_written=False)
    log.close(clean=True, producers=())
    assert partition.open(clean=True).leader_epochs == epochs


def test_leader_epochs_are_on_disk_before_recovery_stops_looking_for_them(
    partition: LogFolder,
) -> None:
    log = partition.open_log()
    append_records(log, 5)
    epochs = ((LeaderEpoch(0), Offset(0)), (LeaderEpoch(3), Offset(2)))
    log.note_leader_epochs(epochs, are_written=False)
    path = partition.folder / layout.LEADER_EPOCH_CHECKPOINT
    assert not partition.disk.exists(path)
    log.flush(up_to=Offset(5))
    assert read_leader_epochs(partition.disk, path) == list(epochs)
