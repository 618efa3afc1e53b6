"""From one state of a transactional id to the next: what changes, and nothing about whether it may.

Each function takes what is known and returns what is known next. Who may ask for which is decided
in `producer_ids.py` and `ending.py`.
"""

from collections.abc import Collection
from dataclasses import replace

from tidelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tidelog.records.transactions import (
    EPOCH_MAX,
    IDLE,
    PREPARED,
    VERSION_WITH_BUMP,
    TransactionMetadata,
    TransactionState,
)

FIRST_EPOCH = ProducerEpoch(0)


def initialized(
    known: TransactionMetadata,
    *,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    last_producer_epoch: ProducerEpoch,
    timeout_ms: int,
    now_ms: int,
) -> TransactionMetadata:
    """A producer has the id, and no transaction."""
    assert known.state in IDLE
    return replace(
        known,
        state=TransactionState.EMPTY,
        previous_producer_id=known.producer_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        last_update_ms=now_ms,
    )


def new(
    transactional_id: str, producer_id: ProducerId, *, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """What is known before the first producer has its epoch."""
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        last_update_ms=now_ms,
    )


def with_partitions(
    known: TransactionMetadata,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> TransactionMetadata:
    """The transaction reaches to these as well; the first begin it."""
    assert known.state not in PREPARED
    return replace(
        known,
        state=TransactionState.ONGOING,
        previous_producer_id=known.producer_id,
        partitions=known.partitions.union(partitions),
        start_ms=now_ms if known.state in IDLE else known.start_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def prepared(
    known: TransactionMetadata,
    *,
    is_commit: bool,
    client_version: int,
    next_producer_id: ProducerId,
    now_ms: int,
) -> TransactionMetadata:
    """The outcome is decided. With version 2 it has an epoch of its own, one more than before."""
    has_bump = client_version >= VERSION_WITH_BUMP
    return replace(
        known,
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        previous_producer_id=known.producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=_bumped(known.producer_epoch) if has_bump else known.producer_epoch,
        last_producer_epoch=known.producer_epoch if has_bump else known.last_producer_epoch,
        # An abort of what was never begun has to begin at some time.
        start_ms=now_ms if known.state in IDLE else known.start_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def completed(known: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """Every partition has its marker."""
    assert known.state in PREPARED
    is_commit = known.state is TransactionState.PREPARE_COMMIT
    rotates = known.client_version >= VERSION_WITH_BUMP and known.next_producer_id != NO_PRODUCER_ID
    return replace(
        known,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        previous_producer_id=known.producer_id,
        producer_id=known.next_producer_id if rotates else known.producer_id,
        producer_epoch=FIRST_EPOCH if rotates else known.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )


def _bumped(producer_epoch: ProducerEpoch) -> ProducerEpoch:
    return ProducerEpoch(min(producer_epoch + 1, EPOCH_MAX))
