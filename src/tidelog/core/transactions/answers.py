"""What a transaction coordinator answers, what it wants done, and what it is bound by."""

from dataclasses import dataclass

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tidelog.records.transactions import TransactionMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLimits:
    """The settings that transactions are subject to."""

    timeout_max_ms: int
    id_expiration_ms: int
    abort_interval_ms: int
    """How often transactions that ran out of time are looked for, at most."""
    expiry_interval_ms: int
    """How often ids that expired are looked for, at most."""
    wait_max_ms: int
    """How long a producer may wait for its last transaction to be complete. T2"""
    record_max_bytes: int


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Tell these partitions how a transaction ended; `on_markers_written` when they know.

    There may be none of them: then they know.
    """

    number: int
    coordinator_epoch: int
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerAnswer:
    """What a producer has from now on; or why it has nothing."""

    code: ErrorCode
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionsAnswer:
    """Which of the partitions are in the transaction now."""

    codes: dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    """One transactional id; None if it is not known."""

    metadata: TransactionMetadata | None
