"""G1, KIP-511: ApiVersions, against kio in both directions and in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    PER_VERSION,
    int16s,
    int32s,
    int64s,
    milliseconds,
    names,
    request_bytes,
    response_bytes,
)
from tidelog.base.errors import ErrorCode, WireError
from tidelog.wire.api import SUPPORTED, ApiKey, VersionRange
from tidelog.wire.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    Feature,
    decode_api_versions,
    decode_api_versions_response,
    encode_api_versions_request,
    encode_api_versions_response,
    encode_unsupported_version,
)

VERSIONS = range(SUPPORTED[ApiKey.API_VERSIONS].highest + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)

_features = st.lists(st.builds(Feature, names, st.integers(1, 9), int16s), max_size=3)
_response = st.builds(
    ApiVersionsResponse,
    error_code=st.sampled_from(ErrorCode),
    api_versions=st.dictionaries(int16s, st.builds(VersionRange, int16s, int16s), max_size=4),
    throttle_ms=int32s,
    supported_features=_features,
    finalized_features_epoch=int64s,
    finalized_features=_features,
)


@every_version
@PER_VERSION
@given(name=names, software_version=names)
def test_request_is_read_and_written_as_the_message_library_does(
    version: int, name: str, software_version: str
) -> None:
    body = request_bytes(
        ApiKey.API_VERSIONS,
        version,
        {"client_software_name": name, "client_software_version": software_version},
    )
    request = decode_api_versions(memoryview(b"h" + body), 1, version)
    if version >= 3:
        assert request == ApiVersionsRequest(name, software_version)
    else:
        assert request == ApiVersionsRequest(None, None)
    assert encode_api_versions_request(version, request) == body


@every_version
@PER_VERSION
@given(response=_response, correlation_id=int32s)
def test_answer_is_what_the_message_library_writes(
    version: int, response: ApiVersionsResponse, correlation_id: int
) -> None:
    expected = _kio_response(version, response)
    frame = encode_api_versions_response(version, correlation_id, response)
    assert frame == struct.pack(">ii", 4 + len(expected), correlation_id) + expected


@every_version
@PER_VERSION
@given(response=_response)
def test_answer_of_the_message_library_is_read(version: int, response: ApiVersionsResponse) -> None:
    decoded = decode_api_versions_response(memoryview(_kio_response(version, response)), 0, version)
    if version < 3:
        response = response._replace(
            supported_features=[], finalized_features_epoch=-1, finalized_features=[]
        )
    if version < 1:
        response = response._replace(throttle_ms=0)
    assert decoded == response


def _kio_response(version: int, response: ApiVersionsResponse) -> bytes:
    return response_bytes(
        ApiKey.API_VERSIONS,
        version,
        {
            "error_code": response.error_code,
            "api_keys": [
                {"api_key": key, "min_version": lowest, "max_version": highest}
                for key, (lowest, highest) in response.api_versions.items()
            ],
            "throttle_time": milliseconds(response.throttle_ms),
            "supported_features": [
                {"name": name, "min_version": lowest, "max_version": highest}
                for name, lowest, highest in response.supported_features
            ],
            "finalized_features_epoch": response.finalized_features_epoch,
            "finalized_features": [
                {"name": name, "min_version_level": lowest, "max_version_level": highest}
                for name, lowest, highest in response.finalized_features
            ],
        },
    )


def test_feature_that_may_be_off_is_kept_from_clients_that_cannot_read_it() -> None:
    response = ApiVersionsResponse(0, {}, 0, [Feature("group.version", 0, 1)], -1, [])
    assert b"group.version" not in encode_api_versions_response(3, 1, response)
    assert b"group.version" in encode_api_versions_response(4, 1, response)


def test_answer_to_an_unknown_version_is_what_a_real_kafka_sends() -> None:
    # Recorded from Kafka 4.3.0, asked with version 99 and correlation id 1.
    recorded = bytes.fromhex("00000010" + "00000001" + "0023" + "00000001" + "001200000004")
    assert encode_unsupported_version(1, SUPPORTED[ApiKey.API_VERSIONS]) == recorded


@pytest.mark.parametrize("body", [b"", b"\x00\x01\x00", b"\x02a", b"\x02a\x02b"])
def test_request_that_is_cut_off_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_api_versions(memoryview(body), 0, 3)
