"""G1: which versions are served, and the header in front of every request."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2

from tests.support.golden import kafka_api_versions
from tests.support.kio_codec import encode, int16s, int32s, kio_versions
from tidelog.base.errors import WireError
from tidelog.wire.api import (
    ADVERTISED,
    INTER_BROKER,
    SUPPORTED,
    ApiKey,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)

DIVERGENCES = Path(__file__).parents[3] / "docs" / "divergences.md"
KIO_VERSIONS = [(key, version) for key in api_key_map for version in kio_versions(key)]


def test_versions_advertised_are_those_of_a_real_kafka() -> None:
    kafka = kafka_api_versions()
    assert {int(key): tuple(versions) for key, versions in ADVERTISED.items()} == {
        int(key): kafka[key] for key in ADVERTISED
    }


def test_only_produce_is_advertised_wider_than_it_is_served() -> None:
    wider = {key for key in ADVERTISED if ADVERTISED[key] != SUPPORTED[key]}
    assert wider == {ApiKey.PRODUCE}
    assert ADVERTISED[ApiKey.PRODUCE].highest == SUPPORTED[ApiKey.PRODUCE].highest


@pytest.mark.parametrize("key", sorted(kafka_api_versions().keys() - ADVERTISED.keys()))
def test_an_api_that_only_kafka_has_is_in_the_list_of_differences(key: int) -> None:
    name = ApiKey(key).name.title().replace("_", "")
    assert re.search(rf"\b{name}\b", DIVERGENCES.read_text("utf-8"))


def test_api_keys_have_the_names_of_the_message_library() -> None:
    for key, name in api_key_map.items():
        assert ApiKey(key).name == name.upper()


@pytest.mark.parametrize("key", sorted(api_key_map))
def test_header_versions_are_those_of_the_message_library(key: int) -> None:
    for version in kio_versions(key):
        request = load_request_schema(key, version).__header_schema__
        assert request_header_version(key, version) == request.__version__
        response = load_response_schema(key, version).__header_schema__
        assert response_header_version(key, version) == response.__version__


def test_clients_are_not_told_what_brokers_say_to_each_other() -> None:
    assert not {*INTER_BROKER} & {*ADVERTISED}
    assert not {*INTER_BROKER} & {*SUPPORTED}


def test_what_brokers_say_to_each_other_is_flexible_from_the_first_version_on() -> None:
    for key, (lowest, highest) in INTER_BROKER.items():
        for version in range(lowest, highest + 1):
            assert request_header_version(key, version) == 2
            assert response_header_version(key, version) == 1


@given(
    key_and_version=st.sampled_from(KIO_VERSIONS),
    correlation_id=int32s,
    client_id=st.text(max_size=50),
)
def test_header_that_is_written_is_read(
    key_and_version: tuple[int, int], correlation_id: int, client_id: str
) -> None:
    header = encode_request_header(*key_and_version, correlation_id, client_id)
    assert decode_request_header(memoryview(header + b"body")) == RequestHeader(
        *key_and_version, correlation_id, client_id, len(header)
    )


@given(key_and_version=st.sampled_from(KIO_VERSIONS), correlation_id=int32s)
def test_response_header_that_is_written_is_read(
    key_and_version: tuple[int, int], correlation_id: int
) -> None:
    header = encode_response_header(*key_and_version, correlation_id)
    view = memoryview(header + b"body")
    assert decode_response_header(view, *key_and_version) == (correlation_id, len(header))


def test_tagged_fields_of_a_response_header_are_skipped() -> None:
    header = struct.pack(">i", 9) + b"\x01\x05\x02bc"
    decoded = decode_response_header(memoryview(header + b"body"), ApiKey.FETCH, 12)
    assert decoded == (9, len(header))


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x09", b"\x00\x00\x00\x09\x01"]
)
def test_response_header_that_is_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_response_header(memoryview(data), ApiKey.FETCH, 12)


@given(
    key_and_version=st.sampled_from(KIO_VERSIONS),
    correlation_id=int32s,
    client_id=st.none() | st.text(max_size=50),
    body=st.binary(max_size=20),
)
def test_header_of_any_request_is_read(
    key_and_version: tuple[int, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    key, version = key_and_version
    header_class = KioHeaderV2 if request_header_version(key, version) == 2 else KioHeaderV1
    encoded = encode(
        header_class(
            request_api_key=key,  # type: ignore[arg-type]
            request_api_version=version,  # type: ignore[arg-type]
            correlation_id=correlation_id,  # type: ignore[arg-type]
            client_id=client_id,
        )
    )
    decoded = decode_request_header(memoryview(encoded + body))
    assert decoded == (key, version, correlation_id, client_id, len(encoded))


def test_tagged_fields_of_a_header_are_skipped() -> None:
    header = struct.pack(">hhih", ApiKey.FETCH, 12, 1, -1) + b"\x02\x00\x01a\x05\x02bc"
    assert decode_request_header(memoryview(header + b"body")).body_position == len(header)


@given(version=st.integers(-(2**15), 2**15 - 1))
def test_version_that_nobody_knows_still_has_a_header(version: int) -> None:
    request = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 9, 1) + b"c\x00"
    header = decode_request_header(memoryview(request))
    assert (header.api_version, header.correlation_id, header.client_id) == (version, 9, "c")


@pytest.mark.parametrize("key", [-1, 93, 2**15 - 1, -(2**15)])
def test_api_key_that_nobody_knows_is_refused(key: int) -> None:
    with pytest.raises(WireError, match=f"unknown api key {key}"):
        decode_request_header(memoryview(struct.pack(">hhih", key, 0, 1, -1)))


def test_header_that_is_cut_off_is_refused() -> None:
    header = struct.pack(">hhih", ApiKey.FETCH, 12, 1, 3) + b"abc" + b"\x01\x00\x01a"
    for size_bytes in range(len(header)):
        with pytest.raises(WireError):
            decode_request_header(memoryview(header[:size_bytes]))


def test_client_id_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireError):
        decode_request_header(memoryview(struct.pack(">hhih", 0, 3, 1, 2) + b"\xff\xfe"))


@given(data=st.binary(max_size=60))
def test_random_bytes_are_a_header_or_refused(data: bytes) -> None:
    try:
        header = decode_request_header(memoryview(data))
    except WireError:
        return
    assert header.body_position <= len(data)


@given(correlation_id=int32s, version=int16s)
def test_answer_to_api_versions_never_has_tagged_fields(correlation_id: int, version: int) -> None:
    header = encode_response_header(ApiKey.API_VERSIONS, version, correlation_id)
    assert header == struct.pack(">i", correlation_id)


def test_response_header_ends_with_tagged_fields_in_flexible_versions() -> None:
    assert encode_response_header(ApiKey.FETCH, 11, 3) == b"\x00\x00\x00\x03"
    assert encode_response_header(ApiKey.FETCH, 12, 3) == b"\x00\x00\x00\x03\x00"
