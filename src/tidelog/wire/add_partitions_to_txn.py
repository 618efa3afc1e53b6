"""AddPartitionsToTxn: a transaction reaches to more partitions. Both directions.

Clients say it in versions 0 to 3, about one transaction. Versions 4 and 5 are what brokers say on
behalf of clients (KIP-890), about many at once: that a producer writes to a partition (version 2 of
transactions), or whether it may (`is_verification`, for older clients).
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.wire.api import (
    ApiKey,
    encode_request_header,
    encode_response_header,
    is_flexible,
)
from tidelog.wire.primitives import (
    Reader,
    array_count,
    compact_string,
    frame,
    int32_array,
    string,
)

FIRST_OF_BROKERS = 4

_KEY = ApiKey.ADD_PARTITIONS_TO_TXN
_THROTTLE = struct.Struct(">i")
_RESPONSE_START = struct.Struct(">ih")
_PRODUCER = struct.Struct(">qh?")
_PARTITION_RESULT = struct.Struct(">ih")


class AddedPartitions(NamedTuple):
    """What one transaction is to reach to. topics: (name, partitions), ..."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_verification: bool
    topics: Sequence[tuple[str, Sequence[int]]]


class AddedResult(NamedTuple):
    """What became of that. topics: (name, ((partition, error code), ...)), ..."""

    transactional_id: str
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]


class AddPartitionsToTxnResponse(NamedTuple):
    """error_code: of the whole request, if nothing was looked at; not in versions 0 to 3."""

    throttle_ms: int
    error_code: int
    results: Sequence[AddedResult]


def decode_add_partitions_to_txn(
    view: memoryview, position: int, version: int
) -> list[AddedPartitions]:
    """The request whose body starts at `position`; one transaction before FIRST_OF_BROKERS."""
    reader = Reader(view, position, flexible=is_flexible(_KEY, version))
    if version < FIRST_OF_BROKERS:
        producer = reader.string(), reader.int64(), reader.int16()
        added = [AddedPartitions(*producer, False, _decode_topics(reader))]
    else:
        added = [_decode_transaction(reader) for _ in range(reader.array_count())]
    reader.end_structure()
    return added


def _decode_transaction(reader: Reader) -> AddedPartitions:
    producer = reader.string(), reader.int64(), reader.int16()
    added = AddedPartitions(*producer, reader.boolean(), _decode_topics(reader))
    reader.end_structure()
    return added


def _decode_topics(reader: Reader) -> list[tuple[str, list[int]]]:
    topics = []
    for _ in range(reader.array_count()):
        topics.append((reader.string(), reader.int32_array()))
        reader.end_structure()
    return topics


def encode_add_partitions_to_txn_request(
    version: int, correlation_id: int, client_id: str, added: Sequence[AddedPartitions]
) -> bytes:
    """The whole frame of a broker's request."""
    assert version >= FIRST_OF_BROKERS
    parts = [
        encode_request_header(_KEY, version, correlation_id, client_id),
        array_count(len(added), flexible=True),
    ]
    for transactional_id, producer_id, producer_epoch, is_verification, topics in added:
        parts += (
            compact_string(transactional_id),
            _PRODUCER.pack(producer_id, producer_epoch, is_verification),
            array_count(len(topics), flexible=True),
        )
        for name, partitions in topics:
            parts += (compact_string(name), int32_array(list(partitions), flexible=True), b"\x00")
        parts.append(b"\x00")
    parts.append(b"\x00")
    return frame(parts)


def encode_add_partitions_to_txn_response(
    version: int, correlation_id: int, response: AddPartitionsToTxnResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    flexible = is_flexible(_KEY, version)
    end = b"\x00" if flexible else b""
    parts = [encode_response_header(_KEY, version, correlation_id)]
    if version < FIRST_OF_BROKERS:
        parts.append(_THROTTLE.pack(response.throttle_ms))
        (result,) = response.results
        parts.append(_encode_results(result, flexible=flexible))
    else:
        parts += (
            _RESPONSE_START.pack(response.throttle_ms, response.error_code),
            array_count(len(response.results), flexible=True),
        )
        for result in response.results:
            name = compact_string(result.transactional_id)
            parts += (name, _encode_results(result, flexible=True), end)
    parts.append(end)
    return frame(parts)


def _encode_results(result: AddedResult, *, flexible: bool) -> bytes:
    end = b"\x00" if flexible else b""
    parts = [array_count(len(result.topics), flexible=flexible)]
    for name, partitions in result.topics:
        parts += (
            string(name, flexible=flexible),
            array_count(len(partitions), flexible=flexible),
        )
        for partition, code in partitions:
            parts += (_PARTITION_RESULT.pack(partition, code), end)
        parts.append(end)
    return b"".join(parts)


def decode_add_partitions_to_txn_response(
    view: memoryview, position: int, version: int
) -> AddPartitionsToTxnResponse:
    """The answer to a broker's request, whose body starts at `position`."""
    assert version >= FIRST_OF_BROKERS
    reader = Reader(view, position, flexible=True)
    throttle_ms, error_code = reader.int32(), reader.int16()
    results = []
    for _ in range(reader.array_count()):
        results.append(AddedResult(reader.string(), _decode_results(reader)))
        reader.end_structure()
    reader.end_structure()
    return AddPartitionsToTxnResponse(throttle_ms, error_code, results)


def _decode_results(reader: Reader) -> list[tuple[str, list[tuple[int, int]]]]:
    topics = []
    for _ in range(reader.array_count()):
        name = reader.string()
        partitions = []
        for _ in range(reader.array_count()):
            partitions.append((reader.int32(), reader.int16()))
            reader.end_structure()
        reader.end_structure()
        topics.append((name, partitions))
    return topics
