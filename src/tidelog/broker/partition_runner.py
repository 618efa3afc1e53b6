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

While a thread prepares the log or a batch (`_busy`: a roll, a recompression), appends queue up in
the order of arrival; reads go on. Retention and fsync run on the background thread and touch only
files that no append can reach, or only to flush them.

Invariants:

    I1  Appends reach the log in the order in which `append` was called.
    I2  Nothing is appended while `_busy`.
    I3  What is readable is below the high watermark, and only the machine moves that.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.base.ports import BytesLike, Clock
from tidelog.broker.append_queue import AppendQueue, Settle
from tidelog.broker.batch_limits import batch_limits
from tidelog.broker.disk_executor import DiskExecutor
from tidelog.broker.flushing import Flusher
from tidelog.broker.memory import MemoryBound
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
    RecordsRefused,
    may_rewrite,
    needs_rewrite,
    rewrite,
    validate_produce,
)
from tidelog.storage.log import Log, LogRead
from tidelog.wire.produce import PartitionProduceResult

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ACKS_ALL = -1


class Watcher(Protocol):
    """Somebody who wants to know when a partition has more to read, or something else to say.

    Must only take note: the partition is in the middle of something.
    """

    def on_news(self, target: FetchTarget, appended_bytes: int) -> bool:
        """Return whether to be told of the next news as well."""
        ...


class LogDirectory(Protocol):
    """What a partition needs from the log directory that holds it."""

    @property
    def executor(self) -> DiskExecutor: ...

    def on_failure(self, error: StorageError) -> None:
        """Take the directory offline. Idempotent."""
        ...

    def delete_later(self, paths: Sequence[Path], *, delay_ms: int) -> None:
        """Remove files when the delay is over, or at the next start."""
        ...

    async def checkpoint_log_starts(self) -> None:
        """Write `log-start-offset-checkpoint`; returns once it is on disk."""
        ...


class _Preparation(Enum):
    """What has to happen on a thread before a batch can be appended."""

    ROLL = "roll"
    REWRITE = "rewrite"


_Attempt = PartitionProduceResult | _Preparation | None


