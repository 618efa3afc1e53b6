"""Requests for which librdkafka has no call, sent one at a time over a socket of our own.

Each caller names the version that it speaks, one that every broker since Kafka 3.3 knows. Importing
this module imports kio, which takes longer than most commands take to run.
"""

import io
import socket
import struct
from typing import TypeVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeaderV1
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32
from kio.static.protocol import Payload

from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, ClusterUnreachable, RequestFailed
from tidelog.client.frames import receive_frame

_CLIENT_ID = "tidelog"

E = TypeVar("E", bound=Payload)


def ask(address: Address, request: Payload, answer_class: type[E], *, timeout_s: float) -> E:
    """Send `request` and wait for its answer. One connection each: these are rare."""
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(_frame(request))
            answer = bytes(receive_frame(connection))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterUnreachable(f"the broker at {address} did not answer: {reason}") from error
    return _decode(answer, answer_class)


def require_success(code: ErrorCode, message: str | None) -> None:
    """Raise RequestFailed for any code but NONE."""
    if code.value != 0:
        name = code.name.upper()
        raise RequestFailed(name, message or name)


def _frame(request: Payload) -> bytes:
    buffer = io.BytesIO()
    header_class = RequestHeaderV2 if request.__flexible__ else RequestHeaderV1
    header = header_class(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(1),
        client_id=_CLIENT_ID,
    )
    entity_writer(type(header))(buffer, header)
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return struct.pack(">i", len(body)) + body


def _decode(answer: bytes, answer_class: type[E]) -> E:
    header_class = ResponseHeaderV1 if answer_class.__flexible__ else ResponseHeaderV0
    try:
        _header, header_size_bytes = entity_reader(header_class)(answer, 0)
        message, _size_bytes = entity_reader(answer_class)(answer, header_size_bytes)
    except (SerialError, ValueError) as error:
        raise ClientError(f"the broker's answer is not a {answer_class.__name__}") from error
    return message
