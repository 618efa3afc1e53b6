"""InitProducerId: how a producer becomes idempotent."""

import struct
from typing import NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import Reader, frame

_FIRST_WITH_CURRENT_ID = 3

_RESPONSE = struct.Struct(">ihqh")

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class InitProducerIdRequest(NamedTuple):
    """producer_id and producer_epoch are what the producer has so far, -1 before version 3."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int


class InitProducerIdResponse(NamedTuple):
    """What the producer stamps its batches with."""

    throttle_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


def decode_init_producer_id(view: memoryview, position: int, version: int) -> InitProducerIdRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.INIT_PRODUCER_ID, version))
    transactional_id = reader.nullable_string()
    timeout_ms = reader.int32()
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_PRODUCER_EPOCH
    if version >= _FIRST_WITH_CURRENT_ID:
        producer_id = reader.int64()
        producer_epoch = reader.int16()
    reader.end_structure()
    return InitProducerIdRequest(transactional_id, timeout_ms, producer_id, producer_epoch)


def encode_init_producer_id_response(
    version: int, correlation_id: int, response: InitProducerIdResponse
) -> bytes:
    """The whole frame that answers a request of `version`."""
    parts = [
        encode_response_header(ApiKey.INIT_PRODUCER_ID, version, correlation_id),
        _RESPONSE.pack(*response),
    ]
    if is_flexible(ApiKey.INIT_PRODUCER_ID, version):
        parts.append(b"\x00")
    return frame(parts)
