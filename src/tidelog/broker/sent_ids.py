"""The ids of a client's batch, what was judged of them, and the batch without its duplicates.

For the loop if that is quick, else for a thread (`deduplication.py`).
"""

from typing import NamedTuple

from tidelog.base.errors import CorruptBatch, ErrorCode, RequestRefused
from tidelog.base.ids import NO_PRODUCER_ID, Offset
from tidelog.base.ports import BytesLike
from tidelog.core.deduplication.index import Duplicates, IdIndex
from tidelog.records.batch import BatchHeader
from tidelog.records.ids import IdSource, Kept, entries_without, read_ids, rewritten, without
from tidelog.records.record import (
    UNCOMPRESSED_BYTES_MAX,
    uncompressed_payload,
    uncompressed_within,
)
from tidelog.records.validation import BatchLimits, require_size

NOTHING = Kept(b"", record_count=0, max_timestamp_delta_ms=-1)


class Question(NamedTuple):
    """By what a batch is judged, besides its ids."""

    asked: IdIndex
    end_offset: Offset
    """Of the index, which answers the same as long as it is told no more."""
    log_start_offset: Offset
    timestamp_ms: int


class Judgement(NamedTuple):
    """What the index said."""

    question: Question
    seen: Duplicates | None
    refusal: tuple[ErrorCode, str | None] | None
    """It is not decided yet. Not the error itself: whoever raises one that he holds is held by it,
    with all that was made of the batch, until somebody looks for cycles."""


class Rest(NamedTuple):
    """A batch without its duplicates."""

    records: bytearray
    entries: bytes


class SentIds(NamedTuple):
    """What a thread read out of a batch, and made of it."""

    source: IdSource
    """Where they were: the topic may be told another one before they are judged."""
    entries: bytes
    judgement: Judgement
    rest: Rest | None
    """Without what was judged to be duplicates, if there are some and there is to be one."""

    @property
    def size_bytes(self) -> int:
        rest_bytes = 0 if self.rest is None else len(self.rest.records) + len(self.rest.entries)
        return len(self.entries) + rest_bytes


def entries_of(
    header: BatchHeader, records: BytesLike, source: IdSource, *, max_bytes: int
) -> bytes:
    """The ids of a client's batch, which has `max_bytes` at most where it is not compressed.

    Raises RequestRefused if its records cannot be read.
    """
    try:
        payload = uncompressed_within(header, records, max_bytes=max_bytes)
        return read_ids(payload, header.record_count, source, must_be_consecutive=True)
    except CorruptBatch as error:
        raise RequestRefused(ErrorCode.INVALID_RECORD, str(error)) from error


def judge(
    index: IdIndex,
    header: BatchHeader,
    entries: bytes,
    *,
    timestamp_ms: int,
    log_start_offset: Offset,
) -> Duplicates | None:
    """Which of a batch's records were seen. Raises RequestRefused if that is not decided yet."""
    return index.judge(
        entries,
        timestamp_ms=timestamp_ms,
        producer_id=header.producer_id if header.is_transactional else NO_PRODUCER_ID,
        log_start_offset=log_start_offset,
    )


def judged(header: BatchHeader, entries: bytes, question: Question) -> Judgement:
    """Which of a batch's records were seen."""
    try:
        seen = judge(
            question.asked,
            header,
            entries,
            timestamp_ms=question.timestamp_ms,
            log_start_offset=question.log_start_offset,
        )
    except RequestRefused as refusal:
        return Judgement(question, None, (refusal.code, refusal.message))
    return Judgement(question, seen, None)


def without_duplicates(
    header: BatchHeader,
    records: BytesLike,
    entries: bytes,
    seen: Duplicates,
    *,
    log_time_ms: int,
    limits: BatchLimits,
) -> Rest:
    """The batch without the records that were seen, of which it has sent `entries`.

    It is compressed anew, and takes more than it did where its sender did that better. Raises
    RequestRefused if that is more than the topic takes: readers may not get past it.
    """
    if seen.record_count == header.record_count:
        kept = NOTHING  # What is in it need not be looked at again.
        left = b""
    else:
        payload = uncompressed_payload(header, records)
        kept = without(payload, header.record_count, seen.deltas)
        left = entries_without(entries, seen.deltas)
    level = limits.level_of(header.codec)
    smaller = rewritten(header, kept, log_time_ms=log_time_ms, level=level)
    require_size(len(smaller), limits)
    return Rest(smaller, left)


def prepared(
    header: BatchHeader,
    records: BytesLike,
    sent: SentIds | None,
    source: IdSource,
    question: Question,
    *,
    is_new: bool,
    limits: BatchLimits,
) -> SentIds:
    """All that has to be known of a batch, which may take a while.

    `sent`: what was read of it before. Only of one that is new, and not of one that was stored
    already, the rest is wanted. Raises RequestRefused if its records cannot be read, or if what
    is left of them is too large.
    """
    if sent is None or sent.source != source:
        entries = entries_of(header, records, source, max_bytes=UNCOMPRESSED_BYTES_MAX)
    else:
        entries = sent.entries
    judgement = judged(header, entries, question)
    seen, rest = judgement.seen, None
    if is_new and seen is not None and not leaves_nothing(header, seen):
        rest = without_duplicates(
            header, records, entries, seen, log_time_ms=question.asked.log_time_ms, limits=limits
        )
    return SentIds(source, entries, judgement, rest)


def leaves_nothing(header: BatchHeader, seen: Duplicates) -> bool:
    """Whether nothing at all is stored of a batch, as it has no sequences either."""
    return seen.record_count == header.record_count and header.producer_id < 0


def judged_ms(sent: SentIds | None, now_ms: int) -> int:
    """When a batch was judged that gets the broker's time; `now_ms` if it was not yet.

    What a thread found to be new is so still: nothing was appended meanwhile, and windows only
    pass. To ask again by what the clock says now would never end, as that takes time as well.
    """
    if sent is None:
        return now_ms
    return min(sent.judgement.question.timestamp_ms, now_ms)
