"""Which markers still decide something, while a log is read from front to back (D3)."""

from tests.unit.storage.compacted_folder import keyed_batch, marker
from tidelog.base.ids import Offset, ProducerId
from tidelog.records.batch import BatchHeader, read_header
from tidelog.records.control import ControlType, TransactionEnd
from tidelog.storage.cleaned_transactions import CleanedTransactions
from tidelog.storage.transaction_index import AbortedTransaction

ABORT = TransactionEnd(ControlType.ABORT, 0)
COMMIT = TransactionEnd(ControlType.COMMIT, 0)


def batch_of(producer_id: int, offset: int, *, is_transactional: bool = True) -> BatchHeader:
    batch = keyed_batch(
        offset,
        [(b"a", b"1")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=is_transactional,
    )
    return read_header(batch, 0)


def marker_of(producer_id: int, offset: int) -> BatchHeader:
    return read_header(marker(offset, producer_id, is_abort=True), 0)


def aborted(producer_id: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(
        ProducerId(producer_id), Offset(first), Offset(last), Offset(last + 1)
    )


def test_batch_of_an_aborted_transaction_is_told_from_others() -> None:
    transactions = CleanedTransactions([aborted(7, 2, 6)])
    assert not transactions.on_batch(batch_of(7, 0))
    assert transactions.on_marker(marker_of(7, 1), COMMIT) == (False, None)
    assert transactions.on_batch(batch_of(7, 2))
    assert not transactions.on_batch(batch_of(8, 3))
    assert not transactions.on_batch(batch_of(7, 4, is_transactional=False))
    assert transactions.on_batch(batch_of(7, 5))
    assert transactions.on_marker(marker_of(7, 6), ABORT) == (False, aborted(7, 2, 6))
    assert not transactions.on_batch(batch_of(7, 7))


def test_marker_decides_nothing_if_no_batch_of_its_transaction_was_met() -> None:
    transactions = CleanedTransactions([aborted(7, 0, 3)])
    assert transactions.on_marker(marker_of(8, 2), COMMIT) == (True, None)
    assert transactions.on_marker(marker_of(7, 3), ABORT) == (True, None)


def test_marker_decides_about_one_transaction_only() -> None:
    transactions = CleanedTransactions([])
    transactions.on_batch(batch_of(7, 0))
    assert transactions.on_marker(marker_of(7, 1), COMMIT) == (False, None)
    assert transactions.on_marker(marker_of(7, 2), COMMIT) == (True, None)


def test_marker_of_an_abort_decides_about_one_transaction_only() -> None:
    transactions = CleanedTransactions([aborted(7, 0, 1), aborted(7, 2, 3)])
    transactions.on_batch(batch_of(7, 0))
    assert transactions.on_marker(marker_of(7, 1), ABORT) == (False, aborted(7, 0, 1))
    assert transactions.on_marker(marker_of(7, 3), ABORT) == (True, None)


def test_two_aborted_transactions_of_a_producer_are_two() -> None:
    transactions = CleanedTransactions([aborted(7, 4, 5), aborted(7, 0, 1)])
    assert transactions.on_batch(batch_of(7, 0))
    assert transactions.on_marker(marker_of(7, 1), ABORT) == (False, aborted(7, 0, 1))
    assert not transactions.on_batch(batch_of(7, 2))
    assert transactions.on_marker(marker_of(7, 3), COMMIT) == (False, None)
    assert transactions.on_batch(batch_of(7, 4))
    assert transactions.on_marker(marker_of(7, 5), ABORT) == (False, aborted(7, 4, 5))
