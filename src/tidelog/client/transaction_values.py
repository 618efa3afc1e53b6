"""What a cluster says about transactions, as plain values."""

from dataclasses import dataclass

from tidelog.client.group_values import PartitionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id and what it is doing. `started_ms` is None where nothing is going on."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    coordinator_id: int
    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProducer:
    """A producer as the leader of a partition remembers it.

    `open_since` is the offset of the first record of a transaction that has not ended there.
    """

    key: PartitionKey
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None
    coordinator_epoch: int | None
    open_since: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """An open transaction in a partition of which no coordinator knows."""

    producer: PartitionProducer
    age_ms: int
