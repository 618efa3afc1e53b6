"""AddOffsetsToTxn and EndTxn: what else a producer asks of its transaction coordinator."""

import struct
from typing import NamedTuple

from tidelog.wire.api import ApiKey, encode_response_header, is_flexible
from tidelog.wire.primitives import Reader, frame

_FIRST_WITH_PRODUCER = 5

_CODE = struct.Struct(">ih")
_PRODUCER = struct.Struct(">qh")


class AddOffsetsToTxnRequest(NamedTuple):
    """The transaction is to commit offsets of a group."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class EndTxnRequest(NamedTuple):
    """The transaction is to be committed, or aborted."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool


class EndTxnResponse(NamedTuple):
    """producer_id, producer_epoch: what the producer goes on with; from version 5 on."""

    throttle_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


def decode_add_offsets_to_txn(
    view: memoryview, position: int, version: int
) -> AddOffsetsToTxnRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.ADD_OFFSETS_TO_TXN, version))
    producer = reader.string(), reader.int64(), reader.int16()
    request = AddOffsetsToTxnRequest(*producer, reader.string())
    reader.end_structure()
    return request


def encode_add_offsets_to_txn_response(
    version: int, correlation_id: int, throttle_ms: int, error_code: int
) -> bytes:
    """The whole frame that answers a request of `version`."""
    return _encode(ApiKey.ADD_OFFSETS_TO_TXN, version, correlation_id, throttle_ms, error_code)


def decode_end_txn(view: memoryview, position: int, version: int) -> EndTxnRequest:
    """The request whose body starts at `position`."""
    reader = Reader(view, position, flexible=is_flexible(ApiKey.END_TXN, version))
    producer = reader.string(), reader.int64(), reader.int16()
    request = EndTxnRequest(*producer, reader.boolean())
    reader.end_structure()
    return request


def encode_end_txn_response(version: int, correlation_id: int, response: EndTxnResponse) -> bytes:
    """The whole frame that answers a request of `version`."""
    throttle_ms, error_code, producer_id, producer_epoch = response
    more = b""
    if version >= _FIRST_WITH_PRODUCER:
        more = _PRODUCER.pack(producer_id, producer_epoch)
    return _encode(ApiKey.END_TXN, version, correlation_id, throttle_ms, error_code, more)


def _encode(
    api_key: ApiKey,
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    more: bytes = b"",
) -> bytes:
    end = b"\x00" if is_flexible(api_key, version) else b""
    header = encode_response_header(api_key, version, correlation_id)
    return frame([header, _CODE.pack(throttle_ms, error_code), more, end])
