"""Clients' batches, from the request to the log of one partition and to its followers.

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
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from tidelog.base.ports import BytesLike
from tidelog.broker.append_queue import Preparation, QueuedAppend, Settle
from tidelog.broker.append_terms import NO_GUARD, FromClient, FromCoordinator, Marker
from tidelog.broker.partition_ports import LogDirectory, succeeded_in
from tidelog.broker.produce_results import refused_by, refused_partition
from tidelog.broker.sent_ids import SentIds, judged_ms
from tidelog.broker.served_partition import ServedPartition, announce
from tidelog.core.partition.effects import ADVANCED
from tidelog.core.partition.leader import PartitionLeader
from tidelog.records.batch import (
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
    stamp,
    stamp_log_append_time,
)
from tidelog.records.control import encode_marker, read_transaction_end
from tidelog.records.producer import ProducedBatch
from tidelog.records.validation import needs_rewrite, rewrite, validate_produce
from tidelog.wire.produce import PartitionProduceResult

ACKS_ALL = -1

_Attempt = PartitionProduceResult | Preparation | None


class _Appended(NamedTuple):
    """A batch that is in the log, and whom to tell."""

    base_offset: Offset
    end_offset: Offset
    timestamp_ms: int
    acks: int
    settle: Settle


class PartitionAppends(ServedPartition):
    """Appends what clients send to a partition that this broker leads."""

    __slots__ = ()

    def append(
        self,
        records: memoryview | bytearray,
        *,
        acks: int,
        now_ms: int,
        settle: Settle,
        terms: FromClient = NO_GUARD,
    ) -> PartitionProduceResult | None:
        """Append a client's batch. None: not decided yet, `settle` is called with the result.

        `records` is written into (offset and epoch are stamped) and not kept.
        """
        queue = self._queue
        if queue.must_wait and not self.is_offline:
            queue.push(records, acks, settle, terms)
            return None
        attempt = self._attempt(records, acks, now_ms, settle, terms, is_rewritten=False, sent=None)
        if isinstance(attempt, Preparation):
            queue.push(records, acks, settle, terms)
            queue.prepare(attempt, now_ms)
            return None
        return attempt

    def append_own(
        self, batch: bytearray, *, now_ms: int, settle: Settle
    ) -> PartitionProduceResult | None:
        """Append what this broker itself has to say in an internal topic, with acks=all.

        It is believed: neither validated nor rewritten, nor looked for among a producer's batches.
        Otherwise as `append`. What is part of a client's transaction is refused if a marker that
        came before has ended that.
        """
        header = read_header(batch, 0)
        terms = FromCoordinator(self.producers.guards.of(header.producer_id))
        return self._append_internal(batch, now_ms, settle, terms)

    def append_marker(
        self, marker: Marker, *, now_ms: int, settle: Settle
    ) -> PartitionProduceResult | None:
        """End a transaction in this partition, with acks=all. Otherwise as `append`."""
        batch = encode_marker(
            marker.end,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=now_ms,
        )
        return self._append_internal(batch, now_ms, settle, marker)

    def _append_internal(
        self, batch: bytearray, now_ms: int, settle: Settle, terms: FromCoordinator | Marker
    ) -> PartitionProduceResult | None:
        queue = self._queue
        if queue.must_wait and not self.is_offline:
            queue.push(batch, ACKS_ALL, settle, terms)
            return None
        attempt = self._attempt_internal(batch, now_ms, settle, terms)
        if isinstance(attempt, Preparation):
            queue.push(batch, ACKS_ALL, settle, terms)
            queue.prepare(attempt, now_ms)
            return None
        return attempt

    def _attempt_internal(
        self, batch: bytearray, now_ms: int, settle: Settle, terms: FromCoordinator | Marker
    ) -> _Attempt:
        leader = self.leader
        if self.is_offline or leader is None:
            return self._refused_service()
        assert not self._queue.is_busy  # I2
        header = read_header(batch, 0)
        try:
            leader.refuse_before_append(ACKS_ALL)
            if isinstance(terms, Marker):
                self.producers.on_marker(
                    terms.producer_id,
                    terms.producer_epoch,
                    coordinator_epoch=terms.end.coordinator_epoch,
                    transaction_version=terms.transaction_version,
                )
            elif header.is_transactional:
                self.producers.on_coordinator_batch(
                    header.producer_id, header.producer_epoch, terms.guard
                )
        except RequestRefused as refusal:
            return self._refused(refusal)
        attempt = self._write_or_roll(batch, header, ACKS_ALL, now_ms, settle)
        if isinstance(terms, Marker) and not isinstance(attempt, Preparation):
            self._tell_marker(terms)
        return attempt

    def _tell_marker(self, marker: Marker) -> None:
        """Only now: who hears of it may append something, which comes behind it."""
        if self.marker_watcher is not None and not self.is_offline:
            self.marker_watcher(marker, self.log.log_end_offset)

    def _attempt(
        self,
        records: memoryview | bytearray,
        acks: int,
        now_ms: int,
        settle: Settle,
        terms: FromClient,
        *,
        is_rewritten: bool,
        sent: SentIds | None,
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
                if header.attributes & TRANSACTIONAL_FLAG:
                    copy = self.producers.on_transactional_batch(header, terms.guard)
                else:
                    copy = self.producers.on_batch(header)
                if copy is not None:
                    return self._answer_repeated(copy, header, records, sent, acks, settle)
            if self.deduplicator is not None:
                return self._append_unseen(records, header, sent, acks, now_ms, settle)
        except RequestRefused as refusal:
            return self._refuse(refusal, leader, settle)
        return self._write_or_roll(records, header, acks, now_ms, settle)

    def _append_unseen(
        self,
        records: memoryview | bytearray,
        header: BatchHeader,
        sent: SentIds | None,
        acks: int,
        now_ms: int,
        settle: Settle,
    ) -> _Attempt:
        """Append what was not sent before (D5). Raises RequestRefused.

        A client whose whole batch was is told where the first copy is; it waits for that to be
        committed as for its own.
        """
        deduplicator = self.deduplicator
        assert deduplicator is not None
        is_stamped = self._is_log_append_time
        asked_ms = judged_ms(sent, now_ms) if is_stamped else header.max_timestamp_ms
        unseen = deduplicator.look(
            header, records, sent, timestamp_ms=asked_ms, limits=self._limits
        )
        if isinstance(unseen, Preparation):
            return unseen
        seen, told_offset = unseen.seen, unseen.first_copy_offset
        if unseen.records is None:
            assert seen is not None
            assert told_offset is not None
            deduplicator.on_dropped(seen.record_count, now_ms)
            return self._acknowledge(
                _Appended(told_offset, seen.end_offset, NO_TIMESTAMP, acks, settle)
            )
        base_offset = self.log.log_end_offset
        if told_offset is not None:
            settle = _telling(settle, told_offset)
        attempt = self._write_or_roll(unseen.records, unseen.header, acks, now_ms, settle)
        if self.log.log_end_offset > base_offset:
            is_stamped = is_stamped and unseen.header.record_count > 0
            deduplicator.on_appended(
                unseen.header,
                unseen.entries,
                base_offset=base_offset,
                timestamp_ms=now_ms if is_stamped else unseen.header.max_timestamp_ms,
            )
            if seen is not None:
                deduplicator.on_dropped(seen.record_count, now_ms)
        if told_offset is not None and isinstance(attempt, PartitionProduceResult):
            return _told(attempt, told_offset)
        return attempt

    def _answer_repeated(
        self,
        copy: ProducedBatch,
        header: BatchHeader,
        records: memoryview | bytearray,
        sent: SentIds | None,
        acks: int,
        settle: Settle,
    ) -> _Attempt:
        """Answer what was sent before as it was answered then, or would have been."""
        base_offset = copy.base_offset
        if self.deduplicator is not None:
            told = self.deduplicator.told_offset(copy, header, records, sent)
            if isinstance(told, Preparation):
                return told
            base_offset = told
        end_offset = Offset(copy.last_offset + 1)
        return self._acknowledge(
            _Appended(base_offset, end_offset, copy.timestamp_ms, acks, settle)
        )

    def _write_or_roll(
        self,
        records: memoryview | bytearray,
        header: BatchHeader,
        acks: int,
        now_ms: int,
        settle: Settle,
    ) -> _Attempt:
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
        if self._is_log_append_time and header.record_count:
            stamp_log_append_time(records, 0, now_ms)
            timestamp_ms = now_ms
        try:
            log.append(
                records,
                base_offset=base_offset,
                last_offset=last_offset,
                max_timestamp_ms=timestamp_ms,
            )
            if header.producer_id >= 0:
                self._note_producer(records, header, base_offset, timestamp_ms)
        except StorageError as error:
            self.log_directory.on_failure(error)
            return self._refused_service()
        if log.is_writing_due:
            self.start_writing()
        if self.has_unwritten_epoch or leader_epoch > self.epochs.latest_epoch:
            self._start_epoch(leader_epoch, base_offset)
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

    def _note_producer(
        self,
        records: memoryview | bytearray,
        header: BatchHeader,
        offset: Offset,
        timestamp_ms: int,
    ) -> None:
        if not header.attributes & CONTROL_FLAG:
            self.producers.on_appended(header, base_offset=offset, timestamp_ms=timestamp_ms)
            return
        end = read_transaction_end(records)
        assert end is not None
        if self.deduplicator is not None:
            self.deduplicator.on_marker(header, end, offset=offset, timestamp_ms=timestamp_ms)
        ended = self.producers.on_marker_appended(
            header, end, offset=offset, timestamp_ms=timestamp_ms
        )
        if ended is not None:
            self.on_transaction_ended(ended)

    def start_writing(self) -> None:
        """Much was appended: let the device have it before the system writes it all at once.

        One at a time: of a disk that hangs, a thread would be asked for it without end.
        """
        if self.deduplicator is not None and self.leader is None:
            self.deduplicator.follow()
        if self._is_writing:
            self.log.postpone_writing()
            return
        self._is_writing = True
        directory = self.log_directory
        writing = directory.executor.background(self.log.start_writing())
        writing.add_done_callback(partial(self._on_writing_started, directory))

    def _on_writing_started(self, directory: LogDirectory, started: "asyncio.Future[None]") -> None:
        self._is_writing = False
        succeeded_in(directory, started)

    def _advance(self, end_offset: Offset, appended_bytes: int, now_ms: int) -> None:
        """Tell the machine how far the log goes and wake whoever may read more now."""
        leader = self.leader
        assert leader is not None
        effects = leader.on_append(end_offset, now_ms=now_ms)
        self._uncommitted_bytes += appended_bytes
        if self._follower_watchers:
            announce(self._follower_watchers, appended_bytes)
        if effects is ADVANCED:
            self._on_high_watermark_advanced()
        elif effects:
            self._perform(effects)

    def _start_epoch(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> None:
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, start_offset=start_offset)
        self.on_epochs_changed()

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

    def when_committed(self, offset: Offset, callback: Callable[[], None]) -> None:
        """Call back once the high watermark is `offset`, or this broker does not lead any more."""
        if self.leader is None or self.high_watermark >= offset:
            callback()
        else:
            self._waiters.add(offset, callback)

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
        records, acks, settle, terms, is_rewritten, sent = append
        if isinstance(terms, FromClient):
            return self._attempt(
                records, acks, now_ms, settle, terms, is_rewritten=is_rewritten, sent=sent
            )
        return self._attempt_internal(records, now_ms, settle, terms)

    def _start_roll(self, now_ms: int) -> "asyncio.Future[None]":
        return self.log_directory.executor.urgent(
            self.log.roll, producers=self.producers.entries(), now_ms=now_ms
        )

    def _start_rewrite(self, records: bytearray, now_ms: int) -> "asyncio.Future[BytesLike]":
        return self.log_directory.executor.urgent(rewrite, records, self._limits, now_ms=now_ms)

    def _start_reading_ids(
        self, preparation: Preparation, append: QueuedAppend
    ) -> "asyncio.Future[SentIds | None]":
        if self.deduplicator is None:  # The topic was told otherwise meanwhile.
            nothing: asyncio.Future[SentIds | None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        return self.deduplicator.prepare(
            preparation, append.records, append.sent, limits=self._limits
        )

    def _on_rolled(self, rolled: "asyncio.Future[None]") -> None:
        if self.succeeded(rolled) and not self.is_offline:
            self._flusher.start()
            if self.deduplicator is not None:
                self.deduplicator.on_rolled()

    def _on_queue_free(self) -> None:
        """What was begun as leader has ended, whatever it was: a follower may go on."""
        if self.follower is not None:
            self.follower.on_queue_free()

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


def _telling(settle: Settle, base_offset: Offset) -> Settle:
    return lambda result: settle(_told(result, base_offset))


def _told(result: PartitionProduceResult, base_offset: Offset) -> PartitionProduceResult:
    if result.error_code != ErrorCode.NONE:
        return result
    return result._replace(base_offset=base_offset)
