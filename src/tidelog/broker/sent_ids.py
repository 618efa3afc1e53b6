"""The ids of a batch that a client has sent, and the batch without its duplicates.

For the loop if that is quick, else for a thread (`deduplication.py`).
"""

from typing import NamedTuple

from tidelog.base.errors import CorruptBatch, ErrorCode, RequestRefused
from tidelog.base.ports import BytesLike
from tidelog.records.batch import BatchHeader
from tidelog.records.ids import ENTRY, IdSource, Kept, read_ids, rewritten, without
from tidelog.records.record import uncompressed_payload

NOTHING = Kept(b"", record_count=0, max_timestamp_delta_ms=-1)


class SentIds(NamedTuple):
    """What was read out of a batch, and made of it."""

    source: IdSource
    """Where they were: the topic may be told another one before they are judged."""
    entries: bytes
    dropped: tuple[int, ...]
    """The offset deltas of what `rest` lacks."""
    rest: bytearray | None
    """The batch without its duplicates, once it is known that there are some."""

    @property
    def kept_entries(self) -> bytes:
        if len(self.dropped) * ENTRY.size == len(self.entries):
            return b""
        gone = set(self.dropped)
        return b"".join(
            ENTRY.pack(fingerprint, delta)
            for fingerprint, delta in ENTRY.iter_unpack(self.entries)
            if delta not in gone
        )


def ids_of(header: BatchHeader, records: BytesLike, source: IdSource) -> SentIds:
    """The ids of a client's batch. Raises RequestRefused if its records cannot be read."""
    try:
        payload = uncompressed_payload(header, records)
        entries = read_ids(payload, header.record_count, source, must_be_consecutive=True)
    except CorruptBatch as error:
        raise RequestRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    return SentIds(source, entries, (), None)


def without_duplicates(
    header: BatchHeader,
    records: BytesLike,
    sent: SentIds,
    dropped: tuple[int, ...],
    log_time_ms: int,
) -> SentIds:
    """The batch without the records at the offset deltas `dropped`, which it has sent."""
    if len(dropped) == header.record_count:
        kept = NOTHING  # What is in it need not be looked at again.
    else:
        kept = without(uncompressed_payload(header, records), header.record_count, dropped)
    return sent._replace(dropped=dropped, rest=rewritten(header, kept, log_time_ms=log_time_ms))
