"""What becomes of transactions while a log is compacted from front to back (D3).

    T1  Records of an aborted transaction go at once, whatever their keys.
    T2  A marker stays as long as a batch of its transaction is in the log. After that it stays for
        `delete.retention.ms` more: a reader who is in the middle of the transaction has to come
        upon its end.
    T3  An aborted transaction is in the new transaction index if a batch of it was met, be it the
        last time.

Compaction stops at the last stable offset, so of every transaction that it meets it is decided
how it ended.
"""

from collections.abc import Iterable

from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, TransactionEnd
from tidelog.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Those that are open where compaction stands. Told of every batch in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are all that have records where batches will be read."""
        self._waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met_aborted: set[int] = set()
        self._committed: set[int] = set()

    def on_batch(self, header: BatchHeader) -> bool:
        """Whether the batch is part of an aborted transaction (T1)."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._met_aborted.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_marker(
        self, header: BatchHeader, end: TransactionEnd
    ) -> tuple[bool, AbortedTransaction | None]:
        """Whether nothing of the transaction that ends here is left (T2), and what of it the
        transaction index has to say (T3)."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if end.control_type is ControlType.COMMIT:
            if producer_id in self._committed:
                self._committed.remove(producer_id)
                return False, None
            return True, None
        aborted = self._aborted.pop(producer_id, None)
        if producer_id in self._met_aborted:
            self._met_aborted.remove(producer_id)
            return False, aborted
        return True, None

    def _begin_up_to(self, offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[-1].first_offset <= offset:
            aborted = waiting.pop()
            self._aborted.setdefault(aborted.producer_id, aborted)
