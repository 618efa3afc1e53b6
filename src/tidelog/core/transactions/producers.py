"""What one partition knows about the idempotent producers that write to it (D2).

A producer numbers the records it sends to a partition and keeps at most five batches in flight.
For each batch that arrives there are three outcomes:

    next in order                    append it, then tell `on_appended` where it went
    one of the last five, again      the answer got lost: answer with the first copy's offsets
    anything else                    refused; appending it would lose, repeat or reorder records

Rules, those of a Kafka 4.x broker:

    Q1  An epoch older than the producer's newest is a fenced writer: INVALID_PRODUCER_EPOCH.
    Q2  A newer epoch starts again at sequence 0: OUT_OF_ORDER_SEQUENCE_NUMBER otherwise.
    Q3  Within an epoch the first sequence is the one after the last; after 2^31-1 comes 0.
    Q4  A repetition has the epoch, the first and the last sequence of a remembered batch. It is
        looked for before Q3, and a batch that only overlaps a remembered one is no repetition.
    Q5  A producer of whom nothing is known may start anywhere (KIP-360). Its state may have
        expired, and refusing would stop a healthy producer for ever. So UNKNOWN_PRODUCER_ID,
        which older brokers gave here, is never an answer.
    Q6  While a transaction of the producer is open, only transactional batches: INVALID_TXN_STATE.
    Q7  A producer without an open transaction expires `producer.id.expiration.ms` after the
        timestamp of its last batch. Deleting its records (retention, DeleteRecords) does not
        make it forgotten.

A coordinator ends a transaction with a *marker*, a control batch of the producer (D3):

    M1  An epoch of the coordinator older than one that has ended a transaction of this producer is
        a coordinator that was replaced: TRANSACTION_COORDINATOR_FENCED.
    M2  Its producer epoch is not older than the producer's newest: INVALID_PRODUCER_EPOCH. In
        transaction version 2, in which each transaction has an epoch of its own, it is newer:
        otherwise a late marker of one transaction would end the next. But the same once more is
        welcome after the transaction has ended (the answer got lost), and in the last epoch that
        there is.
    M3  A marker of a newer epoch fences the producer as a batch does (Q1), and what follows starts
        again at sequence 0 (Q2). So does one of a producer nobody knows.
    M4  What lies behind the first offset of a transaction is not stable before its marker is
        committed. A marker that a change of leaders takes back did not end anything:

            first batch       marker      high watermark
                ├─ ... ─ ... ───┤              ┊              ended, not yet committed: unstable
                ├─ ... ─ ... ───┤──────────────┤              stable

        A snapshot does not say which ends are committed. Who restarts from one takes those before
        it for committed, as Kafka does: an end that is taken back comes again with the same
        outcome, since that was decided before the first marker was sent.

Whether a transactional batch may be appended at all is `verification.py`'s.

Invariants:

    I1  a producer has at most five remembered batches, and the last of them ends just before
        `next_sequence`
    I2  offsets are reported in increasing order
    I3  a transaction is open in `_open_transactions` exactly if its producer says so
    I4  `uncommitted_ends` are in the order of their markers

Not here: checking that the header makes sense (`records/validation.py`), waiting until a repeated
batch is committed (its first copy may still be on its way to the followers), and who may write
under a transactional id (the transaction coordinator).
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_OFFSET, Offset, ProducerEpoch, ProducerId
from tidelog.core.transactions.producer import (
    Producer,
    after,
    fenced,
    judge,
    may_end,
    remembered,
    restored,
)
from tidelog.core.transactions.verification import Guard, Guards
from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, TransactionEnd
from tidelog.records.producer import REMEMBERED_BATCHES_MAX, ProducedBatch, ProducerEntry


class EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log now."""

    producer_id: ProducerId
    first_offset: Offset
    marker_offset: Offset
    last_stable_offset: Offset
    """What is stable as soon as the marker is: where the next transaction begins that is still
    open, or behind the marker."""

    is_abort: bool


