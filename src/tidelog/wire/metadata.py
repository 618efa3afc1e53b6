"""Metadata: which topics there are, who leads their partitions, and where those brokers listen.

The answer is large and asked for by every client every few minutes, so it is encoded here rather
than by the message library.

Topic ids are sixteen bytes; NO_UUID where there is none.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import (
    NO_UUID,
    Reader,
    array_count,
    frame,
    int32_array,
    nullable_string,
    string,
)

_FIRST_WITH_CONTROLLER = 1
_FIRST_WITH_CLUSTER_ID = 2
_FIRST_WITH_THROTTLE = 3
_FIRST_WITH_AUTO_CREATION = 4
_FIRST_WITH_OFFLINE_REPLICAS = 5
_FIRST_WITH_LEADER_EPOCH = 7
_FIRST_WITH_OPERATIONS = 8
_FIRST_WITH_TOPIC_ID = 10
_LAST_WITH_CLUSTER_OPERATIONS = 10
_FIRST_WITH_NULL_NAME = 12
_FIRST_WITH_ERROR_CODE = 13

NO_OPERATIONS = -(2**31)
"""The client did not ask which operations it may do."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION_V0 = struct.Struct(">hii")
_PARTITION_V7 = struct.Struct(">hiii")


class MetadataRequest(NamedTuple):
    """topics: (name, id), ... by name (id is NO_UUID) or by id (name is None); None for all."""

    topics: list[tuple[str | None, bytes]] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


class MetadataBroker(NamedTuple):
    """Where a broker listens."""

    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataPartition(NamedTuple):
    """Who holds one partition; leader_id is -1 while nobody leads."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class MetadataTopic(NamedTuple):
    """One topic; the name is None only in the answer to an id that nobody knows."""

    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: Sequence[MetadataPartition]
    authorized_operations: int


class MetadataResponse(NamedTuple):
    """The cluster as its clients see it."""

    throttle_ms: int
    brokers: Sequence[MetadataBroker]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[MetadataTopic]
    cluster_authorized_operations: int
    error_code: int


def decode_metadata(view: memoryview, position: int, version: int) -> MetadataRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.METADATA, version))
    topics = _decode_topics(reader, version)
    allow_auto_topic_creation = True
    include_cluster_operations = include_topic_operations = False
    if version >= _FIRST_WITH_AUTO_CREATION:
        allow_auto_topic_creation = reader.boolean()
    if version >= _FIRST_WITH_OPERATIONS:
        if version <= _LAST_WITH_CLUSTER_OPERATIONS:
            include_cluster_operations = reader.boolean()
        include_topic_operations = reader.boolean()
    reader.end_structure()
    return MetadataRequest(
        topics, allow_auto_topic_creation, include_cluster_operations, include_topic_operations
    )


def _decode_topics(reader: Reader, version: int) -> list[tuple[str | None, bytes]] | None:
    count = reader.nullable_array_count()
    if version == 0:
        if count is None:
            raise WireError("Metadata v0 request with null for its topics")
        # Version 0 had no other way to ask for all topics.
        if count == 0:
            return None
    if count is None:
        return None
    topics = []
    for _ in range(count):
        topic_id = reader.uuid() if version >= _FIRST_WITH_TOPIC_ID else NO_UUID
        # Versions 10 and 11 already spell a name that may be null.
        name = reader.nullable_string()
        if name is None and version < _FIRST_WITH_TOPIC_ID:
            raise WireError("Metadata request for a topic without a name")
        reader.end_structure()
        topics.append((name, topic_id))
    return topics


def encode_metadata_response(
    version: int, correlation_id: int, response: MetadataResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    flexible = is_flexible(ApiKey.METADATA, version)
    parts = [encode_response_header(ApiKey.METADATA, version, correlation_id)]
    if version >= _FIRST_WITH_THROTTLE:
        parts.append(_INT32.pack(response.throttle_ms))
    parts.append(array_count(len(response.brokers), flexible=flexible))
    parts += [_encode_broker(version, broker, flexible=flexible) for broker in response.brokers]
    if version >= _FIRST_WITH_CLUSTER_ID:
        parts.append(nullable_string(response.cluster_id, flexible=flexible))
    if version >= _FIRST_WITH_CONTROLLER:
        parts.append(_INT32.pack(response.controller_id))
    parts.append(array_count(len(response.topics), flexible=flexible))
    parts += [_encode_topic(version, topic, flexible=flexible) for topic in response.topics]
    if _FIRST_WITH_OPERATIONS <= version <= _LAST_WITH_CLUSTER_OPERATIONS:
        parts.append(_INT32.pack(response.cluster_authorized_operations))
    if version >= _FIRST_WITH_ERROR_CODE:
        parts.append(_INT16.pack(response.error_code))
    if flexible:
        parts.append(b"\x00")
    return frame(parts)


def _encode_broker(version: int, broker: MetadataBroker, *, flexible: bool) -> bytes:
    parts = [
        _INT32.pack(broker.node_id),
        string(broker.host, flexible=flexible),
        _INT32.pack(broker.port),
    ]
    if version >= _FIRST_WITH_CONTROLLER:
        parts.append(nullable_string(broker.rack, flexible=flexible))
    if flexible:
        parts.append(b"\x00")
    return b"".join(parts)


def _encode_topic(version: int, topic: MetadataTopic, *, flexible: bool) -> bytes:
    parts = [_INT16.pack(topic.error_code)]
    if version >= _FIRST_WITH_NULL_NAME:
        parts.append(nullable_string(topic.name, flexible=flexible))
    else:
        parts.append(string(topic.name or "", flexible=flexible))
    if version >= _FIRST_WITH_TOPIC_ID:
        parts.append(topic.topic_id)
    if version >= _FIRST_WITH_CONTROLLER:
        parts.append(b"\x01" if topic.is_internal else b"\x00")
    parts.append(_encode_partitions(version, topic.partitions, flexible=flexible))
    if version >= _FIRST_WITH_OPERATIONS:
        parts.append(_INT32.pack(topic.authorized_operations))
    if flexible:
        parts.append(b"\x00")
    return b"".join(parts)


def _encode_partitions(
    version: int, partitions: Sequence[MetadataPartition], *, flexible: bool
) -> bytes:
    parts = [array_count(len(partitions), flexible=flexible)]
    # A topic of a thousand partitions has few different sets of replicas.
    encoded: dict[tuple[tuple[int, ...], ...], bytes] = {}
    for error_code, index, leader_id, leader_epoch, *replica_sets in partitions:
        if version >= _FIRST_WITH_LEADER_EPOCH:
            parts.append(_PARTITION_V7.pack(error_code, index, leader_id, leader_epoch))
        else:
            parts.append(_PARTITION_V0.pack(error_code, index, leader_id))
        key = tuple(replica_sets)
        end = encoded.get(key)
        if end is None:
            end = encoded[key] = _encode_replica_sets(version, key, flexible=flexible)
        parts.append(end)
    return b"".join(parts)


def _encode_replica_sets(
    version: int, replica_sets: tuple[tuple[int, ...], ...], *, flexible: bool
) -> bytes:
    if version < _FIRST_WITH_OFFLINE_REPLICAS:
        replica_sets = replica_sets[:2]
    parts = [int32_array(brokers, flexible=flexible) for brokers in replica_sets]
    if flexible:
        parts.append(b"\x00")
    return b"".join(parts)
