"""Envelope: a client's request that only the controller can serve, handed on to it (KIP-590).

Kafka's version 0. What is inside is a whole request or response, header included and length not.
"""

import struct
from typing import NamedTuple

from tidelog.wire.api import (
    ApiKey,
    encode_request_header,
    encode_response_header,
    is_flexible,
)
from tidelog.wire.primitives import Reader, frame, uvarint

_ERROR = struct.Struct(">hb")


class EnvelopeRequest(NamedTuple):
    """The address is the client's, four or sixteen bytes; the principal says who it is."""

    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(NamedTuple):
    """An error is one of the envelope; what became of the request inside is in its own answer."""

    response_data: bytes | None
    error_code: int


def encode_envelope_request(
    version: int, correlation_id: int, client_id: str, request: EnvelopeRequest
) -> bytes:
    """The whole frame of a request."""
    return frame(
        [
            encode_request_header(ApiKey.ENVELOPE, version, correlation_id, client_id),
            *_nullable_data(request.request_data),
            *_nullable_data(request.request_principal),
            *_nullable_data(request.client_host_address),
            b"\x00",
        ]
    )


def decode_envelope(view: memoryview, position: int, version: int) -> EnvelopeRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.ENVELOPE, version))
    request = EnvelopeRequest(reader.data(), reader.nullable_data(), reader.data())
    reader.end_structure()
    return request


def encode_envelope_response(
    version: int, correlation_id: int, response: EnvelopeResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    return frame(
        [
            encode_response_header(ApiKey.ENVELOPE, version, correlation_id),
            *_nullable_data(response.response_data),
            _ERROR.pack(response.error_code, 0),
        ]
    )


def decode_envelope_response(view: memoryview, position: int, version: int) -> EnvelopeResponse:
    """The answer whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.ENVELOPE, version))
    response = EnvelopeResponse(reader.nullable_data(), reader.int16())
    reader.end_structure()
    return response


def _nullable_data(data: bytes | None) -> tuple[bytes, ...]:
    return (b"\x00",) if data is None else (uvarint(len(data) + 1), data)