class ProducerStates:
    """Tells new batches from repeated and misplaced ones. One per partition."""

    __slots__ = (
        "_last_offset",
        "_open_transactions",
        "_producer_id_expiration_ms",
        "_producers",
        "_producers_max",
        "guards",
        "uncommitted_ends",
    )

    def __init__(self, *, producer_id_expiration_ms: int, producers_max: int) -> None:
        assert producer_id_expiration_ms > 0
        assert producers_max > 0
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._producers_max = producers_max
        self._producers: dict[int, Producer] = {}
        # In order of first offset, because appending is what opens a transaction.
        self._open_transactions: dict[int, Offset] = {}
        self._last_offset = NO_OFFSET
        self.uncommitted_ends: deque[tuple[Offset, Offset]] = deque()
        """First offset and marker of transactions that have ended. M4"""
        self.guards = Guards(expiration_ms=producer_id_expiration_ms, guards_max=producers_max)

    def emptied(self) -> "ProducerStates":
        """Another one that knows nothing yet, for a log that is read again."""
        return ProducerStates(
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            producers_max=self._producers_max,
        )

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def end_producer_id(self) -> int:
        """One past the largest producer id that is known here."""
        return max(self._producers, default=-1) + 1

    @property
    def first_open_transaction_offset(self) -> Offset | None:
        """Where the oldest undecided transaction begins. Nothing from there on is stable."""
        return next(iter(self._open_transactions.values()), None)

    def open_transaction_offset(self, producer_id: int) -> Offset | None:
        """Where the undecided transaction of one producer begins, if it has one here."""
        return self._open_transactions.get(producer_id)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The end of what a read_committed consumer may see. M4"""
        if not self._open_transactions and not self.uncommitted_ends:
            return high_watermark
        unstable = [
            first_offset
            for first_offset, marker_offset in self.uncommitted_ends
            if marker_offset >= high_watermark
        ]
        first_open = self.first_open_transaction_offset
        if first_open is not None:
            unstable.append(first_open)
        return min([high_watermark, *unstable])

    def on_committed(self, high_watermark: Offset) -> bool:
        """All below `high_watermark` is committed. True if that is news of a marker."""
        ends = self.uncommitted_ends
        is_news = False
        while ends and ends[0][1] < high_watermark:
            ends.popleft()
            is_news = True
        return is_news

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer goes on with a transaction that is open here."""
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and producer.transaction_first_offset is not None
            and producer.epoch == producer_epoch
        )

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        sequence: int,
        bumps_epoch: bool,
        now_ms: int,
    ) -> Guard | None:
        """What a transactional batch has to bring along if the coordinator vouches for it; None
        if that is not needed. `bumps_epoch`: in transaction version 2."""
        if self.is_in_transaction(producer_id, producer_epoch):
            return None
        return self.guards.begin(
            producer_id,
            producer_epoch,
            sequence=sequence,
            bumps_epoch=bumps_epoch,
            now_ms=now_ms,
        )

    def on_transactional_batch(
        self, header: BatchHeader, guard: Guard | None
    ) -> ProducedBatch | None:
        """As `on_batch`, for a batch that is part of a transaction."""
        producer = self._producers.get(header.producer_id)
        if producer is not None and header.producer_epoch == producer.epoch:
            repeated = remembered(producer, header)
            if repeated is not None:
                return repeated  # Q4: also after the transaction has ended.
        self._require_transaction(header.producer_id, header.producer_epoch, guard)
        known = self.guards.of(header.producer_id)
        if known is not None and (producer is None or header.producer_epoch >= producer.epoch):
            has_batches = producer is not None and bool(producer.batches)
            # Whoever is next has overtaken nobody; a lower sequence that asked too came late. V3
            if not has_batches or not _is_next(producer, header):
                known.require_first(header, has_batches=has_batches)
        return self.on_batch(header)

    def on_coordinator_batch(
        self, producer_id: int, producer_epoch: int, guard: Guard | None
    ) -> None:
        """Decide about what this broker's own coordinator writes in a client's transaction.

        Its batches have no sequence; who writes them knows their order.
        """
        self._require_transaction(producer_id, producer_epoch, guard)
        producer = self._producers.get(producer_id)
        if producer is not None and producer_epoch < producer.epoch:
            raise fenced(producer_id, producer.epoch, producer_epoch)  # Q1

    def _require_transaction(
        self, producer_id: int, producer_epoch: int, guard: Guard | None
    ) -> None:
        if not self.is_in_transaction(producer_id, producer_epoch):
            self.guards.require(producer_id, producer_epoch, guard)

    def on_marker(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Decide about a coordinator's marker before it is appended. Raises RequestRefused."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if not may_end(producer, producer_epoch, transaction_version):
            raise fenced(producer_id, producer.epoch, producer_epoch)  # M2
        if coordinator_epoch < producer.coordinator_epoch:
            raise RequestRefused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} ends a transaction of producer "
                f"{producer_id}, whose coordinator has epoch {producer.coordinator_epoch} by now",
            )  # M1

    def on_marker_appended(
        self, header: BatchHeader, end: TransactionEnd, *, offset: Offset, timestamp_ms: int
    ) -> EndedTransaction | None:
        """A marker that `on_marker` let through is in the log. Returns what it has ended."""
        assert offset > self._last_offset  # I2
        return self._end_transaction(header, end, offset, timestamp_ms)

    def on_batch(self, header: BatchHeader) -> ProducedBatch | None:
        """Decide about a client's batch before it is appended.

        None means append it; a `ProducedBatch` is the first copy of what was sent again. Raises
        RequestRefused for everything else. Changes nothing: the append may still fail.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None  # Q5
        if (
            header.base_sequence == producer.next_sequence
            and header.producer_epoch == producer.epoch
            and producer.transaction_first_offset is None
        ):
            # The common case. It is not a repetition as well: the remembered batches would
            # have to hold all 2^31 sequences there are.
            return None
        return judge(producer, header)

    def on_appended(self, header: BatchHeader, *, base_offset: Offset, timestamp_ms: int) -> None:
        """A batch that `on_batch` let through is in the log, from `base_offset` on."""
        assert base_offset > self._last_offset  # I2
        self._remember(header, base_offset, timestamp_ms)

    def on_replayed(
        self, header: BatchHeader, end: TransactionEnd | None = None
    ) -> EndedTransaction | None:
        """A batch was found in the log or copied from the leader: believed, not judged.

        `end`: what a control batch says. One that says nothing (compaction took its record) has
        no transaction left to end.
        """
        if not header.has_producer_id:
            return None
        if not header.is_control:
            self._remember(header, Offset(header.base_offset), header.max_timestamp_ms)
            return None
        if end is None:
            self._last_offset = Offset(header.last_offset)
            return None
        return self._end_transaction(
            header, end, Offset(header.base_offset), header.max_timestamp_ms
        )

    def on_expiration_changed(self, producer_id_expiration_ms: int) -> None:
        """From the next tick on, producers are remembered for this long (Q7)."""
        assert producer_id_expiration_ms > 0
        self._producer_id_expiration_ms = producer_id_expiration_ms

    def on_tick(self, now_ms: int) -> int:
        """Forget producers that have been silent too long (Q7). Returns how many."""
        self.guards.on_tick(now_ms)
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset is None
            and now_ms - producer.last_timestamp_ms >= self._producer_id_expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def on_truncated(self, end_offset: Offset) -> bool:
        """Forget batches at or beyond `end_offset`. True if there was nothing to forget.

        After False what is left may know less than the log does: batches that had left the
        window of five, former epochs, transactions whose marker was cut off. `restore` from a
        snapshot at or before `end_offset` and `on_replayed` from there bring all of it back.
        """
        if self._last_offset < end_offset:
            return True
        for producer_id, producer in list(self._producers.items()):
            producer.truncate(end_offset)
            if not producer.batches:
                del self._producers[producer_id]
        self._last_offset = Offset(end_offset - 1)
        self.uncommitted_ends = deque(
            ended for ended in self.uncommitted_ends if ended[1] < end_offset
        )
        self._find_open_transactions()
        return False

    def entries(self) -> tuple[ProducerEntry, ...]:
        """Everything known, for a snapshot."""
        return tuple(
            ProducerEntry(
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(producer.epoch),
                coordinator_epoch=producer.coordinator_epoch,
                last_timestamp_ms=producer.last_timestamp_ms,
                current_txn_first_offset=producer.transaction_first_offset,
                batches=tuple(producer.batches),
            )
            for producer_id, producer in self._producers.items()
        )

    def restore(self, entries: Iterable[ProducerEntry], *, end_offset: Offset) -> None:
        """Start again from a snapshot of a log that ended at `end_offset`.

        What was appended from there on follows by `on_replayed`.
        """
        self._producers = {}
        for entry in entries:
            self._make_room()
            self._producers[entry.producer_id] = restored(entry)
        self._last_offset = Offset(end_offset - 1)
        self.uncommitted_ends.clear()
        self._find_open_transactions()

    def _remember(self, header: BatchHeader, base_offset: Offset, timestamp_ms: int) -> None:
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._start_epoch(header)
        last_offset = Offset(base_offset + header.last_offset_delta)
        last_sequence = header.last_sequence
        batches = producer.batches
        batches.append(
            ProducedBatch(
                header.base_sequence, last_sequence, base_offset, last_offset, timestamp_ms
            )
        )
        if len(batches) > REMEMBERED_BATCHES_MAX:
            del batches[0]  # I1
        producer.next_sequence = after(last_sequence)
        producer.last_timestamp_ms = timestamp_ms
        if header.is_transactional:
            self.guards.forget(header.producer_id)
            if producer.transaction_first_offset is None:
                producer.transaction_first_offset = base_offset
                self._open_transactions[header.producer_id] = base_offset
        self._last_offset = last_offset

    def _end_transaction(
        self, header: BatchHeader, end: TransactionEnd, offset: Offset, timestamp_ms: int
    ) -> EndedTransaction | None:
        producer_id = ProducerId(header.producer_id)
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._start_epoch(header)  # M3
        first_offset, producer.transaction_first_offset = producer.transaction_first_offset, None
        producer.last_timestamp_ms = timestamp_ms
        producer.coordinator_epoch = end.coordinator_epoch
        self._open_transactions.pop(producer_id, None)
        self.guards.on_marker(producer_id, header.producer_epoch)
        self._last_offset = Offset(offset + header.last_offset_delta)
        if first_offset is None:
            return None
        self.uncommitted_ends.append((first_offset, offset))
        still_open = self.first_open_transaction_offset
        return EndedTransaction(
            producer_id,
            first_offset,
            offset,
            Offset(offset + 1) if still_open is None else still_open,
            end.control_type is ControlType.ABORT,
        )

    def _start_epoch(self, header: BatchHeader) -> Producer:
        """A producer with an empty window, that keeps the transaction it may be in."""
        known = self._producers.get(header.producer_id)
        started = Producer(header.producer_epoch)
        if known is None:
            self._make_room()
        else:
            started.coordinator_epoch = known.coordinator_epoch
            started.transaction_first_offset = known.transaction_first_offset
        self._producers[header.producer_id] = started
        return started

    def _make_room(self) -> None:
        """Forget the longest silent tenth rather than grow without limit.

        Whoever asks gets a new producer id, so how many there are is in the hands of clients.
        A forgotten one goes on under Q5. A tenth at a time keeps the cost per batch flat.
        """
        if len(self._producers) < self._producers_max:
            return
        idle = sorted(
            (producer.last_offset, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset is None
        )
        for _, producer_id in idle[: max(1, self._producers_max // 10)]:
            del self._producers[producer_id]

    def _find_open_transactions(self) -> None:
        opened = [
            (producer.transaction_first_offset, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset is not None
        ]
        self._open_transactions = {producer_id: offset for offset, producer_id in sorted(opened)}


def _is_next(producer: Producer | None, header: BatchHeader) -> bool:
    return (
        producer is not None
        and header.producer_epoch == producer.epoch
        and header.base_sequence == producer.next_sequence
    )
