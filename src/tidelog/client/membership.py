"""Which brokers one broker knows of, and who leads what, asked over a socket of our own.

librdkafka asks whichever broker it likes and remembers what others said. Whoever starts a cluster,
or ends its brokers, wants to know what each of them says, many times a second, sooner than
confluent-kafka can be loaded. Version 1 of Metadata is spoken by every broker since Kafka 0.10.
"""

import socket
from collections.abc import Sequence
from typing import IO, Final, NamedTuple

from tidelog.base.errors import WireError
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, ClusterUnreachable
from tidelog.client.values import PartitionDescription
from tidelog.wire.api import ApiKey, decode_response_header, encode_request_header
from tidelog.wire.primitives import Reader, array_count, frame, string

_VERSION: Final = 1
_HEADER: Final = encode_request_header(ApiKey.METADATA, _VERSION, 1, "tidelog")
_LENGTH_BYTES: Final = 4
_ALL_TOPICS: Final = b"\xff\xff\xff\xff"
# A million partitions would fit.
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class Membership(NamedTuple):
    """The brokers that are alive, as one of them sees it, and who controls them, if anybody."""

    broker_ids: frozenset[int]
    controller_id: int | None


class TopicView(NamedTuple):
    """A topic as one broker sees it. No partitions: it does not know the topic."""

    membership: Membership
    partitions: tuple[PartitionDescription, ...]


class ClusterView(NamedTuple):
    """All topics as one broker sees them: partitions by the topic's name and their number."""

    membership: Membership
    partitions: dict[tuple[str, int], PartitionDescription]


def ask_membership(address: Address, *, timeout_s: float) -> Membership:
    """What the broker at `address` says; ClientError if it says nothing, or nonsense."""
    return _ask(address, _named([]), timeout_s).membership


def ask_topic(address: Address, topic: str, *, timeout_s: float) -> TopicView:
    """The same about a topic, which is created where that happens on first use."""
    return _topic_view(_ask(address, _named([topic]), timeout_s))


def ask_cluster(address: Address, *, timeout_s: float) -> ClusterView:
    """The same about all topics there are."""
    return _ask(address, _ALL_TOPICS, timeout_s)


def decode_topic_view(answer: memoryview) -> TopicView:
    """What an answer to Metadata, without its length, says; one topic was asked for at most."""
    return _topic_view(decode_cluster_view(answer))


def decode_cluster_view(answer: memoryview) -> ClusterView:
    """The same of any number of topics."""
    _, position = decode_response_header(answer, ApiKey.METADATA, _VERSION)
    reader = Reader(answer, position, flexible=False)
    membership = _membership(reader)
    topics = [_topic(reader) for _ in range(reader.array_count())]
    return ClusterView(
        membership,
        {(name, each.partition): each for name, partitions in topics for each in partitions},
    )


def _topic_view(view: ClusterView) -> TopicView:
    partitions = view.partitions
    return TopicView(view.membership, tuple(partitions[key] for key in sorted(partitions)))


def _named(topics: Sequence[str]) -> bytes:
    names = [string(name, flexible=False) for name in topics]
    return b"".join([array_count(len(names), flexible=False), *names])


def _ask(address: Address, topics: bytes, timeout_s: float) -> ClusterView:
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(frame([_HEADER, topics]))
            with connection.makefile("rb") as answer:
                return decode_cluster_view(memoryview(_read_frame(answer)))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterUnreachable(f"the broker at {address} did not answer: {reason}") from error
    except WireError as error:
        raise ClientError(f"{address} did not answer as a broker does: {error}") from error


def _membership(reader: Reader) -> Membership:
    broker_ids = frozenset(_broker_id(reader) for _ in range(reader.array_count()))
    controller_id = reader.int32()
    return Membership(broker_ids, controller_id if controller_id in broker_ids else None)


def _broker_id(reader: Reader) -> int:
    broker_id = reader.int32()
    reader.string()  # host
    reader.int32()  # port
    reader.nullable_string()  # rack
    return broker_id


def _topic(reader: Reader) -> tuple[str, list[PartitionDescription]]:
    reader.int16()  # error
    name = reader.string()
    reader.boolean()  # whether it is internal
    return name, [_partition(reader) for _ in range(reader.array_count())]


def _partition(reader: Reader) -> PartitionDescription:
    reader.int16()  # error
    partition, leader = reader.int32(), reader.int32()
    replicas, isr = (tuple(reader.int32() for _ in range(reader.array_count())) for _ in range(2))
    return PartitionDescription(
        partition=partition, leader=leader if leader >= 0 else None, replicas=replicas, isr=isr
    )


def _read_frame(stream: IO[bytes]) -> bytes:
    size_bytes = int.from_bytes(_read(stream, _LENGTH_BYTES), signed=True)
    if not 0 <= size_bytes <= _ANSWER_BYTES_MAX:
        raise WireError(f"an answer of {size_bytes} bytes")
    return _read(stream, size_bytes)


def _read(stream: IO[bytes], size_bytes: int) -> bytes:
    data = stream.read(size_bytes)
    if len(data) < size_bytes:
        raise ConnectionResetError("it closed the connection")
    return data
