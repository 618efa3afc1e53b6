"""Whether a producer's batch may enter the log, and the rewriting that some topics ask for.

Two steps. `validate_produce` looks at the header and the checksum and is all that most batches
meet; it costs a few microseconds. Topics that need more (`needs_rewrite`) have every record
decoded by `rewrite`.

A refusal carries the code that Kafka answers with:

    CORRUPT_MESSAGE               not a batch, or not the one its checksum was made for
    INVALID_RECORD                not exactly one whole batch, or not one a producer may send
    MESSAGE_TOO_LARGE             longer than `max.message.bytes`
    RECORD_LIST_TOO_LARGE         longer than a whole segment
    INVALID_TIMESTAMP             outside `message.timestamp.before.max.ms` / `after.max.ms`
    UNSUPPORTED_COMPRESSION_TYPE  a codec nobody knows

Not here: sequence numbers of idempotent producers (core/transactions/producers.py), and what
depends on the version of the request (zstd before Produce v7).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

from tidelog.base.errors import CorruptBatch, ErrorCode, RequestRefused
from tidelog.base.ports import BytesLike
from tidelog.records.batch import (
    CHECKSUMMED_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    Codec,
    TimestampType,
    read_header,
)
from tidelog.records.compiled import compiled
from tidelog.records.compression import compress
from tidelog.records.record import assemble, iter_payload, uncompressed_payload

ANY_AGE_MS = 2**63 - 1

RECORD_ERRORS_MAX = 1_000
"""So many records of a batch are named in the answer that refuses it. With all of a million, a
megabyte that was sent would have 54 to be answered with."""

_REJECTED = "One or more records have been rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What a topic's settings allow. `compression` None keeps the producer's codec."""

    max_message_bytes: int
    segment_bytes: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression: Codec | None
    compression_level: int | None
    compacted: bool

    def level_of(self, codec: Codec) -> int | None:
        """At which level to compress with `codec`; None: its own default.

        A batch that waits may have been given its codec before the topic was told another.
        """
        return self.compression_level if codec is self.compression else None


