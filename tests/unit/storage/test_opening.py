"""Opening a partition's folder: what is swept, restored, rebuilt and refused (S6, S7, D2)."""

from uuid import UUID

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
from tidelog.base.ids import Offset, ProducerEpoch, ProducerId, TopicId
from tidelog.records.producer import ProducedBatch, ProducerEntry
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.opening import Replay, replay_producers

TOPIC_ID = TopicId(UUID("57ecf01e-117d-4804-b543-264f42d5e378"))
LOG = "00000000000000000000.log"
EPOCHS = "leader-epoch-checkpoint"


def producer(producer_id: int, last_offset: int) -> ProducerEntry:
    batch = ProducedBatch(
        last_offset, last_offset, Offset(last_offset), Offset(last_offset), NOW_MS
    )
    return ProducerEntry(ProducerId(producer_id), ProducerEpoch(0), -1, NOW_MS, None, (batch,))


def append_produced(partition: LogFolder, count: int) -> list[ProducerEntry]:
    """Idempotent batches in several segments, and the producer's state at each roll."""
    log = partition.open_log()
    for offset in range(count):
        batch = batch_at(offset, producer_id=7, producer_epoch=0, base_sequence=offset)
        append_batch(log, batch, producers=[producer(7, offset - 1)])
    partition.crash(log)
    return [producer(7, count - 1)]


