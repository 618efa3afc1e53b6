"""G1: ListOffsets, against kio in both directions and in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    PER_VERSION,
    int8s,
    int32s,
    int64s,
    milliseconds,
    names,
    request_bytes,
    response_bytes,
)
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import SUPPORTED, ApiKey, encode_response_header
from tidelog.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResult,
    decode_list_offsets,
    encode_list_offsets_response,
)

VERSIONS = range(SUPPORTED[ApiKey.LIST_OFFSETS].lowest, SUPPORTED[ApiKey.LIST_OFFSETS].highest + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)

_request = st.builds(
    ListOffsetsRequest,
    replica_id=int32s,
    isolation_level=int8s,
    topics=st.lists(
        st.tuples(
            names, st.lists(st.builds(ListOffsetsPartition, int32s, int32s, int64s), max_size=3)
        ),
        max_size=3,
    ),
    timeout_ms=int32s,
)
_results = st.lists(
    st.builds(ListOffsetsResult, int32s, st.sampled_from(ErrorCode), int64s, int64s, int32s),
    max_size=3,
)


@every_version
@PER_VERSION
@given(request=_request)
def test_request_of_the_message_library_is_read(version: int, request: ListOffsetsRequest) -> None:
    body = request_bytes(
        ApiKey.LIST_OFFSETS,
        version,
        {
            "replica_id": request.replica_id,
            "isolation_level": request.isolation_level,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": partition.partition,
                            "current_leader_epoch": partition.current_leader_epoch,
                            "timestamp": partition.timestamp_ms,
                        }
                        for partition in partitions
                    ],
                }
                for name, partitions in request.topics
            ],
            "timeout": milliseconds(request.timeout_ms),
        },
    )
    decoded = decode_list_offsets(memoryview(b"h" + body), 1, version)
    assert decoded == ListOffsetsRequest(
        request.replica_id,
        request.isolation_level if version >= 2 else 0,
        [
            (
                name,
                [
                    partition if version >= 4 else partition._replace(current_leader_epoch=-1)
                    for partition in partitions
                ],
            )
            for name, partitions in request.topics
        ],
        request.timeout_ms if version >= 10 else 0,
    )


@every_version
@PER_VERSION
@given(
    topics=st.lists(st.tuples(names, _results), max_size=3),
    correlation_id=int32s,
    throttle_ms=int32s,
)
def test_answer_is_what_the_message_library_writes(
    version: int,
    topics: list[tuple[str, list[ListOffsetsResult]]],
    correlation_id: int,
    throttle_ms: int,
) -> None:
    expected = response_bytes(
        ApiKey.LIST_OFFSETS,
        version,
        {
            "throttle_time": milliseconds(throttle_ms),
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": result.partition,
                            "error_code": result.error_code,
                            "timestamp": result.timestamp_ms,
                            "offset": result.offset,
                            "leader_epoch": result.leader_epoch,
                        }
                        for result in results
                    ],
                }
                for name, results in topics
            ],
        },
    )
    header = encode_response_header(ApiKey.LIST_OFFSETS, version, correlation_id)
    frame = encode_list_offsets_response(version, correlation_id, topics, throttle_ms=throttle_ms)
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected
