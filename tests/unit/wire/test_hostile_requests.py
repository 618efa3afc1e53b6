"""O5: whatever arrives, a decoder answers with a value or WireError, in bounded time and memory."""

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.decoders import DECODERS, SUPPORTED_VERSIONS, example_body, example_requests
from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, decode_request_header
from tidelog.wire.primitives import ELEMENTS_MAX, uvarint

every_version = pytest.mark.parametrize(("key", "version"), SUPPORTED_VERSIONS)


@every_version
def test_valid_request_is_read(key: ApiKey, version: int) -> None:
    body = example_body(key, version)
    assert DECODERS[key](memoryview(body), 0, version) is not None


@every_version
def test_request_that_is_cut_off_anywhere_is_refused(key: ApiKey, version: int) -> None:
    body = example_body(key, version)
    for size_bytes in range(len(body)):
        with pytest.raises(WireError):
            DECODERS[key](memoryview(body[:size_bytes]), 0, version)


@every_version
def test_any_one_byte_changed_is_a_request_or_refused(key: ApiKey, version: int) -> None:
    body = example_body(key, version)
    for position in range(len(body)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            damaged = bytearray(body)
            damaged[position] = byte
            try:
                DECODERS[key](memoryview(damaged), 0, version)
            except WireError:
                continue


@given(key_and_version=st.sampled_from(SUPPORTED_VERSIONS), body=st.binary(max_size=400))
def test_random_bytes_are_a_request_or_refused(
    key_and_version: tuple[ApiKey, int], body: bytes
) -> None:
    key, version = key_and_version
    try:
        DECODERS[key](memoryview(body), 0, version)
    except WireError:
        return


def test_header_of_every_supported_request_is_read() -> None:
    for request in example_requests():
        header = decode_request_header(memoryview(request))
        assert header.client_id == "client"
        DECODERS[ApiKey(header.api_key)](
            memoryview(request), header.body_position, header.api_version
        )


@pytest.mark.parametrize(
    ("key", "version", "element"),
    [
        (ApiKey.METADATA, 9, b"\x01\x00"),
        (ApiKey.CREATE_TOPICS, 7, b"\x01" + bytes(6) + b"\x01\x01\x00"),
        (ApiKey.DELETE_TOPICS, 5, b"\x01"),
    ],
)
@pytest.mark.parametrize("excess", [0, 1])
def test_array_of_the_smallest_elements_takes_bounded_memory(
    key: ApiKey, version: int, element: bytes, excess: int
) -> None:
    count = ELEMENTS_MAX + excess
    body = uvarint(count + 1) + element * count + bytes(8)
    tracemalloc.start()
    try:
        with pytest.raises(WireError) if excess else contextlib.nullcontext():
            DECODERS[key](memoryview(body), 0, version)
        _now, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000 * ELEMENTS_MAX
