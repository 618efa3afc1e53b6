"""Copies the leader's records into one partition's log: append, truncate, learn what is committed.

    answer of the leader ──┬─ records ──────────▶ append batch by batch ──▶ ready for the next fetch
                           │                           │ segment full, flush.messages
                           │                           ▼
                           │                      busy: a thread rolls or flushes, then go on
                           ├─ diverging epoch ──▶ busy: a thread truncates
                           └─ below the start ──▶ busy: a thread starts the log afresh

While it is busy, its partition is left out of fetches. The rules are in
`core/partition/follower.py`; here they meet a disk.

Consumers read the log meanwhile, up to what is known to be committed (KIP-392).

Invariants:

    I1  One thing at a time happens to the log: nothing is appended while a thread works on it.
    I2  What the leader sent is written as it is, batch by batch, at the offsets it has there.
    I3  Before bytes below the recovery point are cut off, the checkpoint of the recovery point is
        lowered: what is written in their place is not flushed yet, and a crash must find that out.
    I4  Nobody reads while the log is cut: reads are refused from the moment it is decided, and
        those that a thread had begun before are waited for.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from tidelog.base.errors import CorruptBatch, ErrorCode, StorageError
from tidelog.base.ids import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from tidelog.base.ports import Clock
from tidelog.broker.append_queue import AppendQueue
from tidelog.broker.flushing import Flusher
from tidelog.broker.partition_ports import LogDirectory
from tidelog.config.topic import TopicConfig
from tidelog.core.partition.epochs import EpochEnd, EpochHistory
from tidelog.core.partition.follower import PartitionFollower, truncation_offset
from tidelog.core.transactions.producers import EndedTransaction, ProducerStates
from tidelog.records.batch import BatchHeader, checksum_matches, iter_headers
from tidelog.records.control import read_transaction_end
from tidelog.storage.log import Log
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX
from tidelog.storage.opening import Replay, replay_producers
from tidelog.wire.fetch import FetchPartitionResult

logger = logging.getLogger(__name__)

T = TypeVar("T")


class CopiedPartition(Protocol):
    """What a follower needs of its partition."""

    topic_partition: TopicPartition
    topic_id: TopicId
    log: Log
    epochs: EpochHistory
    producers: ProducerStates
    config: TopicConfig
    log_directory: LogDirectory
    is_offline: bool

    @property
    def queue(self) -> AppendQueue: ...
    @property
    def flusher(self) -> Flusher: ...

    def start_writing(self) -> None: ...
    def on_log_start_advanced(self) -> None: ...
    def on_committed(self) -> None: ...
    def on_cut(self) -> None: ...
    def on_epochs_changed(self) -> None: ...
    def on_epochs_cut(self) -> None: ...
    def on_transaction_ended(self, ended: EndedTransaction) -> None: ...
    def succeeded(self, future: "asyncio.Future[T]") -> bool: ...


class Position(NamedTuple):
    """Where a follower stands, as a fetch says it."""

    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset


class Verdict(Enum):
    """What an answer means for the next fetch of this partition."""

    GO_ON = "go on"
    BUSY = "busy"
    """`on_ready` is called when it may be fetched again."""
    LATER = "later"
    """Something is wrong that may pass: the leader is not one, or does not know us yet."""
    STOPPED = "stopped"


class FollowerRunner:
    """The only caller of its PartitionFollower, always on the event loop."""

    __slots__ = (
        "_clock",
        "_partition",
        "_rest",
        "fetched",
        "is_busy",
        "is_cutting",
        "is_lagging",
        "is_stopped",
        "machine",
        "on_idle",
        "on_ready",
    )

    def __init__(
        self, partition: CopiedPartition, machine: PartitionFollower, *, clock: Clock
    ) -> None:
        self._partition = partition
        self._clock = clock
        self.machine = machine
        self.is_busy = False
        self.is_cutting = False
        self.is_stopped = False
        self.is_lagging = True
        """Whether it may lack something that is committed; a member of the isr never does."""
        self.on_ready: Callable[[FollowerRunner], None] = _nobody
        """Called when it was busy and is not any more. Set by who fetches."""
        self.on_idle: Callable[[], None] | None = None
        """Called once when nothing is under way any more; for whoever takes over the log."""
        self._rest: list[tuple[memoryview, BatchHeader]] = []
        self.fetched: FetchPartitionResult | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return self._partition.topic_partition

    @property
    def topic_id(self) -> TopicId:
        return self._partition.topic_id

    @property
    def position(self) -> Position:
        log = self._partition.log
        return Position(
            self.machine.leader_epoch,
            log.log_end_offset,
            self._partition.epochs.latest_epoch,
            log.log_start_offset,
        )

    @property
    def may_fetch(self) -> bool:
        return not (
            self.is_busy
            or self.is_stopped
            or self._partition.is_offline
            or self._partition.queue.is_busy
        )

    @property
    def is_readable(self) -> bool:
        """Whether consumers may read here what is known to be committed. I4"""
        return not (self.is_cutting or self.is_stopped)

    def stop(self) -> None:
        """Somebody else decides about the log from now on, once nothing is under way."""
        self.is_stopped = True

    def on_queue_free(self) -> None:
        """Something has ended that this broker may have begun as leader: a roll, a rewrite."""
        if self.may_fetch:
            self.on_ready(self)

    # -- what the leader says --------------------------------------------------------------------

    def on_answer(self, position: Position, result: FetchPartitionResult) -> Verdict:
        """Take in what the leader answered to a fetch from `position`."""
        if self.is_stopped:
            return Verdict.STOPPED
        if not self.may_fetch:
            return Verdict.LATER
        if position != self.position:
            return Verdict.GO_ON  # The answer to a question that is not ours any more.
        return self._take_in(result)

    def _take_in(self, result: FetchPartitionResult) -> Verdict:
        if result.error_code != ErrorCode.NONE:
            return self._on_error(result)
        if result.diverging_epoch is not None:
            epoch, end_offset = result.diverging_epoch
            return self._on_diverging(EpochEnd(LeaderEpoch(epoch), Offset(end_offset)))
        try:
            batches = self._checked(result)
        except CorruptBatch as error:
            logger.error(
                "leader sent damaged records",
                extra={"partition": self.topic_partition, "reason": error},
            )
            return Verdict.LATER
        self.fetched = result
        self._rest = batches
        if batches and batches[0][1].base_offset < self._partition.log.log_end_offset:
            base_offset = Offset(batches[0][1].base_offset)
            cut = partial(self._partition.log.truncate_fully_and_start_at, base_offset)
            return self._cut(base_offset, cut, self._go_on)
        return self._append_rest()

    def _on_error(self, result: FetchPartitionResult) -> Verdict:
        if result.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return Verdict.LATER
        log = self._partition.log
        if result.log_start_offset > log.log_end_offset:
            return self._start_afresh(Offset(result.log_start_offset))
        if self._partition.epochs.latest_epoch == NO_LEADER_EPOCH:
            # Nothing to compare by, and the leader's log ends before ours.
            return self._start_afresh(Offset(max(0, result.log_start_offset)))
        return Verdict.LATER

    def _start_afresh(self, offset: Offset) -> Verdict:
        logger.warning(
            "log starts afresh where the leader's begins",
            extra={"partition": self.topic_partition, "offset": offset},
        )
        log = self._partition.log
        return self._cut(offset, partial(log.truncate_fully_and_start_at, offset), self._be_ready)

    def _on_diverging(self, leader_end: EpochEnd) -> Verdict:
        log = self._partition.log
        offset = truncation_offset(
            self._partition.epochs, leader_end, log_end_offset=log.log_end_offset
        )
        logger.info(
            "truncating",
            extra={
                "partition": self.topic_partition,
                "log_end_offset": log.log_end_offset,
                "offset": offset,
                "leader_epoch": self.machine.leader_epoch,
            },
        )
        return self._cut(offset, partial(log.truncate_to, offset), self._be_ready)

    # -- appending -------------------------------------------------------------------------------

    def _checked(self, result: FetchPartitionResult) -> list[tuple[memoryview, BatchHeader]]:
        """The batches of an answer. Raises CorruptBatch.

        The first may begin below what was asked for if nothing is in the log yet: the leader's
        may start in the middle of a batch (DeleteRecords), and is copied from where that begins.
        """
        records = memoryview(result.records)
        batches: list[tuple[memoryview, BatchHeader]] = []
        log = self._partition.log
        offset = log.log_end_offset
        is_empty = log.log_start_offset == offset
        for position, header in iter_headers(records):
            batch = records[position : position + header.size_bytes]
            if not checksum_matches(records, position, header.size_bytes):
                raise CorruptBatch(f"checksum of the batch at offset {header.base_offset}")
            if header.last_offset < header.base_offset or header.last_offset < offset:
                raise CorruptBatch(f"offset {header.last_offset} where {offset} was asked for")
            if header.base_offset < offset and not (is_empty and not batches):
                raise CorruptBatch(f"offset {header.base_offset} where {offset} was asked for")
            if header.last_offset - offset > RELATIVE_OFFSET_MAX:
                # No segment can hold that. Offsets are not part of the checksum.
                raise CorruptBatch(f"offset {header.last_offset} where {offset} was asked for")
            offset = Offset(header.last_offset + 1)
            batches.append((batch, header))
        return batches

    def _append_rest(self) -> Verdict:
        """Append until all is done or a thread is needed. I1, I2"""
        partition = self._partition
        log = partition.log
        now_ms = self._clock.now_ms()
        while self._rest:
            batch, header = self._rest[0]
            if log.roll_needed(
                size_bytes=len(batch),
                max_timestamp_ms=header.max_timestamp_ms,
                now_ms=now_ms,
                last_offset=Offset(header.last_offset),
            ):
                rolled = partition.queue.roll(now_ms)
                return self._wait(rolled, self._go_on, even_if_stopped=None)
            try:
                self._append(batch, header, now_ms)
            except StorageError as error:
                self._rest.clear()
                partition.log_directory.on_failure(error)
                return Verdict.LATER
            del self._rest[0]
        flusher = partition.flusher
        if flusher.unflushed_records >= partition.config.flush_messages:
            return self._wait(flusher.start(), self._go_on, even_if_stopped=None)
        return self._learn()

    def _append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        partition = self._partition
        base_offset = Offset(header.base_offset)
        partition.log.append(
            batch,
            base_offset=base_offset,
            last_offset=Offset(header.last_offset),
            max_timestamp_ms=header.max_timestamp_ms,
        )
        if partition.log.is_writing_due:
            partition.start_writing()
        if header.leader_epoch > partition.epochs.latest_epoch:
            partition.epochs.assign(LeaderEpoch(header.leader_epoch), start_offset=base_offset)
            partition.on_epochs_changed()
        end = read_transaction_end(batch) if header.is_control else None
        ended = partition.producers.on_replayed(header, end)
        if ended is not None:
            partition.on_transaction_ended(ended)
        flusher = partition.flusher
        if flusher.unflushed_records == 0:
            flusher.unflushed_since_ms = now_ms
        flusher.unflushed_records += header.record_count

    def _go_on(self) -> None:
        if self._append_rest() is not Verdict.BUSY:
            self.on_ready(self)

    def _learn(self) -> Verdict:
        """All of the answer is in the log: what it said about the leader's log counts now."""
        result, self.fetched = self.fetched, None
        assert result is not None
        partition = self._partition
        log = partition.log
        if self.machine.on_fetched(
            leader_high_watermark=Offset(result.high_watermark),
            log_end_offset=log.log_end_offset,
        ):
            partition.on_committed()
        self.is_lagging = result.high_watermark > log.log_end_offset
        start_offset = min(Offset(result.log_start_offset), self.machine.high_watermark)
        if start_offset > log.log_start_offset:
            log.advance_log_start(start_offset)
            partition.on_log_start_advanced()
        return Verdict.GO_ON

    # -- truncating ------------------------------------------------------------------------------

    def _cut(self, offset: Offset, cut: Callable[[], None], then: Callable[[], None]) -> Verdict:
        self.is_cutting = True
        # The same thread has the reads that were begun before, and does one thing after another.
        done_reading = self._partition.log_directory.executor.urgent(_nothing)
        return self._wait(
            done_reading, lambda: self._cut_unread(offset, cut, then), even_if_stopped=None
        )

    def _cut_unread(
        self, offset: Offset, cut: Callable[[], None], then: Callable[[], None]
    ) -> None:
        partition = self._partition
        log = partition.log
        # Ticks and whoever describes producers look at the old ones until it is done.
        producers = partition.producers.emptied()
        replay = Replay(
            restore=lambda entries, end_offset: producers.restore(entries, end_offset=end_offset),
            observe=producers.on_replayed,
        )

        def work() -> None:
            """On a thread; nobody else touches the log meanwhile."""
            cut()
            replay_producers(log, log.disk, replay, _say_repaired)

        lowered = min(offset, log.recovery_point)
        done = partition.log_directory.truncate(partition.topic_partition, lowered, work)
        self._wait(done, then, even_if_stopped=partial(self._on_cut, producers))

    def _on_cut(self, producers: ProducerStates) -> None:
        """A log that was cut has to be known as such, whoever decides about it by now."""
        partition = self._partition
        partition.producers = producers
        log = partition.log
        epochs = partition.epochs
        is_empty = log.log_start_offset == log.log_end_offset
        if epochs.clear() if is_empty else epochs.truncate_from_end(log.log_end_offset):
            partition.on_epochs_cut()
        if self.machine.on_truncated(
            log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
        ):
            logger.warning(
                "committed records truncated",
                extra={"partition": self.topic_partition, "log_end_offset": log.log_end_offset},
            )
        self.is_cutting = False
        partition.on_cut()

    def _be_ready(self) -> None:
        self.on_ready(self)

    # -- waiting for a thread --------------------------------------------------------------------

    def _wait(
        self,
        work: "asyncio.Future[T]",
        then: Callable[[], None],
        *,
        even_if_stopped: Callable[[], None] | None,
    ) -> Verdict:
        """Go on with `then` when a thread has done `work`, unless it is stopped by then."""
        assert not self.is_busy  # I1
        self.is_busy = True
        work.add_done_callback(lambda done: self._on_done(done, then, even_if_stopped))
        return Verdict.BUSY

    def _on_done(
        self,
        done: "asyncio.Future[T]",
        then: Callable[[], None],
        even_if_stopped: Callable[[], None] | None,
    ) -> None:
        self.is_busy = False
        has_succeeded = self._partition.succeeded(done)
        on_idle, self.on_idle = self.on_idle, None
        if has_succeeded and not self._partition.is_offline:
            if even_if_stopped is not None:
                even_if_stopped()
            if self.is_stopped:
                self._rest.clear()
            else:
                then()
        if on_idle is not None:
            on_idle()


def _nobody(_follower: FollowerRunner) -> None:
    """Nobody fetches for it yet."""


def _nothing() -> None:
    """What a thread does whose work before that is waited for."""


def _say_repaired(sentence: str) -> None:
    logger.warning("repaired", extra={"reason": sentence})
