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
from collections.abc import Callable, Mapping
from typing import NamedTuple, ParamSpec, TypeVar, assert_never

from tidelog.base.errors import DamagedLog, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from tidelog.base.ports import BytesLike, Clock
from tidelog.broker.append_queue import AppendQueue, Preparation, QueuedAppend, Settle
from tidelog.broker.batch_limits import batch_limits
from tidelog.broker.disk_executor import as_storage_error
from tidelog.broker.flushing import Flusher
from tidelog.broker.follower_runner import FollowerRunner
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partition_ports import LogDirectory, Watcher
from tidelog.broker.partition_retention import enforce_retention
from tidelog.broker.produce_results import refused_by, refused_partition
from tidelog.broker.waiters import OffsetFutures, OffsetWaiters
from tidelog.config.topic import TopicConfig
from tidelog.core.partition.effects import ADVANCED, Effects, HighWatermarkAdvanced, ProposeIsr
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.partition.follower import PartitionFollower
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

ProposeToController = Callable[["PartitionRunner", ProposeIsr], None]
RefuseIfLeading = Callable[["PartitionRunner", PartitionProduceResult, Settle], None]

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
        "_deletions",
        "_flush_messages",
        "_flusher",
        "_follower_watchers",
        "_high_watermark",
        "_is_in_sync",
        "_is_log_append_time",
        "_is_writing",
        "_limits",
        "_may_rewrite",
        "_next_role",
        "_propose_isr",
        "_queue",
        "_refuse_if_leading",
        "_reported_damage",
        "_uncommitted_bytes",
        "_waiters",
        "_watchers",
        "config",
        "epochs",
        "follower",
        "has_unwritten_epoch",
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
        high_watermark: Offset,
        epochs: EpochHistory,
        producers: ProducerStates,
        config: TopicConfig,
        log_directory: LogDirectory,
        request_memory: MemoryBound,
        clock: Clock,
        propose_isr: ProposeToController,
        refuse_if_leading: RefuseIfLeading,
    ) -> None:
        """Neither leads nor follows, until it is told to."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.partition = topic_partition.partition
        self.log = log
        self.leader: PartitionLeader | None = None
        self.follower: FollowerRunner | None = None
        self._high_watermark = high_watermark
        self._is_in_sync = False
        self._next_role: Callable[[], None] | None = None
        self._is_writing = False
        self._propose_isr = propose_isr
        self._refuse_if_leading = refuse_if_leading
        self._uncommitted_bytes = 0
        self.epochs = epochs
        self.producers = producers
        self.log_directory = log_directory
        self.is_offline = False
        self.has_unwritten_epoch = False
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
        self._deletions = OffsetFutures()
        self._watchers: dict[FetchTarget, Watcher] = {}
        self._follower_watchers: dict[FetchTarget, Watcher] = {}
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
        """The epoch in which this broker leads or follows; NO_LEADER_EPOCH if it does neither."""
        if self.leader is not None:
            return self.leader.leader_epoch
        if self.follower is not None:
            return self.follower.machine.leader_epoch
        return NO_LEADER_EPOCH

    @property
    def high_watermark(self) -> Offset:
        if self.leader is not None:
            return self.leader.high_watermark
        if self.follower is not None:
            return self.follower.machine.high_watermark
        return self._high_watermark

    @property
    def announced_end_offset(self) -> Offset:
        """Where the log ends for others: what this leader is flushing is nobody's yet."""
        return self.log.log_end_offset if self.leader is None else self.leader.log_end_offset

    @property
    def leading(self) -> PartitionLeader:
        """The leader machine, or RequestRefused(NOT_LEADER_OR_FOLLOWER)."""
        if self.leader is None:
            raise RequestRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leader

    @property
    def is_readable_as_follower(self) -> bool:
        """Whether consumers may read here although somebody else leads (KIP-392).

        Who is not in sync may be far behind, and so would be who reads there, without knowing.
        """
        return self.follower is not None and self.follower.is_readable and self._is_in_sync

    @property
    def is_being_cut(self) -> bool:
        """Whether a thread takes off the end of the log, or does something else for a follower."""
        return self.follower is not None and self.follower.is_busy

    @property
    def queue(self) -> AppendQueue:
        return self._queue

    @property
    def flusher(self) -> Flusher:
        return self._flusher

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
        leader = self.leader
        if self.is_offline or leader is None:
            return self._refused_service()
        assert not self._queue.is_busy  # I2
        try:
            header = validate_produce(records, self._limits, now_ms=now_ms)
            if acks == ACKS_ALL:
                leader.refuse_before_append(acks)
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
            return self._refuse(refusal, leader, settle)
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
        assert leader is not None
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
        if log.is_writing_due:
            self.start_writing()
        if self.has_unwritten_epoch or leader_epoch > self.epochs.latest_epoch:
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

    def start_writing(self) -> None:
        """Much was appended: let the device have it before the system writes it all at once.

        One at a time: of a disk that hangs, a thread would be asked for it without end.
        """
        if self._is_writing:
            self.log.postpone_writing()
            return
        self._is_writing = True
        writing = self.log_directory.executor.background(self.log.start_writing())
        writing.add_done_callback(self._on_writing_started)

    def _on_writing_started(self, started: "asyncio.Future[None]") -> None:
        self._is_writing = False
        self.succeeded(started)

    def _advance(self, end_offset: Offset, appended_bytes: int, now_ms: int) -> None:
        """Tell the machine how far the log goes and wake whoever may read more now."""
        leader = self.leader
        assert leader is not None
        effects = leader.on_append(end_offset, now_ms=now_ms)
        self._uncommitted_bytes += appended_bytes
        if self._follower_watchers:
            _announce(self._follower_watchers, appended_bytes)
        if effects is ADVANCED:
            self._on_high_watermark_advanced()
        elif effects:
            self._perform(effects)

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced():
                    self._on_high_watermark_advanced()
                case ProposeIsr():
                    self._propose_isr(self, effect)
                case _:
                    assert_never(effect)

    def _on_high_watermark_advanced(self) -> None:
        # All that was appended since the last advance, though not all of it may be committed: a
        # fetch that is woken too early looks, and waits again.
        committed_bytes, self._uncommitted_bytes = self._uncommitted_bytes, 0
        if self._waiters:
            self._waiters.wake(self.high_watermark)
        if self._watchers:
            _announce(self._watchers, committed_bytes)
        for target, watcher in self._follower_watchers.items():
            watcher.on_quiet_news(target)

    def _announce(self, appended_bytes: int) -> None:
        """Something is new for readers of all kinds; 0 bytes: something other than records."""
        _announce(self._watchers, appended_bytes)
        _announce(self._follower_watchers, appended_bytes)

    def _start_epoch(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> None:
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, start_offset=start_offset)
        self.on_epochs_changed()

    def on_epochs_changed(self) -> None:
        """The log has its first record of an epoch."""
        self.has_unwritten_epoch = False
        self.log.note_leader_epochs(self.epochs.entries, are_written=False)

    def on_epochs_cut(self) -> None:
        """Epochs went with their records, from the start of the log or from its end. On disk, an
        epoch without a record would outlive this leadership, and then be taken for that of records
        which others wrote."""
        entries = self.epochs.entries
        written = entries[:-1] if self.has_unwritten_epoch else entries
        self.log.note_leader_epochs(written, are_written=False)
        self._in_background(self.log.write_leader_epochs)

    def _acknowledge(self, appended: _Appended) -> PartitionProduceResult | None:
        """The answer for records that are in the log, now or once enough replicas have them.

        Also for a repeated batch: its first copy may still be on its way to stable storage, or
        to the followers.
        """
        base_offset, end_offset, timestamp_ms, acks, settle = appended
        leader = self.leader
        assert leader is not None
        if end_offset > leader.log_end_offset:
            self._flusher.then(lambda: self._settle_flushed(appended))
            return None
        if acks != ACKS_ALL:
            return self._accepted(base_offset, timestamp_ms)
        code = leader.acknowledgement(end_offset)
        if code is None:
            self._waiters.add(end_offset, lambda: settle(self._after_replication(appended)))
            return None
        if code is not ErrorCode.NONE:
            return self._refusal(code)
        return self._accepted(base_offset, timestamp_ms)

    def _after_replication(self, appended: _Appended) -> PartitionProduceResult:
        if self.is_offline or self.leader is None:
            return self._refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        code = self.leader.acknowledgement(appended.end_offset)
        if code is None:
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

    def _refuse(
        self, refusal: RequestRefused, leader: PartitionLeader, settle: Settle
    ) -> PartitionProduceResult | None:
        if refusal.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or not leader.followers:
            return self._refused(refusal)
        self._refuse_if_leading(self, self._refused(refusal), settle)
        return None

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
        if self.succeeded(rolled) and not self.is_offline:
            self._flusher.start()
            if self.follower is not None:
                self.follower.on_rolled()

    # -- flushing --------------------------------------------------------------------------------

    def flush_if_due(self, now_ms: int) -> None:
        """`flush.ms`: flush if the oldest record that is not yet on disk is old enough."""
        if not self.is_offline:
            self._flusher.start_if_due(now_ms, flush_ms=self.config.flush_ms)

    def _on_flushed(self, appended: _Appended, size_bytes: int) -> None:
        leader = self.leader
        # One that was elected meanwhile began with all that was in the log.
        if not self.is_offline and leader and appended.end_offset > leader.log_end_offset:
            self._advance(appended.end_offset, size_bytes, self._clock.now_ms())
        self._settle_flushed(appended)

    def _settle_flushed(self, appended: _Appended) -> None:
        if self.is_offline or self.leader is None:
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
        return len(self._watchers) + len(self._follower_watchers)

    def watch(self, target: FetchTarget, watcher: Watcher) -> None:
        """Tell `watcher` when there is more to read, the log start moves or this goes offline.

        A follower may read what is not committed yet.
        """
        watchers = self._follower_watchers if watcher.is_follower else self._watchers
        watchers[target] = watcher

    def unwatch(self, target: FetchTarget) -> None:
        self._watchers.pop(target, None)
        self._follower_watchers.pop(target, None)

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
        await self.log_directory.checkpoint_log_starts()
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

    def _wake_deletions(self) -> None:
        if not self._deletions:
            return
        if self.is_offline or self.leader is None:
            self._deletions.wake_all()
        else:
            self._deletions.wake(self.leader.low_watermark)

    async def enforce_retention(self, now_ms: int) -> int:
        """Remove the segments that `retention.ms` and `retention.bytes` no longer want."""
        return await enforce_retention(self, self._queue, now_ms=now_ms)

    def on_log_start_advanced(self) -> None:
        """What is below `log.log_start_offset` may not be read any more."""
        if self.leader is not None:
            self.leader.on_log_start_advanced(self.log.log_start_offset)
        if self.epochs.truncate_from_start(self.log.log_start_offset):
            self.on_epochs_cut()
        self._wake_deletions()
        self._announce(0)

    # -- roles -----------------------------------------------------------------------------------

    def lead(self, elect: Callable[["PartitionRunner"], PartitionLeader]) -> None:
        """Lead, in a new epoch. `elect` makes the machine, from the log as it is by then.

        Whoever waited for this broker in an earlier epoch goes on, if it has led all the time.
        """
        self._take_role(lambda: self._begin_to_lead(elect(self)))

    def follow(
        self,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        fetch_for: Callable[[FollowerRunner], None],
    ) -> None:
        """Copy from `leader`; `fetch_for` is called with the follower once it may begin."""
        follower = self.follower
        if follower is not None and not follower.is_stopped:
            follower.machine.on_leader_changed(leader, leader_epoch)
            self._announce(0)
            fetch_for(follower)
            return

        def begin() -> None:
            self._begin_to_follow(leader, leader_epoch)
            assert self.follower is not None
            fetch_for(self.follower)

        self._stop_leading()
        self._take_role(begin)

    def resign(self) -> None:
        """Do neither: this broker is not told any more who leads."""
        self._stop_leading()
        self._take_role(self._do_nothing)

    def _take_role(self, begin: Callable[[], None]) -> None:
        """Begin when nothing is under way that was begun in the role before."""
        follower = self.follower
        if follower is None:
            begin()
            return
        follower.stop()
        self._announce(0)
        if not follower.is_busy:
            begin()
            return
        follower.on_idle = self._begin_next_role
        self._next_role = begin

    def _begin_next_role(self) -> None:
        begin, self._next_role = self._next_role, None
        if begin is not None:
            begin()

    def _begin_to_lead(self, leader: PartitionLeader) -> None:
        self._keep_high_watermark()
        self.leader, self.follower = leader, None
        if leader.leader_epoch > self.epochs.latest_epoch:
            # Before anything is written in it: a follower that has records of an epoch between
            # the last two has to learn that those are not here (KIP-101). On disk it is worth
            # nothing before the first record: who restarts leads in another epoch, if at all.
            self.epochs.assign(leader.leader_epoch, start_offset=self.log.log_end_offset)
            self.has_unwritten_epoch = True
        self._waiters.wake(leader.high_watermark)
        self._wake_deletions()
        self._announce(0)

    def _begin_to_follow(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        self._keep_high_watermark()
        log = self.log
        # An epoch in which this broker led and wrote nothing is not part of its log.
        self.epochs.truncate_from_end(log.log_end_offset)
        self.has_unwritten_epoch = False
        machine = PartitionFollower(
            leader=leader,
            leader_epoch=leader_epoch,
            # It was checkpointed now and then: retention may have passed it, a crash undercut it.
            high_watermark=max(log.log_start_offset, min(self._high_watermark, log.log_end_offset)),
        )
        self.follower = FollowerRunner(self, machine, clock=self._clock)

    def _do_nothing(self) -> None:
        self._keep_high_watermark()
        self.follower = None

    def _stop_leading(self) -> None:
        if self.leader is None:
            return
        self._keep_high_watermark()
        self.leader = None
        self._flusher.give_up()
        self._waiters.wake_all()
        self._wake_deletions()
        self._announce(0)
        self._queue.work_off()

    def _keep_high_watermark(self) -> None:
        self._high_watermark = self.high_watermark

    def on_follower_fetch(
        self,
        replica: BrokerId,
        *,
        broker_epoch: int,
        fetch_offset: Offset,
        log_start_offset: Offset,
    ) -> None:
        """A follower that was admitted holds everything below `fetch_offset`."""
        leader = self.leader
        assert leader is not None
        effects = leader.on_follower_fetch(
            replica,
            broker_epoch=broker_epoch,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            now_ms=self._clock.now_ms(),
        )
        if effects:
            self._perform(effects)
        if self._deletions:
            self._wake_deletions()

    def on_in_sync_changed(self, is_in_sync: bool) -> None:
        """Whether this replica is in the isr, as its newest role says."""
        if self._is_in_sync is not is_in_sync:
            self._is_in_sync = is_in_sync
            self._announce(0)

    def on_isr_changed(self, isr: frozenset[BrokerId], *, version: int) -> None:
        """The cluster's word about who is in sync, by our proposal or not."""
        leader = self.leader
        if leader is None or version <= leader.isr_version:
            return
        self._perform(leader.on_isr_changed(isr, version=version, now_ms=self._clock.now_ms()))

    def on_isr_refused(self, proposed: ProposeIsr) -> None:
        """The controller will not have it."""
        leader = self.leader
        if leader is None or leader.isr_in_flight != proposed.isr:
            return
        if leader.isr_version == proposed.expected_version:
            self._perform(leader.on_isr_refused(now_ms=self._clock.now_ms()))

    def on_replicas_changed(self, replicas: tuple[BrokerId, ...]) -> None:
        if self.leader is not None:
            self._perform(self.leader.on_replicas_changed(replicas, now_ms=self._clock.now_ms()))
            self._wake_deletions()

    def on_live_brokers_changed(self, live_brokers: Mapping[BrokerId, int]) -> None:
        if self.leader is not None:
            self._perform(
                self.leader.on_live_brokers_changed(live_brokers, now_ms=self._clock.now_ms())
            )
            self._wake_deletions()

    def on_tick(self) -> None:
        """Time has passed: who lags leaves the isr (R6)."""
        if self.leader is not None and not self.is_offline:
            self._perform(self.leader.on_tick(now_ms=self._clock.now_ms()))

    def on_committed(self) -> None:
        """As a follower: the leader has said that more is committed."""
        if self._watchers:
            _announce(self._watchers, 0)

    def on_cut(self) -> None:
        """As a follower: the log ends, and perhaps begins, where it did not."""
        self._announce(0)

    def _require_service(self) -> None:
        if self.is_offline or self.leader is None:
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
        self._wake_deletions()
        self._flusher.give_up()
        self._announce(0)
        self._queue.work_off()

    def bring_online(
        self,
        *,
        log: Log,
        high_watermark: Offset,
        epochs: EpochHistory,
        producers: ProducerStates,
    ) -> None:
        """The disk is back and the log was recovered. It has to be told its role again."""
        assert self.is_offline
        assert not self._queue.is_busy  # Logs are opened behind everything the old one began.
        self._stop_leading()
        self._next_role = None
        if self.follower is not None:
            self.follower.stop()
        self.follower = None
        self.log, self.epochs, self.producers = log, epochs, producers
        self._high_watermark = high_watermark
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
            self.succeeded
        )

    def succeeded(self, future: "asyncio.Future[T]") -> bool:
        """Whether the work was done; a disk that failed takes its directory offline."""
        error = future.exception()
        if error is None:
            return True
        self.log_directory.on_failure(as_storage_error(error))
        return False


def _announce(watchers: dict[FetchTarget, Watcher], appended_bytes: int) -> None:
    satisfied = [
        target
        for target, watcher in watchers.items()
        if not watcher.on_news(target, appended_bytes)
    ]
    for target in satisfied:
        del watchers[target]


def _read(log: Log, offset: Offset, *, end_offset: Offset, max_bytes: int) -> DiskRead:
    read = log.read(offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=True)
    if not log.has_aborted:
        return DiskRead(read, ())
    return DiskRead(read, log.aborted_transactions(offset, end_offset=read.end_offset))
