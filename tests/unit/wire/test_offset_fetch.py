"""G1: OffsetFetch, against kio in both directions and in every version."""

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
from tidelog.base.errors import ErrorCode, WireError
from tidelog.wire.api import ApiKey, encode_response_header
from tidelog.wire.offset_fetch import (
    FetchedGroup,
    FetchedTopic,
    FetchGroup,
    FetchTopic,
    OffsetFetchRequest,
    OffsetResult,
    decode_offset_fetch,
    encode_offset_fetch_response,
)

LOWEST, HIGHEST = kafka_api_versions()[ApiKey.OFFSET_FETCH]
every_version = pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))
_topics = st.builds(FetchTopic, names, topic_ids, st.lists(int32s, max_size=3))
_groups = st.builds(
    FetchGroup, names, st.none() | names, int32s, st.none() | st.lists(_topics, max_size=3)
)
_results = st.builds(
    OffsetResult, int32s, int64s, int32s, st.none() | names, st.sampled_from(ErrorCode)
)
_answers = st.builds(
    FetchedGroup,
    names,
    st.lists(st.builds(FetchedTopic, names, topic_ids, st.lists(_results, max_size=3)), max_size=3),
    st.sampled_from(ErrorCode),
)


def _topic_values(topic: FetchTopic) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": topic_uuid(topic.topic_id),
        "partition_indexes": tuple(topic.partitions),
    }


def _group_values(group: FetchGroup) -> dict[str, object]:
    topics = None if group.topics is None else [_topic_values(topic) for topic in group.topics]
    return {
        "group_id": group.group_id,
        "member_id": group.member_id,
        "member_epoch": group.member_epoch,
        "topics": topics,
    }


@every_version
@PER_VERSION
@given(groups=st.lists(_groups, min_size=1, max_size=3), requires_stable=st.booleans())
def test_request_of_the_message_library_is_read(
    version: int, groups: list[FetchGroup], requires_stable: bool
) -> None:
    if version < 2 and groups[0].topics is None:
        groups[0] = groups[0]._replace(topics=[])
    values = {
        **_group_values(groups[0]),
        "groups": [_group_values(group) for group in groups],
        "require_stable": requires_stable,
    }
    body = request_bytes(ApiKey.OFFSET_FETCH, version, values)
    expected = [_as_of(version, group) for group in (groups if version >= 8 else groups[:1])]
    decoded = decode_offset_fetch(memoryview(b"h" + body), 1, version)
    assert decoded == OffsetFetchRequest(expected, requires_stable if version >= 7 else False)


def _as_of(version: int, group: FetchGroup) -> FetchGroup:
    if group.topics is not None:
        topics = [
            topic._replace(name=None) if version >= 10 else topic._replace(topic_id=None)
            for topic in group.topics
        ]
        group = group._replace(topics=topics)
    return group if version >= 9 else group._replace(member_id=None, member_epoch=-1)


def test_all_topics_cannot_be_asked_for_in_the_oldest_version() -> None:
    with pytest.raises(WireError):
        decode_offset_fetch(memoryview(b"\x00\x01g\xff\xff\xff\xff"), 0, 1)


def _answer_values(group: FetchedGroup) -> dict[str, object]:
    return {
        "group_id": group.group_id,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic_uuid(topic.topic_id),
                "partitions": [
                    {
                        "partition_index": result.partition,
                        "committed_offset": result.offset,
                        "committed_leader_epoch": result.leader_epoch,
                        "metadata": result.metadata,
                        "error_code": result.error_code,
                    }
                    for result in topic.partitions
                ],
            }
            for topic in group.topics
        ],
        "error_code": group.error_code,
    }


@every_version
@PER_VERSION
@given(groups=st.lists(_answers, min_size=1, max_size=3), correlation_id=int32s, throttle_ms=int32s)
def test_answer_is_what_the_message_library_writes(
    version: int, groups: list[FetchedGroup], correlation_id: int, throttle_ms: int
) -> None:
    values = {
        **_answer_values(groups[0]),
        "groups": [_answer_values(group) for group in groups],
        "throttle_time": milliseconds(throttle_ms),
    }
    expected = response_bytes(ApiKey.OFFSET_FETCH, version, values)
    header = encode_response_header(ApiKey.OFFSET_FETCH, version, correlation_id)
    answered = [
        group._replace(
            topics=[
                topic._replace(name=None) if version >= 10 else topic._replace(topic_id=None)
                for topic in group.topics
            ]
        )
        for group in (groups if version >= 8 else groups[:1])
    ]
    frame = encode_offset_fetch_response(version, correlation_id, answered, throttle_ms=throttle_ms)
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected
