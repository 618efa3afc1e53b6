"""Which id and epoch a producer gets that asks for a transactional id (InitProducerId).

Whoever asks without an id of its own is a new instance: it takes over, and the epoch it gets fences
whoever had the transactional id before. Whoever asks with one (KIP-360) goes on after an error, and
gets the next epoch if nobody has taken over meanwhile; asking again because the answer got lost, it
gets the same answer again.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_PRODUCER_EPOCH, ProducerEpoch, ProducerId
from tidelog.core.transactions.transitions import FIRST_EPOCH, initialized
from tidelog.records.transactions import TransactionMetadata, is_exhausted

TakeProducerId = Callable[[], ProducerId]
"""An id that nobody has had. Raises NoProducerId while there is none."""


class NoProducerId(RequestRefused):
    """It takes an id to do this, and there is none yet. Nothing has changed."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there is no producer id yet")


class Claim(NamedTuple):
    """The id and epoch that a producer says it has."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


def require_claim(known: TransactionMetadata, claim: Claim | None) -> None:
    """Refuse a producer whose id is not this transactional id's; its epoch is looked at later."""
    if claim is None or known.producer_epoch == NO_PRODUCER_EPOCH:
        return  # Nothing is known of who had it before: it may have expired.
    if known.goes_on_as(claim.producer_id):
        raise RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    has_rotated = claim.producer_id == known.previous_producer_id and is_exhausted(
        claim.producer_epoch
    )
    if claim.producer_id != known.producer_id and not has_rotated:
        raise RequestRefused(ErrorCode.PRODUCER_FENCED)


def next_epoch(
    known: TransactionMetadata,
    claim: Claim | None,
    *,
    take_producer_id: TakeProducerId,
    timeout_ms: int,
    now_ms: int,
) -> TransactionMetadata:
    """What is known when the producer has its epoch. Raises RequestRefused for a fenced one."""
    producer_id = known.producer_id
    if known.is_epoch_exhausted and _is_current(known, claim):
        producer_id, epoch = take_producer_id(), FIRST_EPOCH
        last_epoch = NO_PRODUCER_EPOCH if claim is None else known.producer_epoch
    elif claim is None:
        epoch, last_epoch = _one_more(known), NO_PRODUCER_EPOCH
    elif known.producer_epoch == NO_PRODUCER_EPOCH or _is_current(known, claim):
        epoch, last_epoch = _one_more(known), known.producer_epoch
    elif claim.producer_epoch == known.last_producer_epoch:
        epoch, last_epoch = known.producer_epoch, known.last_producer_epoch
    else:
        raise RequestRefused(ErrorCode.PRODUCER_FENCED)
    return initialized(
        known,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        now_ms=now_ms,
    )


def _is_current(known: TransactionMetadata, claim: Claim | None) -> bool:
    return claim is None or claim.producer_epoch == known.producer_epoch


def _one_more(known: TransactionMetadata) -> ProducerEpoch:
    assert not known.is_epoch_exhausted
    return ProducerEpoch(known.producer_epoch + 1)