class TestProducers:
    def test_clean_stop_restores_them_from_the_snapshot_alone(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_records(log, 5)
        log.close(clean=True, producers=[producer(7, 4)])
        partition.open(clean=True)
        assert partition.restored == [producer(7, 4)]
        assert partition.replayed == []

    def test_crash_restores_the_last_snapshot_and_replays_what_follows(
        self, partition: LogFolder
    ) -> None:
        partition.config = log_config(segment_bytes=500)
        append_produced(partition, 20)
        log = partition.open_log()
        active = log.active_base_offset
        assert partition.restored == [producer(7, active - 1)]
        assert [header.base_offset for header in partition.replayed] == list(range(active, 20))

    def test_damaged_snapshot_is_replaced_by_an_older_one(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=500)
        append_produced(partition, 20)
        newest = max(name for name in partition.files() if name.endswith(".snapshot"))
        partition.write(newest, partition.files()[newest][:-1])
        log = partition.open_log()
        older = log.segments[-2].base_offset
        assert partition.restored == [producer(7, older - 1)]
        assert [header.base_offset for header in partition.replayed] == list(range(older, 20))
        assert newest in partition.warnings[0]
        assert newest not in partition.files()

    def test_without_a_snapshot_everything_is_replayed(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=500)
        append_produced(partition, 20)
        for name in partition.files():
            if name.endswith(".snapshot"):
                partition.disk.remove(partition.folder / name)
        partition.open()
        assert partition.restored == []
        assert [header.base_offset for header in partition.replayed] == list(range(20))

    def test_snapshot_beyond_the_end_is_removed(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_records(log, 5)
        log.close(clean=True, producers=[producer(7, 4)])
        partition.write(LOG, partition.log_bytes()[:-1])
        partition.open()
        assert partition.restored == []
        assert not [name for name in partition.files() if name.endswith(".snapshot")]

    def test_snapshots_that_nobody_needs_are_removed(self, partition: LogFolder) -> None:
        log = partition.open_log()
        for _ in range(4):
            append_records(log, 3)
            partition.stop(log)
            log = partition.open_log(clean=True)
        snapshots = [name for name in partition.files() if name.endswith(".snapshot")]
        assert snapshots == [f"{12:020d}.snapshot"]

    def test_they_are_rebuilt_after_a_truncation(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=500)
        append_produced(partition, 20)
        log = partition.open_log()
        target = log.segments[-2].base_offset + 2
        log.truncate_to(Offset(target))
        restored: list[ProducerEntry] = []
        replayed: list[int] = []
        replay = Replay(
            restore=lambda entries, _: restored.extend(entries),
            observe=lambda header, _end: replayed.append(header.base_offset),
        )
        replay_producers(log, partition.disk, replay, partition.warnings.append)
        assert restored == [producer(7, target - 3)]
        assert replayed == [target - 2, target - 1]


class TestTopicId:
    def test_it_is_written_and_found_again(self, partition: LogFolder) -> None:
        partition.topic_id = TOPIC_ID
        assert partition.open_log().topic_id == TOPIC_ID
        partition.topic_id = None
        assert partition.open_log().topic_id == TOPIC_ID

    def test_that_of_another_topic_is_refused(self, partition: LogFolder) -> None:
        partition.topic_id = TOPIC_ID
        partition.open_log()
        partition.topic_id = TopicId(UUID(int=5))
        with pytest.raises(StorageError, match=r"partition\.metadata"):
            partition.open_log()

    @pytest.mark.parametrize("left", [b"", b"version: 0\ntopic", b"version: 0\n" + bytes(32)])
    def test_file_that_a_crash_left_in_pieces_is_written_again(
        self, partition: LogFolder, left: bytes
    ) -> None:
        partition.topic_id = TOPIC_ID
        partition.open_log()
        partition.write("partition.metadata", left)
        assert partition.open_log().topic_id == TOPIC_ID
        partition.topic_id = None
        assert partition.open_log().topic_id == TOPIC_ID


class TestLeaderEpochs:
    @pytest.fixture(autouse=True)
    def epochs_in_the_log(self, partition: LogFolder) -> None:
        log = partition.open_log()
        for offset, epoch in enumerate((0, 0, 1, 4)):
            append_batch(log, batch_at(offset, leader_epoch=epoch))
        log.close(clean=True, producers=())

    def test_those_of_the_checkpoint_are_believed(self, partition: LogFolder) -> None:
        partition.write(EPOCHS, b"0\n3\n0 0\n1 2\n4 3\n")
        assert partition.open(clean=True).leader_epochs == ((0, 0), (1, 2), (4, 3))

    def test_lost_checkpoint_is_read_from_the_log(self, partition: LogFolder) -> None:
        assert partition.open(clean=True).leader_epochs == ((0, 0), (1, 2), (4, 3))

    @pytest.mark.parametrize(
        "damage", [b"\xff", b"1\n0\n", b"0\n5\n0 0\n", b"0\n1\nx 0\n", b"0\n2\n4 0\n1 2\n"]
    )
    def test_damaged_checkpoint_is_reported_and_read_from_the_log(
        self, partition: LogFolder, damage: bytes
    ) -> None:
        partition.write(EPOCHS, damage)
        assert partition.open(clean=True).leader_epochs == ((0, 0), (1, 2), (4, 3))
        assert EPOCHS in partition.warnings[0]

    @pytest.mark.parametrize("before_the_cut", [b"0\n3\n0 0\n1 2\n2 3\n", b"0\n2\n0 0\n3 1\n"])
    def test_what_recovery_sees_counts_more_than_the_checkpoint(
        self, partition: LogFolder, before_the_cut: bytes
    ) -> None:
        """The log was cut and written anew, and the process killed before the next flush."""
        partition.write(EPOCHS, before_the_cut)
        assert partition.open(clean=False).leader_epochs == ((0, 0), (1, 2), (4, 3))

    def test_those_below_the_recovery_point_are_kept_in_the_same_segment(
        self, partition: LogFolder
    ) -> None:
        """The index says where the recovery point is, and nothing before it is looked at."""
        partition.config = log_config(index_interval_bytes=1)
        log = partition.open_log(clean=True)
        for offset, epoch in ((4, 5), (5, 5), (6, 7), (7, 7)):
            append_batch(log, batch_at(offset, leader_epoch=epoch))
        log.close(clean=True, producers=())
        partition.write(EPOCHS, b"0\n3\n0 0\n3 2\n5 4\n")  # Another than the batches say.
        opened = partition.open(clean=False, recovery_point=Offset(6))
        assert opened.scanned_bytes < opened.log.size_bytes
        assert opened.leader_epochs == ((0, 0), (3, 2), (5, 4), (7, 6))

    def test_those_below_what_recovery_sees_are_kept(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=1)
        log = partition.open_log(clean=True)
        log.roll(producers=(), now_ms=NOW_MS)
        append_batch(log, batch_at(4, leader_epoch=7))
        log.flush(up_to=Offset(4))
        partition.crash(log)
        partition.write(EPOCHS, b"0\n3\n0 0\n3 2\n4 3\n")  # Another than the batches say.
        opened = partition.open(clean=False, recovery_point=Offset(5))
        assert opened.leader_epochs == ((0, 0), (3, 2), (4, 3), (7, 4))

    def test_those_beyond_the_end_are_dropped(self, partition: LogFolder) -> None:
        partition.write(EPOCHS, b"0\n4\n0 0\n1 2\n4 3\n9 4\n")
        assert partition.open(clean=True).leader_epochs == ((0, 0), (1, 2), (4, 3))

    @pytest.mark.parametrize(
        "left",
        [b"0\n1\n0 0\n", b"0\n4\n0 0\n1 2\n4 3\n9 4\n", b"\xff", None],
        ids=["too few", "too many", "damaged", "none"],
    )
    def test_what_was_found_is_written_down(self, partition: LogFolder, left: bytes | None) -> None:
        """The next start may believe the checkpoint, because nothing is scanned after a clean
        stop."""
        if left is not None:
            partition.write(EPOCHS, left)
        log = partition.open_log(recovery_point=Offset(0))
        log.close(clean=True, producers=())
        assert partition.files()[EPOCHS] == b"0\n3\n0 0\n1 2\n4 3\n"

    def test_what_is_right_is_not_written_again(self, partition: LogFolder) -> None:
        partition.write(EPOCHS, b"0\n3\n0 0\n1 2\n4 3\n")
        disk = FaultyDisk(partition.disk)
        disk.arm("replace_file", f"*{EPOCHS}", StorageError)
        partition.disk = disk
        log = partition.open_log(recovery_point=Offset(0))
        log.close(clean=True, producers=())


class TestCleanStopThatWasNot:
    """The mark is believed only as far as the files bear it out."""

    def test_torn_batch_is_cut_off(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_records(log, 5)
        partition.stop(log)
        partition.write(LOG, partition.log_bytes()[:-1])
        assert offsets_of(partition.open_log(clean=True)) == [0, 1, 2, 3]
        assert "not closed properly" in partition.warnings[0]

    @pytest.mark.parametrize(
        "damage", [b"\x01", b"\x00\x00\x00\x03\x00\x00\x00\x09", b"\xff" * 8, b"\x7f" * 8]
    )
    def test_index_that_does_not_fit_is_made_again(
        self, partition: LogFolder, damage: bytes
    ) -> None:
        partition.config = log_config(index_interval_bytes=100)
        log = partition.open_log()
        append_records(log, 20)
        partition.stop(log)
        intact = partition.files()
        partition.write("00000000000000000000.index", damage)
        assert offsets_of(partition.open_log(clean=True)) == list(range(20))
        assert (
            partition.files()["00000000000000000000.index"] == intact["00000000000000000000.index"]
        )

    def test_lost_index_of_an_old_segment_is_made_again(self, partition: LogFolder) -> None:
        partition.config = log_config(segment_bytes=1000, index_interval_bytes=100)
        log = partition.open_log()
        append_records(log, 40)
        partition.stop(log)
        intact = partition.files()
        for name in ("00000000000000000000.index", "00000000000000000000.timeindex"):
            partition.disk.remove(partition.folder / name)
        assert offsets_of(partition.open_log(clean=True)) == list(range(40))
        assert partition.files() == intact
        assert "lost an index" in partition.warnings[0]


class TestLeftovers:
    def test_files_that_were_being_removed_are_removed(self, partition: LogFolder) -> None:
        partition.open_log()
        for name in (
            "00000000000000000000.log.deleted",
            "00000000000000000000.snapshot.deleted",
            "00000000000000000000.index.cleaned",
            "leader-epoch-checkpoint.tmp",
            "00000000000000000000.index.3.tmp",
        ):
            partition.write(name, b"x")
        partition.open_log()
        assert sorted(partition.files()) == [
            f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")
        ]

    def test_index_without_a_log_is_removed(self, partition: LogFolder) -> None:
        partition.open_log()
        partition.write(f"{9:020d}.index", b"")
        partition.write(f"{9:020d}.timeindex", b"")
        partition.open_log()
        assert not [name for name in partition.files() if name.startswith(f"{9:020d}")]

    def test_files_of_others_are_left_alone(self, partition: LogFolder) -> None:
        partition.open_log()
        partition.write("README", b"hello")
        partition.open_log()
        assert partition.files()["README"] == b"hello"


class TestLogStart:
    def test_it_is_where_the_first_segment_begins(self, partition: LogFolder) -> None:
        log = partition.open_log()
        log.truncate_fully_and_start_at(Offset(50))
        append_records(log, 2)
        partition.crash(log)
        assert offsets_of(partition.open_log()) == [50, 51]

    def test_it_is_where_records_were_deleted(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_records(log, 5)
        partition.crash(log)
        assert offsets_of(partition.open(log_start_offset=3).log) == [3, 4]

    def test_log_that_ends_before_it_starts_afresh(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_records(log, 5)
        partition.crash(log)
        log = partition.open(log_start_offset=8).log
        assert (log.log_start_offset, log.log_end_offset) == (8, 8)
        assert "before the log start offset" in partition.warnings[0]
        append_batch(log, batch_at(8))
        partition.crash(log)
        assert offsets_of(partition.open(log_start_offset=8).log) == [8]

    def test_empty_folder_starts_there(self, partition: LogFolder) -> None:
        partition.disk.make_folder(partition.folder)
        log = partition.open(log_start_offset=8).log
        assert (log.log_start_offset, log.log_end_offset) == (8, 8)
