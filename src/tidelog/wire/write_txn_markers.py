"""WriteTxnMarkers: a transaction coordinator tells leaders how transactions ended. Both directions.

Version 2 adds the transaction version (KIP-1228), by which a leader knows how strict to be about a
marker's epoch.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.base.ids import TopicPartition
from tidelog.wire.api import ApiKey, encode_request_header, encode_response_header
from tidelog.wire.primitives import Reader, compact_string, frame, int32_array, uvarint

_FIRST_WITH_TRANSACTION_VERSION = 2

_MARKER_START = struct.Struct(">qhb")
_MARKER_END = struct.Struct(">ib")
_MARKER_END_V2 = struct.Struct(">ibb")
_INT64 = struct.Struct(">q")
_PARTITION_RESULT = struct.Struct(">ihb")


class TransactionMarker(NamedTuple):
    """How one producer's transaction ended, for the partitions that one broker leads.

    topics: (name, partitions), ...
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    topics: Sequence[tuple[str, Sequence[int]]]
    coordinator_epoch: int
    transaction_version: int = 0


class MarkerResult(NamedTuple):
    """What became of a marker, by partition. topics: (name, ((partition, error code), ...)), ..."""

    producer_id: int
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]

    def codes(self) -> dict[TopicPartition, int]:
        return {
            TopicPartition(name, partition): code
            for name, partitions in self.topics
            for partition, code in partitions
        }


def decode_write_txn_markers(
    view: memoryview, position: int, version: int
) -> list[TransactionMarker]:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=True)
    markers = [_decode_marker(reader, version) for _ in range(reader.array_count())]
    reader.end_structure()
    return markers


def _decode_marker(reader: Reader, version: int) -> TransactionMarker:
    producer_id, producer_epoch, is_commit = reader.int64(), reader.int16(), reader.boolean()
    topics = []
    for _ in range(reader.array_count()):
        topics.append((reader.string(), reader.int32_array()))
        reader.end_structure()
    coordinator_epoch = reader.int32()
    transaction_version = reader.int8() if version >= _FIRST_WITH_TRANSACTION_VERSION else 0
    reader.end_structure()
    return TransactionMarker(
        producer_id, producer_epoch, is_commit, topics, coordinator_epoch, transaction_version
    )


def encode_write_txn_markers_request(
    version: int, correlation_id: int, client_id: str, markers: Sequence[TransactionMarker]
) -> bytes:
    """The whole frame of a request."""
    parts = [
        encode_request_header(ApiKey.WRITE_TXN_MARKERS, version, correlation_id, client_id),
        uvarint(len(markers) + 1),
    ]
    for marker in markers:
        parts += (
            _MARKER_START.pack(marker.producer_id, marker.producer_epoch, marker.is_commit),
            uvarint(len(marker.topics) + 1),
        )
        for name, partitions in marker.topics:
            parts += (compact_string(name), int32_array(list(partitions), flexible=True), b"\x00")
        if version >= _FIRST_WITH_TRANSACTION_VERSION:
            end = marker.coordinator_epoch, marker.transaction_version, 0
            parts.append(_MARKER_END_V2.pack(*end))
        else:
            parts.append(_MARKER_END.pack(marker.coordinator_epoch, 0))
    parts.append(b"\x00")
    return frame(parts)


def encode_write_txn_markers_response(
    version: int, correlation_id: int, results: Sequence[MarkerResult]
) -> bytes:
    """The whole frame that answers a request of `version`."""
    parts = [
        encode_response_header(ApiKey.WRITE_TXN_MARKERS, version, correlation_id),
        uvarint(len(results) + 1),
    ]
    for result in results:
        parts += (_INT64.pack(result.producer_id), uvarint(len(result.topics) + 1))
        for name, partitions in result.topics:
            parts += (compact_string(name), uvarint(len(partitions) + 1))
            parts += [_PARTITION_RESULT.pack(partition, code, 0) for partition, code in partitions]
            parts.append(b"\x00")
        parts.append(b"\x00")
    parts.append(b"\x00")
    return frame(parts)


def decode_write_txn_markers_response(
    view: memoryview, position: int, _version: int
) -> list[MarkerResult]:
    """The answer whose body starts at `position`."""
    reader = Reader(view, position, flexible=True)
    results = [_decode_result(reader) for _ in range(reader.array_count())]
    reader.end_structure()
    return results


def _decode_result(reader: Reader) -> MarkerResult:
    producer_id = reader.int64()
    topics = []
    for _ in range(reader.array_count()):
        name = reader.string()
        partitions = []
        for _ in range(reader.array_count()):
            partitions.append((reader.int32(), reader.int16()))
            reader.end_structure()
        topics.append((name, partitions))
        reader.end_structure()
    reader.end_structure()
    return MarkerResult(producer_id, topics)
