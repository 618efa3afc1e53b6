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

Invariants:

    I1  a producer has at most five remembered batches, and the last of them ends just before
        `next_sequence`
    I2  offsets are reported in increasing order
    I3  a transaction is open in `_open_transactions` exactly if its producer says so

Not here: checking that the header makes sense (`records/validation.py`), waiting until a repeated
batch is committed (its first copy may still be on its way to the followers), and who may write
under a transactional id (the transaction coordinator).
"""

from collections.abc import Iterable

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_OFFSET, NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId
from tidelog.records.batch import SEQUENCE_MAX, BatchHeader
from tidelog.records.producer import REMEMBERED_BATCHES_MAX, ProducedBatch, ProducerEntry

NO_COORDINATOR_EPOCH = -1


class ProducerStates:
    """Tells new batches from repeated and misplaced ones. One per partition."""

    __slots__ = (
        "_last_offset",
        "_open_transactions",
        "_producer_id_expiration_ms",
        "_producers",
        "_producers_max",
    )

    def __init__(self, *, producer_id_expiration_ms: int, producers_max: int) -> None:
        assert producer_id_expiration_ms > 0
        assert producers_max > 0
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._producers_max = producers_max
        self._producers: dict[int, _Producer] = {}
        # In order of first offset, because appending is what opens a transaction.
        self._open_transactions: dict[int, Offset] = {}
        self._last_offset = NO_OFFSET

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
        return _judge(producer, header)

    def on_appended(self, header: BatchHeader, *, base_offset: Offset, timestamp_ms: int) -> None:
        """A batch that `on_batch` let through is in the log, from `base_offset` on."""
        assert base_offset > self._last_offset  # I2
        self._remember(header, base_offset, timestamp_ms)

    def on_replayed(self, header: BatchHeader) -> None:
        """A batch was found in the log or copied from the leader: believed, not judged."""
        if not header.has_producer_id:
            return
        if header.is_control:
            self._end_transaction(header)
        else:
            self._remember(header, Offset(header.base_offset), header.max_timestamp_ms)

    def on_expiration_changed(self, producer_id_expiration_ms: int) -> None:
        """From the next tick on, producers are remembered for this long (Q7)."""
        assert producer_id_expiration_ms > 0
        self._producer_id_expiration_ms = producer_id_expiration_ms

    def on_tick(self, now_ms: int) -> int:
        """Forget producers that have been silent too long (Q7). Returns how many."""
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
            self._producers[entry.producer_id] = _restored(entry)
        self._last_offset = Offset(end_offset - 1)
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
        producer.next_sequence = _after(last_sequence)
        producer.last_timestamp_ms = timestamp_ms
        if header.is_transactional and producer.transaction_first_offset is None:
            producer.transaction_first_offset = base_offset
            self._open_transactions[header.producer_id] = base_offset
        self._last_offset = last_offset

    def _end_transaction(self, header: BatchHeader) -> None:
        # Commit or abort is all the same to the next batch; readers tell them apart elsewhere.
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._start_epoch(header)
        producer.transaction_first_offset = None
        producer.last_timestamp_ms = header.max_timestamp_ms
        self._open_transactions.pop(header.producer_id, None)
        self._last_offset = Offset(header.last_offset)

    def _start_epoch(self, header: BatchHeader) -> "_Producer":
        """A producer with an empty window, that keeps the transaction it may be in."""
        known = self._producers.get(header.producer_id)
        started = _Producer(header.producer_epoch)
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


class _Producer:
    """One producer's newest epoch on this partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "next_sequence",
        "transaction_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[ProducedBatch] = []
        self.next_sequence = 0
        self.last_timestamp_ms = NO_TIMESTAMP
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_first_offset: Offset | None = None

    @property
    def last_offset(self) -> Offset:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def truncate(self, end_offset: Offset) -> None:
        while self.batches and self.batches[-1].last_offset >= end_offset:
            del self.batches[-1]
        if self.batches:
            self.next_sequence = _after(self.batches[-1].last_sequence)
            self.last_timestamp_ms = self.batches[-1].timestamp_ms
        first_offset = self.transaction_first_offset
        if first_offset is not None and first_offset >= end_offset:
            self.transaction_first_offset = None


def _judge(producer: _Producer, header: BatchHeader) -> ProducedBatch | None:
    same_epoch = header.producer_epoch == producer.epoch
    if same_epoch:
        repeated = _remembered(producer, header)
        if repeated is not None:
            return repeated  # Q4
    if header.producer_epoch < producer.epoch:
        raise RequestRefused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} has epoch {producer.epoch}, "
            f"the batch has {header.producer_epoch}",
        )  # Q1
    expected = producer.next_sequence if same_epoch else 0  # Q2, Q3
    if header.base_sequence != expected:
        raise RequestRefused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} epoch {header.producer_epoch} sent sequence "
            f"{header.base_sequence}, expected {expected}",
        )
    if producer.transaction_first_offset is not None and not header.is_transactional:
        raise RequestRefused(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has a transaction open since offset "
            f"{producer.transaction_first_offset}, the batch is not part of it",
        )  # Q6
    return None


def _remembered(producer: _Producer, header: BatchHeader) -> ProducedBatch | None:
    last_sequence = header.last_sequence
    for batch in producer.batches:
        if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
            return batch
    return None


def _after(sequence: int) -> int:
    return 0 if sequence == SEQUENCE_MAX else sequence + 1


def _restored(entry: ProducerEntry) -> _Producer:
    producer = _Producer(entry.producer_epoch)
    producer.batches = list(entry.batches[-REMEMBERED_BATCHES_MAX:])
    if producer.batches:
        producer.next_sequence = _after(producer.batches[-1].last_sequence)
    producer.last_timestamp_ms = entry.last_timestamp_ms
    producer.coordinator_epoch = entry.coordinator_epoch
    producer.transaction_first_offset = entry.current_txn_first_offset
    return producer