class RecordsRefused(RequestRefused):
    """A batch is refused because of some of its records: (index in the batch, why)."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


def validate_produce(records: BytesLike, limits: BatchLimits, *, now_ms: int) -> BatchHeader:
    """The header of the one batch that `records` holds, or RequestRefused.

    What is checked is what the header says. The records behind it are covered by its checksum,
    so they are what the producer made; whether they decode is not looked at.
    """
    size_bytes = len(records)
    if size_bytes < HEADER_SIZE_BYTES:
        raise _not_one_batch(records)
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(records))
    (
        base_offset,
        batch_length,
        _leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = header
    if magic != MAGIC or batch_length + LOG_OVERHEAD_BYTES != size_bytes:
        raise _not_one_batch(records)
    if size_bytes > limits.max_message_bytes or size_bytes > limits.segment_bytes:
        raise _too_large(size_bytes, limits)
    if crc32c(memoryview(records)[CHECKSUMMED_POSITION:]) != crc:
        raise RequestRefused(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its checksum")
    if (
        base_offset != 0
        or record_count <= 0
        or last_offset_delta != record_count - 1
        or attributes & CONTROL_FLAG
        or (producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0))
    ):
        raise _invalid(header)
    if attributes & CODEC_MASK > Codec.ZSTD:
        raise RequestRefused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"unknown compression codec {attributes & CODEC_MASK}",
        )
    if attributes & LOG_APPEND_TIME_FLAG:
        raise RequestRefused(
            ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime"
        )
    if (
        max_timestamp_ms - now_ms > limits.timestamp_after_max_ms
        and limits.timestamp_type is TimestampType.CREATE_TIME
    ):
        raise RequestRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {max_timestamp_ms} is more than message.timestamp.after.max.ms ="
            f" {limits.timestamp_after_max_ms} ahead of the broker's {now_ms}",
        )
    return header


def may_rewrite(limits: BatchLimits) -> bool:
    """Whether `needs_rewrite` can be true of any batch."""
    return (
        limits.compacted
        or limits.compression is not None
        or limits.timestamp_before_max_ms != ANY_AGE_MS
    )


def needs_rewrite(header: BatchHeader, limits: BatchLimits) -> bool:
    """Whether the topic asks for more than the header can show."""
    if limits.compacted:
        return True
    if limits.compression is not None and limits.compression != header.attributes & CODEC_MASK:
        return True
    return (
        limits.timestamp_before_max_ms != ANY_AGE_MS
        and limits.timestamp_type is TimestampType.CREATE_TIME
    )


def rewrite(records: BytesLike, limits: BatchLimits, *, now_ms: int) -> BytesLike:
    """The batch as the topic wants it, with every record checked.

    For a batch that `validate_produce` let through. Returns `records` itself if only checks were
    due. The payload is recompressed as it stands, so no record changes on the way.
    """
    header = read_header(records, 0)
    try:
        payload = uncompressed_payload(header, records)
        if not _is_sound(header, payload, limits, now_ms):
            _require_sound(header, payload, limits, now_ms)
    except CorruptBatch as error:
        raise RequestRefused(ErrorCode.INVALID_RECORD, str(error)) from error
    if limits.compression is None or limits.compression is header.codec:
        return records
    attributes = header.attributes & ~CODEC_MASK | limits.compression
    rewritten = assemble(
        header._replace(attributes=attributes),
        compress(limits.compression, payload, level=limits.compression_level),
    )
    require_size(len(rewritten), limits)
    return rewritten


def require_size(size_bytes: int, limits: BatchLimits) -> None:
    """Raise RequestRefused for a batch that the topic does not take, whoever made it."""
    if size_bytes > limits.max_message_bytes or size_bytes > limits.segment_bytes:
        raise _too_large(size_bytes, limits)


def _is_sound(header: BatchHeader, payload: BytesLike, limits: BatchLimits, now_ms: int) -> bool:
    """Whether nothing is wrong with the records; if not, somebody has to look more closely.

    Without the interpreter's lock: there may be a million of them.
    """
    if compiled is None or header.base_offset or header.is_log_append_time:
        return False
    surveyed: tuple[int, int, int] | None = compiled.survey(payload, header.record_count)
    if surveyed is None:
        return False
    keyless_count, smallest_delta_ms, largest_delta_ms = surveyed
    if limits.compacted and keyless_count:
        return False
    oldest_ms, newest_ms = _timestamps_allowed(limits, now_ms)
    return limits.timestamp_type is not TimestampType.CREATE_TIME or (
        oldest_ms <= header.base_timestamp_ms + smallest_delta_ms
        and header.base_timestamp_ms + largest_delta_ms <= newest_ms
    )


def _require_sound(
    header: BatchHeader, payload: BytesLike, limits: BatchLimits, now_ms: int
) -> None:
    """Raises CorruptBatch, or RequestRefused for what is worst: place, then key, then timestamp.

    One record after the other: a list of a million takes as long to let go of as it takes others
    to be missed.
    """
    oldest_ms, newest_ms = _timestamps_allowed(limits, now_ms)
    is_timed = limits.timestamp_type is TimestampType.CREATE_TIME
    misplaced: str | None = None
    keyless: list[tuple[int, str]] = []
    untimely: list[tuple[int, str]] = []
    for index, record in enumerate(iter_payload(header, payload)):
        expected_offset, timestamp_ms = header.base_offset + index, record.timestamp_ms
        if record.offset != expected_offset and misplaced is None:
            misplaced = f"record {expected_offset} of the batch has offset {record.offset}"
        if record.key is None and limits.compacted and len(keyless) < RECORD_ERRORS_MAX:
            keyless.append((index, "Compacted topic cannot accept message without key"))
        is_untimely = timestamp_ms >= 0 and not oldest_ms <= timestamp_ms <= newest_ms
        if is_untimely and is_timed and len(untimely) < RECORD_ERRORS_MAX:
            reason = f"timestamp {timestamp_ms} is not between {oldest_ms} and {newest_ms}"
            untimely.append((index, reason))
    if misplaced is not None:
        raise RequestRefused(ErrorCode.INVALID_RECORD, misplaced)
    if keyless:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, _REJECTED, keyless)
    if untimely:
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, _REJECTED, untimely)


def _timestamps_allowed(limits: BatchLimits, now_ms: int) -> tuple[int, int]:
    return now_ms - limits.timestamp_before_max_ms, now_ms + limits.timestamp_after_max_ms


def _not_one_batch(records: BytesLike) -> RequestRefused:
    """Why bytes that are not exactly one batch of magic 2 are refused.

    Like Kafka, which looks for whole batches and says INVALID_RECORD unless it finds one, and
    CORRUPT_MESSAGE if what it finds cannot be a batch at all.
    """
    size_bytes = len(records)
    if size_bytes > MAGIC_POSITION and records[MAGIC_POSITION] in (0, 1):
        return RequestRefused(
            ErrorCode.INVALID_RECORD,
            f"messages of magic {records[MAGIC_POSITION]} are not accepted, only {MAGIC}",
        )
    if size_bytes < HEADER_SIZE_BYTES:
        return RequestRefused(
            ErrorCode.INVALID_RECORD, f"{size_bytes} bytes do not hold a record batch"
        )
    try:
        header = read_header(records, 0)
    except CorruptBatch as error:
        return RequestRefused(ErrorCode.CORRUPT_MESSAGE, str(error))
    if header.size_bytes > size_bytes:
        reason = f"batch of {header.size_bytes} bytes, only {size_bytes} were sent"
    else:
        reason = f"{size_bytes - header.size_bytes} bytes follow the one record batch allowed"
    return RequestRefused(ErrorCode.INVALID_RECORD, reason)


def _too_large(size_bytes: int, limits: BatchLimits) -> RequestRefused:
    if size_bytes > limits.max_message_bytes:
        return RequestRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size_bytes} bytes exceeds max.message.bytes = {limits.max_message_bytes}",
        )
    return RequestRefused(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"batch of {size_bytes} bytes exceeds segment.bytes = {limits.segment_bytes}",
    )


def _invalid(header: BatchHeader) -> RequestRefused:
    """Which of the rules of `validate_produce` the header breaks first."""
    if header.base_offset != 0:
        reason = f"base offset is {header.base_offset}, a producer sends 0"
    elif header.record_count <= 0:
        reason = f"record count is {header.record_count}"
    elif header.last_offset_delta != header.record_count - 1:
        reason = (
            f"last offset delta {header.last_offset_delta} does not fit"
            f" {header.record_count} records"
        )
    elif header.is_control:
        reason = "clients are not allowed to write control records"
    elif header.base_sequence < 0:
        reason = f"sequence {header.base_sequence} with producer id {header.producer_id}"
    else:
        reason = f"producer epoch {header.producer_epoch} with producer id {header.producer_id}"
    return RequestRefused(ErrorCode.INVALID_RECORD, reason)
