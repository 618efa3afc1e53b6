"""One idempotent producer in its newest epoch, as one partition knows it, and how it is judged.

The rules Q1-Q7 and M2 are those of `producers.py`, which has all producers of a partition.
"""

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_OFFSET, NO_TIMESTAMP, Offset
from tidelog.records.batch import SEQUENCE_MAX, BatchHeader
from tidelog.records.producer import REMEMBERED_BATCHES_MAX, ProducedBatch, ProducerEntry

NO_COORDINATOR_EPOCH = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
FIRST_WITH_EPOCH_BUMP = 2
"""The transaction version from which on each transaction has an epoch of its own (KIP-890)."""


class Producer:
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
            self.next_sequence = after(self.batches[-1].last_sequence)
            self.last_timestamp_ms = self.batches[-1].timestamp_ms
        first_offset = self.transaction_first_offset
        if first_offset is not None and first_offset >= end_offset:
            self.transaction_first_offset = None


def judge(producer: Producer, header: BatchHeader) -> ProducedBatch | None:
    same_epoch = header.producer_epoch == producer.epoch
    if same_epoch:
        repeated = remembered(producer, header)
        if repeated is not None:
            return repeated  # Q4
    if header.producer_epoch < producer.epoch:
        raise fenced(header.producer_id, producer.epoch, header.producer_epoch)  # Q1
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


def may_end(producer: Producer, producer_epoch: int, transaction_version: int) -> bool:
    if transaction_version < FIRST_WITH_EPOCH_BUMP or producer_epoch != producer.epoch:
        return producer_epoch >= producer.epoch
    return producer.transaction_first_offset is None or producer_epoch == PRODUCER_EPOCH_MAX


def fenced(producer_id: int, newest: int, epoch: int) -> RequestRefused:
    return RequestRefused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {newest}, the batch has {epoch}",
    )


def remembered(producer: Producer, header: BatchHeader) -> ProducedBatch | None:
    last_sequence = header.last_sequence
    for batch in producer.batches:
        if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
            return batch
    return None


def after(sequence: int) -> int:
    return 0 if sequence == SEQUENCE_MAX else sequence + 1


def restored(entry: ProducerEntry) -> Producer:
    producer = Producer(entry.producer_epoch)
    producer.batches = list(entry.batches[-REMEMBERED_BATCHES_MAX:])
    if producer.batches:
        producer.next_sequence = after(producer.batches[-1].last_sequence)
    producer.last_timestamp_ms = entry.last_timestamp_ms
    producer.coordinator_epoch = entry.coordinator_epoch
    producer.transaction_first_offset = entry.current_txn_first_offset
    return producer
