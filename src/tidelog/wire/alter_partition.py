"""AlterPartition: a leader proposes in-sync sets, the controller decides (KIP-497, KIP-903).

Kafka's version 3. When a broker dies, each leader has thousands of these to say at once, so the
arrays are walked by hand.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, encode_request_header, encode_response_header
from tidelog.wire.cluster_states import PARTITIONS_MAX, REPLICAS_MAX
from tidelog.wire.primitives import (
    UUID_BYTES,
    frame,
    int32_array,
    read_uuid,
    read_uvarint,
    skip_tagged_fields,
    uvarint,
)

RECOVERED = 0
RECOVERING = 1

_VERSION = 3
_TOPIC_BYTES_MIN = 18
_PARTITION_BYTES_MIN = 15

_REQUEST_START = struct.Struct(">iq")
_PROPOSAL_START = struct.Struct(">ii")
_MEMBER_FIELDS = struct.Struct(">iq")
_MEMBER = struct.Struct(">iqb")
_RESPONSE_START = struct.Struct(">ih")
_RESULT_START = struct.Struct(">ihii")
_END_FIELDS = struct.Struct(">bi")
_END = struct.Struct(">bib")

_Partition = TypeVar("_Partition")


class IsrMember(NamedTuple):
    """A replica to be in sync, in the life in which the leader has seen it catch up."""

    broker_id: int
    broker_epoch: int


class IsrProposal(NamedTuple):
    """The in-sync set that a leader wants, provided that nothing has changed since its epochs."""

    partition: int
    leader_epoch: int
    new_isr_with_epochs: tuple[IsrMember, ...]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionRequest(NamedTuple):
    """topics: (topic id, proposals), ..."""

    broker_id: int
    broker_epoch: int
    topics: list[tuple[bytes, list[IsrProposal]]]


class IsrResult(NamedTuple):
    """The partition as it is now. Only the first two mean anything if there is an error."""

    partition: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int
    partition_epoch: int


class AlterPartitionResponse(NamedTuple):
    """topics: (topic id, results), ..."""

    throttle_ms: int
    error_code: int
    topics: list[tuple[bytes, list[IsrResult]]]


def encode_alter_partition_request(
    version: int, correlation_id: int, client_id: str, request: AlterPartitionRequest
) -> bytes:
    """The whole frame of a request."""
    parts = [
        encode_request_header(ApiKey.ALTER_PARTITION, version, correlation_id, client_id),
        _REQUEST_START.pack(request.broker_id, request.broker_epoch),
        uvarint(len(request.topics) + 1),
    ]
    for topic_id, proposals in request.topics:
        assert len(topic_id) == UUID_BYTES
        parts += (topic_id, uvarint(len(proposals) + 1))
        for partition, leader_epoch, members, recovery_state, partition_epoch in proposals:
            parts += (_PROPOSAL_START.pack(partition, leader_epoch), uvarint(len(members) + 1))
            parts += [_MEMBER.pack(*member, 0) for member in members]
            parts.append(_END.pack(recovery_state, partition_epoch, 0))
        parts.append(b"\x00")
    parts.append(b"\x00")
    return frame(parts)


def decode_alter_partition(view: memoryview, position: int, version: int) -> AlterPartitionRequest:
    """The request whose body starts at `position`."""
    assert version == _VERSION
    try:
        broker_id, broker_epoch = _REQUEST_START.unpack_from(view, position)
        topics, position = _read_topics(view, position + 12, _read_proposal)
        skip_tagged_fields(view, position)
    except (struct.error, IndexError) as error:
        raise WireError(f"AlterPartition request: {error}") from error
    return AlterPartitionRequest(broker_id, broker_epoch, topics)


def _read_proposal(view: memoryview, position: int) -> tuple[IsrProposal, int, int]:
    partition, leader_epoch = _PROPOSAL_START.unpack_from(view, position)
    count, position = _read_count(view, position + 8, element_bytes=13)
    members = []
    for _ in range(count):
        members.append(tuple.__new__(IsrMember, _MEMBER_FIELDS.unpack_from(view, position)))
        position = skip_tagged_fields(view, position + 12)
    recovery_state, partition_epoch = _END_FIELDS.unpack_from(view, position)
    position = skip_tagged_fields(view, position + 5)
    proposal = tuple.__new__(
        IsrProposal, (partition, leader_epoch, tuple(members), recovery_state, partition_epoch)
    )
    return proposal, position, count


def encode_alter_partition_response(
    version: int, correlation_id: int, response: AlterPartitionResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    parts = [
        encode_response_header(ApiKey.ALTER_PARTITION, version, correlation_id),
        _RESPONSE_START.pack(response.throttle_ms, response.error_code),
        uvarint(len(response.topics) + 1),
    ]
    for topic_id, results in response.topics:
        assert len(topic_id) == UUID_BYTES
        parts += (topic_id, uvarint(len(results) + 1))
        for partition, error_code, leader, epoch, isr, recovery_state, partition_epoch in results:
            parts += (
                _RESULT_START.pack(partition, error_code, leader, epoch),
                int32_array(isr, flexible=True),
                _END.pack(recovery_state, partition_epoch, 0),
            )
        parts.append(b"\x00")
    parts.append(b"\x00")
    return frame(parts)


def decode_alter_partition_response(
    view: memoryview, position: int, version: int
) -> AlterPartitionResponse:
    """The answer whose body starts at `position`."""
    assert version == _VERSION
    try:
        throttle_ms, error_code = _RESPONSE_START.unpack_from(view, position)
        topics, position = _read_topics(view, position + 6, _read_result)
        skip_tagged_fields(view, position)
    except (struct.error, IndexError) as error:
        raise WireError(f"AlterPartition response: {error}") from error
    return AlterPartitionResponse(throttle_ms, error_code, topics)


def _read_result(view: memoryview, position: int) -> tuple[IsrResult, int, int]:
    start = _RESULT_START.unpack_from(view, position)
    count, position = _read_count(view, position + 14, element_bytes=4)
    isr = struct.unpack_from(f">{count}i", view, position)
    end = _END_FIELDS.unpack_from(view, position + 4 * count)
    position = skip_tagged_fields(view, position + 4 * count + 5)
    return tuple.__new__(IsrResult, (*start, isr, *end)), position, count


def _read_topics(
    view: memoryview, position: int, read: Callable[[memoryview, int], tuple[_Partition, int, int]]
) -> tuple[list[tuple[bytes, list[_Partition]]], int]:
    """Topics and what `read` makes of their partitions; it says how many replicas it has seen."""
    topic_count, position = _read_count(view, position, element_bytes=_TOPIC_BYTES_MIN)
    partitions_left = PARTITIONS_MAX
    replicas_left = REPLICAS_MAX
    topics = []
    for _ in range(topic_count):
        topic_id, position = read_uuid(view, position)
        count, position = _read_count(view, position, element_bytes=_PARTITION_BYTES_MIN)
        partitions_left -= count
        if partitions_left < 0:
            raise WireError(f"more than {PARTITIONS_MAX} partitions")
        partitions = []
        for _ in range(count):
            partition, position, replica_count = read(view, position)
            replicas_left -= replica_count
            if replicas_left < 0:
                raise WireError(f"more than {REPLICAS_MAX} replicas")
            partitions.append(partition)
        position = skip_tagged_fields(view, position)
        topics.append((topic_id, partitions))
    return topics, position


def _read_count(view: memoryview, position: int, *, element_bytes: int) -> tuple[int, int]:
    """How many elements follow, which are of so many bytes at least."""
    count, position = read_uvarint(view, position)
    if count == 0 or (count - 1) * element_bytes > len(view) - position:
        raise WireError(f"array of {count - 1} elements, {len(view) - position} bytes are left")
    return count - 1, position
