"""G1: OffsetCommit, against kio in both directions and in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import kafka_api_versions
from tests.support.kio_codec import (
    PER_VERSION,
    int32s,
    int64s,
    milliseconds,
    names,
    request_bytes,
    response_bytes,
    topic_ids,
    topic_uuid,
)
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey, encode_response_header
from tidelog.wire.offset_commit import (
    CommittedTopic,
    CommitTopic,
    OffsetCommitRequest,
    PartitionOffset,
    decode_offset_commit,
    encode_offset_commit_response,
)

LOWEST, HIGHEST = kafka_api_versions()[ApiKey.OFFSET_COMMIT]
every_version = pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))
_partitions = st.builds(PartitionOffset, int32s, int64s, int32s, st.none() | names)
_topics = st.builds(CommitTopic, names, topic_ids, st.lists(_partitions, max_size=3))
_request = st.builds(
    OffsetCommitRequest,
    names,
    int32s,
    names,
    st.none() | names,
    st.integers(-1, 2**40),
    st.lists(_topics, max_size=3),
)
_results = st.lists(st.tuples(int32s, st.sampled_from(ErrorCode)), max_size=3)


@every_version
@PER_VERSION
@given(request=_request)
def test_request_of_the_message_library_is_read(version: int, request: OffsetCommitRequest) -> None:
    body = request_bytes(
        ApiKey.OFFSET_COMMIT,
        version,
        {
            "group_id": request.group_id,
            "generation_id_or_member_epoch": request.generation_or_member_epoch,
            "member_id": request.member_id,
            "group_instance_id": request.group_instance_id,
            "retention_time": milliseconds(request.retention_ms),
            "topics": [
                {
                    "name": topic.name,
                    "topic_id": topic_uuid(topic.topic_id),
                    "partitions": [
                        {
                            "partition_index": partition.partition,
                            "committed_offset": partition.offset,
                            "committed_leader_epoch": partition.leader_epoch,
                            "committed_metadata": partition.metadata,
                        }
                        for partition in topic.partitions
                    ],
                }
                for topic in request.topics
            ],
        },
    )
    decoded = decode_offset_commit(memoryview(b"h" + body), 1, version)
    assert decoded == request._replace(
        group_instance_id=request.group_instance_id if version >= 7 else None,
        retention_ms=request.retention_ms if version <= 4 else -1,
        topics=[_as_of(version, topic) for topic in request.topics],
    )


def _as_of(version: int, topic: CommitTopic) -> CommitTopic:
    partitions = topic.partitions
    if version < 6:
        partitions = [partition._replace(leader_epoch=-1) for partition in partitions]
    if version >= 10:
        return CommitTopic(None, topic.topic_id, partitions)
    return CommitTopic(topic.name, None, partitions)


@every_version
@PER_VERSION
@given(
    topics=st.lists(st.tuples(names, topic_ids, _results), max_size=3),
    correlation_id=int32s,
    throttle_ms=int32s,
)
def test_answer_is_what_the_message_library_writes(
    version: int,
    topics: list[tuple[str, bytes, list[tuple[int, ErrorCode]]]],
    correlation_id: int,
    throttle_ms: int,
) -> None:
    expected = response_bytes(
        ApiKey.OFFSET_COMMIT,
        version,
        {
            "throttle_time": milliseconds(throttle_ms),
            "topics": [
                {
                    "name": name,
                    "topic_id": topic_uuid(topic_id),
                    "partitions": [
                        {"partition_index": partition, "error_code": code}
                        for partition, code in results
                    ],
                }
                for name, topic_id, results in topics
            ],
        },
    )
    header = encode_response_header(ApiKey.OFFSET_COMMIT, version, correlation_id)
    answered = [
        CommittedTopic(None, topic_id, results)
        if version >= 10
        else CommittedTopic(name, None, results)
        for name, topic_id, results in topics
    ]
    frame = encode_offset_commit_response(
        version, correlation_id, answered, throttle_ms=throttle_ms
    )
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected
