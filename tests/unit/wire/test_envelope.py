"""C3: Envelope, against kio in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import request_bytes, response_bytes
from tests.support.peer_codec import request_body, response_body
from tidelog.base.errors import ErrorCode, WireError
from tidelog.wire.api import ApiKey
from tidelog.wire.envelope import (
    EnvelopeRequest,
    EnvelopeResponse,
    decode_envelope,
    decode_envelope_response,
    encode_envelope_request,
    encode_envelope_response,
)

_KEY = ApiKey.ENVELOPE
_data = st.binary(max_size=300)


@given(request=st.builds(EnvelopeRequest, _data, st.none() | _data, _data))
def test_request_is_read_and_written_as_the_message_library_does(request: EnvelopeRequest) -> None:
    expected = request_bytes(_KEY, 0, request._asdict())
    assert request_body(encode_envelope_request(0, 7, "peer", request), _KEY, 0) == expected
    assert decode_envelope(memoryview(b"h" + expected), 1, 0) == request


@given(response=st.builds(EnvelopeResponse, st.none() | _data, st.sampled_from(ErrorCode)))
def test_response_is_read_and_written_as_the_message_library_does(
    response: EnvelopeResponse,
) -> None:
    expected = response_bytes(_KEY, 0, response._asdict())
    assert response_body(encode_envelope_response(0, 7, response), _KEY, 0) == expected
    assert decode_envelope_response(memoryview(b"h" + expected), 1, 0) == response


@pytest.mark.parametrize("body", [b"\x00\x00\x01\x00", b"\x01\x00\x00\x00", b"\x05abc"])
def test_envelope_without_content_or_sender_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_envelope(memoryview(body), 0, 0)
