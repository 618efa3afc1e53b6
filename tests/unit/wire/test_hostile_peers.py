"""O5: whatever a peer says, a decoder answers with a value or WireError."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.peer_codec import PEER_CODECS
from tidelog.base.errors import WireError

every_codec = pytest.mark.parametrize("name", PEER_CODECS)


@every_codec
def test_body_that_is_cut_off_anywhere_is_refused(name: str) -> None:
    decode, version, body = PEER_CODECS[name]
    assert decode(memoryview(body), 0, version) is not None
    for size_bytes in range(len(body)):
        with pytest.raises(WireError):
            decode(memoryview(body[:size_bytes]), 0, version)


@every_codec
def test_any_one_byte_changed_is_a_value_or_refused(name: str) -> None:
    decode, version, body = PEER_CODECS[name]
    for position in range(len(body)):
        for byte in (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF):
            damaged = bytearray(body)
            damaged[position] = byte
            with contextlib.suppress(WireError):
                decode(memoryview(damaged), 0, version)


@every_codec
def test_a_length_of_gigabytes_in_any_place_is_a_value_or_refused(name: str) -> None:
    decode, version, body = PEER_CODECS[name]
    for position in range(len(body)):
        damaged = body[:position] + b"\xff\xff\xff\xff\x0f" + body[position + 1 :]
        with contextlib.suppress(WireError):
            decode(memoryview(damaged), 0, version)


@given(name=st.sampled_from(sorted(PEER_CODECS)), body=st.binary(max_size=400))
def test_random_bytes_are_a_value_or_refused(name: str, body: bytes) -> None:
    decode, version, _body = PEER_CODECS[name]
    with contextlib.suppress(WireError):
        decode(memoryview(body), 0, version)


@every_codec
def test_tagged_fields_of_a_later_day_are_skipped(name: str) -> None:
    decode, version, body = PEER_CODECS[name]
    assert body[-1] == 0
    later = body[:-1] + b"\x01\x63\x03new"
    assert decode(memoryview(later), 0, version) == decode(memoryview(body), 0, version)
