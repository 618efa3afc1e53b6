"""S3: records inside a batch, as values and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import header_of, payload_of, plain_batch, with_header, with_payload
from tests.support.golden import kafka_batches
from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import Codec, checksum_matches
from tidelog.records.record import (
    Record,
    assemble,
    decode_records,
    encode_batch,
    encode_plain_batch,
)

_nullable_bytes = st.none() | st.binary(max_size=200)
_headers = st.lists(st.tuples(st.text(max_size=20), _nullable_bytes), max_size=4).map(tuple)


@st.composite
def _records(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**62))
    base_ms = draw(st.integers(-1, 2**61))
    records = []
    for _ in range(draw(st.integers(1, 8))):
        timestamp_ms = base_ms + draw(st.integers(-(2**40), 2**40))
        records.append(
            Record(
                offset, timestamp_ms, draw(_nullable_bytes), draw(_nullable_bytes), draw(_headers)
            )
        )
        offset += draw(st.integers(1, 3))
    return records


@pytest.mark.parametrize("codec", list(Codec))
@given(records=_records())
def test_records_come_back_from_a_batch(codec: Codec, records: list[Record]) -> None:
    batch = encode_plain_batch(records, codec)
    assert decode_records(batch) == records
    assert checksum_matches(batch, 0, len(batch))


@given(records=_records())
def test_header_of_a_batch_sums_up_its_records(records: list[Record]) -> None:
    header = header_of(encode_plain_batch(records, Codec.NONE))
    assert header.base_offset == records[0].offset
    assert header.last_offset == records[-1].offset
    assert header.record_count == len(records)
    assert header.base_timestamp_ms == records[0].timestamp_ms
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)


def test_traits_of_a_batch_are_in_its_header() -> None:
    header = header_of(
        encode_batch(
            [Record(5, 1, None, None, ())],
            leader_epoch=3,
            codec=Codec.LZ4,
            producer_id=11,
            producer_epoch=2,
            base_sequence=7,
            is_transactional=True,
            is_control=True,
        )
    )
    assert header.codec is Codec.LZ4
    assert header.is_transactional
    assert header.is_control
    assert header.leader_epoch == 3
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 7)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_a_real_kafka_are_read(codec: str) -> None:
    records = decode_records(kafka_batches()[codec])
    assert [record.offset for record in records] == list(range(40))
    assert [record.key for record in records] == [b"key-%d" % index for index in range(40)]
    assert records[2].value == b"value 2 tidelog tidelog "
    assert records[7].headers == (("h1", b"one"), ("h2", b"7"))


def test_our_bytes_are_the_bytes_of_a_real_kafka() -> None:
    theirs = kafka_batches()["none"]
    header = header_of(theirs)
    ours = encode_batch(
        decode_records(theirs),
        leader_epoch=header.leader_epoch,
        codec=Codec.NONE,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=False,
        is_control=False,
    )
    assert bytes(ours) == theirs


def test_header_key_that_is_not_utf8_survives() -> None:
    batch = encode_plain_batch([Record(0, 0, None, None, (("k", b"v"),))], Codec.NONE)
    odd = with_payload(batch, payload_of(batch).replace(b"k", b"\xff"))
    records = decode_records(odd)
    assert records[0].headers == (("\udcff", b"v"),)
    assert encode_plain_batch(records, Codec.NONE) == odd


def test_records_of_log_append_time_have_the_batch_s_timestamp() -> None:
    batch = with_header(plain_batch(), attributes=8, max_timestamp_ms=77)
    assert {record.timestamp_ms for record in decode_records(batch)} == {77}


def test_buffer_that_is_not_exactly_one_batch_is_corrupt() -> None:
    batch = plain_batch()
    for buffer in (batch[:-1], batch + b"\x00", batch + batch):
        with pytest.raises(CorruptBatch):
            decode_records(buffer)


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_record_count_that_lies_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptBatch):
        decode_records(with_header(plain_batch(record_count=3), record_count=count))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "cut off"),
        (b"\x0c", "12 bytes|6 bytes"),
        (b"\x01", "-1 bytes"),
        (b"\xff\xff\xff\xff\xff\x01", "longer than 32 bits"),
        (b"\xff\xff\xff\xff\x7f", "longer than 32 bits"),
        (b"\x0c\x00\x00\x00\x03\x01\x00", "-2 bytes"),
        (b"\x0c\x00\x00\x00\x01\x08\x00", "4 bytes"),
        (b"\x0c\x00\x00\x00\x01\x01\x02", "1 headers in 0"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", "-1 headers"),
        (b"\x0e\x00\x00\x00\x01\x01\x02\x01", "without a key"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "its length says"),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", "1 bytes follow"),
        (b"\x10\x00" + b"\xff" * 9 + b"\x7f\x00", "cut off|longer than 64|16 bytes|8 bytes"),
    ],
)
def test_payload_that_is_no_record_is_corrupt(payload: bytes, why: str) -> None:
    batch = with_payload(plain_batch(record_count=1), payload)
    with pytest.raises(CorruptBatch, match=why):
        decode_records(batch)


def test_varlong_of_more_than_64_bits_is_corrupt() -> None:
    payload = bytes([2 * 15]) + b"\x00" + b"\xff" * 9 + b"\x7f" + b"\x00\x01\x01\x00"
    with pytest.raises(CorruptBatch, match="64 bits"):
        decode_records(with_payload(plain_batch(record_count=1), payload))


@given(cut=st.integers(0, 10_000), codec=st.sampled_from(list(Codec)))
def test_payload_that_is_cut_off_is_corrupt(cut: int, codec: Codec) -> None:
    batch = plain_batch(record_count=5, codec=codec)
    payload = payload_of(batch)
    with pytest.raises(CorruptBatch):
        decode_records(with_payload(batch, payload[: cut % len(payload)]))


@given(data=st.data(), codec=st.sampled_from(list(Codec)))
def test_damaged_batch_is_corrupt_or_a_list_of_records(data: st.DataObject, codec: Codec) -> None:
    batch = plain_batch(record_count=5, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        records = decode_records(batch)
    except CorruptBatch:
        return
    assert all(isinstance(record, Record) for record in records)


@given(payload=st.binary(max_size=300), count=st.integers(-(2**31), 2**31 - 1))
def test_random_payload_is_corrupt_or_a_list_of_records(payload: bytes, count: int) -> None:
    header = header_of(plain_batch())._replace(record_count=count)
    try:
        records = decode_records(assemble(header, payload))
    except CorruptBatch:
        return
    assert len(records) == max(count, 0)
