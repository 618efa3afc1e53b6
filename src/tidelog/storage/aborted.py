"""Find the aborted transactions of segments again, from their control batches (D3, S6).

A transaction begins with a producer's first transactional batch and ends with a control batch, its
*marker*, that says commit or abort. Where it began may lie in an earlier segment, so the reading
starts from a snapshot of the producers:

    snapshot at or before the segment ──▶ open transactions ──▶ batches ──▶ markers ──▶ entries

The entries are those that Kafka makes at the append and makes again after a crash, byte for byte. A
marker without a transaction (its producer wrote to other partitions only) leaves none.
"""

from collections.abc import Iterator, Sequence

from tidelog.base.ids import Offset, ProducerId
from tidelog.base.ports import Disk
from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, TransactionEnd, read_transaction_end
from tidelog.records.producer import ProducerEntry
from tidelog.storage import layout
from tidelog.storage.producer_snapshot import CorruptSnapshot, read_snapshot
from tidelog.storage.scan import batch_headers
from tidelog.storage.segment import Segment
from tidelog.storage.transaction_index import AbortedTransaction, write_aborted


def rebuild_aborted(disk: Disk, segments: Sequence[Segment], first: int) -> None:
    """Make `.txnindex` of `segments` again, from the one with the number `first` on.

    `segments` are all of a log whose batches can be vouched for. A file that is right is not
    touched.
    """
    start, producers = _producers_before(disk, segments[: first + 1])
    transactions = OpenTransactions(producers)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if following is not None and following <= start:
            continue
        aborted = list(_ended_in(disk, segment, start, transactions))
        if number >= first:
            write_aborted(disk, segment.path(layout.TRANSACTION_INDEX), aborted)
            segment.has_aborted = bool(aborted)


def _producers_before(
    disk: Disk, segments: Sequence[Segment]
) -> tuple[Offset, Sequence[ProducerEntry]]:
    """The newest snapshot that is not behind the beginning of the last of `segments`."""
    folder = segments[-1].log_path.parent
    snapshots = layout.sort_folder(disk.list_folder(folder)).offsets(layout.SNAPSHOT)
    for offset in reversed(snapshots):
        if segments[0].base_offset <= offset <= segments[-1].base_offset:
            try:
                return offset, read_snapshot(
                    disk, folder / layout.file_name(offset, layout.SNAPSHOT)
                )
            except CorruptSnapshot:
                continue  # Whoever replays the producers says so, and removes it.
    return segments[0].base_offset, ()


def _ended_in(
    disk: Disk, segment: Segment, start: Offset, transactions: "OpenTransactions"
) -> Iterator[AbortedTransaction]:
    """The transactions whose abort marker lies in `segment`, at `start` or later."""
    file = disk.open_existing(segment.log_path)
    try:
        for position, header in batch_headers(
            file,
            base_offset=segment.base_offset,
            position=0,
            end_position=file.size_bytes,
        ):
            if header.base_offset < start or not header.has_producer_id:
                continue
            if not header.is_control:
                transactions.on_batch(header)
                continue
            marker = file.read(position, header.size_bytes)
            aborted = transactions.on_marker(header, read_transaction_end(marker))
            if aborted is not None:
                yield aborted
    finally:
        file.close()


class OpenTransactions:
    """Those that are open, while a log is read from front to back."""

    def __init__(self, producers: Sequence[ProducerEntry]) -> None:
        self._first_offsets: dict[int, Offset] = {
            producer.producer_id: producer.current_txn_first_offset
            for producer in producers
            if producer.current_txn_first_offset is not None
        }

    def on_batch(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._first_offsets.setdefault(header.producer_id, Offset(header.base_offset))

    def on_marker(
        self, header: BatchHeader, end: TransactionEnd | None
    ) -> AbortedTransaction | None:
        if end is None:
            return None
        first_offset = self._first_offsets.pop(header.producer_id, None)
        if first_offset is None or end.control_type is not ControlType.ABORT:
            return None
        return AbortedTransaction(
            ProducerId(header.producer_id),
            first_offset,
            Offset(header.base_offset),
            min(self._first_offsets.values(), default=Offset(header.base_offset + 1)),
        )

    def first_offset(self) -> Offset | None:
        """Where the oldest that has not ended begins; None if all have."""
        return min(self._first_offsets.values(), default=None)
