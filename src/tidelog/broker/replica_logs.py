"""Opening the logs of replicas, on a thread of their log directory.

A folder may belong to another topic of the same name: one that was deleted while the directory was
offline, or just before a crash. That is no failure of the disk. Such a folder is not opened, and
whoever asked has it set aside. So is every folder that is in the way of a new partition and does
not state the topic id of that: what is in it was written for somebody else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, TopicId, TopicPartition
from tidelog.config.topic import TopicConfig
from tidelog.core.partition.epochs import EpochHistory, EpochStart
from tidelog.core.transactions.producers import ProducerStates
from tidelog.storage.checkpoints import CorruptCheckpoint
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir
from tidelog.storage.opening import Replay

PRODUCERS_MAX_PER_PARTITION = 10_000


@dataclass(frozen=True, slots=True)
class WantedReplica:
    """A replica that should be on this broker."""

    topic_partition: TopicPartition
    topic_id: TopicId
    config: TopicConfig


@dataclass(frozen=True, slots=True, eq=False)
class OpenedReplica:
    """What a thread made of it."""

    wanted: WantedReplica
    log: Log
    epochs: EpochHistory
    producers: ProducerStates
    high_watermark: Offset
    has_lost_records: bool
    """Whether the log ends before what is known to have been committed."""


@dataclass(frozen=True, slots=True)
class OpenedReplicas:
    """What a thread made of several."""

    opened: Sequence[OpenedReplica]
    foreign: Sequence[WantedReplica]
    """Their folders belong to other topics."""


def open_replicas(
    log_dir: LogDir,
    wanted: Sequence[WantedReplica],
    *,
    are_new: bool,
    producer_id_expiration_ms: int,
    now_ms: int,
) -> OpenedReplicas:
    """Open or create the log of each. Blocks; raises StorageError."""
    opened: list[OpenedReplica] = []
    foreign: list[WantedReplica] = []
    for one in wanted:
        if are_new and _is_in_the_way(log_dir, one):
            foreign.append(one)
            continue
        try:
            opened.append(
                open_replica(
                    log_dir,
                    one,
                    is_new=are_new,
                    producer_id_expiration_ms=producer_id_expiration_ms,
                    now_ms=now_ms,
                )
            )
        except StorageError:
            if log_dir.topic_id(one.topic_partition) in (None, one.topic_id):
                raise
            foreign.append(one)
    return OpenedReplicas(opened, foreign)


def left_in(log_dir: LogDir, wanted: Sequence[WantedReplica]) -> list[TopicPartition]:
    """Those that have a folder there already, though they are new to the broker: of the same topic,
    from when they were this broker's before. Blocks; raises StorageError."""
    return [
        one.topic_partition
        for one in wanted
        if log_dir.has_folder(one.topic_partition) and not _is_in_the_way(log_dir, one)
    ]


def _is_in_the_way(log_dir: LogDir, wanted: WantedReplica) -> bool:
    if not log_dir.has_folder(wanted.topic_partition):
        return False
    if log_dir.is_moved(wanted.topic_partition):
        return True
    try:
        return log_dir.topic_id(wanted.topic_partition) != wanted.topic_id
    except CorruptCheckpoint:
        return True


def open_replica(
    log_dir: LogDir,
    wanted: WantedReplica,
    *,
    is_new: bool,
    producer_id_expiration_ms: int,
    now_ms: int,
) -> OpenedReplica:
    """Open or create one log. Blocks; raises StorageError."""
    producers = ProducerStates(
        producer_id_expiration_ms=producer_id_expiration_ms,
        producers_max=PRODUCERS_MAX_PER_PARTITION,
    )
    opened = log_dir.open_partition(
        wanted.topic_partition,
        topic_id=wanted.topic_id,
        config=wanted.config,
        replay=Replay(
            restore=lambda entries, end_offset: producers.restore(entries, end_offset=end_offset),
            observe=producers.on_replayed,
        ),
        now_ms=now_ms,
    )
    log = opened.log
    if log.log_end_offset - log.recovery_point >= wanted.config.flush_messages:
        # Recovery found what was written and never flushed. Its producers send it again and are
        # told that it is there, which by `flush.messages` means on stable storage.
        log.flush(up_to=log.log_end_offset)
    committed = log_dir.high_watermark(wanted.topic_partition)
    return OpenedReplica(
        wanted,
        log,
        EpochHistory(EpochStart(*entry) for entry in opened.leader_epochs),
        producers,
        # A power cut may have taken the end of the log and left the checkpoint. What comes in its
        # place is not committed because of what was there before.
        min(committed, log.log_end_offset),
        # Where there was no folder, the checkpoint is about another topic of that name.
        has_lost_records=committed > log.log_end_offset and not is_new,
    )
