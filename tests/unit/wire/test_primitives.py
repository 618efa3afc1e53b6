"""The building blocks: round trips, and nothing believed that is not there."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import int32s
from tidelog.base.errors import WireError
from tidelog.wire.primitives import (
    ELEMENTS_MAX,
    TAGGED_FIELDS_MAX,
    Reader,
    array_count,
    frame,
    int32_array,
    nullable_string,
    read_classic_string,
    read_compact_string,
    read_uuid,
    read_uvarint,
    skip_tagged_fields,
    string,
    tagged_fields,
    uvarint,
)

NULL_ARRAY = {True: b"\x00", False: b"\xff\xff\xff\xff"}

both_spellings = pytest.mark.parametrize("flexible", [True, False])


def _reader(data: bytes, *, flexible: bool) -> Reader:
    return Reader(memoryview(data), 0, flexible=flexible)


@given(number=st.integers(0, 2**35 - 1))
def test_uvarint_comes_back(number: int) -> None:
    encoded = uvarint(number)
    assert read_uvarint(memoryview(encoded), 0) == (number, len(encoded))
    assert _reader(encoded, flexible=True).uvarint() == number


@pytest.mark.parametrize(
    ("number", "encoded"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_uvarint_has_seven_bits_in_a_byte(number: int, encoded: bytes) -> None:
    assert uvarint(number) == encoded


def test_uvarint_of_six_bytes_is_refused() -> None:
    with pytest.raises(WireError, match="five bytes"):
        read_uvarint(memoryview(b"\x80" * 5 + b"\x01"), 0)


def test_uvarint_that_is_cut_off_is_refused() -> None:
    with pytest.raises(WireError, match="cut off"):
        _reader(b"\x80\x80", flexible=True).uvarint()


@both_spellings
@given(text=st.none() | st.text(max_size=300))
def test_nullable_string_comes_back(flexible: bool, text: str | None) -> None:
    encoded = nullable_string(text, flexible=flexible)
    reader = _reader(encoded, flexible=flexible)
    assert reader.nullable_string() == text
    assert reader.position == len(encoded)
    read = read_compact_string if flexible else read_classic_string
    assert read(memoryview(encoded), 0) == (text, len(encoded))


@both_spellings
def test_null_where_a_value_is_required_is_refused(flexible: bool) -> None:
    null = nullable_string(None, flexible=flexible)
    with pytest.raises(WireError, match="string is required"):
        _reader(null, flexible=flexible).string()
    null = NULL_ARRAY[flexible]
    with pytest.raises(WireError, match="array is required"):
        _reader(null, flexible=flexible).array_count()
    with pytest.raises(WireError, match="bytes are required"):
        _reader(null, flexible=flexible).data()


@both_spellings
def test_null_is_told_from_empty(flexible: bool) -> None:
    assert _reader(NULL_ARRAY[flexible], flexible=flexible).nullable_array_count() is None
    empty = array_count(0, flexible=flexible)
    assert _reader(empty, flexible=flexible).nullable_array_count() == 0
    assert _reader(empty, flexible=flexible).data() == b""
    assert _reader(NULL_ARRAY[flexible], flexible=flexible).nullable_data() is None


@both_spellings
def test_string_longer_than_what_is_left_is_refused(flexible: bool) -> None:
    encoded = string("hello", flexible=flexible)[:-1]
    with pytest.raises(WireError):
        _reader(encoded, flexible=flexible).string()
    read = read_compact_string if flexible else read_classic_string
    with pytest.raises(WireError):
        read(memoryview(encoded), 0)


@both_spellings
def test_string_that_is_not_utf8_is_refused(flexible: bool) -> None:
    encoded = string("ab", flexible=flexible)[:-2] + b"\xff\xfe"
    with pytest.raises(WireError, match="UTF-8"):
        _reader(encoded, flexible=flexible).string()


@both_spellings
@given(numbers=st.lists(int32s, max_size=20))
def test_int32_array_comes_back(flexible: bool, numbers: list[int]) -> None:
    encoded = int32_array(numbers, flexible=flexible)
    assert _reader(encoded, flexible=flexible).int32_array() == numbers


def test_numbers_are_big_endian() -> None:
    reader = _reader(struct.pack(">bhiqHd?", -1, -2, -3, -4, 65535, 1.5, True), flexible=False)
    assert (reader.int8(), reader.int16(), reader.int32(), reader.int64()) == (-1, -2, -3, -4)
    assert (reader.uint16(), reader.float64(), reader.boolean()) == (65535, 1.5, True)


@pytest.mark.parametrize("method", ["int8", "int16", "int32", "int64", "uint16", "float64", "uuid"])
def test_number_that_is_cut_off_is_refused(method: str) -> None:
    with pytest.raises(WireError):
        getattr(_reader(b"", flexible=True), method)()


def test_uuid_is_sixteen_bytes() -> None:
    data = bytes(range(16))
    assert _reader(data, flexible=True).uuid() == data
    assert read_uuid(memoryview(b"x" + data), 1) == (data, 17)
    with pytest.raises(WireError, match="15 bytes"):
        read_uuid(memoryview(data), 1)


@both_spellings
@pytest.mark.parametrize("count", [5, 2**20, 2**31 - 1])
def test_array_with_more_elements_than_bytes_is_refused(flexible: bool, count: int) -> None:
    encoded = array_count(count, flexible=flexible) + b"abcd"
    with pytest.raises(WireError, match=f"array of {count}"):
        _reader(encoded, flexible=flexible).nullable_array_count()


@both_spellings
def test_all_arrays_of_a_frame_share_one_bound(flexible: bool) -> None:
    half = array_count(ELEMENTS_MAX // 2 + 1, flexible=flexible)
    reader = _reader(half + half + bytes(ELEMENTS_MAX), flexible=flexible)
    reader.array_count()
    with pytest.raises(WireError):
        reader.array_count()


def test_tagged_fields_come_back_by_their_tag() -> None:
    encoded = tagged_fields([(0, b"abc"), (300, b"")])
    assert skip_tagged_fields(memoryview(encoded + b"x"), 0) == len(encoded)
    reader = _reader(encoded, flexible=True)
    fields = reader.tagged_fields()
    assert sorted(fields) == [0, 300]
    assert bytes(fields[0].view) == b"abc"
    assert reader.position == len(encoded)


def test_classic_structure_has_no_tagged_fields() -> None:
    reader = _reader(b"\x05", flexible=False)
    reader.end_structure()
    assert reader.tagged_fields() == {}
    assert reader.position == 0


@pytest.mark.parametrize("count", [TAGGED_FIELDS_MAX + 1, 127, 2**32])
def test_too_many_tagged_fields_are_refused(count: int) -> None:
    encoded = uvarint(count) + b"\x00\x00" * 200
    with pytest.raises(WireError, match="tagged fields"):
        skip_tagged_fields(memoryview(encoded), 0)
    with pytest.raises(WireError, match="tagged fields"):
        _reader(encoded, flexible=True).tagged_fields()


def test_tagged_fields_that_are_cut_off_are_refused() -> None:
    encoded = tagged_fields([(0, b"abc"), (1, b"d")])
    for size_bytes in range(len(encoded)):
        with pytest.raises(WireError):
            skip_tagged_fields(memoryview(encoded[:size_bytes]), 0)
        with pytest.raises(WireError):
            _reader(encoded[:size_bytes], flexible=True).tagged_fields()


def test_frame_starts_with_its_length() -> None:
    assert frame([b"ab", b"", b"c"]) == b"\x00\x00\x00\x03abc"


@given(data=st.binary(max_size=50))
def test_random_bytes_are_tagged_fields_or_refused(data: bytes) -> None:
    try:
        position = skip_tagged_fields(memoryview(data), 0)
    except WireError:
        return
    assert 0 < position <= len(data)
