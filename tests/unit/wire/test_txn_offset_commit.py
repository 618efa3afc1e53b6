"""G1: TxnOffsetCommit, against kio in both directions and in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import kafka_api_versions
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
from tidelog.wire.api import ApiKey, encode_response_header
from tidelog.wire.offset_commit import PartitionOffset
from tidelog.wire.txn_offset_commit import (
    TxnOffsetCommitRequest,
    decode_txn_offset_commit,
    encode_txn_offset_commit_response,
)

LOWEST, HIGHEST = kafka_api_versions()[ApiKey.TXN_OFFSET_COMMIT]
every_version = pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))
_offsets = st.builds(PartitionOffset, int32s, int64s, int32s, st.none() | names)
_request = st.builds(
    TxnOffsetCommitRequest,
    names,
    names,
    int64s,
    int16s,
    int32s,
    names,
    st.none() | names,
    st.lists(st.tuples(names, st.lists(_offsets, max_size=3)), max_size=3),
)
_results = st.lists(st.tuples(int32s, st.sampled_from(ErrorCode)), max_size=3)


def body_of(version: int, request: TxnOffsetCommitRequest) -> bytes:
    return request_bytes(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        {
            "transactional_id": request.transactional_id,
            "group_id": request.group_id,
            "producer_id": request.producer_id,
            "producer_epoch": request.producer_epoch,
            "generation_id": request.generation_id,
            "member_id": request.member_id,
            "group_instance_id": request.group_instance_id,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": one.partition,
                            "committed_offset": one.offset,
                            "committed_leader_epoch": one.leader_epoch,
                            "committed_metadata": one.metadata,
                        }
                        for one in offsets
                    ],
                }
                for name, offsets in request.topics
            ],
        },
    )


@every_version
@PER_VERSION
@given(request=_request)
def test_request_of_the_message_library_is_read(
    version: int, request: TxnOffsetCommitRequest
) -> None:
    body = body_of(version, request)
    decoded = decode_txn_offset_commit(memoryview(b"h" + body), 1, version)
    expected = request
    if version < 3:
        expected = expected._replace(generation_id=-1, member_id="", group_instance_id=None)
    if version < 2:
        topics = [
            (name, [one._replace(leader_epoch=-1) for one in offsets])
            for name, offsets in request.topics
        ]
        expected = expected._replace(topics=topics)
    assert decoded == expected


@every_version
@PER_VERSION
@given(request=_request, data=st.data())
def test_request_that_is_cut_off_is_a_wire_error(
    version: int, request: TxnOffsetCommitRequest, data: st.DataObject
) -> None:
    body = body_of(version, request)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(WireError):
        decode_txn_offset_commit(memoryview(body[:cut]), 0, version)


@every_version
@PER_VERSION
@given(
    topics=st.lists(st.tuples(names, _results), max_size=3),
    correlation_id=int32s,
    throttle_ms=int32s,
)
def test_answer_is_what_the_message_library_writes(
    version: int,
    topics: list[tuple[str, list[tuple[int, ErrorCode]]]],
    correlation_id: int,
    throttle_ms: int,
) -> None:
    expected = response_bytes(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        {
            "throttle_time": milliseconds(throttle_ms),
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": partition, "error_code": code}
                        for partition, code in results
                    ],
                }
                for name, results in topics
            ],
        },
    )
    header = encode_response_header(ApiKey.TXN_OFFSET_COMMIT, version, correlation_id)
    frame = encode_txn_offset_commit_response(
        version, correlation_id, topics, throttle_ms=throttle_ms
    )
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected
