"""What compaction leaves of a batch (S5).

A record goes if

    K1  a later one has the same key, or
    K2  it is a tombstone (no value) whose delete horizon has passed. The first compaction that
        keeps a tombstone sets the horizon in its batch, `delete.retention.ms` from then on: by
        then nothing older of that key is left, and a reader has so long to learn of the end of
        what it had read before (KIP-534). Or
    K3  its transaction was aborted (`cleaned_transactions.py`), or
    K4  it has no key: a topic that was not compacted before may hold such records.

The marker of a transaction goes when nothing else is left of that, by way of a delete horizon like
a tombstone's (K5).

A batch without records goes as well, unless

    E1  it is the last that a living producer wrote: its sequence and epoch must be found after a
        restart, or
    E2  it is the last before the first uncleanable offset: where the log goes on must be, too.

What stays keeps its offset and its place in the order.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.base.ids import Offset
from tidelog.base.ports import BytesLike
from tidelog.records.batch import BatchHeader, read_header
from tidelog.records.control import read_transaction_end
from tidelog.records.producer import ProducerEntry
from tidelog.records.record import uncompressed_payload
from tidelog.records.retained import empty_batch, retain, retain_until
from tidelog.storage.cleaned_transactions import CleanedTransactions
from tidelog.storage.key_offsets import KeyOffsets, Retention
from tidelog.storage.transaction_index import AbortedTransaction


class Retained(NamedTuple):
    """What is left of a batch: `batch` is None if nothing is."""

    batch: BytesLike | None
    header: BatchHeader
    """Of what is left."""

    aborted: AbortedTransaction | None
    """What the transaction index has to say about the marker that this is."""


class BatchFilter:
    """Asked about every batch of a log, from front to back. Raises CorruptBatch."""

    def __init__(
        self,
        keys: KeyOffsets,
        transactions: CleanedTransactions,
        *,
        producers: Sequence[ProducerEntry],
        first_uncleanable_offset: Offset,
        delete_retention_ms: int,
        now_ms: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._last_data_offsets: Mapping[int, int | None] = {
            producer.producer_id: producer.batches[-1].last_offset if producer.batches else None
            for producer in producers
        }
        self._epochs: Mapping[int, int] = {
            producer.producer_id: producer.producer_epoch for producer in producers
        }
        self._first_uncleanable_offset = first_uncleanable_offset
        self._new_delete_horizon_ms = now_ms + delete_retention_ms
        self._now_ms = now_ms

    def retained(self, header: BatchHeader, batch: BytesLike) -> Retained:
        """What stays of `batch`; that itself if nothing has to change."""
        if header.is_control:
            return self._of_control_batch(header, batch)
        if self._transactions.on_batch(header):
            return self._without_records(header)  # K3
        if header.base_offset > self._keys.latest_offset:
            return Retained(batch, header, None)
        return self._of_data_batch(header, batch)

    def _of_data_batch(self, header: BatchHeader, batch: BytesLike) -> Retained:
        kept = self._kept(header, uncompressed_payload(header, batch))
        if not kept.record_count:
            return self._without_records(header)
        if (
            kept.has_tombstones
            and header.delete_horizon_ms is None
            # Of what is not taken into account yet, older values may be left.
            and header.last_offset <= self._keys.latest_offset
        ):
            return self._until_horizon(header, kept.payload, kept.record_count)  # K2
        if kept.record_count == header.record_count:
            return Retained(batch, header, None)
        retained = retain(
            header,
            kept.payload,
            record_count=kept.record_count,
            largest_timestamp_delta_ms=kept.largest_timestamp_delta_ms,
            level=None,  # As in Kafka, whatever the topic's settings are.
        )
        return Retained(retained, read_header(retained, 0), None)

    def _kept(self, header: BatchHeader, payload: BytesLike) -> Retention:
        horizon_ms = header.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        return Retention(
            *self._keys.retained(payload, header.record_count, header.base_offset, keeps_tombstones)
        )

    def _of_control_batch(self, header: BatchHeader, batch: BytesLike) -> Retained:
        if header.record_count == 0:
            return self._without_records(header)  # It went before.
        end = read_transaction_end(batch)
        if end is None:
            return Retained(batch, header, None)  # It does not end a transaction.
        is_alone, aborted = self._transactions.on_marker(header, end)
        if not is_alone:
            return Retained(batch, header, aborted)
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            payload = bytes(uncompressed_payload(header, batch))
            return self._until_horizon(header, payload, header.record_count)  # K5
        if horizon_ms <= self._now_ms:
            return self._without_records(header)  # K5
        return Retained(batch, header, None)

    def _until_horizon(self, header: BatchHeader, payload: bytes, record_count: int) -> Retained:
        batch = retain_until(
            header,
            payload,
            record_count=record_count,
            delete_horizon_ms=self._new_delete_horizon_ms,
        )
        return Retained(batch, read_header(batch, 0), None)

    def _without_records(self, header: BatchHeader) -> Retained:
        if not self._must_stay(header):
            return Retained(None, header, None)
        batch = empty_batch(header)
        return Retained(batch, read_header(batch, 0), None)

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.end_offset == self._first_uncleanable_offset:
            return True  # E2
        if header.producer_id not in self._last_data_offsets or not header.has_producer_id:
            return False
        last_data_offset = self._last_data_offsets[header.producer_id]
        if last_data_offset is not None:
            return header.last_offset == last_data_offset  # E1
        return header.is_control and header.producer_epoch == self._epochs[header.producer_id]
