"""Which brokers one broker knows of, asked over a socket of our own.

librdkafka asks whichever broker it likes and remembers what others said. Whoever starts a cluster
wants to know what each of its brokers says, many times a second, sooner than confluent-kafka can be
loaded. Version 1 of Metadata is spoken by every broker since Kafka 0.10.
"""

import socket
from typing import IO, Final, NamedTuple

from tidelog.base.errors import WireError
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, ClusterUnreachable
from tidelog.wire.api import ApiKey, decode_response_header, encode_request_header
from tidelog.wire.primitives import Reader, array_count, frame

_VERSION: Final = 1
_NO_TOPICS: Final = array_count(0, flexible=False)
_REQUEST: Final = frame(
    [encode_request_header(ApiKey.METADATA, _VERSION, 1, "tidelog"), _NO_TOPICS]
)
_LENGTH_BYTES: Final = 4
# Thousands of brokers would fit.
_ANSWER_BYTES_MAX: Final = 1024 * 1024


class Membership(NamedTuple):
    """The brokers that are alive, as one of them sees it, and who controls them, if anybody."""

    broker_ids: frozenset[int]
    controller_id: int | None


def ask_membership(address: Address, *, timeout_s: float) -> Membership:
    """What the broker at `address` says; ClientError if it says nothing, or nonsense."""
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(_REQUEST)
            with connection.makefile("rb") as answer:
                return decode_membership(memoryview(_read_frame(answer)))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterUnreachable(f"the broker at {address} did not answer: {reason}") from error
    except WireError as error:
        raise ClientError(f"{address} did not answer as a broker does: {error}") from error


def decode_membership(answer: memoryview) -> Membership:
    """What an answer to Metadata, without its length, says about brokers."""
    _, position = decode_response_header(answer, ApiKey.METADATA, _VERSION)
    reader = Reader(answer, position, flexible=False)
    broker_ids = frozenset(_broker_id(reader) for _ in range(reader.array_count()))
    controller_id = reader.int32()
    return Membership(broker_ids, controller_id if controller_id in broker_ids else None)


def _broker_id(reader: Reader) -> int:
    broker_id = reader.int32()
    reader.string()  # host
    reader.int32()  # port
    reader.nullable_string()  # rack
    return broker_id


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
