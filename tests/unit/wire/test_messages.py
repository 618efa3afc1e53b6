"""G1: messages without a codec of their own: one shape for handlers, every version on the wire."""

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.schema.index import api_key_map
from kio.static.primitive import i32Timedelta

from tests.support.golden import kafka_api_versions
from tests.support.kio_codec import (
    PER_VERSION,
    decode,
    encode,
    example,
    int32s,
    kio_versions,
    messages,
    milliseconds,
    names,
)
from tests.support.peer_codec import request_body
from tidelog.base.errors import WireError
from tidelog.wire import message_classes
from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.messages import (
    BODY_BYTES_MAX,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from tidelog.wire.primitives import Reader

COLD = [
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
]
_LOWEST_AND_HIGHEST = kafka_api_versions()
COLD_VERSIONS = [
    (key, version)
    for key in COLD
    for version in range(_LOWEST_AND_HIGHEST[key][0], _LOWEST_AND_HIGHEST[key][1] + 1)
]


def _same(one: object, other: object) -> bool:
    """Equal in all fields that both have, at every depth."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if dataclasses.is_dataclass(one) and dataclasses.is_dataclass(other):
        return all(
            _same(getattr(one, field.name), getattr(other, field.name))
            for field in dataclasses.fields(one)
            if field.name in {known.name for known in dataclasses.fields(other)}
        )
    # Null, where the older version had no null.
    return one == other or (one in (None, "", ()) and other in (None, "", ()))


@pytest.mark.parametrize("key", sorted(api_key_map), ids=lambda key: api_key_map[key])
@PER_VERSION
@given(data=st.data())
def test_reader_made_from_a_class_reads_what_the_library_writes(
    key: int, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(kio_versions(key)))
    for message_class in (load_request_schema(key, version), load_response_schema(key, version)):
        message = data.draw(messages(message_class))
        body = encode(message)
        reader = Reader(memoryview(b"h" + body), 1, flexible=is_flexible(key, version))
        assert message_classes._reader_of(message_class)(reader) == message
        assert reader.position == 1 + len(body)


@pytest.mark.parametrize(("key", "version"), COLD_VERSIONS)
@PER_VERSION
@given(data=st.data())
def test_request_arrives_in_the_newest_shape(
    key: ApiKey, version: int, data: st.DataObject
) -> None:
    sent = data.draw(messages(load_request_schema(key, version)))
    body = encode(sent)
    received = decode_request(key, version, memoryview(b"h" + body), 1)
    assert type(received) is load_request_schema(key, max(kio_versions(key)))
    assert _same(sent, received)


@pytest.mark.parametrize(("key", "version"), COLD_VERSIONS)
@PER_VERSION
@given(data=st.data(), correlation_id=int32s)
def test_answer_leaves_in_the_shape_of_the_request(
    key: ApiKey, version: int, data: st.DataObject, correlation_id: int
) -> None:
    message = data.draw(messages(load_response_schema(key, max(kio_versions(key)))))
    frame = encode_response(message, version, correlation_id)
    header = encode_response_header(key, version, correlation_id)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4 : 4 + len(header)] == header
    received = decode(load_response_schema(key, version), frame[4 + len(header) :])
    assert _same(message, received)


@pytest.mark.parametrize(
    ("key", "version"), [pair for pair in COLD_VERSIONS if pair[0] != ApiKey.DELETE_TOPICS]
)
@PER_VERSION
@given(data=st.data())
def test_request_leaves_in_the_shape_of_its_version(
    key: ApiKey, version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(load_request_schema(key, max(kio_versions(key)))))
    body = request_body(encode_request(message, version, 7, "peer"), key, version)
    assert _same(message, decode(load_request_schema(key, version), body))


@pytest.mark.parametrize(("key", "version"), COLD_VERSIONS)
@PER_VERSION
@given(data=st.data())
def test_answer_arrives_in_the_newest_shape(key: ApiKey, version: int, data: st.DataObject) -> None:
    sent = data.draw(messages(load_response_schema(key, version)))
    received = decode_response(key, version, memoryview(b"h" + encode(sent)), 1)
    assert type(received) is load_response_schema(key, max(kio_versions(key)))
    assert _same(sent, received)


@pytest.mark.parametrize("key", COLD)
def test_answer_that_is_cut_off_anywhere_is_refused(key: ApiKey) -> None:
    newest = max(kio_versions(key))
    body = encode(example(load_response_schema(key, newest)))
    for size_bytes in range(len(body)):
        with pytest.raises(WireError):
            decode_response(key, newest, memoryview(body[:size_bytes]), 0)


def test_older_version_cannot_say_which_topics_to_delete_by_id() -> None:
    request = DeleteTopicsRequest(topics=(), timeout=i32Timedelta.parse(milliseconds(5)))
    assert encode_request(request, 6, 7, "peer")
    with pytest.raises(AssertionError):
        encode_request(request, 5, 7, "peer")


def test_preferred_leaders_are_elected_by_who_cannot_say_otherwise() -> None:
    request = decode_request(ApiKey.ELECT_LEADERS, 0, memoryview(b"\xff\xff\xff\xff" + bytes(4)), 0)
    assert isinstance(request, ElectLeadersRequest)
    assert request.election_type == 0
    assert request.topic_partitions is None


def test_replication_factor_may_change_unless_the_request_says_otherwise() -> None:
    request = decode_request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, memoryview(bytes(4) + b"\x01\x00"), 0
    )
    assert isinstance(request, AlterPartitionReassignmentsRequest)
    assert request.allow_replication_factor_change


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
@given(topics=st.lists(names, max_size=5))
def test_topics_to_delete_by_name_arrive_as_topics(version: int, topics: list[str]) -> None:
    message_class = load_request_schema(ApiKey.DELETE_TOPICS, version)
    body = encode(message_class(topic_names=tuple(topics), timeout=milliseconds(5)))  # type: ignore[call-arg]
    request = decode_request(ApiKey.DELETE_TOPICS, version, memoryview(body), 0)
    assert isinstance(request, DeleteTopicsRequest)
    assert [topic.name for topic in request.topics] == topics
    assert all(topic.topic_id is None for topic in request.topics)
    assert request.timeout == milliseconds(5)


def test_topics_to_delete_are_taken_as_they_are_in_version_six() -> None:
    sent = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=None, topic_id=None),),
        timeout=i32Timedelta.parse(milliseconds(5)),
    )
    received = decode_request(ApiKey.DELETE_TOPICS, 6, memoryview(encode(sent)), 0)
    assert received == sent


def test_fields_that_a_request_did_not_have_get_their_defaults() -> None:
    body = (
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"
        b"\x00\x00\x00\x05\x01"
    )
    request = decode_request(ApiKey.CREATE_TOPICS, 2, memoryview(body), 0)
    assert isinstance(request, CreateTopicsRequest)
    assert request.topics[0].num_partitions == 2
    assert request.validate_only


def test_name_that_is_null_today_is_empty_where_it_had_to_be_a_string() -> None:
    response = DeleteTopicsResponse(
        throttle_time=i32Timedelta.parse(milliseconds(0)),
        responses=(
            DeletableTopicResult(
                name=None, topic_id=None, error_code=MessageErrorCode.unknown_topic_id
            ),
        ),
    )
    assert encode_response(response, 1, 9) == (
        b"\x00\x00\x00\x10\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x64"
    )


def test_answer_of_an_older_shape_is_taken_too() -> None:
    older = load_response_schema(ApiKey.DELETE_TOPICS, 1)(
        throttle_time=milliseconds(3),  # type: ignore[call-arg]
        responses=(),
    )
    assert (
        encode_response(older, 6, 1)
        == b"\x00\x00\x00\x0b\x00\x00\x00\x01\x00\x00\x00\x00\x03\x01\x00"
    )


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        # Each of these makes the library's own reader reserve gigabytes or end the process.
        (ApiKey.CREATE_TOPICS, 2, b"\x7f\xff\xff\xff\x00\x00\x00"),
        (ApiKey.CREATE_TOPICS, 7, b"\xff\xff\xff\xff\x0f"),
        (ApiKey.DELETE_TOPICS, 1, b"\x7f\xff\xff\xff"),
        (ApiKey.CREATE_PARTITIONS, 2, b"\xff\xff\xff\xff\x7f"),
        # And these are merely wrong.
        (ApiKey.CREATE_TOPICS, 7, b"\x00\x00\x00\x00\x00\x00\x00"),
        (ApiKey.DELETE_TOPICS, 1, b"\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00"),
        (ApiKey.DELETE_TOPICS, 1, b"\x00\x00\x00\x01\x00\x02\xff\xfe\x00\x00\x00\x00"),
        (ApiKey.DELETE_TOPICS, 6, b"\x01\x00\x00\x00\x00\x01\x00\xff\xff\xff\xff\x0f"),
    ],
)
def test_lengths_that_lie_are_refused(key: ApiKey, version: int, body: bytes) -> None:
    with pytest.raises(WireError):
        decode_request(key, version, memoryview(body), 0)


def test_request_larger_than_any_administrator_s_is_refused() -> None:
    with pytest.raises(WireError, match="CREATE_TOPICS request of"):
        decode_request(ApiKey.CREATE_TOPICS, 7, memoryview(bytes(BODY_BYTES_MAX + 1)), 0)


def test_answer_larger_than_any_administrator_s_is_refused() -> None:
    with pytest.raises(WireError, match="CREATE_TOPICS response of"):
        decode_response(ApiKey.CREATE_TOPICS, 7, memoryview(bytes(BODY_BYTES_MAX + 1)), 0)


def test_library_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, tidelog.wire.messages, tidelog.wire.api_versions, tidelog.wire.metadata;"
        "import tidelog.wire.produce, tidelog.wire.fetch, tidelog.wire.list_offsets;"
        "import tidelog.wire.init_producer_id, tidelog.wire.offset_for_leader_epoch;"
        "import tidelog.wire.leader_and_isr, tidelog.wire.stop_replica;"
        "import tidelog.wire.update_metadata, tidelog.wire.controlled_shutdown;"
        "import tidelog.wire.alter_partition, tidelog.wire.fetch_client, tidelog.wire.envelope;"
        "import tidelog.records.validation;"
        "sys.exit('kio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
