"""Batches from which records were taken (S5)."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import (
    BatchHeader,
    Codec,
    checksum_matches,
    read_header,
    stamp_log_append_time,
)
from tidelog.records.record import Record, decode_records, encode_batch, uncompressed_payload
from tidelog.records.retained import (
    LocatedRecord,
    empty_batch,
    locate_records,
    retain,
    retain_until,
)

NOW_MS = 1_700_000_000_000
TIMES = st.integers(-1, 2**45)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=2)


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    base_offset = draw(st.integers(0, 2**40))
    values = draw(st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=8))
    return encode_batch(
        [
            Record(base_offset + number, time_ms, key, value, tuple(headers))
            for number, (time_ms, key, value, headers) in enumerate(values)
        ],
        leader_epoch=4,
        codec=draw(st.sampled_from(Codec)),
        producer_id=draw(st.sampled_from([-1, 9])),
        producer_epoch=2,
        base_sequence=17,
        is_transactional=draw(st.booleans()),
        is_control=False,
    )


def located(batch: bytearray) -> tuple[bytes, list[LocatedRecord]]:
    header = read_header(batch, 0)
    payload = bytes(uncompressed_payload(header, batch))
    return payload, list(locate_records(payload, header.record_count))


def retained(
    header: BatchHeader,
    payload: bytes,
    records: Sequence[LocatedRecord],
    *,
    horizon_ms: int | None,
) -> bytearray:
    """The batch with only `records` of its payload left in it."""
    kept = b"".join(payload[record.start : record.end] for record in records)
    if horizon_ms is not None:
        return retain_until(header, kept, record_count=len(records), delete_horizon_ms=horizon_ms)
    largest_ms = max(record.timestamp_delta for record in records)
    return retain(
        header,
        kept,
        record_count=len(records),
        largest_timestamp_delta_ms=largest_ms,
        level=None,
    )


@given(batches())
def test_records_are_found_with_their_keys(batch: bytearray) -> None:
    header = read_header(batch, 0)
    _, found = located(batch)
    assert [
        (
            header.base_offset + one.offset_delta,
            header.base_timestamp_ms + one.timestamp_delta,
            one.key,
            one.has_value,
        )
        for one in found
    ] == [
        (record.offset, record.timestamp_ms, record.key, record.value is not None)
        for record in decode_records(batch)
    ]


@given(batches(), st.data(), st.none() | st.integers(0, 2**45))
def test_what_is_retained_is_what_it_was(
    batch: bytearray, data: st.DataObject, horizon_ms: int | None
) -> None:
    payload, found = located(batch)
    chosen = data.draw(st.sets(st.sampled_from(range(len(found))), min_size=1), label="chosen")
    kept = retained(
        read_header(batch, 0),
        payload,
        [found[number] for number in sorted(chosen)],
        horizon_ms=horizon_ms,
    )
    before, after = read_header(batch, 0), read_header(kept, 0)
    expected = [decode_records(batch)[number] for number in sorted(chosen)]
    assert decode_records(kept) == expected
    assert checksum_matches(kept, 0, len(kept))
    assert after.delete_horizon_ms == horizon_ms
    assert after == before._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        attributes=after.attributes,
        base_timestamp_ms=after.base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in expected),
        record_count=len(expected),
    )
    assert (after.codec, after.is_transactional) == (before.codec, before.is_transactional)


def test_record_from_before_all_time_can_be_read_when_its_batch_has_a_horizon() -> None:
    batch = encode_batch(
        [Record(0, -1, b"a", None, ())],
        leader_epoch=0,
        codec=Codec.NONE,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        is_transactional=False,
        is_control=False,
    )
    header = read_header(batch, 0)._replace(base_timestamp_ms=-(2**63))
    kept = retained(header, *located(batch), horizon_ms=NOW_MS)
    (record,) = decode_records(kept)
    assert (record.key, record.timestamp_ms) == (b"a", NOW_MS - 2**63)


def test_horizon_that_is_there_stays() -> None:
    batch = encode_batch(
        [Record(0, NOW_MS, b"a", None, ()), Record(1, NOW_MS, b"b", None, ())],
        leader_epoch=0,
        codec=Codec.NONE,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        is_transactional=False,
        is_control=False,
    )
    payload, found = located(batch)
    first = retained(read_header(batch, 0), payload, found, horizon_ms=NOW_MS + 9)
    payload, found = located(first)
    second = retained(read_header(first, 0), payload, found[1:], horizon_ms=None)
    assert read_header(second, 0).delete_horizon_ms == NOW_MS + 9
    assert decode_records(second) == [Record(1, NOW_MS, b"b", None, ())]


@pytest.mark.parametrize("horizon_ms", [None, NOW_MS + 5])
def test_log_append_time_stays(horizon_ms: int | None) -> None:
    batch = encode_batch(
        [Record(0, NOW_MS, b"a", None, ()), Record(1, NOW_MS, b"b", None, ())],
        leader_epoch=0,
        codec=Codec.LZ4,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        is_transactional=False,
        is_control=False,
    )
    stamp_log_append_time(batch, 0, NOW_MS + 77)
    payload, found = located(batch)
    kept = retained(read_header(batch, 0), payload, found[:1], horizon_ms=horizon_ms)
    assert read_header(kept, 0).is_log_append_time
    assert [record.timestamp_ms for record in decode_records(kept)] == [NOW_MS + 77]


@given(batches())
def test_emptied_batch_says_who_wrote_it_and_up_to_where(batch: bytearray) -> None:
    before, emptied = read_header(batch, 0), empty_batch(read_header(batch, 0))
    after = read_header(emptied, 0)
    assert decode_records(emptied) == []
    assert checksum_matches(emptied, 0, len(emptied))
    assert (after.codec, after.delete_horizon_ms, after.base_timestamp_ms) == (0, None, -1)
    assert after._replace(
        batch_length=0, crc=0, attributes=0, base_timestamp_ms=0
    ) == before._replace(batch_length=0, crc=0, attributes=0, base_timestamp_ms=0, record_count=0)
    assert after.is_transactional == before.is_transactional


@given(batches(), st.data())
def test_damaged_payload_is_corrupt_or_read(batch: bytearray, data: st.DataObject) -> None:
    payload, found = located(batch)
    damaged = bytearray(payload)
    position = data.draw(st.integers(0, len(damaged) - 1), label="position")
    damaged[position] = data.draw(st.integers(0, 255), label="byte")
    cut = data.draw(st.integers(0, len(damaged)), label="cut")
    with suppress(CorruptBatch):
        list(locate_records(bytes(damaged[:cut]), len(found)))
