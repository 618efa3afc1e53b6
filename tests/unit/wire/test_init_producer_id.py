"""D2: InitProducerId, against kio in both directions and in every version."""

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
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import SUPPORTED, ApiKey, encode_response_header
from tidelog.wire.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    decode_init_producer_id,
    encode_init_producer_id_response,
)

VERSIONS = range(SUPPORTED[ApiKey.INIT_PRODUCER_ID].highest + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
@PER_VERSION
@given(request=st.builds(InitProducerIdRequest, st.none() | names, int32s, int64s, int16s))
def test_request_of_the_message_library_is_read(
    version: int, request: InitProducerIdRequest
) -> None:
    body = request_bytes(
        ApiKey.INIT_PRODUCER_ID,
        version,
        {
            "transactional_id": request.transactional_id,
            "transaction_timeout": milliseconds(request.transaction_timeout_ms),
            "producer_id": request.producer_id,
            "producer_epoch": request.producer_epoch,
        },
    )
    if version < 3:
        request = request._replace(producer_id=-1, producer_epoch=-1)
    assert decode_init_producer_id(memoryview(b"h" + body), 1, version) == request


@every_version
@PER_VERSION
@given(
    response=st.builds(InitProducerIdResponse, int32s, st.sampled_from(ErrorCode), int64s, int16s),
    correlation_id=int32s,
)
def test_answer_is_what_the_message_library_writes(
    version: int, response: InitProducerIdResponse, correlation_id: int
) -> None:
    expected = response_bytes(
        ApiKey.INIT_PRODUCER_ID,
        version,
        {**response._asdict(), "throttle_time": milliseconds(response.throttle_ms)},
    )
    header = encode_response_header(ApiKey.INIT_PRODUCER_ID, version, correlation_id)
    frame = encode_init_producer_id_response(version, correlation_id, response)
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected
