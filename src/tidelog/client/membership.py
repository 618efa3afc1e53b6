"""Which brokers one broker knows of, and who leads a topic, asked over a socket of our own.

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
# Thousands of brokers would fit.
_ANSWER_BYTES_MAX: Final = 1024 * 1024


class Membership(NamedTuple):
    """The brokers that are alive, as one of them sees it, and who controls them, if anybody."""

    broker_ids: frozenset[int]
    controller_id: int | None


class TopicView(NamedTuple):
    """A topic as one broker sees it. No partitions: it does not know the topic."""

    membership: Membership
    partitions: tuple[PartitionDescription, ...]


def ask_membership(address: Address, *, timeout_s: float) -> Membership:
    """What the broker at `address` says; ClientError if it says nothing, or nonsense."""
    return _ask(address, [], timeout_s).membership


def ask_topic(address: Address, topic: str, *, timeout_s: float) -> TopicView:
    """The same about a topic, which is created where that happens on first use."""
    return _ask(address, [topic], timeout_s)


def decode_topic_view(answer: memoryview) -> TopicView:
    """What an answer to Metadata, without its length, says; one topic was asked for at most."""
    _, position = decode_response_header(answer, ApiKey.METADATA, _VERSION)
    reader = Reader(answer, position, flexible=False)
    membership = _membership(reader)
    partitions = [each for _ in range(reader.array_count()) for each in _partitions(reader)]
    return TopicView(membership, tuple(sorted(partitions, key=lambda each: each.partition)))


def _ask(address: Address, topics: Sequence[str], timeout_s: float) -> TopicView:
    names = [string(name, flexible=False) for name in topics]
    request = frame([_HEADER, array_count(len(names), flexible=False), *names])
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                return decode_topic_view(memoryview(_read_frame(answer)))
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


def _partitions(reader: Reader) -> list[PartitionDescription]:
    reader.int16()  # error
    reader.string()  # name
    reader.boolean()  # whether it is internal
    return [_partition(reader) for _ in range(reader.array_count())]


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
