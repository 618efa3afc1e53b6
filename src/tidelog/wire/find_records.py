"""FindRecords (127): where a partition's log has the records with an id (D6).

An API of our own, asked by `tidelog find` and anybody who wants to; not advertised to clients, who
would not know what to do with it. Like Fetch it goes to the leader of each partition.

    request    topic │ partitions │ id
    response   partition │ error code │ [offset │ timestamp of its batch]
"""

import struct
from typing import NamedTuple

from tidelog.wire.api import ApiKey, encode_request_header, encode_response_header
from tidelog.wire.primitives import Reader, compact_string, frame, int32_array, uvarint

FIND_RECORDS_VERSION = 0
_PLACE = struct.Struct(">qqb")
_PARTITION = struct.Struct(">ih")


class FindRecordsRequest(NamedTuple):
    """Which id, and where to look for it."""

    topic: str
    partitions: list[int]
    record_id: bytes


class FoundInPartition(NamedTuple):
    """(offset, timestamp) of each record with the id, oldest first."""

    partition: int
    error_code: int
    places: list[tuple[int, int]]


class FindRecordsResponse(NamedTuple):
    """One answer for each partition that was asked for, in their order."""

    partitions: list[FoundInPartition]


def encode_find_records_request(
    version: int, correlation_id: int, client_id: str, request: FindRecordsRequest
) -> bytes:
    """The whole frame of a request."""
    return frame(
        [
            encode_request_header(ApiKey.FIND_RECORDS, version, correlation_id, client_id),
            compact_string(request.topic),
            int32_array(request.partitions, flexible=True),
            uvarint(len(request.record_id) + 1),
            request.record_id,
            b"\x00",
        ]
    )


def decode_find_records(view: memoryview, position: int, _version: int) -> FindRecordsRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=True)
    request = FindRecordsRequest(reader.string(), reader.int32_array(), reader.data())
    reader.end_structure()
    return request


def encode_find_records_response(
    version: int, correlation_id: int, response: FindRecordsResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    parts = [
        encode_response_header(ApiKey.FIND_RECORDS, version, correlation_id),
        uvarint(len(response.partitions) + 1),
    ]
    for partition, error_code, places in response.partitions:
        parts += [_PARTITION.pack(partition, error_code), uvarint(len(places) + 1)]
        parts += [_PLACE.pack(offset, timestamp_ms, 0) for offset, timestamp_ms in places]
        parts.append(b"\x00")
    return frame([*parts, b"\x00"])


def decode_find_records_response(
    view: memoryview, position: int, _version: int
) -> FindRecordsResponse:
    """The answer whose body starts at `position`."""
    reader = Reader(view, position, flexible=True)
    partitions = [_decode_partition(reader) for _ in range(reader.array_count())]
    reader.end_structure()
    return FindRecordsResponse(partitions)


def _decode_partition(reader: Reader) -> FoundInPartition:
    partition, error_code = reader.int32(), reader.int16()
    places = []
    for _ in range(reader.array_count()):
        places.append((reader.int64(), reader.int64()))
        reader.end_structure()
    reader.end_structure()
    return FoundInPartition(partition, error_code, places)
