"""StopReplica: the controller takes partitions away from a broker, for a while or for good.

A layout of our own, see cluster_states.py. Partitions of one topic that follow each other share
its name and id.
"""

import struct
from itertools import groupby
from typing import NamedTuple

from tidelog.wire.api import (
    ApiKey,
    encode_request_header,
    encode_response_header,
    is_flexible,
)
from tidelog.wire.cluster_states import (
    ControlHeader,
    FailedPartition,
    decode_control_header,
    decode_failures,
    encode_control_header,
    encode_failures,
)
from tidelog.wire.primitives import UUID_BYTES, Reader, compact_string, frame, uvarint

_PARTITION = struct.Struct(">ii?b")


class StoppedReplica(NamedTuple):
    """A replica to give up; `delete` says whether its files go as well."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    delete: bool


class StopReplicaRequest(NamedTuple):
    """What the receiver is to give up."""

    header: ControlHeader
    partitions: list[StoppedReplica]


class StopReplicaResponse(NamedTuple):
    """Partitions that are not listed are given up, unless all have failed."""

    error_code: int
    partitions: list[FailedPartition]


def encode_stop_replica_request(
    version: int, correlation_id: int, client_id: str, request: StopReplicaRequest
) -> bytes:
    """The whole frame of a request."""
    topics = [
        _encode_topic(name, topic_id, list(partitions))
        for (name, topic_id), partitions in groupby(request.partitions, lambda one: one[:2])
    ]
    return frame(
        [
            encode_request_header(ApiKey.STOP_REPLICA, version, correlation_id, client_id),
            encode_control_header(request.header),
            uvarint(len(topics) + 1),
            *topics,
            b"\x00",
        ]
    )


def _encode_topic(name: str, topic_id: bytes, partitions: list[StoppedReplica]) -> bytes:
    assert len(topic_id) == UUID_BYTES
    parts = [compact_string(name), topic_id, uvarint(len(partitions) + 1)]
    parts += [_PARTITION.pack(*partition[2:], 0) for partition in partitions]
    parts.append(b"\x00")
    return b"".join(parts)


def decode_stop_replica(view: memoryview, position: int, version: int) -> StopReplicaRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.STOP_REPLICA, version))
    header = decode_control_header(reader)
    partitions = []
    for _ in range(reader.array_count()):
        name, topic_id = reader.string(), reader.uuid()
        count = reader.array_count()
        partitions += [_decode_partition(reader, name, topic_id) for _ in range(count)]
        reader.end_structure()
    reader.end_structure()
    return StopReplicaRequest(header, partitions)


def _decode_partition(reader: Reader, name: str, topic_id: bytes) -> StoppedReplica:
    partition = StoppedReplica(name, topic_id, reader.int32(), reader.int32(), reader.boolean())
    reader.end_structure()
    return partition


def encode_stop_replica_response(
    version: int, correlation_id: int, response: StopReplicaResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    header = encode_response_header(ApiKey.STOP_REPLICA, version, correlation_id)
    return frame([header, encode_failures(response.error_code, response.partitions)])


def decode_stop_replica_response(
    view: memoryview, position: int, version: int
) -> StopReplicaResponse:
    """The answer whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.STOP_REPLICA, version))
    return StopReplicaResponse(*decode_failures(reader))
