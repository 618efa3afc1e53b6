"""What the controller tells brokers: states of partitions, live brokers, and in whose name.

LeaderAndIsr, StopReplica and UpdateMetadata are made of these. Kafka 4 has dropped those requests,
so the layouts are our own; lengths, strings and tagged fields are those of flexible versions. One
request may hold every partition of the cluster, so a partition takes 25 bytes and four for each id:

    partition │ leader │ leader epoch │ partition epoch │ four counts, uint16 │ ids │ tagged fields
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.base.errors import WireError
from tidelog.wire.primitives import (
    ELEMENTS_MAX,
    UUID_BYTES,
    Reader,
    compact_nullable_string,
    compact_string,
    read_compact_string,
    read_uuid,
    read_uvarint,
    skip_tagged_fields,
    uvarint,
)

# In one request. Whoever has more to say says it in several.
PARTITIONS_MAX: Final = ELEMENTS_MAX
# Ids of replicas in one request, all lists of all partitions together.
REPLICAS_MAX: Final = 16 * PARTITIONS_MAX

_IDS_OF_MOST = 32

_HEADER = struct.Struct(">iiq16s")
_BROKER_START = struct.Struct(">iq")
_BROKER_EPOCH = struct.Struct(">iqb")
_PORT = struct.Struct(">i")
_STATE_START = struct.Struct(">4i4H")
_STATES = [struct.Struct(f">4i4H{count}ib") for count in range(_IDS_OF_MOST)]
_IDS = [struct.Struct(f">{count}i") for count in range(_IDS_OF_MOST)]
_FAILED_PARTITION = struct.Struct(">16sihb")
_ERROR = struct.Struct(">h")


class ControlHeader(NamedTuple):
    """Who speaks, and to which life of the receiver.

    The token is what the speaker wrote beside its claim on the coordinator: only who can read the
    coordinator can speak as the controller.
    """

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    token: bytes


class PartitionState(NamedTuple):
    """One partition, as the controller wrote it down."""

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class TopicStates(NamedTuple):
    """Some or all partitions of a topic."""

    name: str
    topic_id: bytes
    partitions: list[PartitionState]


class BrokerEndpoint(NamedTuple):
    """Where a broker is to be found by those who came through `listener`."""

    listener: str
    security_protocol: str
    host: str
    port: int


class LiveBroker(NamedTuple):
    """A broker that is registered, with the epoch of this registration."""

    broker_id: int
    broker_epoch: int
    rack: str | None
    endpoints: tuple[BrokerEndpoint, ...]


class FailedPartition(NamedTuple):
    """A partition for which a broker could not do as it was told."""

    topic_id: bytes
    partition: int
    error_code: int


def encode_control_header(header: ControlHeader) -> bytes:
    assert len(header.token) == UUID_BYTES
    return _HEADER.pack(*header)


def decode_control_header(reader: Reader) -> ControlHeader:
    return ControlHeader(reader.int32(), reader.int32(), reader.int64(), reader.uuid())


def encode_broker_epochs(brokers: Sequence[tuple[int, int]]) -> bytes:
    """Ids and epochs of brokers."""
    return b"".join(
        [uvarint(len(brokers) + 1), *[_BROKER_EPOCH.pack(*broker, 0) for broker in brokers]]
    )


def decode_broker_epochs(reader: Reader) -> list[tuple[int, int]]:
    brokers = []
    for _ in range(reader.array_count()):
        brokers.append((reader.int32(), reader.int64()))
        reader.end_structure()
    return brokers


def encode_live_brokers(brokers: Sequence[LiveBroker]) -> bytes:
    parts = [uvarint(len(brokers) + 1)]
    for broker_id, broker_epoch, rack, endpoints in brokers:
        parts += (
            _BROKER_START.pack(broker_id, broker_epoch),
            compact_nullable_string(rack),
            uvarint(len(endpoints) + 1),
        )
        for listener, security_protocol, host, port in endpoints:
            parts += (
                compact_string(listener),
                compact_string(security_protocol),
                compact_string(host),
                _PORT.pack(port),
                b"\x00",
            )
        parts.append(b"\x00")
    return b"".join(parts)


def decode_live_brokers(reader: Reader) -> list[LiveBroker]:
    brokers = []
    for _ in range(reader.array_count()):
        broker_id, broker_epoch = reader.int32(), reader.int64()
        rack = reader.nullable_string()
        endpoints = tuple([_decode_endpoint(reader) for _ in range(reader.array_count())])
        reader.end_structure()
        brokers.append(LiveBroker(broker_id, broker_epoch, rack, endpoints))
    return brokers


def _decode_endpoint(reader: Reader) -> BrokerEndpoint:
    endpoint = BrokerEndpoint(reader.string(), reader.string(), reader.string(), reader.int32())
    reader.end_structure()
    return endpoint


def encode_topic_states(topics: Sequence[TopicStates]) -> bytes:
    """At most PARTITIONS_MAX partitions and REPLICAS_MAX ids, or no broker will read them."""
    parts = [uvarint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        assert len(topic_id) == UUID_BYTES
        parts += (compact_string(name), topic_id, uvarint(len(partitions) + 1))
        parts += [_encode_state(state) for state in partitions]
        parts.append(b"\x00")
    return b"".join(parts)


def _encode_state(state: PartitionState) -> bytes:
    partition, leader, leader_epoch, partition_epoch, replicas, isr, adding, removing = state
    counts = len(replicas), len(isr), len(adding), len(removing)
    id_count = sum(counts)
    layout = _STATES[id_count] if id_count < _IDS_OF_MOST else struct.Struct(f">4i4H{id_count}ib")
    return layout.pack(
        partition,
        leader,
        leader_epoch,
        partition_epoch,
        *counts,
        *replicas,
        *isr,
        *adding,
        *removing,
        0,
    )


def decode_topic_states(reader: Reader) -> list[TopicStates]:
    try:
        topics, reader.position = _read_topics(reader.view, reader.position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"partition states: {error}") from error
    return topics


def _read_topics(view: memoryview, position: int) -> tuple[list[TopicStates], int]:
    topic_count, position = read_uvarint(view, position)
    if not 0 < topic_count <= PARTITIONS_MAX:
        raise WireError(f"states of {topic_count - 1} topics")
    partitions_left = PARTITIONS_MAX
    replicas_left = REPLICAS_MAX
    topics = []
    for _ in range(topic_count - 1):
        name, position = read_compact_string(view, position)
        if name is None:
            raise WireError("states of a topic without a name")
        topic_id, position = read_uuid(view, position)
        count, position = read_uvarint(view, position)
        partitions_left -= count - 1
        if count == 0 or partitions_left < 0:
            raise WireError(f"states of {count - 1} partitions")
        partitions, position, replicas_left = _read_states(
            view, position, count - 1, replicas_left=replicas_left
        )
        position = skip_tagged_fields(view, position)
        topics.append(TopicStates(name, topic_id, partitions))
    return topics, position


def _read_states(
    view: memoryview, position: int, count: int, *, replicas_left: int
) -> tuple[list[PartitionState], int, int]:
    states = []
    for _ in range(count):
        (
            partition,
            leader,
            leader_epoch,
            partition_epoch,
            replica_count,
            isr_count,
            adding_count,
            removing_count,
        ) = _STATE_START.unpack_from(view, position)
        position += 24
        isr_end = replica_count + isr_count
        adding_end = isr_end + adding_count
        id_count = adding_end + removing_count
        replicas_left -= id_count
        if replicas_left < 0:
            raise WireError(f"more than {REPLICAS_MAX} replicas")
        layout = _IDS[id_count] if id_count < _IDS_OF_MOST else struct.Struct(f">{id_count}i")
        ids = layout.unpack_from(view, position)
        states.append(
            tuple.__new__(
                PartitionState,
                (
                    partition,
                    leader,
                    leader_epoch,
                    partition_epoch,
                    ids[:replica_count],
                    ids[replica_count:isr_end],
                    ids[isr_end:adding_end],
                    ids[adding_end:],
                ),
            )
        )
        position = skip_tagged_fields(view, position + 4 * id_count)
    return states, position, replicas_left


def encode_failures(error_code: int, partitions: Sequence[tuple[bytes, int, int]]) -> bytes:
    """The body of an answer that names only what went wrong."""
    failed = [_FAILED_PARTITION.pack(*partition, 0) for partition in partitions]
    return b"".join([_ERROR.pack(error_code), uvarint(len(failed) + 1), *failed, b"\x00"])


def decode_failures(reader: Reader) -> tuple[int, list[FailedPartition]]:
    error_code = reader.int16()
    partitions = []
    for _ in range(reader.array_count()):
        partitions.append(FailedPartition(reader.uuid(), reader.int32(), reader.int16()))
        reader.end_structure()
    reader.end_structure()
    return error_code, partitions
