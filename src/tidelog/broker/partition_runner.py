"""One partition as this broker serves it: its log, its machines, and who waits for it.

The only caller of its machines, always on the event loop; no method awaits between reading a
machine and acting on it, so nothing here needs a lock.

Here is what is done with the log of any partition, whoever leads it: reading, and upkeep. What a
client appends is in `partition_appends.py`, the change of roles in `partition_roles.py`, what they
have in common in `served_partition.py`.
"""

import asyncio
import logging
from typing import NamedTuple

from tidelog.base.errors import DamagedLog, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_OFFSET, Offset, TopicId, TopicPartition
from tidelog.broker.append_queue import AppendQueue
from tidelog.broker.flushing import Flusher
from tidelog.broker.partition_ports import LogDirectory
from tidelog.broker.partition_retention import enforce_retention
from tidelog.broker.partition_roles import PartitionRoles
from tidelog.broker.served_partition import PartitionPorts
from tidelog.broker.waiters import OffsetFutures, OffsetWaiters
from tidelog.config.topic import TopicConfig
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.transactions.producers import ProducerStates
from tidelog.storage.log import Log, LogRead
from tidelog.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)


class DiskRead(NamedTuple):
    """What a thread read, and the transactions in it that a read_committed reader must skip."""

    read: LogRead
    aborted: tuple[AbortedTransaction, ...]


class PartitionRunner(PartitionRoles):
    """Appends, reads and looks after one partition."""

    __slots__ = ()

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        high_watermark: Offset,
        epochs: EpochHistory,
        producers: ProducerStates,
        config: TopicConfig,
        log_directory: LogDirectory,
        ports: PartitionPorts,
    ) -> None:
        """Neither leads nor follows, until it is told to."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.partition = topic_partition.partition
        self.log = log
        self.leader = None
        self.follower = None
        self._high_watermark = high_watermark
        self._is_in_sync = False
        self._next_role = None
        self._is_writing = False
        self._propose_isr = ports.propose_isr
        self._refuse_if_leading = ports.refuse_if_leading
        self._uncommitted_bytes = 0
        self.epochs = epochs
        self.producers = producers
        self.log_directory = log_directory
        self.is_offline = False
        self.is_rearranged = False
        self.has_unwritten_epoch = False
        self._hash_key = ports.hash_key
        self.deduplicator = None
        self._use(config)
        self._clock = ports.clock
        self._queue = AppendQueue(
            memory=ports.request_memory,
            clock=ports.clock,
            attempt=self._attempt_queued,
            start_roll=self._start_roll,
            on_rolled=self._on_rolled,
            on_free=self._on_queue_free,
            start_rewrite=self._start_rewrite,
            start_reading_ids=self._start_reading_ids,
            refused=self._refused,
        )
        self._waiters = OffsetWaiters()
        self._deletions = OffsetFutures()
        self._watchers = {}
        self._follower_watchers = {}
        self._reported_damage = None
        self.role_watcher = None
        self.marker_watcher = None
        self.move = None
        self._flusher = Flusher(log, log_directory.executor, log_directory.on_failure)

    # -- reading ---------------------------------------------------------------------------------

    def read_from_disk(
        self, offset: Offset, *, end_offset: Offset, max_bytes: int
    ) -> "asyncio.Future[DiskRead]":
        """Read through a thread what `log.read_cached` did not find in memory."""
        return self.log_directory.executor.urgent(
            _read, self.log, offset, end_offset=end_offset, max_bytes=max_bytes
        )

    def refuse_reader(self, error: StorageError, directory: LogDirectory) -> RequestRefused:
        """What to tell a reader whom the disk of `directory` failed, where the log was by then.

        Damaged records are refused to those who read them. Taking the directory offline would not
        mend them, and any consumer could do it to everybody, again and again.
        """
        if not isinstance(error, DamagedLog):
            directory.on_failure(error)
            return RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._reported_damage != str(error):  # Consumers ask again all the time.
            self._reported_damage = str(error)
            logger.error(
                "records are damaged",
                extra={"partition": self.topic_partition, "reason": self._reported_damage},
            )
        return RequestRefused(ErrorCode.CORRUPT_MESSAGE)

    # -- upkeep ----------------------------------------------------------------------------------

    def reconfigure(self, config: TopicConfig) -> None:
        """Apply new topic settings, from the next append on."""
        self._use(config)
        self.log.reconfigure(config)
        if self.leader is not None:
            self.leader.on_min_insync_replicas_changed(config.min_insync_replicas)

    async def delete_records(self, before_offset: Offset) -> Offset:
        """Hide what is below `before_offset` (-1: the high watermark); return what -1 stood for.

        Raises RequestRefused. Durable here on return: a crash must not bring deleted records back.
        Followers hear of it with their fetches; the low watermark says when they have done so too.
        """
        self._require_service()
        if before_offset == NO_OFFSET:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            raise RequestRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {before_offset} is not between 0 and the high watermark "
                f"{self.high_watermark}",
            )
        if before_offset > self.log.log_start_offset:
            self.log.advance_log_start(before_offset)
            self.on_log_start_advanced()
        # Also if somebody else deleted them: perhaps that is still on its way to the disk.
        directory = None
        while directory is not self.log_directory:  # It may be moved to another one meanwhile.
            directory = self.log_directory
            await directory.checkpoint_log_starts()
            if self.move is not None:
                await self.move.until_placed()
        self._require_service()
        return before_offset

    @property
    def low_watermark(self) -> Offset:
        """Below it no live replica holds records. Raises RequestRefused."""
        self._require_service()
        return self.leading.low_watermark

    def until_deleted(self, before_offset: Offset) -> "asyncio.Future[None]":
        """Done once the low watermark is `before_offset`, or this is not the place to ask."""
        deleted = self._deletions.add(before_offset)
        self._wake_deletions()
        return deleted

    async def enforce_retention(self, now_ms: int) -> int:
        """Remove the segments that `retention.ms` and `retention.bytes` no longer want."""
        return await enforce_retention(self, self._queue, now_ms=now_ms)


def _read(log: Log, offset: Offset, *, end_offset: Offset, max_bytes: int) -> DiskRead:
    read = log.read(offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=True)
    if not log.has_aborted:
        return DiskRead(read, ())
    return DiskRead(read, log.aborted_transactions(offset, end_offset=read.end_offset))
