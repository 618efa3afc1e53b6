"""Replicas as a thread opens them: what their files say must fit together."""

from pathlib import Path
from uuid import UUID

from tests.support.batches import plain_batch
from tidelog.base.ids import BrokerId, Offset, TopicId, TopicPartition
from tidelog.broker.replica_logs import OpenedReplica, WantedReplica, open_replica
from tidelog.config.topic import TopicConfig
from tidelog.storage.log_dir import LogDir, open_log_dir
from tidelog.storage.memory_disk import MemoryDisk

PARTITION = TopicPartition("a", 0)


def opened(disk: MemoryDisk, *, is_new: bool) -> tuple[LogDir, OpenedReplica]:
    log_dir = open_log_dir(
        disk,
        Path("/data"),
        broker_id=BrokerId(1),
        cluster_id="cluster",
        open_files_max=10,
        warn=lambda _: None,
    )
    wanted = WantedReplica(PARTITION, TopicId(UUID(int=1)), TopicConfig())
    replica = open_replica(log_dir, wanted, is_new=is_new, producer_id_expiration_ms=1, now_ms=0)
    return log_dir, replica


def test_a_high_watermark_is_never_above_the_end_of_its_log() -> None:
    """A power cut took the end of the log, and left the checkpoint that was flushed after it."""
    disk = MemoryDisk(total_bytes=2**30, now_ms=0)
    log_dir, replica = opened(disk, is_new=True)
    replica.log.append(
        plain_batch(3), base_offset=Offset(0), last_offset=Offset(2), max_timestamp_ms=0
    )
    log_dir.write_high_watermarks({PARTITION: Offset(7)})
    replica.log.close(clean=False, producers=())
    log_dir.close(clean=False)
    _, replica = opened(disk, is_new=False)
    assert replica.log.log_end_offset == 3
    assert replica.high_watermark == 3
    assert replica.has_lost_records


def test_a_log_that_ends_where_all_is_committed_has_lost_nothing() -> None:
    disk = MemoryDisk(total_bytes=2**30, now_ms=0)
    log_dir, replica = opened(disk, is_new=True)
    replica.log.append(
        plain_batch(3), base_offset=Offset(0), last_offset=Offset(2), max_timestamp_ms=0
    )
    log_dir.write_high_watermarks({PARTITION: Offset(3)})
    replica.log.close(clean=False, producers=())
    log_dir.close(clean=False)
    _, replica = opened(disk, is_new=False)
    assert not replica.has_lost_records


def test_a_new_log_has_lost_nothing_that_another_of_its_name_had() -> None:
    disk = MemoryDisk(total_bytes=2**30, now_ms=0)
    log_dir, replica = opened(disk, is_new=True)
    replica.log.close(clean=False, producers=())
    log_dir.write_high_watermarks({PARTITION: Offset(7)})
    log_dir.close(clean=False)
    _, replica = opened(disk, is_new=True)
    assert not replica.has_lost_records
