"""S8, D2: which batches a producer may send, with Kafka's own error codes."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import (
    NOW_MS,
    accepted_batches,
    header_of,
    idempotent_batch,
    large_batch,
    plain_batch,
    record,
    refused_batches,
    with_header,
    with_payload,
)
from tests.support.golden import kafka_produce_codes
from tests.unit.broker.compiled import only_compiled
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ports import BytesLike
from tidelog.records import validation
from tidelog.records.batch import Codec, TimestampType, checksum_matches
from tidelog.records.compiled import compiled
from tidelog.records.record import Record, decode_records, encode_plain_batch
from tidelog.records.validation import (
    ANY_AGE_MS,
    RECORD_ERRORS_MAX,
    BatchLimits,
    RecordsRefused,
    needs_rewrite,
    rewrite,
    validate_produce,
)

LIMITS = BatchLimits(
    max_message_bytes=1_048_588,
    segment_bytes=1_073_741_824,
    timestamp_type=TimestampType.CREATE_TIME,
    timestamp_before_max_ms=ANY_AGE_MS,
    timestamp_after_max_ms=3_600_000,
    compression=None,
    compression_level=None,
    compacted=False,
)

# docs/divergences.md: where we knowingly answer otherwise than Kafka 4.3.
DIVERGENCES = {
    # Kafka cuts off and forgets what follows a batch without being one.
    "one byte too many": ErrorCode.INVALID_RECORD,
    "a batch and a half": ErrorCode.INVALID_RECORD,
    # Kafka fails with UNKNOWN_SERVER_ERROR.
    "codec 5": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    # Kafka takes the batch and clears the flag.
    "log append time": ErrorCode.INVALID_TIMESTAMP,
    # Kafka takes the batch; no producer has such an epoch.
    "no producer epoch": ErrorCode.INVALID_RECORD,
    # Kafka decompresses every batch and fails with UNKNOWN_SERVER_ERROR; we read headers only.
    "gzip of nothing": ErrorCode.NONE,
}


def _code(batch: BytesLike, limits: BatchLimits = LIMITS, *, now_ms: int = NOW_MS) -> ErrorCode:
    try:
        validate_produce(batch, limits, now_ms=now_ms)
    except RequestRefused as refusal:
        return refusal.code
    return ErrorCode.NONE


def _rewrite_refusal(batch: BytesLike, limits: BatchLimits) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        rewrite(batch, limits, now_ms=NOW_MS)
    return caught.value


BATCHES = refused_batches(NOW_MS) | accepted_batches(NOW_MS)


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_batch_is_answered_as_kafka_answers_it(name: str) -> None:
    expected = DIVERGENCES.get(name, ErrorCode(kafka_produce_codes()[name]))
    assert _code(memoryview(bytearray(BATCHES[name]))) is expected


def test_every_divergence_is_one() -> None:
    for name, code in DIVERGENCES.items():
        assert kafka_produce_codes()[name] != code


def test_batch_that_is_let_through_is_described_by_its_header() -> None:
    batch = idempotent_batch(record_count=2, base_sequence=8)
    assert validate_produce(batch, LIMITS, now_ms=NOW_MS) == header_of(batch)


def test_refusal_says_what_is_wrong() -> None:
    with pytest.raises(RequestRefused, match=r"max\.message\.bytes = 100"):
        validate_produce(plain_batch(), replace(LIMITS, max_message_bytes=100), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (with_header(plain_batch(), base_offset=1), "base offset is 1"),
        (with_header(plain_batch(), record_count=0), "record count is 0"),
        (with_header(plain_batch(), last_offset_delta=9), "last offset delta 9"),
        (with_header(plain_batch(), attributes=0x20), "control records"),
        (with_header(idempotent_batch(), base_sequence=-1), "sequence -1"),
        (with_header(idempotent_batch(), producer_epoch=-1), "producer epoch -1"),
        (plain_batch() + plain_batch(), "bytes follow"),
        (plain_batch()[:-1], "were sent"),
    ],
)
def test_each_broken_rule_is_named(batch: bytearray, why: str) -> None:
    with pytest.raises(RequestRefused, match=why) as caught:
        validate_produce(batch, LIMITS, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_batch_of_exactly_max_message_bytes_is_let_through() -> None:
    batch = plain_batch()
    assert _code(batch, replace(LIMITS, max_message_bytes=len(batch))) is ErrorCode.NONE
    too_small = replace(LIMITS, max_message_bytes=len(batch) - 1)
    assert _code(batch, too_small) is ErrorCode.MESSAGE_TOO_LARGE


def test_batch_larger_than_a_segment_is_refused() -> None:
    batch = plain_batch()
    small = replace(LIMITS, segment_bytes=len(batch) - 1)
    assert _code(batch, small) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamp_after_max_ms_is_the_last_one_allowed() -> None:
    allowed = plain_batch(timestamp_ms=NOW_MS + LIMITS.timestamp_after_max_ms)
    assert _code(allowed) is ErrorCode.NONE
    late = plain_batch(timestamp_ms=NOW_MS + LIMITS.timestamp_after_max_ms + 1)
    assert _code(late) is ErrorCode.INVALID_TIMESTAMP


def test_producer_s_timestamps_do_not_matter_with_log_append_time() -> None:
    limits = replace(LIMITS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert _code(plain_batch(timestamp_ms=2**62), limits) is ErrorCode.NONE


def test_every_flipped_bit_is_refused() -> None:
    """What the checksum does not cover is checked by itself, but for the leader epoch."""
    batch = plain_batch()
    for position in (*range(12), *range(16, len(batch))):
        damaged = bytearray(batch)
        damaged[position] ^= 0x01
        assert _code(damaged) is not ErrorCode.NONE, position


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_with_the_topic_s_codec_is_not_rewritten(codec: Codec) -> None:
    header = header_of(plain_batch(codec=codec))
    assert not needs_rewrite(header, LIMITS)
    assert not needs_rewrite(header, replace(LIMITS, compression=codec))


def test_batch_with_another_codec_is_rewritten() -> None:
    header = header_of(plain_batch(codec=Codec.GZIP))
    assert needs_rewrite(header, replace(LIMITS, compression=Codec.NONE))
    assert needs_rewrite(header, replace(LIMITS, compression=Codec.ZSTD))


def test_records_are_looked_at_where_the_header_cannot_answer() -> None:
    header = header_of(plain_batch())
    assert needs_rewrite(header, replace(LIMITS, compacted=True))
    aged = replace(LIMITS, timestamp_before_max_ms=1)
    assert needs_rewrite(header, aged)
    assert not needs_rewrite(header, replace(aged, timestamp_type=TimestampType.LOG_APPEND_TIME))


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_recompressed_batch_holds_the_same_records(source: Codec, target: Codec) -> None:
    batch = large_batch(source, NOW_MS)
    rewritten = rewrite(batch, replace(LIMITS, compression=target), now_ms=NOW_MS)
    assert decode_records(rewritten) == decode_records(batch)
    assert checksum_matches(rewritten, 0, len(rewritten))
    changed = {"batch_length", "crc", "attributes"}
    before, after = (header_of(bytes(one))._asdict() for one in (batch, rewritten))
    assert {name for name in before if before[name] != after[name]} <= changed
    assert header_of(bytes(rewritten)).codec is target


def test_compression_level_is_used() -> None:
    batch = large_batch(Codec.NONE, NOW_MS)
    limits = replace(LIMITS, compression=Codec.GZIP)
    fast = rewrite(batch, replace(limits, compression_level=1), now_ms=NOW_MS)
    best = rewrite(batch, replace(limits, compression_level=9), now_ms=NOW_MS)
    assert bytes(fast) != bytes(best)


def test_batch_that_is_only_checked_is_returned_as_it_came() -> None:
    batch = plain_batch(codec=Codec.LZ4)
    assert rewrite(batch, replace(LIMITS, compacted=True), now_ms=NOW_MS) is batch


def test_record_without_a_key_is_refused_on_a_compacted_topic() -> None:
    batch = encode_plain_batch([record(0), record(1, key=None), record(2)], Codec.GZIP)
    refusal = _rewrite_refusal(batch, replace(LIMITS, compacted=True))
    assert refusal.code is ErrorCode.INVALID_RECORD
    assert isinstance(refusal, RecordsRefused)
    assert [index for index, _why in refusal.record_errors] == [1]


@pytest.mark.parametrize("age_ms", [-3_600_001, 1_001])
def test_record_outside_the_allowed_times_is_refused(age_ms: int) -> None:
    batch = encode_plain_batch([record(0), record(1, timestamp_ms=NOW_MS - age_ms)], Codec.NONE)
    refusal = _rewrite_refusal(batch, replace(LIMITS, timestamp_before_max_ms=1_000))
    assert refusal.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(refusal, RecordsRefused)
    assert [index for index, _why in refusal.record_errors] == [1]


def test_record_without_a_timestamp_is_of_no_age() -> None:
    batch = encode_plain_batch([record(0, timestamp_ms=-1)], Codec.NONE)
    assert rewrite(batch, replace(LIMITS, timestamp_before_max_ms=1), now_ms=NOW_MS) is batch


def test_ages_do_not_matter_with_log_append_time() -> None:
    limits = replace(
        LIMITS,
        compacted=True,
        timestamp_before_max_ms=1,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
    )
    batch = plain_batch(timestamp_ms=5)
    assert rewrite(batch, limits, now_ms=NOW_MS) is batch


def test_answer_names_so_many_records_and_no_more() -> None:
    """A megabyte that is refused would have to be answered with 54."""
    records = [Record(at, NOW_MS, None, None, ()) for at in range(RECORD_ERRORS_MAX + 1)]
    refusal = _rewrite_refusal(
        encode_plain_batch(records, Codec.NONE), replace(LIMITS, compacted=True)
    )
    assert isinstance(refusal, RecordsRefused)
    assert [index for index, _ in refusal.record_errors] == [*range(RECORD_ERRORS_MAX)]


@only_compiled
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, b"", b"key"]),
            st.sampled_from([-1, NOW_MS - 11, NOW_MS - 10, NOW_MS, NOW_MS + 10, NOW_MS + 11]),
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
    st.sampled_from(TimestampType),
    st.integers(0, 3),
)
def test_compiled_survey_lets_the_same_through(
    sent: list[tuple[bytes | None, int]],
    is_compacted: bool,
    timestamp_type: TimestampType,
    gap_at: int,
) -> None:
    records = [
        Record(at + (at >= gap_at > 0), at_ms, key, b"value", ())
        for at, (key, at_ms) in enumerate(sent)
    ]
    limits = replace(
        LIMITS,
        compacted=is_compacted,
        timestamp_type=timestamp_type,
        timestamp_before_max_ms=10,
        timestamp_after_max_ms=10,
    )
    batch = encode_plain_batch(records, Codec.ZSTD)
    answers: list[tuple[ErrorCode, str] | None] = []
    for used in (compiled, None):
        with patch.object(validation, "compiled", used):
            try:
                rewrite(batch, limits, now_ms=NOW_MS)
                answers.append(None)
            except RequestRefused as refusal:
                answers.append((refusal.code, str(refusal)))
    assert answers[0] == answers[1]


@only_compiled
def test_records_of_which_nothing_is_wrong_are_not_decoded() -> None:
    batch = encode_plain_batch([Record(0, NOW_MS, b"key", None, ())], Codec.LZ4)
    with patch.object(validation, "iter_payload", side_effect=AssertionError):
        assert rewrite(batch, replace(LIMITS, compacted=True), now_ms=NOW_MS) is batch


def test_offsets_with_a_gap_are_refused() -> None:
    batch = with_header(encode_plain_batch([record(0), record(2)], Codec.NONE), last_offset_delta=1)
    assert _code(batch) is ErrorCode.NONE
    refusal = _rewrite_refusal(batch, replace(LIMITS, compacted=True))
    assert refusal.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_do_not_decode_are_refused(codec: Codec) -> None:
    batch = with_header(with_payload(plain_batch(), b"no records here"), attributes=codec)
    assert _code(batch) is ErrorCode.NONE
    refusal = _rewrite_refusal(batch, replace(LIMITS, compacted=True))
    assert refusal.code is ErrorCode.INVALID_RECORD


def test_batch_that_outgrows_the_limit_when_rewritten_is_refused() -> None:
    batch = encode_plain_batch([Record(0, NOW_MS, None, bytes(50_000), ())], Codec.GZIP)
    limits = replace(LIMITS, compression=Codec.NONE)
    for small, code in (
        (replace(limits, max_message_bytes=10_000), ErrorCode.MESSAGE_TOO_LARGE),
        (replace(limits, segment_bytes=10_000), ErrorCode.RECORD_LIST_TOO_LARGE),
    ):
        assert _rewrite_refusal(batch, small).code is code
