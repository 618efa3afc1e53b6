"""UpdateMetadata: the controller tells every broker what clients may ask it.

A layout of our own, see cluster_states.py. A full request names every topic there is, every setting
and every replica that failed; the live brokers are always all of them, an entity's settings always
all it has, and the failed replicas of a broker that is named all of its.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.wire.api import (
    ApiKey,
    encode_request_header,
    encode_response_header,
    is_flexible,
)
from tidelog.wire.cluster_states import (
    ControlHeader,
    LiveBroker,
    TopicStates,
    decode_control_header,
    decode_live_brokers,
    decode_topic_states,
    encode_control_header,
    encode_live_brokers,
    encode_topic_states,
)
from tidelog.wire.primitives import UUID_BYTES, Reader, compact_string, frame, uvarint

_ERROR = struct.Struct(">hb")
_KIND = struct.Struct(">b")
_INT32 = struct.Struct(">i")


class EntityKind(IntEnum):
    """What settings may belong to."""

    TOPIC = 0
    BROKER = 1
    CLIENT = 2
    GROUP = 3


class EntitySettings(NamedTuple):
    """All the settings of an entity; none if it has lost its last one."""

    kind: int
    name: str
    settings: list[tuple[str, str]]


class FailedReplicas(NamedTuple):
    """The replicas of a live broker whose log directories failed, by the ids of their topics."""

    broker_id: int
    topics: list[tuple[bytes, list[int]]]


class UpdateMetadataRequest(NamedTuple):
    """deleted_topics: their ids."""

    header: ControlHeader
    is_full: bool
    live_brokers: list[LiveBroker]
    topics: list[TopicStates]
    settings: list[EntitySettings]
    deleted_topics: list[bytes]
    failed_replicas: list[FailedReplicas]


class UpdateMetadataResponse(NamedTuple):
    """Whether the receiver has taken it in."""

    error_code: int


def encode_update_metadata_request(
    version: int, correlation_id: int, client_id: str, request: UpdateMetadataRequest
) -> bytes:
    """The whole frame of a request."""
    assert all(len(topic_id) == UUID_BYTES for topic_id in request.deleted_topics)
    return frame(
        [
            encode_request_header(ApiKey.UPDATE_METADATA, version, correlation_id, client_id),
            encode_control_header(request.header),
            b"\x01" if request.is_full else b"\x00",
            encode_live_brokers(request.live_brokers),
            encode_topic_states(request.topics),
            _encode_settings(request.settings),
            uvarint(len(request.deleted_topics) + 1),
            *request.deleted_topics,
            _encode_failed(request.failed_replicas),
            b"\x00",
        ]
    )


def decode_update_metadata(view: memoryview, position: int, version: int) -> UpdateMetadataRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.UPDATE_METADATA, version))
    request = UpdateMetadataRequest(
        header=decode_control_header(reader),
        is_full=reader.boolean(),
        live_brokers=decode_live_brokers(reader),
        topics=decode_topic_states(reader),
        settings=[_decode_entity(reader) for _ in range(reader.array_count())],
        deleted_topics=[reader.uuid() for _ in range(reader.array_count())],
        failed_replicas=[_decode_failed(reader) for _ in range(reader.array_count())],
    )
    reader.end_structure()
    return request


def _encode_settings(entities: Sequence[EntitySettings]) -> bytes:
    parts = [uvarint(len(entities) + 1)]
    for kind, name, settings in entities:
        parts += (_KIND.pack(kind), compact_string(name), uvarint(len(settings) + 1))
        for key, value in settings:
            parts += (compact_string(key), compact_string(value), b"\x00")
        parts.append(b"\x00")
    return b"".join(parts)


def _decode_entity(reader: Reader) -> EntitySettings:
    kind, name = reader.int8(), reader.string()
    settings = []
    for _ in range(reader.array_count()):
        settings.append((reader.string(), reader.string()))
        reader.end_structure()
    reader.end_structure()
    return EntitySettings(kind, name, settings)


def _encode_failed(brokers: Sequence[FailedReplicas]) -> bytes:
    parts = [uvarint(len(brokers) + 1)]
    for broker_id, topics in brokers:
        parts += (_INT32.pack(broker_id), uvarint(len(topics) + 1))
        for topic_id, partitions in topics:
            assert len(topic_id) == UUID_BYTES
            parts += (topic_id, uvarint(len(partitions) + 1))
            parts += map(_INT32.pack, partitions)
            parts.append(b"\x00")
        parts.append(b"\x00")
    return b"".join(parts)


def _decode_failed(reader: Reader) -> FailedReplicas:
    broker_id = reader.int32()
    topics = []
    for _ in range(reader.array_count()):
        topic_id = reader.uuid()
        topics.append((topic_id, [reader.int32() for _ in range(reader.array_count())]))
        reader.end_structure()
    reader.end_structure()
    return FailedReplicas(broker_id, topics)


def encode_update_metadata_response(
    version: int, correlation_id: int, response: UpdateMetadataResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    header = encode_response_header(ApiKey.UPDATE_METADATA, version, correlation_id)
    return frame([header, _ERROR.pack(response.error_code, 0)])


def decode_update_metadata_response(
    view: memoryview, position: int, version: int
) -> UpdateMetadataResponse:
    """The answer whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.UPDATE_METADATA, version))
    response = UpdateMetadataResponse(reader.int16())
    reader.end_structure()
    return response
