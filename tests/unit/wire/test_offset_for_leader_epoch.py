"""R7: OffsetForLeaderEpoch, against kio in both directions and in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    PER_VERSION,
    int32s,
    int64s,
    milliseconds,
    names,
    request_bytes,
    response_bytes,
)
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import SUPPORTED, ApiKey, encode_response_header
from tidelog.wire.offset_for_leader_epoch import (
    EpochAnswer,
    EpochQuery,
    OffsetForLeaderEpochRequest,
    decode_offset_for_leader_epoch,
    encode_offset_for_leader_epoch_response,
)

KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
every_version = pytest.mark.parametrize(
    "version", range(SUPPORTED[KEY].lowest, SUPPORTED[KEY].highest + 1)
)

_queries = st.lists(st.builds(EpochQuery, int32s, int32s, int32s), max_size=3)
_answers = st.lists(
    st.builds(EpochAnswer, st.sampled_from(ErrorCode), int32s, int32s, int64s), max_size=3
)


@every_version
@PER_VERSION
@given(replica_id=int32s, topics=st.lists(st.tuples(names, _queries), max_size=3))
def test_request_of_the_message_library_is_read(
    version: int, replica_id: int, topics: list[tuple[str, list[EpochQuery]]]
) -> None:
    body = request_bytes(
        KEY,
        version,
        {
            "replica_id": replica_id,
            "topics": [
                {"topic": name, "partitions": [query._asdict() for query in queries]}
                for name, queries in topics
            ],
        },
    )
    request = decode_offset_for_leader_epoch(memoryview(b"h" + body), 1, version)
    assert request == OffsetForLeaderEpochRequest(replica_id if version >= 3 else -1, topics)


@every_version
@PER_VERSION
@given(
    topics=st.lists(st.tuples(names, _answers), max_size=3),
    correlation_id=int32s,
    throttle_ms=int32s,
)
def test_answer_is_what_the_message_library_writes(
    version: int,
    topics: list[tuple[str, list[EpochAnswer]]],
    correlation_id: int,
    throttle_ms: int,
) -> None:
    expected = response_bytes(
        KEY,
        version,
        {
            "throttle_time": milliseconds(throttle_ms),
            "topics": [
                {"topic": name, "partitions": [answer._asdict() for answer in answers]}
                for name, answers in topics
            ],
        },
    )
    header = encode_response_header(KEY, version, correlation_id)
    frame = encode_offset_for_leader_epoch_response(
        version, correlation_id, topics, throttle_ms=throttle_ms
    )
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected
