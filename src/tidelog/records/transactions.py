"""What the log of a transaction coordinator says: one record per change of a transactional id.

                       ┌──────────────────────────────────────────────┐
                       ▼                                              │
    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──▶ Ongoing, Empty, ...
      ▲          └──────▶ PrepareAbort  ──▶ CompleteAbort  ──▶ Ongoing, Empty, ...
      └── InitProducerId

A transaction is decided when its Prepare record is committed; whatever happens later, it ends that
way. Complete says that every partition has its marker, so that the producer may begin another.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tidelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

EPOCH_MAX: Final = ProducerEpoch(2**15 - 1)
"""Kept back, so that a producer with the last epoch that clients get can still be fenced."""

VERSION_WITHOUT_BUMP: Final = 0
VERSION_WITH_BUMP: Final = 2
"""Transaction version 2 (KIP-890): each transaction ends with an epoch of its own."""


class TransactionState(IntEnum):
    """As numbered in the log. The last two are never written: Kafka passes through them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that Kafka's tools know it by."""
        return "".join(word.capitalize() for word in self.name.split("_"))


STATES_BY_TITLE: Final = {state.title: state for state in TransactionState}

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
IDLE: Final = COMPLETE | {TransactionState.EMPTY}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """Everything that is known about one transactional id."""

    transactional_id: str
    producer_id: ProducerId
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The id before the last change; nearly always the same one."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """The id that the producer goes on with when this transaction is complete, if not its own."""
    producer_epoch: ProducerEpoch
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before, while whoever had it may ask again. Not in the log, as in Kafka."""
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int
    client_version: int = VERSION_WITHOUT_BUMP

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    def goes_on_as(self, producer_id: ProducerId) -> bool:
        """Whether its producer was told to go on with this id, and markers are still written.

        Until those are there the id is nobody's, but its owner is no stranger.
        """
        return producer_id == self.next_producer_id != NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """Nothing is known about this transactional id any more."""

    transactional_id: str


TransactionRecord = TransactionMetadata | TransactionForgotten


def is_exhausted(producer_epoch: int) -> bool:
    """Whether a producer with this epoch cannot be given another one."""
    return producer_epoch >= EPOCH_MAX - 1
