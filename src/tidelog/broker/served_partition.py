"""One partition on this broker, as all that is done with it sees it: its log, its role, who waits.

    ServedPartition           this: what is known of it, and whom to tell
      └ PartitionAppends      clients' batches (`partition_appends.py`)
          └ PartitionRoles    leading, following, neither (`partition_roles.py`)
              └ PartitionRunner   reading and upkeep (`partition_runner.py`), which makes it all

One object, because all of it happens to one log and must not interleave; several files, because
each reads better alone. A part uses the fields that are declared here, and the parts above it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar, assert_never

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import (
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from tidelog.base.ports import Clock
from tidelog.broker.append_queue import AppendQueue, Settle
from tidelog.broker.append_terms import Marker
from tidelog.broker.batch_limits import batch_limits
from tidelog.broker.deduplication import (
    Deduplicator,
    DedupSettings,
    dedup_settings,
    warn_of_short_retention,
)
from tidelog.broker.flushing import Flusher
from tidelog.broker.follower_runner import FollowerRunner
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partition_ports import LogCopy, LogDirectory, Watcher, succeeded_in
from tidelog.broker.waiters import OffsetFutures, OffsetWaiters
from tidelog.config.topic import TopicConfig
from tidelog.core.partition.effects import Effects, HighWatermarkAdvanced, ProposeIsr
from tidelog.core.partition.epochs import EpochHistory
from tidelog.core.partition.leader import PartitionLeader
from tidelog.core.sessions import FetchTarget
from tidelog.core.transactions.producers import EndedTransaction, ProducerStates
from tidelog.records.batch import TimestampType
from tidelog.records.validation import BatchLimits, may_rewrite
from tidelog.storage.log import Log
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.wire.produce import PartitionProduceResult

P = ParamSpec("P")
T = TypeVar("T")

ProposeToController = Callable[["ServedPartition", ProposeIsr], None]
RefuseIfLeading = Callable[["ServedPartition", PartitionProduceResult, Settle], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPorts:
    """What all partitions of a broker need from outside, and have in common."""

    request_memory: MemoryBound
    clock: Clock
    hash_key: bytes
    """See `BrokerPorts`."""

    propose_isr: ProposeToController
    refuse_if_leading: RefuseIfLeading


class ServedPartition:
    """The state of a partition, what its leader machine is told, and whoever waits for it."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_deletions",
        "_flush_messages",
        "_flusher",
        "_follower_watchers",
        "_hash_key",
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
        "deduplicator",
        "epochs",
        "follower",
        "has_unwritten_epoch",
        "is_offline",
        "is_rearranged",
        "leader",
        "log",
        "log_directory",
        "marker_watcher",
        "move",
        "partition",
        "producers",
        "role_watcher",
        "topic_id",
        "topic_partition",
    )

    _clock: Clock
    _deletions: OffsetFutures
    _flush_messages: int
    _flusher: Flusher
    _follower_watchers: dict[FetchTarget, Watcher]
    _hash_key: bytes
    _high_watermark: Offset
    _is_in_sync: bool
    _is_log_append_time: bool
    _is_writing: bool
    _limits: BatchLimits
    _may_rewrite: bool
    _next_role: Callable[[], None] | None
    _propose_isr: ProposeToController
    _queue: AppendQueue
    _refuse_if_leading: RefuseIfLeading
    _reported_damage: str | None
    _uncommitted_bytes: int
    _waiters: OffsetWaiters
    _watchers: dict[FetchTarget, Watcher]
    config: TopicConfig
    deduplicator: Deduplicator | None
    epochs: EpochHistory
    follower: FollowerRunner | None
    has_unwritten_epoch: bool
    is_offline: bool
    is_rearranged: bool
    """Whether retention or compaction is at work on its closed segments."""
    leader: PartitionLeader | None
    log: Log
    log_directory: LogDirectory
    move: LogCopy | None
    """Who copies the log to another log directory; None if nobody does."""
    marker_watcher: Callable[[Marker, Offset], None] | None
    """Is told of each marker that this leader has appended, and where the log ends since."""
    partition: int
    producers: ProducerStates
    role_watcher: Callable[[], None] | None
    """Is told when this broker begins to lead, in each epoch, and when it ends."""
    topic_id: TopicId
    topic_partition: TopicPartition

    def _use(self, config: TopicConfig) -> None:
        self.config = config
        self._limits = limits = batch_limits(config)
        self._is_log_append_time = limits.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._deduplicate(dedup_settings(config))
        self._may_rewrite = may_rewrite(limits) or self.deduplicator is not None
        self._flush_messages = config.flush_messages

    def _deduplicate(self, settings: DedupSettings | None) -> None:
        if settings is None:
            self.deduplicator = None
        elif self.deduplicator is None:
            self.deduplicator = Deduplicator(self, settings, self._hash_key)
            warn_of_short_retention(self.topic_partition, self.config)
        else:
            self.deduplicator.reconfigure(settings)

    @property
    def leads(self) -> bool:
        return self.leader is not None

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
    def last_stable_offset(self) -> Offset:
        """The end of what a read_committed consumer may see."""
        # What a transaction began with may have been deleted since.
        return max(
            self.log.log_start_offset, self.producers.last_stable_offset(self.high_watermark)
        )

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
    def is_cutting(self) -> bool:
        """Whether the end of the log is being taken off, or about to be."""
        return self.follower is not None and self.follower.is_cutting

    @property
    def queue(self) -> AppendQueue:
        return self._queue

    @property
    def flusher(self) -> Flusher:
        return self._flusher

    # -- whom to tell ----------------------------------------------------------------------------

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
        producers = self.producers
        if producers.uncommitted_ends and producers.on_committed(self.high_watermark):
            # More may be stable than was appended just now. Whoever reads committed records has to
            # look, however little that was.
            committed_bytes = 0
        if self._waiters:
            self._waiters.wake(self.high_watermark)
        if self._watchers:
            announce(self._watchers, committed_bytes)
        for target, watcher in self._follower_watchers.items():
            watcher.on_quiet_news(target)

    def _announce(self, appended_bytes: int) -> None:
        """Something is new for readers of all kinds; 0 bytes: something other than records."""
        announce(self._watchers, appended_bytes)
        announce(self._follower_watchers, appended_bytes)

    def _wake_deletions(self) -> None:
        if not self._deletions:
            return
        if self.is_offline or self.leader is None:
            self._deletions.wake_all()
        else:
            self._deletions.wake(self.leader.low_watermark)

    # -- what the leader machine hears -----------------------------------------------------------

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
        """Time has passed: who lags leaves the isr (R6), and who follows reads on (D5)."""
        if self.deduplicator is not None and self.leader is None:
            self.deduplicator.follow()
        if self.leader is not None and not self.is_offline:
            self._perform(self.leader.on_tick(now_ms=self._clock.now_ms()))

    # -- the log ---------------------------------------------------------------------------------

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

    def on_transaction_ended(self, ended: EndedTransaction) -> None:
        """A marker is in the log. Of an abort, readers of committed records are told."""
        if ended.is_abort:
            self.log.append_aborted(
                AbortedTransaction(
                    ended.producer_id,
                    ended.first_offset,
                    ended.marker_offset,
                    ended.last_stable_offset,
                )
            )

    def on_log_start_advanced(self) -> None:
        """What is below `log.log_start_offset` may not be read any more."""
        if self.leader is not None:
            self.leader.on_log_start_advanced(self.log.log_start_offset)
        if self.epochs.truncate_from_start(self.log.log_start_offset):
            self.on_epochs_cut()
        self._wake_deletions()
        self._announce(0)

    # -- service ---------------------------------------------------------------------------------

    def _require_service(self) -> None:
        if self.is_offline or self.leader is None:
            raise RequestRefused(self._why_not_served())

    def _why_not_served(self) -> ErrorCode:
        if self.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _in_background(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        directory = self.log_directory  # By then the log may be in another one.
        directory.executor.background(work, *args, **kwargs).add_done_callback(
            partial(succeeded_in, directory)
        )

    def succeeded(self, future: "asyncio.Future[T]") -> bool:
        """Whether the work was done; a disk that failed takes its directory offline."""
        return succeeded_in(self.log_directory, future)


def announce(watchers: dict[FetchTarget, Watcher], appended_bytes: int) -> None:
    satisfied = [
        target
        for target, watcher in watchers.items()
        if not watcher.on_news(target, appended_bytes)
    ]
    for target in satisfied:
        del watchers[target]
