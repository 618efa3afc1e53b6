"""Whether a transaction may end as its producer asks (EndTxn).

With transaction version 0 an epoch is kept over many transactions, so that the same request sent
again cannot be told from the next one: what has ended as asked is answered with success, whenever
that was. With version 2 (KIP-890) each transaction ends with a new epoch, the producer's next, and
a request that is one epoch behind is the last one sent again:

                        abort                    commit
                        again     with the       again     with the
                                  current epoch            current epoch
    Empty               fenced    aborts         fenced    INVALID_TXN_STATE
    CompleteAbort       success   aborts         INVALID_TXN_STATE (both)
    CompleteCommit      INVALID   aborts         success   INVALID_TXN_STATE
    Ongoing             fenced    aborts         fenced    commits
    PrepareAbort        wait      wait           INVALID   wait
    PrepareCommit       INVALID   wait           wait      wait

*aborts* although nothing was begun: the coordinator cannot know of a partition that the producer
wrote to if the broker there did not tell, and the new epoch keeps a late record out.

*wait* is CONCURRENT_TRANSACTIONS. A producer is told its next epoch, and where epochs are used up
its next id, before the markers of its last transaction are written. If it gives its next
transaction up before they are, it is not fenced; it has come too early.
"""

from enum import Enum, auto

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import ProducerEpoch, ProducerId
from tidelog.records.transactions import (
    COMPLETE,
    EPOCH_MAX,
    PREPARED,
    VERSION_WITH_BUMP,
    TransactionMetadata,
    TransactionState,
)


class Verdict(Enum):
    """What is to be done about a request that is not refused."""

    END = auto()
    """Decide the transaction."""
    HAS_ENDED = auto()
    """It has ended as asked: an answer got lost."""


def judge(
    known: TransactionMetadata,
    *,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    is_commit: bool,
    client_version: int,
) -> Verdict:
    """Raises RequestRefused for whoever may not end this transaction, or not like that."""
    if client_version >= VERSION_WITH_BUMP:
        is_repeated = _require_epoch_with_bump(known, producer_id, producer_epoch)
        return _judge_with_bump(known, is_commit=is_commit, is_repeated=is_repeated)
    if known.producer_id != producer_id:
        raise RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != producer_epoch:
        raise RequestRefused(ErrorCode.PRODUCER_FENCED)
    return _judge_without_bump(known, is_commit=is_commit)


def _require_epoch_with_bump(
    known: TransactionMetadata, producer_id: ProducerId, producer_epoch: ProducerEpoch
) -> bool:
    """Whether this is the last request again; refuses whoever has another id or epoch."""
    is_current = known.producer_epoch == producer_epoch
    is_early = known.state in PREPARED and is_current
    if known.goes_on_as(producer_id) or (is_early and known.producer_id == producer_id):
        raise RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_behind = known.producer_epoch == producer_epoch + 1
    has_rotated = (
        known.previous_producer_id == producer_id
        and producer_epoch == EPOCH_MAX - 1
        and known.producer_epoch == 0
    )
    if known.producer_id != producer_id and not has_rotated:
        raise RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.state in PREPARED:
        is_valid = is_behind
    elif known.state in COMPLETE:
        is_valid = is_current or is_behind or has_rotated
    else:
        is_valid = is_current
    if not is_valid:
        raise RequestRefused(ErrorCode.PRODUCER_FENCED)
    return not is_current


def _judge_with_bump(known: TransactionMetadata, *, is_commit: bool, is_repeated: bool) -> Verdict:
    if is_repeated:
        return _judge_ended(known, is_commit=is_commit)
    if is_commit and known.state is not TransactionState.ONGOING:
        raise RequestRefused(ErrorCode.INVALID_TXN_STATE)
    return Verdict.END


def _judge_without_bump(known: TransactionMetadata, *, is_commit: bool) -> Verdict:
    if known.state is TransactionState.ONGOING:
        return Verdict.END
    if known.state is TransactionState.EMPTY:
        raise RequestRefused(ErrorCode.INVALID_TXN_STATE)
    return _judge_ended(known, is_commit=is_commit)


def _judge_ended(known: TransactionMetadata, *, is_commit: bool) -> Verdict:
    """A transaction that is decided ends as it was decided, or not at all."""
    was_commit = known.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    if was_commit != is_commit:
        raise RequestRefused(ErrorCode.INVALID_TXN_STATE)
    if known.state in PREPARED:
        raise RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    return Verdict.HAS_ENDED
