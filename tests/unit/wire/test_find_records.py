"""FindRecords, our own: what is written is read, and damaged bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import WireError
from tidelog.wire.api import (
    ADVERTISED,
    INTER_BROKER,
    ApiKey,
    decode_request_header,
    decode_response_header,
)
from tidelog.wire.find_records import (
    FindRecordsRequest,
    FindRecordsResponse,
    FoundInPartition,
    decode_find_records,
    decode_find_records_response,
    encode_find_records_request,
    encode_find_records_response,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
REQUESTS = st.builds(
    FindRecordsRequest, st.text(max_size=20), st.lists(INT32, max_size=5), st.binary(max_size=50)
)
RESPONSES = st.builds(
    FindRecordsResponse,
    st.lists(
        st.builds(
            FoundInPartition,
            INT32,
            st.integers(-1, 100),
            st.lists(st.tuples(INT64, INT64), max_size=5),
        ),
        max_size=5,
    ),
)


def request_body(request: FindRecordsRequest) -> tuple[memoryview, int]:
    view = memoryview(encode_find_records_request(0, 7, "client", request))[4:]
    return view, decode_request_header(view).body_position


@given(REQUESTS)
def test_request_is_read_as_it_was_written(request: FindRecordsRequest) -> None:
    view, position = request_body(request)
    header = decode_request_header(view)
    assert (header.api_key, header.correlation_id) == (ApiKey.FIND_RECORDS, 7)
    assert decode_find_records(view, position, 0) == request


@given(RESPONSES)
def test_response_is_read_as_it_was_written(response: FindRecordsResponse) -> None:
    view = memoryview(encode_find_records_response(0, 7, response))[4:]
    correlation_id, position = decode_response_header(view, ApiKey.FIND_RECORDS, 0)
    assert correlation_id == 7
    assert decode_find_records_response(view, position, 0) == response


@given(REQUESTS, st.data())
def test_request_that_is_cut_off_is_refused(
    request: FindRecordsRequest, data: st.DataObject
) -> None:
    view, position = request_body(request)
    cut = data.draw(st.integers(position, len(view) - 1))
    with pytest.raises(WireError):
        decode_find_records(view[:cut], position, 0)


def test_clients_are_not_told_of_it() -> None:
    assert ApiKey.FIND_RECORDS in INTER_BROKER
    assert ApiKey.FIND_RECORDS not in ADVERTISED
