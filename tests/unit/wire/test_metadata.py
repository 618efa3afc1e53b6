"""G1: Metadata, against kio in both directions and in every version."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    PER_VERSION,
    int32s,
    milliseconds,
    names,
    request_bytes,
    response_bytes,
    topic_ids,
    topic_uuid,
)
from tidelog.base.errors import ErrorCode, WireError
from tidelog.wire.api import SUPPORTED, ApiKey, encode_response_header
from tidelog.wire.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    decode_metadata,
    encode_metadata_response,
)

VERSIONS = range(SUPPORTED[ApiKey.METADATA].highest + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)
NO_ID = bytes(16)

_brokers = st.lists(st.builds(MetadataBroker, int32s, names, int32s, st.none() | names), max_size=3)
# Few different ids, so that partitions share sets of replicas as they do in life.
_replicas = st.lists(st.integers(1, 3), max_size=3).map(tuple)
_partitions = st.lists(
    st.builds(
        MetadataPartition,
        error_code=st.sampled_from(ErrorCode),
        partition=int32s,
        leader_id=int32s,
        leader_epoch=int32s,
        replicas=_replicas,
        isr=_replicas,
        offline_replicas=_replicas,
    ),
    max_size=5,
)
_topics = st.lists(
    st.builds(
        MetadataTopic,
        error_code=st.sampled_from(ErrorCode),
        name=st.none() | names,
        topic_id=topic_ids,
        is_internal=st.booleans(),
        partitions=_partitions,
        authorized_operations=int32s,
    ),
    max_size=3,
)
_response = st.builds(
    MetadataResponse,
    throttle_ms=int32s,
    brokers=_brokers,
    cluster_id=st.none() | names,
    controller_id=int32s,
    topics=_topics,
    cluster_authorized_operations=int32s,
    error_code=st.sampled_from(ErrorCode),
)


@every_version
@PER_VERSION
@given(
    topics=st.none() | st.lists(st.tuples(names, topic_ids), min_size=1, max_size=4),
    allow=st.booleans(),
    cluster_operations=st.booleans(),
    topic_operations=st.booleans(),
)
def test_request_of_the_message_library_is_read(
    version: int,
    topics: list[tuple[str, bytes]] | None,
    allow: bool,
    cluster_operations: bool,
    topic_operations: bool,
) -> None:
    kio_topics: object = None
    if topics is not None:
        kio_topics = [{"name": name, "topic_id": topic_uuid(id_)} for name, id_ in topics]
    elif version == 0:
        kio_topics = []
    body = request_bytes(
        ApiKey.METADATA,
        version,
        {
            "topics": kio_topics,
            "allow_auto_topic_creation": allow,
            "include_cluster_authorized_operations": cluster_operations,
            "include_topic_authorized_operations": topic_operations,
        },
    )
    assert decode_metadata(memoryview(b"h" + body), 1, version) == MetadataRequest(
        None
        if topics is None
        else [(name, topic_id if version >= 10 else NO_ID) for name, topic_id in topics],
        allow if version >= 4 else True,
        cluster_operations if 8 <= version <= 10 else False,
        topic_operations if version >= 8 else False,
    )


def test_empty_list_means_no_topic_from_version_one_on() -> None:
    assert decode_metadata(memoryview(bytes(4)), 0, 0).topics is None
    assert decode_metadata(memoryview(bytes(4)), 0, 1).topics == []


def test_topic_by_id_has_no_name() -> None:
    topic_id = bytes(range(16))
    body = b"\x02" + topic_id + b"\x00\x00" + b"\x01\x00\x00"
    assert decode_metadata(memoryview(body), 0, 12).topics == [(None, topic_id)]


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, struct.pack(">i", -1)),
        (1, struct.pack(">ih", 1, -1)),
        (1, struct.pack(">i", 2**31 - 1) + b"abc"),
        (9, b"\x02\x00\x00\x01\x00\x00"),
        (12, b"\xff\xff\xff\xff\x0f"),
        (12, b"\x00\x01"),
    ],
)
def test_request_that_lies_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(WireError):
        decode_metadata(memoryview(body), 0, version)


@every_version
@PER_VERSION
@given(response=_response, correlation_id=int32s)
def test_answer_is_what_the_message_library_writes(
    version: int, response: MetadataResponse, correlation_id: int
) -> None:
    expected = response_bytes(
        ApiKey.METADATA,
        version,
        {
            "throttle_time": milliseconds(response.throttle_ms),
            "brokers": [broker._asdict() for broker in response.brokers],
            "cluster_id": response.cluster_id,
            "controller_id": response.controller_id,
            "topics": [_kio_topic(version, topic) for topic in response.topics],
            "cluster_authorized_operations": response.cluster_authorized_operations,
            "error_code": response.error_code,
        },
    )
    header = encode_response_header(ApiKey.METADATA, version, correlation_id)
    frame = encode_metadata_response(version, correlation_id, response)
    assert frame == struct.pack(">i", len(header) + len(expected)) + header + expected


def _kio_topic(version: int, topic: MetadataTopic) -> dict[str, object]:
    return {
        "error_code": topic.error_code,
        "name": topic.name if version >= 12 else topic.name or "",
        "topic_id": topic_uuid(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": partition.error_code,
                "partition_index": partition.partition,
                "leader_id": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replica_nodes": partition.replicas,
                "isr_nodes": partition.isr,
                "offline_replicas": partition.offline_replicas,
            }
            for partition in topic.partitions
        ],
        "topic_authorized_operations": topic.authorized_operations,
    }
