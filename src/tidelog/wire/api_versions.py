"""ApiVersions: what a client asks first. Both directions, because our own tools ask it too.

A client does not know yet which versions we speak, so two things are special (KIP-511): the header
of the answer never has tagged fields, and a request of a version that we do not know is answered
in version 0 with UNSUPPORTED_VERSION and the versions of this one API.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey, VersionRange, is_flexible
from tidelog.wire.primitives import Reader, array_count, compact_string, frame, tagged_fields

_FIRST_WITH_THROTTLE = 1
_FIRST_FLEXIBLE = 3
_FIRST_WITH_FEATURES = 3
# Features that may be switched off have 0 as their lowest level, which v3 cannot say (KIP-1022).
_FIRST_WITH_LEVEL_ZERO = 4

_SUPPORTED_FEATURES_TAG = 0
_FEATURES_EPOCH_TAG = 1
_FINALIZED_FEATURES_TAG = 2

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TWO_INT16 = struct.Struct(">hh")
_RANGE = struct.Struct(">hhh")

NO_FEATURES_EPOCH = -1


class ApiVersionsRequest(NamedTuple):
    """Who asks; None before version 3."""

    client_software_name: str | None
    client_software_version: str | None


class Feature(NamedTuple):
    """A cluster-wide feature with its lowest and highest level."""

    name: str
    lowest: int
    highest: int


class ApiVersionsResponse(NamedTuple):
    """Which versions of which API may be used."""

    error_code: int
    api_versions: Mapping[int, VersionRange]
    throttle_ms: int
    supported_features: Sequence[Feature]
    finalized_features_epoch: int
    finalized_features: Sequence[Feature]


def decode_api_versions(view: memoryview, position: int, version: int) -> ApiVersionsRequest:
    """The request whose body starts at `position`."""
    if version < _FIRST_FLEXIBLE:
        return ApiVersionsRequest(None, None)
    reader = Reader(view, position, flexible=True)
    request = ApiVersionsRequest(reader.string(), reader.string())
    reader.end_structure()
    return request


def encode_api_versions_request(version: int, request: ApiVersionsRequest) -> bytes:
    """The body of a request."""
    if version < _FIRST_FLEXIBLE:
        return b""
    return (
        compact_string(request.client_software_name or "")
        + compact_string(request.client_software_version or "")
        + b"\x00"
    )


def encode_api_versions_response(
    version: int, correlation_id: int, response: ApiVersionsResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    flexible = version >= _FIRST_FLEXIBLE
    parts = [
        _INT32.pack(correlation_id),
        _INT16.pack(response.error_code),
        array_count(len(response.api_versions), flexible=flexible),
    ]
    for key, (lowest, highest) in response.api_versions.items():
        parts.append(_RANGE.pack(key, lowest, highest))
        if flexible:
            parts.append(b"\x00")
    if version >= _FIRST_WITH_THROTTLE:
        parts.append(_INT32.pack(response.throttle_ms))
    if flexible:
        parts.append(tagged_fields(_feature_fields(version, response)))
    return frame(parts)


def encode_unsupported_version(correlation_id: int, own_versions: VersionRange) -> bytes:
    """The whole frame that answers a request of a version we do not know."""
    response = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_versions={ApiKey.API_VERSIONS: own_versions},
        throttle_ms=0,
        supported_features=(),
        finalized_features_epoch=NO_FEATURES_EPOCH,
        finalized_features=(),
    )
    return encode_api_versions_response(0, correlation_id, response)


def _feature_fields(version: int, response: ApiVersionsResponse) -> list[tuple[int, bytes]]:
    fields = []
    supported = [
        feature
        for feature in response.supported_features
        if feature.lowest > 0 or version >= _FIRST_WITH_LEVEL_ZERO
    ]
    if supported:
        fields.append((_SUPPORTED_FEATURES_TAG, _encode_features(supported, lowest_first=True)))
    if response.finalized_features_epoch != NO_FEATURES_EPOCH:
        fields.append((_FEATURES_EPOCH_TAG, _INT64.pack(response.finalized_features_epoch)))
    if response.finalized_features:
        finalized = _encode_features(response.finalized_features, lowest_first=False)
        fields.append((_FINALIZED_FEATURES_TAG, finalized))
    return fields


def _encode_features(features: Sequence[Feature], *, lowest_first: bool) -> bytes:
    parts = [array_count(len(features), flexible=True)]
    for name, lowest, highest in features:
        levels = (lowest, highest) if lowest_first else (highest, lowest)
        parts += (compact_string(name), _TWO_INT16.pack(*levels), b"\x00")
    return b"".join(parts)


def decode_api_versions_response(
    view: memoryview, position: int, version: int
) -> ApiVersionsResponse:
    """The answer whose body starts at `position`, behind the correlation id."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.API_VERSIONS, version))
    error_code = reader.int16()
    api_versions = {}
    for _ in range(reader.array_count()):
        key = reader.int16()
        api_versions[key] = VersionRange(reader.int16(), reader.int16())
        reader.end_structure()
    throttle_ms = reader.int32() if version >= _FIRST_WITH_THROTTLE else 0
    tags = reader.tagged_fields()
    epoch = tags[_FEATURES_EPOCH_TAG].int64() if _FEATURES_EPOCH_TAG in tags else NO_FEATURES_EPOCH
    return ApiVersionsResponse(
        error_code=error_code,
        api_versions=api_versions,
        throttle_ms=throttle_ms,
        supported_features=_decode_features(tags.get(_SUPPORTED_FEATURES_TAG)),
        finalized_features_epoch=epoch,
        # A finalized feature states its highest level first.
        finalized_features=[
            Feature(name, lowest, highest)
            for name, highest, lowest in _decode_features(tags.get(_FINALIZED_FEATURES_TAG))
        ],
    )


def _decode_features(reader: Reader | None) -> list[Feature]:
    if reader is None:
        return []
    features = []
    for _ in range(reader.array_count()):
        features.append(Feature(reader.string(), reader.int16(), reader.int16()))
        reader.end_structure()
    return features
