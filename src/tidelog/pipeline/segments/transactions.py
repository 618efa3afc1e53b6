"""Which transactions of a log were aborted, and which have not ended (D3).

Aborted ones stand in the `.txnindex` of the segment that has their marker. A segment without any
has no such file, which is believed if its other indexes are there: whoever copies `.log` files
alone loses transaction indexes without a trace. Of such segments the markers are read, in which
case nothing is read of the records between them but their headers.

Ones that have not ended are found from the newest snapshot of the producers, written whenever a
segment is begun and at every clean stop, and from the batches behind it:

    snapshot ──▶ open transactions ──▶ headers up to the end ──▶ open transactions, aborted ones
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.base.ids import Offset
from tidelog.pipeline.segments.indexed_segment import IndexedSegment
from tidelog.pipeline.segments.log_end import LogEnd
from tidelog.pipeline.segments.partition_log import PartitionLog, SegmentFiles
from tidelog.records.batch import BatchHeader
from tidelog.records.control import read_transaction_end
from tidelog.records.producer import ProducerEntry
from tidelog.storage import layout
from tidelog.storage.aborted import OpenTransactions
from tidelog.storage.disk import RealDisk
from tidelog.storage.producer_snapshot import CorruptSnapshot, read_snapshot
from tidelog.storage.transaction_index import AbortedTransaction, is_usable, read_aborted

_DISK: Final = RealDisk()


@dataclass(frozen=True, slots=True)
class Transactions:
    """What a reader of committed records has to know about a range of a log."""

    last_stable_offset: int
    """Everything below it is decided."""
    aborted: tuple[AbortedTransaction, ...]
    """By their markers, in order."""


def find_transactions(
    log: PartitionLog, end: LogEnd, *, start_offset: int, end_offset: int
) -> Transactions:
    """Those with records in `[start_offset, end_offset)`."""
    known: set[AbortedTransaction] = set()
    scanned_from = end_offset
    for segment in log.between(start_offset, end_offset):
        entries = _indexed_aborted(segment)
        if entries is None:
            scanned_from = min(scanned_from, segment.base_offset)
        else:
            known.update(entries)
    scan = _Scan(log, end, scanned_from)
    scan.run(end_offset)
    decided = {one for one in known | set(scan.aborted) if one.last_offset < end_offset}
    open_offset = scan.transactions.first_offset()
    return Transactions(
        end_offset if open_offset is None else min(end_offset, open_offset),
        tuple(sorted(decided, key=lambda one: one.last_offset)),
    )


def with_records_between(
    aborted: Sequence[AbortedTransaction], *, offset: int, end_offset: int
) -> tuple[AbortedTransaction, ...]:
    """Those of `aborted` that began before `end_offset` and ended at `offset` or later."""
    found = []
    first = bisect_left(aborted, offset, key=lambda one: one.last_offset)
    for number in range(first, len(aborted)):
        one = aborted[number]
        if one.first_offset < end_offset:
            found.append(one)
        if one.last_stable_offset >= end_offset:
            break  # Later ones begin at or after that.
    return tuple(found)


def _indexed_aborted(segment: SegmentFiles) -> Sequence[AbortedTransaction] | None:
    """None if it takes the markers to know."""
    if layout.TRANSACTION_INDEX in segment.suffixes:
        path = segment.path(layout.TRANSACTION_INDEX)
        if not is_usable(_DISK, path, Offset(segment.base_offset)):
            return None
        return read_aborted(_DISK, path)
    return () if segment.is_indexed else None


class _Scan:
    """Goes through the headers of a log, from the newest snapshot that is not behind an offset."""

    def __init__(self, log: PartitionLog, end: LogEnd, offset: int) -> None:
        self._log = log
        self._end = end
        self._start_offset, producers = self._snapshot_before(offset)
        self.transactions = OpenTransactions(producers)
        self.aborted: list[AbortedTransaction] = []

    def _snapshot_before(self, offset: int) -> tuple[int, Sequence[ProducerEntry]]:
        first_offset = self._log.segments[0].base_offset
        for taken_at in reversed(self._log.snapshots):
            if first_offset <= taken_at <= offset:
                path = self._log.folder / layout.file_name(taken_at, layout.SNAPSHOT)
                try:
                    return taken_at, read_snapshot(_DISK, path)
                except CorruptSnapshot:
                    continue  # An older one does as well.
        return first_offset, ()

    def run(self, end_offset: int) -> None:
        """Up to `end_offset`."""
        for segment in self._log.between(self._start_offset, end_offset):
            is_last = segment.next_base_offset is None
            with IndexedSegment(
                segment, end_position=self._end.position if is_last else None
            ) as opened:
                self._through(opened, end_offset)

    def _through(self, segment: IndexedSegment, end_offset: int) -> None:
        first = segment.first_reaching(self._start_offset)
        for position, header in segment.headers_from(first.position):
            if header.base_offset >= end_offset:
                return
            if header.has_producer_id:
                self._on_batch(segment, position, header)

    def _on_batch(self, segment: IndexedSegment, position: int, header: BatchHeader) -> None:
        if not header.is_control:
            self.transactions.on_batch(header)
            return
        marker = segment.file.read(position, header.size_bytes)
        aborted = self.transactions.on_marker(header, read_transaction_end(marker))
        if aborted is not None:
            self.aborted.append(aborted)
