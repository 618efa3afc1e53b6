"""S3: the header of a batch, read, checked and stamped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import NOW_MS, idempotent_batch, payload_of, plain_batch, with_header
from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import (
    HEADER,
    HEADER_SIZE_BYTES,
    BatchHeader,
    Codec,
    TimestampType,
    add_to_sequence,
    checksum_matches,
    iter_headers,
    read_header,
    stamp,
    stamp_log_append_time,
)
from tidelog.records.record import decode_records


def _any_header() -> st.SearchStrategy[BatchHeader]:
    int64 = st.integers(-(2**63), 2**63 - 1)
    int32 = st.integers(-(2**31), 2**31 - 1)
    int16 = st.integers(-(2**15), 2**15 - 1)
    return st.builds(
        BatchHeader,
        base_offset=int64,
        batch_length=st.integers(49, 2**31 - 1),
        leader_epoch=int32,
        magic=st.just(2),
        crc=st.integers(0, 2**32 - 1),
        attributes=int16,
        last_offset_delta=int32,
        base_timestamp_ms=int64,
        max_timestamp_ms=int64,
        producer_id=int64,
        producer_epoch=int16,
        base_sequence=int32,
        record_count=int32,
    )


@given(header=_any_header(), position=st.integers(0, 50))
def test_header_is_read_back_as_it_was_written(header: BatchHeader, position: int) -> None:
    buffer = bytes(position) + HEADER.pack(*header)
    assert read_header(buffer, position) == header


@pytest.mark.parametrize("size_bytes", [0, 1, 12, 60])
def test_header_that_is_cut_off_is_corrupt(size_bytes: int) -> None:
    with pytest.raises(CorruptBatch, match="61 bytes"):
        read_header(plain_batch()[:size_bytes], 0)


@pytest.mark.parametrize("batch_length", [-(2**31), -1, 0, 48])
def test_batch_shorter_than_its_header_is_corrupt(batch_length: int) -> None:
    with pytest.raises(CorruptBatch, match="batch length"):
        read_header(with_header(plain_batch(), batch_length=batch_length), 0)


@pytest.mark.parametrize("magic", [-1, 0, 1, 3])
def test_batch_of_another_magic_is_corrupt(magic: int) -> None:
    with pytest.raises(CorruptBatch, match="magic"):
        read_header(with_header(plain_batch(), magic=magic), 0)


def test_sizes_and_offsets_follow_from_the_header() -> None:
    batch = with_header(plain_batch(record_count=3), base_offset=40)
    header = read_header(batch, 0)
    assert header.size_bytes == len(batch)
    assert header.last_offset == 42
    assert header.end_offset == 43


@pytest.mark.parametrize("codec", list(Codec))
def test_codec_is_in_the_lowest_bits_of_the_attributes(codec: Codec) -> None:
    assert read_header(with_header(plain_batch(), attributes=codec | 0x38), 0).codec is codec


@pytest.mark.parametrize("number", [5, 6, 7])
def test_codec_that_does_not_exist_is_corrupt(number: int) -> None:
    header = read_header(with_header(plain_batch(), attributes=number), 0)
    with pytest.raises(CorruptBatch, match=str(number)):
        _ = header.codec


def test_each_flag_is_one_bit() -> None:
    def flags(attributes: int) -> tuple[bool, bool, bool]:
        header = read_header(with_header(plain_batch(), attributes=attributes), 0)
        return header.is_log_append_time, header.is_transactional, header.is_control

    assert flags(0x07) == (False, False, False)
    assert flags(0x08) == (True, False, False)
    assert flags(0x10) == (False, True, False)
    assert flags(0x20) == (False, False, True)


def test_timestamp_type_follows_its_flag() -> None:
    create, append = (
        read_header(with_header(plain_batch(), attributes=attributes), 0).timestamp_type
        for attributes in (0, 8)
    )
    assert create is TimestampType.CREATE_TIME
    assert append is TimestampType.LOG_APPEND_TIME


def test_producer_without_idempotence_has_neither_id_nor_sequence() -> None:
    header = read_header(plain_batch(), 0)
    assert not header.has_producer_id
    assert header.last_sequence == -1


def test_last_sequence_counts_the_records() -> None:
    header = read_header(idempotent_batch(record_count=3, base_sequence=10), 0)
    assert header.has_producer_id
    assert header.last_sequence == 12


def test_sequence_starts_at_zero_again_after_the_largest_int32() -> None:
    header = read_header(idempotent_batch(record_count=3, base_sequence=2**31 - 2), 0)
    assert header.last_sequence == 0
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 2, 1) == 2**31 - 1


def test_checksum_of_an_untouched_batch_matches() -> None:
    batch = plain_batch()
    assert checksum_matches(batch, 0, len(batch))
    assert checksum_matches(b"xyz" + batch, 3, len(batch))


def test_flipped_bit_anywhere_behind_the_checksum_is_noticed() -> None:
    batch = plain_batch()
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        assert not checksum_matches(damaged, 0, len(batch)), position


def test_batch_that_is_cut_off_does_not_match_its_checksum() -> None:
    batch = plain_batch()
    for size_bytes in range(len(batch)):
        assert not checksum_matches(batch[:size_bytes], 0, len(batch))
        assert not checksum_matches(batch, 0, size_bytes)


def test_headers_of_all_whole_batches_are_listed() -> None:
    first, second = plain_batch(2), with_header(plain_batch(5), base_offset=2)
    buffer = first + second
    listed = list(iter_headers(buffer))
    assert [position for position, _ in listed] == [0, len(first)]
    assert [header.base_offset for _, header in listed] == [0, 2]


def test_batch_that_is_cut_off_is_not_listed() -> None:
    batch = plain_batch()
    for size_bytes in range(len(batch)):
        assert len(list(iter_headers(batch + batch[:size_bytes]))) == 1


def test_listing_stops_with_an_error_at_what_is_no_batch() -> None:
    listing = iter_headers(plain_batch() + bytes(HEADER_SIZE_BYTES))
    assert next(listing)[0] == 0
    with pytest.raises(CorruptBatch):
        next(listing)


@given(offset=st.integers(0, 2**63 - 1), epoch=st.integers(-1, 2**31 - 1))
def test_stamping_leaves_the_checksum_right(offset: int, epoch: int) -> None:
    batch = plain_batch()
    stamp(memoryview(batch), offset, read_header(batch, 0).batch_length, epoch)
    header = read_header(batch, 0)
    assert (header.base_offset, header.leader_epoch) == (offset, epoch)
    assert checksum_matches(batch, 0, len(batch))
    assert payload_of(batch) == payload_of(plain_batch())


def test_stamping_touches_nothing_but_offset_and_epoch() -> None:
    batch = plain_batch()
    header = read_header(batch, 0)
    stamp(batch, 9, header.batch_length, 1)
    assert read_header(batch, 0) == header._replace(base_offset=9, leader_epoch=1)


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    batch = bytearray(3) + plain_batch()
    stamp_log_append_time(batch, 3, NOW_MS + 5)
    stamped = batch[3:]
    assert checksum_matches(stamped, 0, len(stamped))
    assert read_header(stamped, 0).is_log_append_time
    assert {record.timestamp_ms for record in decode_records(stamped)} == {NOW_MS + 5}
