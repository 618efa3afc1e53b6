"""What a client says to a broker, as bytes: no more than producers and consumers of a run need.

Brokers have encoders for answers and decoders for requests; here are the other halves, for one
version of each API.
"""

import struct
from typing import NamedTuple

from tidelog.base.errors import WireError
from tidelog.wire.api import ApiKey, encode_request_header
from tidelog.wire.fetch import FetchPartition, FetchRequest
from tidelog.wire.fetch_client import (
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from tidelog.wire.primitives import Reader, compact_string, frame, uvarint

METADATA_VERSION = 12
PRODUCE_VERSION = 9
FETCH_VERSION = 12
FETCH_MAX_BYTES = 2**20
INIT_PRODUCER_ID_VERSION = 4
NO_UUID = bytes(16)

_ACKS_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INIT_PRODUCER_ID = struct.Struct(">iqhb")


class PartitionLeader(NamedTuple):
    """Who leads a partition, as far as the broker that was asked knows; -1: nobody."""

    leader: int
    leader_epoch: int


class ClusterMetadata(NamedTuple):
    """Where brokers are and who leads the partitions of the topics that were asked for."""

    brokers: dict[int, tuple[str, int]]
    leaders: dict[tuple[str, int], PartitionLeader]


class Produced(NamedTuple):
    """What became of one batch."""

    error_code: int
    base_offset: int


def encode_metadata_request(correlation_id: int, client_id: str, topics: list[str]) -> bytes:
    parts = [
        encode_request_header(ApiKey.METADATA, METADATA_VERSION, correlation_id, client_id),
        uvarint(len(topics) + 1),
    ]
    parts += [NO_UUID + compact_string(topic) + b"\x00" for topic in topics]
    parts.append(b"\x00\x00\x00")  # Create nothing, tell no operations, no tagged fields.
    return frame(parts)


def decode_metadata_response(view: memoryview, position: int) -> ClusterMetadata:
    reader = Reader(view, position, flexible=True)
    reader.int32()
    brokers = {}
    for _ in range(reader.array_count()):
        broker_id, host, port = reader.int32(), reader.string(), reader.int32()
        reader.nullable_string()
        reader.end_structure()
        brokers[broker_id] = (host, port)
    reader.nullable_string()
    reader.int32()
    leaders = {}
    for _ in range(reader.array_count()):
        reader.int16()
        name = reader.nullable_string()
        reader.uuid()
        reader.boolean()
        for _ in range(reader.array_count()):
            reader.int16()
            partition, leader, epoch = reader.int32(), reader.int32(), reader.int32()
            reader.int32_array()
            reader.int32_array()
            reader.int32_array()
            reader.end_structure()
            if name is not None:
                leaders[name, partition] = PartitionLeader(leader, epoch)
        reader.int32()
        reader.end_structure()
    return ClusterMetadata(brokers, leaders)


def encode_produce_request(
    correlation_id: int,
    client_id: str,
    *,
    topic: str,
    partition: int,
    records: bytes | bytearray,
    acks: int,
    timeout_ms: int,
    version: int = PRODUCE_VERSION,
    transactional_id: str | None = None,
) -> bytes:
    """In one of the versions 9 to 12, which look the same."""
    return frame(
        [
            encode_request_header(ApiKey.PRODUCE, version, correlation_id, client_id),
            b"\x00" if transactional_id is None else compact_string(transactional_id),
            _ACKS_TIMEOUT.pack(acks, timeout_ms),
            b"\x02",
            compact_string(topic),
            b"\x02",
            _INT32.pack(partition),
            uvarint(len(records) + 1),
            bytes(records),
            b"\x00\x00\x00",
        ]
    )


def decode_produce_response(view: memoryview, position: int) -> Produced:
    reader = Reader(view, position, flexible=True)
    if reader.array_count() != 1:
        raise WireError("one topic was produced to")
    reader.string()
    if reader.array_count() != 1:
        raise WireError("one partition was produced to")
    reader.int32()
    return Produced(reader.int16(), reader.int64())


def decode_add_partitions_response(view: memoryview, position: int) -> set[int]:
    """The error codes of all partitions, as version 3 has them."""
    reader = Reader(view, position, flexible=True)
    reader.int32()
    codes = set()
    for _ in range(reader.array_count()):
        reader.string()
        for _ in range(reader.array_count()):
            reader.int32()
            codes.add(reader.int16())
            reader.end_structure()
        reader.end_structure()
    return codes


def encode_init_producer_id_request(correlation_id: int, client_id: str) -> bytes:
    return frame(
        [
            encode_request_header(
                ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, correlation_id, client_id
            ),
            b"\x00",
            _INIT_PRODUCER_ID.pack(60_000, -1, -1, 0),
        ]
    )


def decode_init_producer_id_response(view: memoryview, position: int) -> tuple[int, int, int]:
    """Error code, producer id and epoch."""
    reader = Reader(view, position, flexible=True)
    reader.int32()
    return reader.int16(), reader.int64(), reader.int16()


def encode_partition_fetch(
    correlation_id: int,
    client_id: str,
    *,
    topic: str,
    partition: int,
    offset: int,
    max_wait_ms: int,
    isolation_level: int = 0,
    rack_id: str = "",
) -> bytes:
    """A consumer's, of one partition and without a session."""
    wanted = FetchPartition(partition, -1, offset, -1, -1, FETCH_MAX_BYTES)
    return encode_fetch_request(
        FETCH_VERSION,
        correlation_id,
        client_id,
        FetchRequest(
            replica_id=-1,
            replica_epoch=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            isolation_level=isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=[(topic, None, [wanted])],
            forgotten=[],
            rack_id=rack_id,
            cluster_id=None,
        ),
    )


def decode_partition_fetch(view: memoryview, position: int) -> FetchResponse:
    return decode_fetch_response(view, position, FETCH_VERSION)
