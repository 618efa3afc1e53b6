"""A log dir: whose it is, what it remembers, what it sweeps (S1, S7)."""

import json
from pathlib import Path
from random import Random
from uuid import UUID
from weakref import WeakSet

import pytest

from tests.unit.storage.log_folder import (
    NOW_MS,
    append_batch,
    append_records,
    batch_at,
    log_config,
    offsets_of,
    read_all,
)
from tidelog.base.errors import ConfigError, StorageError
from tidelog.base.ids import BrokerId, Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.log_dir import LogDir, open_log_dir
from tidelog.storage.memory_disk import MemoryDisk, MemoryLogFile
from tidelog.storage.opening import OpenedLog, Replay

PATH = Path("/logs")
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = TopicId(UUID(int=7))


class Opener:
    """Opens the same log dir again and again and keeps what it was warned of."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.warnings: list[str] = []

    def __call__(self, *, broker_id: int = 1, cluster_id: str = "cluster") -> LogDir:
        return open_log_dir(
            self.disk,
            PATH,
            broker_id=BrokerId(broker_id),
            cluster_id=cluster_id,
            open_files_max=16,
            warn=self.warnings.append,
        )

    def files(self) -> list[str]:
        return list(self.disk.list_folder(PATH))


@pytest.fixture
def opener(memory_disk: MemoryDisk) -> Opener:
    return Opener(memory_disk)


def open_partition(log_dir: LogDir, topic_partition: TopicPartition = ORDERS) -> OpenedLog:
    return log_dir.open_partition(
        topic_partition,
        topic_id=TOPIC_ID,
        config=log_config(),
        replay=Replay(restore=lambda *_: None, observe=lambda *_: None),
        now_ms=NOW_MS,
    )


def test_new_dir_gets_an_identity(opener: Opener) -> None:
    log_dir = opener()
    directory_id = log_dir.directory_id
    log_dir.close(clean=False)
    assert opener().directory_id == directory_id
    assert b"node.id=1\n" in opener.disk.read_file(PATH / "meta.properties")


def test_dir_of_another_broker_is_refused(opener: Opener) -> None:
    opener().close(clean=True)
    with pytest.raises(ConfigError, match=r"meta\.properties.*broker 1.*node\.id is 2"):
        opener(broker_id=2)


def test_dir_of_another_cluster_is_refused(opener: Opener) -> None:
    opener().close(clean=True)
    with pytest.raises(ConfigError, match=r"meta\.properties.*cluster"):
        opener(cluster_id="other")


def test_refused_dir_stays_clean(opener: Opener) -> None:
    opener().close(clean=True)
    with pytest.raises(ConfigError):
        opener(broker_id=2)
    assert opener().was_clean


def test_dir_in_use_is_refused(opener: Opener) -> None:
    log_dir = opener()
    with pytest.raises(StorageError, match=r"\.lock"):
        opener()
    log_dir.close(clean=False)
    opener()


def test_clean_mark_is_there_after_a_clean_stop_only(opener: Opener) -> None:
    log_dir = opener()
    assert not log_dir.was_clean
    assert ".kafka_cleanshutdown" not in opener.files()
    log_dir.close(clean=True)
    assert json.loads(opener.disk.read_file(PATH / ".kafka_cleanshutdown"))["version"] == 0
    log_dir = opener()
    assert log_dir.was_clean
    log_dir.close(clean=False)
    assert not opener().was_clean


@pytest.mark.parametrize("seed", range(20))
def test_clean_mark_does_not_outlive_a_power_cut(
    opener: Opener, memory_disk: MemoryDisk, seed: int
) -> None:
    """Else the records appended since would be taken for complete."""
    opener().close(clean=True)
    log_dir = opener()
    log = open_partition(log_dir).log
    append_records(log, 3)
    memory_disk.crash(Random(seed))
    assert not opener().was_clean


def test_partitions_are_found(opener: Opener) -> None:
    log_dir = opener()
    for name in ("b-1", "a-10", "a-2", "with-dash-0", "__cluster_metadata-0"):
        opener.disk.make_folder(PATH / name)
    assert [str(partition) for partition in log_dir.partitions()] == [
        "a-2",
        "a-10",
        "b-1",
        "with-dash-0",
    ]


def test_clean_stop_is_passed_on_to_partitions(opener: Opener) -> None:
    log_dir = opener()
    log = open_partition(log_dir).log
    append_records(log, 5)
    log.close(clean=True, producers=())
    log_dir.write_recovery_points({ORDERS: log.recovery_point})
    log_dir.close(clean=True)
    opened = open_partition(opener())
    assert opened.scanned_bytes == 0
    assert opened.log.log_end_offset == 5


def test_recovery_starts_from_the_checkpoint(opener: Opener) -> None:
    log_dir = opener()
    log = open_partition(log_dir).log
    append_records(log, 5)
    log.flush(up_to=Offset(5))
    log.roll(producers=(), now_ms=NOW_MS)
    append_records(log, 1)
    log_dir.write_recovery_points({ORDERS: Offset(6)})
    log_dir.close(clean=False)
    opened = open_partition(opener())
    assert 0 < opened.scanned_bytes < opened.log.size_bytes


def test_checkpoints_are_read_again(opener: Opener) -> None:
    log_dir = opener()
    log = open_partition(log_dir).log
    append_records(log, 5)
    log_dir.write_log_start_offsets({ORDERS: Offset(2)})
    log_dir.write_high_watermarks({ORDERS: Offset(4)})
    log_dir.close(clean=False)
    log_dir = opener()
    assert offsets_of(open_partition(log_dir).log) == [2, 3, 4]
    assert log_dir.high_watermark(ORDERS) == 4
    assert log_dir.high_watermark(TopicPartition("other", 0)) == 0


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
@pytest.mark.parametrize("damage", [b"\xff", b"0\n9\n", b"9\n0\n", b"0\n1\norders 0 x\n"])
def test_damaged_checkpoint_is_reported_and_done_without(
    opener: Opener, name: str, damage: bytes
) -> None:
    log_dir = opener()
    log = open_partition(log_dir).log
    append_records(log, 5)
    log_dir.write_recovery_points({ORDERS: log.flush(up_to=Offset(5))})
    log_dir.close(clean=False)
    opener.disk.replace_file(PATH / name, damage)
    log_dir = opener()
    assert [warning for warning in opener.warnings if name in warning]
    opened = open_partition(log_dir)
    assert offsets_of(opened.log) == [0, 1, 2, 3, 4]
    if name.startswith("recovery"):
        assert opened.scanned_bytes == opened.log.size_bytes


def test_topic_id_is_told_before_the_partition_is_opened(opener: Opener) -> None:
    log_dir = opener()
    assert log_dir.topic_id(ORDERS) is None
    open_partition(log_dir)
    assert log_dir.topic_id(ORDERS) == TOPIC_ID


def test_deleted_partition_is_renamed_then_removed(opener: Opener) -> None:
    log_dir = opener()
    log = open_partition(log_dir).log
    append_records(log, 5)
    folder = log_dir.start_delete(log)
    assert folder.name.startswith("orders-0.")
    assert folder.name.endswith("-delete")
    assert log_dir.partitions() == ()
    assert opener.disk.exists(folder)
    log_dir.finish_delete(folder)
    assert not opener.disk.exists(folder)


def test_deleted_partitions_stay_deleted_after_a_power_cut(memory_disk: MemoryDisk) -> None:
    """However many there are, their folder is flushed once."""
    faulty = FaultyDisk(memory_disk)
    opener = Opener(faulty)
    log_dir = opener()
    partitions = [TopicPartition("orders", number) for number in range(5)]
    logs = [open_partition(log_dir, partition).log for partition in partitions]
    for log in logs:
        log.flush(up_to=log.log_end_offset)
    faulty.arm("flush_folder", "*", StorageError, after=1)
    for log in logs:
        log_dir.start_delete(log)
    log_dir.forget_deleted()
    faulty.heal()
    memory_disk.crash(Random(1))
    assert opener().partitions() == ()


def test_interrupted_deletion_is_finished_at_the_next_start(opener: Opener) -> None:
    log_dir = opener()
    folder = log_dir.start_delete(open_partition(log_dir).log)
    log_dir.close(clean=False)
    opener()
    assert not opener.disk.exists(folder)


def test_topic_created_again_does_not_inherit_offsets(opener: Opener) -> None:
    log_dir = opener()
    log_dir.write_log_start_offsets({ORDERS: Offset(9)})
    log_dir.write_high_watermarks({ORDERS: Offset(9)})
    log_dir.write_cleaner_offsets({ORDERS: Offset(9)})
    log_dir.close(clean=False)
    log_dir = opener()
    log_dir.start_delete(open_partition(log_dir).log)
    log = open_partition(log_dir).log
    assert (log.log_start_offset, log_dir.high_watermark(ORDERS)) == (0, 0)
    assert log_dir.cleaner_offset(ORDERS) is None


def test_cleaner_offsets_are_kafkas_file_and_read_again(opener: Opener) -> None:
    log_dir = opener()
    open_partition(log_dir)
    assert log_dir.cleaner_offset(ORDERS) is None
    log_dir.write_cleaner_offsets({ORDERS: Offset(4)})
    log_dir.close(clean=False)
    assert opener.disk.read_file(PATH / "cleaner-offset-checkpoint") == b"0\n1\norders 0 4\n"
    assert opener().cleaner_offset(ORDERS) == 4


def test_cleaner_offset_is_lowered_with_the_log_and_never_raised(opener: Opener) -> None:
    log_dir = opener()
    open_partition(log_dir)
    log_dir.lower_cleaner_offset(ORDERS, Offset(3))
    assert "cleaner-offset-checkpoint" not in opener.files()
    log_dir.write_cleaner_offsets({ORDERS: Offset(4)})
    log_dir.lower_cleaner_offset(ORDERS, Offset(9))
    assert log_dir.cleaner_offset(ORDERS) == 4
    log_dir.lower_cleaner_offset(ORDERS, Offset(2))
    log_dir.close(clean=False)
    assert opener().cleaner_offset(ORDERS) == 2


def test_log_that_was_compacted_once_may_have_gaps_for_ever(opener: Opener) -> None:
    """Also behind the recovery point, and when its topic is not compacted any more."""
    log_dir = opener()
    log = open_partition(log_dir).log
    log_dir.write_recovery_points({})
    append_batch(log, batch_at(0))
    append_batch(log, batch_at(5))
    log_dir.write_cleaner_offsets({ORDERS: Offset(0)})
    log_dir.close(clean=False)
    assert offsets_of(open_partition(opener()).log) == [0, 5]


def write_offsets_of_an_old_topic(log_dir: LogDir) -> None:
    """Far beyond what a new topic of that name holds."""
    open_partition(log_dir).log.close(clean=False, producers=())
    log_dir.write_recovery_points({ORDERS: Offset(9)})
    log_dir.write_log_start_offsets({ORDERS: Offset(9)})
    log_dir.write_high_watermarks({ORDERS: Offset(9)})


def test_topic_created_again_does_not_inherit_offsets_after_a_crash(opener: Opener) -> None:
    """It would be taken for a log that lost everything below its start, and emptied."""
    log_dir = opener()
    write_offsets_of_an_old_topic(log_dir)
    log_dir.start_delete_folder(ORDERS)
    log_dir.forget_deleted()
    append_records(open_partition(log_dir).log, 3)
    log_dir.close(clean=False)
    log_dir = opener()
    log = open_partition(log_dir).log
    assert (log.log_start_offset, log.log_end_offset, log_dir.high_watermark(ORDERS)) == (0, 3, 0)


def test_deletion_interrupted_before_the_checkpoints_leaves_no_offsets(opener: Opener) -> None:
    log_dir = opener()
    write_offsets_of_an_old_topic(log_dir)
    log_dir.start_delete_folder(ORDERS)
    log_dir.close(clean=False)
    log_dir = opener()
    append_records(open_partition(log_dir).log, 3)
    log_dir.close(clean=False)
    assert open_partition(opener()).log.log_end_offset == 3


def test_checkpoint_keeps_the_offsets_of_partitions_that_are_not_open_yet(opener: Opener) -> None:
    log_dir = opener()
    open_partition(log_dir)
    open_partition(log_dir, TopicPartition("open", 0))
    log_dir.write_log_start_offsets({ORDERS: Offset(9)})
    log_dir.write_recovery_points({ORDERS: Offset(9)})
    log_dir.write_high_watermarks({ORDERS: Offset(9)})
    log_dir.close(clean=False)
    log_dir = opener()
    log_dir.write_log_start_offsets({TopicPartition("open", 0): Offset(0)})
    log_dir.write_recovery_points({TopicPartition("open", 0): Offset(0)})
    log_dir.write_high_watermarks({TopicPartition("open", 0): Offset(0)})
    log_dir.close(clean=False)
    log_dir = opener()
    assert open_partition(log_dir).log.log_start_offset == 9
    assert log_dir.high_watermark(ORDERS) == 9


def test_folder_of_another_topic_is_set_aside_and_never_removed(opener: Opener) -> None:
    log_dir = opener()
    write_offsets_of_an_old_topic(log_dir)
    folder = log_dir.set_aside(ORDERS)
    assert folder.name.endswith("-stray")
    assert log_dir.partitions() == ()
    assert open_partition(log_dir).log.log_end_offset == 0
    log_dir.close(clean=False)
    opener()
    assert opener.disk.exists(folder)


def test_folder_nobody_opened_can_be_deleted(opener: Opener) -> None:
    log_dir = opener()
    open_partition(log_dir).log.close(clean=False, producers=())
    folder = log_dir.start_delete_folder(ORDERS)
    assert log_dir.partitions() == ()
    assert opener.disk.exists(folder)


def test_folder_that_is_no_partition_is_reported_and_left_alone(opener: Opener) -> None:
    opener().close(clean=False)
    opener.disk.make_folder(PATH / "orders-0.0123-future")
    opener()
    assert "orders-0.0123-future" in opener.warnings[0]
    assert "orders-0.0123-future" in opener.files()


def test_half_written_checkpoints_are_swept(opener: Opener) -> None:
    opener().close(clean=False)
    opener.disk.replace_file(PATH / "replication-offset-checkpoint.tmp", b"0\n")
    opener()
    assert opener.warnings == []
    assert not [name for name in opener.files() if name.endswith(".tmp")]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"version=1\n",
        b"version=1\nnode.id=1\n",
        b"version=7\nnode.id=1\ncluster.id=cluster\n",
        b"version=1\nnode.id=x\ncluster.id=cluster\n",
        b"\xff\xfe\x00",
    ],
)
def test_damaged_meta_properties_is_refused_by_name(opener: Opener, text: bytes) -> None:
    opener().close(clean=False)
    opener.disk.replace_file(PATH / "meta.properties", text)
    with pytest.raises(ConfigError, match=r"meta\.properties"):
        opener()


def test_meta_properties_of_version_0_is_read(opener: Opener) -> None:
    opener.disk.make_folder(PATH)
    opener.disk.replace_file(
        PATH / "meta.properties", b"#\nversion=0\nbroker.id=1\ncluster.id=cluster\n"
    )
    log_dir = opener()
    assert len(log_dir.directory_id) == 22


class RememberingDisk(MemoryDisk):
    """Knows which of the files that it opened are in use."""

    def __init__(self) -> None:
        super().__init__(total_bytes=2**30, now_ms=NOW_MS)
        self._opened: WeakSet[MemoryLogFile] = WeakSet()

    def open_existing(self, path: Path) -> MemoryLogFile:
        file = super().open_existing(path)
        self._opened.add(file)
        return file

    def open_logs(self) -> list[str]:
        return [file.path.name for file in self._opened if file.path.suffix == ".log"]


def test_dir_that_was_closed_keeps_no_file_open() -> None:
    """What was removed later kept its room on the disk for as long as the process ran."""
    disk = RememberingDisk()
    log_dir = Opener(disk)()
    log = open_partition(log_dir).log
    append_records(log, 3)
    log.roll(producers=(), now_ms=NOW_MS)
    log.flush(up_to=log.log_end_offset)
    log_dir.close(clean=False)
    log_dir = Opener(disk)()
    log = open_partition(log_dir).log
    assert read_all(log)
    assert len(disk.open_logs()) == 2
    log.close(clean=False, producers=())
    log_dir.close(clean=False)
    assert disk.open_logs() == []
