"""R1: ControlledShutdown comes back as it was said."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import int16s, int32s, int64s, names
from tests.support.peer_codec import request_body, response_body
from tidelog.wire.api import ApiKey
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    decode_controlled_shutdown,
    decode_controlled_shutdown_response,
    encode_controlled_shutdown_request,
    encode_controlled_shutdown_response,
)

_KEY = ApiKey.CONTROLLED_SHUTDOWN


@given(request=st.builds(ControlledShutdownRequest, int32s, int64s))
def test_request_comes_back(request: ControlledShutdownRequest) -> None:
    body = request_body(encode_controlled_shutdown_request(0, 7, "peer", request), _KEY, 0)
    assert decode_controlled_shutdown(memoryview(b"h" + body), 1, 0) == request


@given(
    response=st.builds(
        ControlledShutdownResponse, int16s, st.lists(st.tuples(names, int32s), max_size=4)
    )
)
def test_response_comes_back(response: ControlledShutdownResponse) -> None:
    body = response_body(encode_controlled_shutdown_response(0, 7, response), _KEY, 0)
    assert decode_controlled_shutdown_response(memoryview(b"h" + body), 1, 0) == response
