"""D3: AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, against kio and in every version."""

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
from tests.support.peer_codec import request_body, response_body
from tidelog.base.errors import ErrorCode
from tidelog.wire.add_partitions_to_txn import (
    FIRST_OF_BROKERS,
    AddedPartitions,
    AddedResult,
    AddPartitionsToTxnResponse,
    decode_add_partitions_to_txn,
    decode_add_partitions_to_txn_response,
    encode_add_partitions_to_txn_request,
    encode_add_partitions_to_txn_response,
)
from tidelog.wire.api import ApiKey, encode_response_header
from tidelog.wire.end_txn import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    decode_add_offsets_to_txn,
    decode_end_txn,
    encode_add_offsets_to_txn_response,
    encode_end_txn_response,
)

ADD = ApiKey.ADD_PARTITIONS_TO_TXN
CORRELATION_ID = 7

client_versions = pytest.mark.parametrize("version", range(FIRST_OF_BROKERS))
broker_versions = pytest.mark.parametrize("version", [4, 5])

_topics = st.lists(st.tuples(names, st.lists(int32s, max_size=3)), max_size=3)
_added = st.builds(AddedPartitions, names, int64s, int16s, st.booleans(), _topics)
_codes = st.tuples(int32s, st.sampled_from(ErrorCode))
_result = st.builds(
    AddedResult, names, st.lists(st.tuples(names, st.lists(_codes, max_size=3)), max_size=3)
)


def _kio_topics(added: AddedPartitions) -> list[dict[str, object]]:
    return [{"name": name, "partitions": tuple(partitions)} for name, partitions in added.topics]


def _kio_results(result: AddedResult) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "results_by_partition": [
                {"partition_index": partition, "partition_error_code": code}
                for partition, code in partitions
            ],
        }
        for name, partitions in result.topics
    ]


def _body(frame: bytes, api_key: ApiKey, version: int) -> bytes:
    header = encode_response_header(api_key, version, CORRELATION_ID)
    assert frame[:4] == struct.pack(">i", len(frame) - 4)
    assert frame[4:].startswith(header)
    return frame[4 + len(header) :]


@client_versions
@PER_VERSION
@given(added=_added)
def test_partitions_that_a_client_adds_are_read(version: int, added: AddedPartitions) -> None:
    body = request_bytes(
        ADD,
        version,
        {
            "v3_and_below_transactional_id": added.transactional_id,
            "v3_and_below_producer_id": added.producer_id,
            "v3_and_below_producer_epoch": added.producer_epoch,
            "v3_and_below_topics": _kio_topics(added),
        },
    )
    expected = [added._replace(is_verification=False)]
    assert decode_add_partitions_to_txn(memoryview(b"h" + body), 1, version) == expected


@broker_versions
@PER_VERSION
@given(added=st.lists(_added, max_size=3))
def test_partitions_that_a_broker_adds_are_read_and_written(
    version: int, added: list[AddedPartitions]
) -> None:
    expected = request_bytes(
        ADD,
        version,
        {
            "transactions": [
                {
                    **each._asdict(),
                    "verify_only": each.is_verification,
                    "topics": _kio_topics(each),
                }
                for each in added
            ]
        },
    )
    frame = encode_add_partitions_to_txn_request(version, CORRELATION_ID, "peer", added)
    assert request_body(frame, ADD, version) == expected
    assert decode_add_partitions_to_txn(memoryview(b"h" + expected), 1, version) == added


@client_versions
@PER_VERSION
@given(throttle_ms=int32s, result=_result)
def test_clients_are_answered(version: int, throttle_ms: int, result: AddedResult) -> None:
    response = AddPartitionsToTxnResponse(throttle_ms, 0, [result])
    frame = encode_add_partitions_to_txn_response(version, CORRELATION_ID, response)
    assert _body(frame, ADD, version) == response_bytes(
        ADD,
        version,
        {
            "throttle_time": milliseconds(throttle_ms),
            "results_by_topic_v3_and_below": _kio_results(result),
        },
    )


@broker_versions
@PER_VERSION
@given(
    response=st.builds(
        AddPartitionsToTxnResponse,
        int32s,
        st.sampled_from(ErrorCode),
        st.lists(_result, max_size=3),
    )
)
def test_brokers_are_answered(version: int, response: AddPartitionsToTxnResponse) -> None:
    expected = response_bytes(
        ADD,
        version,
        {
            "throttle_time": milliseconds(response.throttle_ms),
            "error_code": response.error_code,
            "results_by_transaction": [
                {
                    "transactional_id": result.transactional_id,
                    "topic_results": _kio_results(result),
                }
                for result in response.results
            ],
        },
    )
    frame = encode_add_partitions_to_txn_response(version, CORRELATION_ID, response)
    assert response_body(frame, ADD, version) == expected
    decoded = decode_add_partitions_to_txn_response(memoryview(b"h" + expected), 1, version)
    assert decoded == response


@pytest.mark.parametrize("version", range(5))
@PER_VERSION
@given(request=st.builds(AddOffsetsToTxnRequest, names, int64s, int16s, names))
def test_group_whose_offsets_are_added_is_read(
    version: int, request: AddOffsetsToTxnRequest
) -> None:
    body = request_bytes(ApiKey.ADD_OFFSETS_TO_TXN, version, request._asdict())
    assert decode_add_offsets_to_txn(memoryview(b"h" + body), 1, version) == request


@pytest.mark.parametrize("version", range(5))
@PER_VERSION
@given(throttle_ms=int32s, code=st.sampled_from(ErrorCode))
def test_who_adds_offsets_is_answered(version: int, throttle_ms: int, code: ErrorCode) -> None:
    frame = encode_add_offsets_to_txn_response(version, CORRELATION_ID, throttle_ms, code)
    values = {"throttle_time": milliseconds(throttle_ms), "error_code": code}
    expected = response_bytes(ApiKey.ADD_OFFSETS_TO_TXN, version, values)
    assert _body(frame, ApiKey.ADD_OFFSETS_TO_TXN, version) == expected


@pytest.mark.parametrize("version", range(6))
@PER_VERSION
@given(request=st.builds(EndTxnRequest, names, int64s, int16s, st.booleans()))
def test_end_is_read(version: int, request: EndTxnRequest) -> None:
    values = {**request._asdict(), "committed": request.is_commit}
    body = request_bytes(ApiKey.END_TXN, version, values)
    assert decode_end_txn(memoryview(b"h" + body), 1, version) == request


@pytest.mark.parametrize("version", range(6))
@PER_VERSION
@given(response=st.builds(EndTxnResponse, int32s, st.sampled_from(ErrorCode), int64s, int16s))
def test_who_ends_is_answered(version: int, response: EndTxnResponse) -> None:
    frame = encode_end_txn_response(version, CORRELATION_ID, response)
    values = {**response._asdict(), "throttle_time": milliseconds(response.throttle_ms)}
    expected = response_bytes(ApiKey.END_TXN, version, values)
    assert _body(frame, ApiKey.END_TXN, version) == expected
