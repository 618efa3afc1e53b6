"""One partition as this broker serves it: its log, its leader machine, and who waits for it.

The only caller of its machines, always on the event loop; no method awaits between reading a
machine and acting on it, so nothing here needs a lock.

Life of an append:

    append ──▶ validate ──▶ sequence known? ──yes──▶ answer with the first copy's offsets
                                 │ no
                                 ▼
                 segment full? ──yes──▶ queue a copy, roll on a thread, go on when it is done
                                 │ no
                                 ▼
        stamp offset and epoch in place ──▶ one write ──▶ high watermark ──▶ wake fetches
                                                               │
                             acks=all and not there yet? wait ─┘

While a thread prepares the log or a batch (a roll, a recompression), appends queue up in the order
of arrival (`append_queue.py`); reads go on. Retention and fsync run on the background thread and
touch only files that no append can reach, or only to flush them (`partition_retention.py`,
`flushing.py`).

Invariants:

    I1  Appends reach the log in the order in which `append` was called.
    I2  Nothing is appended while the queue is busy.
    I3  What is readable is below the high watermark, and only the machine moves that.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

from tidelog.base.errors import DamagedLog, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.base.ports import BytesLike, Clock
from tidelog.broker.append_queue import AppendQueue, Preparation, QueuedAppend, Settle
from tidelog.broker.batch_limits import batch_limits
from tidelog.broker.disk_executor import as_storage_error
from tidelog.broker.flushing import Flusher
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partition_ports import LogDirectory, Watcher
from tidelog.broker.partition_retention import enforce_retention
from tidelog.broker.produce_results import refused_by, refused_partition
from tidelog.broker.waiters import OffsetWaiters
from tidelog.config.topic import TopicConfig
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.partition.leader import PartitionLeader
from tidelog.core.sessions import FetchTarget
from tidelog.core.transactions.producers import ProducerStates
from tidelog.records.batch import (
    BatchHeader,
    TimestampType,
    stamp,
    stamp_log_append_time,
)
from tidelog.records.validation import (
    may_rewrite,
    needs_rewrite,
    rewrite,
    validate_produce,
)
from tidelog.storage.log import Log, LogRead
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.wire.produce import PartitionProduceResult

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ACKS_ALL = -1

_Attempt = PartitionProduceResult | Preparation | None


class _Appended(NamedTuple):
    """A batch that is in the log, and whom to tell."""

    base_offset: Offset
    end_offset: Offset
    timestamp_ms: int
    acks: int
    settle: Settle


class DiskRead(NamedTuple):
    """What a thread read, and the transactions in it that a read_committed reader must skip."""

    read: LogRead
    aborted: tuple[AbortedTransaction, ...]


class PartitionRunner:
    """Appends, reads and looks after one partition."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_flush_messages",
        "_flusher",
        "_is_log_append_time",
        "_limits",
        "_may_rewrite",
        "_queue",
        "_reported_damage",
        "_waiters",
        "_watchers",
        "config",
        "epochs",
        "has_resigned",
        "is_offline",
        "leader",
        "log",
        "log_directory",
        "partition",
        "producers",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        leader: PartitionLeader,
        epochs: EpochHistory,
        producers: ProducerStates,
        config: TopicConfig,
        log_directory: LogDirectory,
        request_memory: MemoryBound,
        clock: Clock,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.partition = topic_partition.partition
        self.log = log
        self.leader = leader
        self.epochs = epochs
        self.producers = producers
        self.log_directory = log_directory
        self.is_offline = False
        self.has_resigned = False
        self._use(config)
        self._clock = clock
        self._queue = AppendQueue(
            memory=request_memory,
            clock=clock,
            attempt=self._attempt_queued,
            start_roll=self._start_roll,
            on_rolled=self._on_rolled,
            start_rewrite=self._start_rewrite,
            refused=self._refused,
        )
        self._waiters = OffsetWaiters()
        self._watchers: dict[FetchTarget, Watcher] = {}
        self._reported_damage: str | None = None
        self._flusher = Flusher(log, log_directory.executor, log_directory.on_failure)

    def _use(self, config: TopicConfig) -> None:
        self.config = config
        self._limits = limits = batch_limits(config)
        self._is_log_append_time = limits.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._may_rewrite = may_rewrite(limits)
        self._flush_messages = config.flush_messages

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.leader.leader_epoch

    @property
    def high_watermark(self) -> Offset:
        return self.leader.high_watermark

    # -- appending -------------------------------------------------------------------------------

    def append(
        self, records: memoryview, *, acks: int, now_ms: int, settle: Settle
    ) -> PartitionProduceResult | None:
        """Append a client's batch. None: not decided yet, `settle` is called with the result.

        `records` is written into (offset and epoch are stamped) and not kept.
        """
        queue = self._queue
        if queue.must_wait and not self.is_offline:
            queue.push(records, acks, settle)
            return None
        attempt = self._attempt(records, acks, now_ms, settle, is_rewritten=False)
        if isinstance(attempt, Preparation):
            queue.push(records, acks, settle)
            queue.prepare(attempt, now_ms)
            return None
        return attempt

    def _attempt(
        self,
        records: memoryview | bytearray,
        acks: int,
        now_ms: int,
        settle: Settle,
        *,
        is_rewritten: bool,
    ) -> _Attempt:
        """Append now if nothing stands in the way, or say what does."""
        if self.is_offline or self.has_resigned:
            return self._refused_service()
        assert not self._queue.is_busy  # I2
        try:
            header = validate_produce(records, self._limits, now_ms=now_ms)
            if acks == ACKS_ALL:
                self.leader.refuse_before_append(acks)
            if self._may_rewrite and not is_rewritten and needs_rewrite(header, self._limits):
                return Preparation.REWRITE
            if header.producer_id >= 0:
                copy = self.producers.on_batch(header)
                if copy is not None:
                    end_offset = Offset(copy.last_offset + 1)
                    return self._acknowledge(
                        _Appended(copy.base_offset, end_offset, copy.timestamp_ms, acks, settle)
                    )
        except RequestRefused as refusal:
            return self._refused(refusal)
        log = self.log
        last_offset = Offset(log.log_end_offset + header.last_offset_delta)
        if log.roll_needed(
            size_bytes=len(records),
            max_timestamp_ms=now_ms if self._is_log_append_time else header.max_timestamp_ms,
            now_ms=now_ms,
            last_offset=last_offset,
        ):
            return Preparation.ROLL
        return self._write(records, header, last_offset, acks, now_ms, settle)

    def _write(
        self,
        records: memoryview | bytearray,
        header: BatchHeader,
        last_offset: Offset,
        acks: int,
        now_ms: int,
        settle: Settle,
    ) -> PartitionProduceResult | None:
        """Stamp and write the batch. One write, and little else: benchmarks/request_path.py."""
        log, leader = self.log, self.leader
        base_offset = log.log_end_offset
        leader_epoch = leader.leader_epoch
        timestamp_ms = header.max_timestamp_ms
        stamp(records, base_offset, header.batch_length, leader_epoch)
        if self._is_log_append_time:
            stamp_log_append_time(records, 0, now_ms)
            timestamp_ms = now_ms
        try:
            log.append(
                records,
                base_offset=base_offset,
                last_offset=last_offset,
                max_timestamp_ms=timestamp_ms,
            )
        except StorageError as error:
            self.log_directory.on_failure(error)
            return self._refused_service()
        if leader_epoch > self.epochs.latest_epoch:
            self._start_epoch(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self.producers.on_appended(header, base_offset=base_offset, timestamp_ms=timestamp_ms)
        flusher = self._flusher
        if flusher.unflushed_records == 0:
            flusher.unflushed_since_ms = now_ms
        flusher.unflushed_records += header.record_count
        end_offset = Offset(last_offset + 1)
        if flusher.unflushed_records >= self._flush_messages:
            flusher.require(end_offset)
        if flusher.is_holding:
            size_bytes = len(records)
            appended = _Appended(base_offset, end_offset, timestamp_ms, acks, settle)
            flusher.then(lambda: self._on_flushed(appended, size_bytes))
            return None
        self._advance(end_offset, len(records), now_ms)
        if acks != ACKS_ALL:
            return self._accepted(base_offset, timestamp_ms)
        return self._acknowledge(_Appended(base_offset, end_offset, timestamp_ms, acks, settle))

    def _advance(self, end_offset: Offset, appended_bytes: int, now_ms: int) -> None:
        """Tell the machine how far the log goes and wake whoever may read more now."""
        if self.leader.on_append(end_offset, now_ms=now_ms):
            if self._waiters:
                self._waiters.wake(self.leader.high_watermark)
            if self._watchers:
                self._announce(appended_bytes)

    def _announce(self, appended_bytes: int) -> None:
        satisfied = [
            target
            for target, watcher in self._watchers.items()
            if not watcher.on_news(target, appended_bytes)
        ]
        for target in satisfied:
            del self._watchers[target]

    def _start_epoch(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> None:
        self.epochs.assign(leader_epoch, start_offset=start_offset)
        # Not waited for: until a flush, which queues behind it on the same thread, recovery scans
        # these batches and finds the epoch in them.
        self._in_background(self.log.write_leader_epochs, self.epochs.entries)

    def _acknowledge(self, appended: _Appended) -> PartitionProduceResult | None:
        """The answer for records that are in the log, now or once enough replicas have them.

        Also for a repeated batch: its first copy may still be on its way to stable storage, or
        to the followers.
        """
        base_offset, end_offset, timestamp_ms, acks, settle = appended
        if end_offset > self.leader.log_end_offset:
            self._flusher.then(lambda: self._settle_flushed(appended))
            return None
        if acks != ACKS_ALL:
            return self._accepted(base_offset, timestamp_ms)
        code = self.leader.acknowledgement(end_offset)
        if code is None:
            self._waiters.add(end_offset, lambda: settle(self._after_replication(appended)))
            return None
        if code is not ErrorCode.NONE:
            return self._refusal(code)
        return self._accepted(base_offset, timestamp_ms)

    def _after_replication(self, appended: _Appended) -> PartitionProduceResult:
        code = self.leader.acknowledgement(appended.end_offset)
        if self.is_offline or self.has_resigned or code is None:
            return self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if code is not ErrorCode.NONE:
            return self._refusal(code)
        return self._accepted(appended.base_offset, appended.timestamp_ms)

    def _accepted(self, base_offset: Offset, timestamp_ms: int) -> PartitionProduceResult:
        return tuple.__new__(
            PartitionProduceResult,
            (
                self.partition,
                0,
                base_offset,
                timestamp_ms if self._is_log_append_time else NO_TIMESTAMP,
                self.log.log_start_offset,
                (),
                None,
                None,
            ),
        )

    def _refused(self, refusal: RequestRefused) -> PartitionProduceResult:
        return refused_by(self.partition, refusal)

    def _refused_service(self) -> PartitionProduceResult:
        reason = self.log_directory.offline_reason if self.is_offline else None
        return refused_partition(self.partition, self._why_not_served(), reason)

    def _refusal(self, code: ErrorCode) -> PartitionProduceResult:
        return refused_partition(self.partition, code, None)

    # -- appends that have to wait ---------------------------------------------------------------

    def _attempt_queued(self, append: QueuedAppend, now_ms: int) -> _Attempt:
        records, acks, settle, is_rewritten = append
        return self._attempt(records, acks, now_ms, settle, is_rewritten=is_rewritten)

    def _start_roll(self, now_ms: int) -> "asyncio.Future[None]":
        return self.log_directory.executor.urgent(
            self.log.roll, producers=self.producers.entries(), now_ms=now_ms
        )

    def _start_rewrite(self, records: bytearray, now_ms: int) -> "asyncio.Future[BytesLike]":
        return self.log_directory.executor.urgent(rewrite, records, self._limits, now_ms=now_ms)

    def _on_rolled(self, rolled: "asyncio.Future[None]") -> None:
        if self._succeeded(rolled) and not self.is_offline:
            self._flusher.start()

    # -- flushing --------------------------------------------------------------------------------

    def flush_if_due(self, now_ms: int) -> None:
        """`flush.ms`: flush if the oldest record that is not yet on disk is old enough."""
        if not self.is_offline:
            self._flusher.start_if_due(now_ms, flush_ms=self.config.flush_ms)

    def _on_flushed(self, appended: _Appended, size_bytes: int) -> None:
        if not self.is_offline:
            self._advance(appended.end_offset, size_bytes, self._clock.now_ms())
        self._settle_flushed(appended)

    def _settle_flushed(self, appended: _Appended) -> None:
        if self.is_offline or self.has_resigned:
            appended.settle(self._refused_service())
            return
        result = self._acknowledge(appended)
        if result is not None:
            appended.settle(result)

    # -- reading ---------------------------------------------------------------------------------

    def read_from_disk(
        self, offset: Offset, *, end_offset: Offset, max_bytes: int
    ) -> "asyncio.Future[DiskRead]":
        """Read through a thread what `log.read_cached` did not find in memory."""
        return self.log_directory.executor.urgent(
            _read, self.log, offset, end_offset=end_offset, max_bytes=max_bytes
        )

    @property
    def watcher_count(self) -> int:
        return len(self._watchers)

    def watch(self, target: FetchTarget, watcher: Watcher) -> None:
        """Tell `watcher` when there is more to read, the log start moves or this goes offline."""
        self._watchers[target] = watcher

    def unwatch(self, target: FetchTarget) -> None:
        self._watchers.pop(target, None)

    # -- upkeep ----------------------------------------------------------------------------------

    def reconfigure(self, config: TopicConfig) -> None:
        """Apply new topic settings, from the next append on."""
        self._use(config)
        self.log.reconfigure(config)
        self.leader.on_min_insync_replicas_changed(config.min_insync_replicas)

    async def delete_records(self, before_offset: Offset) -> Offset:
        """Hide what is below `before_offset` (-1: the high watermark); return the new log start.

        Raises RequestRefused. Durable on return: a crash must not bring deleted records back.
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
        await self.log_directory.checkpoint_log_starts()
        self._require_service()
        return self.log.log_start_offset

    async def enforce_retention(self, now_ms: int) -> int:
        """Remove the segments that `retention.ms` and `retention.bytes` no longer want."""
        return await enforce_retention(self, self._queue, now_ms=now_ms)

    def on_log_start_advanced(self) -> None:
        """What is below `log.log_start_offset` may not be read any more."""
        self.leader.on_log_start_advanced(self.log.log_start_offset)
        if self.epochs.truncate_from_start(self.log.log_start_offset):
            self._in_background(self.log.write_leader_epochs, self.epochs.entries)
        self._announce(0)

    def lead(self, leader: PartitionLeader) -> None:
        """Lead under a new epoch. Whoever waits for the old one goes on with the new."""
        self.leader = leader
        self._waiters.wake(leader.high_watermark)
        self._announce(0)

    def resign(self) -> None:
        """This broker may not lead any more: acknowledge nothing, and say so to whoever waits."""
        if self.has_resigned:
            return
        self.has_resigned = True
        self._waiters.wake_all()
        self._announce(0)

    def _require_service(self) -> None:
        if self.is_offline or self.has_resigned:
            raise RequestRefused(self._why_not_served())

    def _why_not_served(self) -> ErrorCode:
        if self.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def take_offline(self) -> None:
        """The disk is gone: answer everything with KAFKA_STORAGE_ERROR from now on."""
        if self.is_offline:
            return
        self.is_offline = True
        self._waiters.wake_all()
        self._flusher.give_up()
        self._announce(0)
        self._queue.work_off()

    def bring_online(
        self, *, log: Log, leader: PartitionLeader, epochs: EpochHistory, producers: ProducerStates
    ) -> None:
        """The disk is back and the log was recovered."""
        assert self.is_offline
        assert not self._queue.is_busy  # Logs are opened behind everything the old one began.
        self.log, self.leader, self.epochs, self.producers = log, leader, epochs, producers
        self._flusher = Flusher(log, self.log_directory.executor, self.log_directory.on_failure)
        self.is_offline = False
        self._announce(0)

    def refuse_reader(self, error: StorageError) -> RequestRefused:
        """What to tell a reader whom the disk failed.

        Damaged records are refused to those who read them. Taking the directory offline would not
        mend them, and any consumer could do it to everybody, again and again.
        """
        if not isinstance(error, DamagedLog):
            self.log_directory.on_failure(error)
            return RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR)
        if self._reported_damage != str(error):  # Consumers ask again all the time.
            self._reported_damage = str(error)
            logger.error(
                "records are damaged",
                extra={"partition": self.topic_partition, "reason": self._reported_damage},
            )
        return RequestRefused(ErrorCode.CORRUPT_MESSAGE)

    def _in_background(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        self.log_directory.executor.background(work, *args, **kwargs).add_done_callback(
            self._succeeded
        )

    def _succeeded(self, future: "asyncio.Future[T]") -> bool:
        """Whether the work was done; a disk that failed takes its directory offline."""
        error = future.exception()
        if error is None:
            return True
        self.log_directory.on_failure(as_storage_error(error))
        return False


def _read(log: Log, offset: Offset, *, end_offset: Offset, max_bytes: int) -> DiskRead:
    read = log.read(offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=True)
    if not log.has_aborted:
        return DiskRead(read, ())
    return DiskRead(read, log.aborted_transactions(offset, end_offset=read.end_offset))