class PartitionRunner:
    """Appends, reads and looks after one partition."""

    __slots__ = (
        "__weakref__",
        "_busy",
        "_clock",
        "_flush_messages",
        "_flusher",
        "_is_log_append_time",
        "_is_working_off",
        "_limits",
        "_may_rewrite",
        "_queue",
        "_waiters",
        "_watchers",
        "config",
        "epochs",
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
        self._use(config)
        self._clock = clock
        self._busy = False
        self._queue = AppendQueue(request_memory)
        self._is_working_off = False
        self._waiters = OffsetWaiters()
        self._watchers: dict[FetchTarget, Watcher] = {}
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
        if (self._busy or self._queue) and not self.is_offline:
            self._queue.push(records, acks, settle)
            return None
        attempt = self._attempt(records, acks, now_ms, settle, is_rewritten=False)
        if isinstance(attempt, _Preparation):
            self._queue.push(records, acks, settle)
            self._prepare(attempt, now_ms)
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
        if self.is_offline:
            return self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, None)
        assert not self._busy  # I2
        try:
            header = validate_produce(records, self._limits, now_ms=now_ms)
            if acks == ACKS_ALL:
                self.leader.refuse_before_append(acks)
            if self._may_rewrite and not is_rewritten and needs_rewrite(header, self._limits):
                return _Preparation.REWRITE
            if header.producer_id >= 0:
                copy = self.producers.on_batch(header)
                if copy is not None:
                    return self._acknowledge(
                        copy.base_offset, copy.last_offset, copy.timestamp_ms, acks, settle
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
            return _Preparation.ROLL
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
            return self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        if leader_epoch > self.epochs.latest_epoch:
            self._start_epoch(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self.producers.on_appended(header, base_offset=base_offset, timestamp_ms=timestamp_ms)
        flusher = self._flusher
        if flusher.unflushed_records == 0:
            flusher.unflushed_since_ms = now_ms
        flusher.unflushed_records += header.record_count
        if flusher.unflushed_records >= self._flush_messages:
            flusher.require(Offset(last_offset + 1))
        if flusher.is_holding:
            size_bytes = len(records)
            flusher.then(
                lambda: self._settle_flushed(
                    base_offset, last_offset, timestamp_ms, size_bytes, acks, settle
                )
            )
            return None
        self._advance(Offset(last_offset + 1), len(records), now_ms)
        if acks != ACKS_ALL:
            return self._accepted(base_offset, timestamp_ms)
        return self._acknowledge(base_offset, last_offset, timestamp_ms, acks, settle)

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

    def _acknowledge(
        self,
        base_offset: Offset,
        last_offset: Offset,
        timestamp_ms: int,
        acks: int,
        settle: Settle,
    ) -> PartitionProduceResult | None:
        """The answer for records that are in the log, now or once enough replicas have them.

        Also for a repeated batch: its first copy may still be on its way to stable storage, or
        to the followers.
        """
        end_offset = Offset(last_offset + 1)
        if end_offset > self.leader.log_end_offset:
            self._flusher.then(
                lambda: self._settle_acknowledged(
                    base_offset, last_offset, timestamp_ms, acks, settle
                )
            )
            return None
        if acks != ACKS_ALL:
            return self._accepted(base_offset, timestamp_ms)
        code = self.leader.acknowledgement(end_offset)
        if code is None:
            self._waiters.add(
                end_offset,
                lambda: settle(self._after_replication(base_offset, end_offset, timestamp_ms)),
            )
            return None
        if code is not ErrorCode.NONE:
            return self._refusal(code, None)
        return self._accepted(base_offset, timestamp_ms)

    def _after_replication(
        self, base_offset: Offset, end_offset: Offset, timestamp_ms: int
    ) -> PartitionProduceResult:
        code = self.leader.acknowledgement(end_offset)
        if self.is_offline or code is None:
            return self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        if code is not ErrorCode.NONE:
            return self._refusal(code, None)
        return self._accepted(base_offset, timestamp_ms)

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
        result = self._refusal(refusal.code, refusal.message)
        if isinstance(refusal, RecordsRefused):
            return result._replace(record_errors=refusal.record_errors)
        return result

    def _refusal(self, code: ErrorCode, message: str | None) -> PartitionProduceResult:
        return refused_partition(self.partition, code, message)

    # -- appends that have to wait ---------------------------------------------------------------

    def _work_off_queue(self) -> None:
        """Go on with what queued up, until it is done or a thread is needed again."""
        if self._is_working_off:
            return  # A disk that fails under an append brings us here from within.
        self._is_working_off = True
        try:
            while self._queue and not self._busy:
                self._work_off_head()
        finally:
            self._is_working_off = False

    def _work_off_head(self) -> None:
        records, acks, settle, is_rewritten = self._queue.head
        now_ms = self._clock.now_ms()
        attempt = self._attempt(records, acks, now_ms, settle, is_rewritten=is_rewritten)
        if isinstance(attempt, _Preparation):
            self._prepare(attempt, now_ms)
            return
        self._queue.pop()
        if attempt is not None:
            settle(attempt)

    def _prepare(self, preparation: _Preparation, now_ms: int) -> None:
        """Have a thread do what the head of the queue needs."""
        assert self._queue
        match preparation:
            case _Preparation.ROLL:
                self._roll(now_ms)
            case _Preparation.REWRITE:
                self._busy = True
                self.log_directory.executor.urgent(
                    rewrite, self._queue.head.records, self._limits, now_ms=now_ms
                ).add_done_callback(self._on_rewritten)

    def _roll(self, now_ms: int) -> "asyncio.Future[None]":
        """Begin a new segment. Appends queue up until the thread is done, whoever waits for it."""
        assert not self._busy
        self._busy = True
        rolled = self.log_directory.executor.urgent(
            self.log.roll, producers=self.producers.entries(), now_ms=now_ms
        )
        rolled.add_done_callback(self._on_rolled)
        return rolled

    def _on_rolled(self, future: "asyncio.Future[None]") -> None:
        self._busy = False
        if self._succeeded(future) and not self.is_offline:
            self._flusher.start()
        self._work_off_queue()

    def _on_rewritten(self, future: "asyncio.Future[BytesLike]") -> None:
        self._busy = False
        try:
            self._queue.replace_head(bytearray(future.result()))
        except RequestRefused as refusal:
            settle = self._queue.head.settle
            self._queue.pop()
            settle(self._refused(refusal))
        self._work_off_queue()

    # -- flushing --------------------------------------------------------------------------------

    def flush_if_due(self, now_ms: int) -> None:
        """`flush.ms`: flush if the oldest record that is not yet on disk is old enough."""
        if not self.is_offline:
            self._flusher.start_if_due(now_ms, flush_ms=self.config.flush_ms)

    def _settle_flushed(
        self,
        base_offset: Offset,
        last_offset: Offset,
        timestamp_ms: int,
        size_bytes: int,
        acks: int,
        settle: Settle,
    ) -> None:
        if self.is_offline:
            settle(self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, None))
            return
        self._advance(Offset(last_offset + 1), size_bytes, self._clock.now_ms())
        self._settle_acknowledged(base_offset, last_offset, timestamp_ms, acks, settle)

    def _settle_acknowledged(
        self,
        base_offset: Offset,
        last_offset: Offset,
        timestamp_ms: int,
        acks: int,
        settle: Settle,
    ) -> None:
        if self.is_offline:
            settle(self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, None))
            return
        result = self._acknowledge(base_offset, last_offset, timestamp_ms, acks, settle)
        if result is not None:
            settle(result)

    # -- reading ---------------------------------------------------------------------------------

    def read_from_disk(
        self, offset: Offset, *, end_offset: Offset, max_bytes: int
    ) -> "asyncio.Future[LogRead]":
        """Read through a thread what `log.read_cached` did not find in memory."""
        return self.log_directory.executor.urgent(
            self.log.read, offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=True
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
        if self.is_offline:
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR)
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
            self._on_log_start_advanced()
        # Also if somebody else deleted them: perhaps that is still on its way to the disk.
        await self.log_directory.checkpoint_log_starts()
        if self.is_offline:
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR)
        return self.log.log_start_offset

    async def enforce_retention(self, now_ms: int) -> int:
        """Remove the segments that `retention.ms` and `retention.bytes` no longer want."""
        if self.is_offline or self._busy:
            return 0
        log, executor = self.log, self.log_directory.executor
        active, end_offset = log.segments[-1], log.log_end_offset
        expired = await executor.background(
            log.expired_segments, high_watermark=self.high_watermark, now_ms=now_ms
        )
        if log.log_end_offset != end_offset or self._busy:
            # What was active may have got records since that are not old, and be closed by now.
            expired = tuple(one for one in expired if one.base_offset < active.base_offset)
        elif expired and expired[-1] is active and self._is_serving(log):
            await asyncio.wait([self._roll(now_ms)])  # Ended by the disk.
        if not expired or not self._is_serving(log):
            return 0
        log.detach(expired)
        self._on_log_start_advanced()
        renamed = await executor.background(log.remove_detached, expired)
        self.log_directory.delete_later(renamed, delay_ms=self.config.file_delete_delay_ms)
        logger.info(
            "segments expired",
            extra={
                "partition": self.topic_partition,
                "segments": len(expired),
                "log_start_offset": log.log_start_offset,
            },
        )
        return len(expired)

    def _is_serving(self, log: Log) -> bool:
        """Whether `log` is still in use, after some waiting."""
        return log is self.log and not self.is_offline

    def _on_log_start_advanced(self) -> None:
        self.leader.on_log_start_advanced(self.log.log_start_offset)
        if self.epochs.truncate_from_start(self.log.log_start_offset):
            self._in_background(self.log.write_leader_epochs, self.epochs.entries)
        self._announce(0)

    def lead(self, leader: PartitionLeader) -> None:
        """Lead under a new epoch. Whoever waits for the old one goes on with the new."""
        self.leader = leader
        self._waiters.wake(leader.high_watermark)
        self._announce(0)

    def take_offline(self) -> None:
        """The disk is gone: answer everything with KAFKA_STORAGE_ERROR from now on."""
        if self.is_offline:
            return
        self.is_offline = True
        self._waiters.wake_all()
        self._flusher.give_up()
        self._announce(0)
        if not self._busy:
            self._work_off_queue()

    def bring_online(
        self, *, log: Log, leader: PartitionLeader, epochs: EpochHistory, producers: ProducerStates
    ) -> None:
        """The disk is back and the log was recovered."""
        assert self.is_offline
        assert not self._busy  # Logs are opened behind everything the old one began.
        self.log, self.leader, self.epochs, self.producers = log, leader, epochs, producers
        self._flusher = Flusher(log, self.log_directory.executor, self.log_directory.on_failure)
        self.is_offline = False
        self._announce(0)

    def _in_background(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        self.log_directory.executor.background(work, *args, **kwargs).add_done_callback(
            self._succeeded
        )

    def _succeeded(self, future: "asyncio.Future[T]") -> bool:
        """Whether the work was done; a disk that failed takes its directory offline."""
        error = future.exception()
        if error is None:
            return True
        if not isinstance(error, StorageError):
            raise error
        self.log_directory.on_failure(error)
        return False


def refused_partition(
    partition: int, code: ErrorCode, message: str | None
) -> PartitionProduceResult:
    """The answer for records that were not stored, or not stored well enough."""
    return PartitionProduceResult(
        partition, code, NO_OFFSET, NO_TIMESTAMP, NO_OFFSET, (), message, None
    )
