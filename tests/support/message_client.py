"""A client that sends any message in any version and reads the answer, both through kio.

kio's generated classes are an implementation of the protocol that is not ours, which is the point.
"""

import datetime
import io
import socket
import struct
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Self, TypeVar, cast, get_args, get_origin

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.protocol import Entity, Payload

TIMEOUT_S = 30.0
CLIENT_ID = b"message-client"
NO_TAGGED_FIELDS = b"\x00"

_LENGTH = struct.Struct(">i")
_PREFIX = struct.Struct(">hhi")

E = TypeVar("E", bound=Entity)


class ConnectionClosed(Exception):
    """The broker closed the connection in place of an answer."""


class MessageClient:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def ask(self, request: Payload) -> Payload:
        """The answer to `request`, in the same version. Every byte of it must have been read."""
        self._send(self._encode(request))
        return self.answer_to(request)

    def answer_to(self, request: Payload) -> Payload:
        """The answer to `request`, which was the last one sent."""
        request_class = type(request)
        response_class = load_response_schema(
            int(request_class.__api_key__), int(request_class.__version__)
        )
        answer = self._receive()
        header, header_size = entity_reader(response_class.__header_schema__)(answer, 0)
        assert header.correlation_id == self._correlation_id
        response, size = entity_reader(response_class)(answer, header_size)
        assert header_size + size == len(answer), "bytes are left over after the answer"
        return response

    def ask_unknown(self, api_key: int, version: int) -> bytes:
        """What follows the correlation id in the answer to a request that has only a header."""
        self._correlation_id += 1
        # A client id that is null and, for versions that have them, no tagged fields.
        head = _PREFIX.pack(api_key, version, self._correlation_id) + b"\xff\xff" + NO_TAGGED_FIELDS
        return self._exchange(head)[4:]

    def _encode(self, request: Payload) -> bytes:
        self._correlation_id += 1
        message_class = type(request)
        body = io.BytesIO()
        body.write(
            _PREFIX.pack(message_class.__api_key__, message_class.__version__, self._correlation_id)
        )
        body.write(struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID)
        if message_class.__flexible__:
            body.write(NO_TAGGED_FIELDS)
        entity_writer(message_class)(body, request)
        return body.getvalue()

    def _exchange(self, request: bytes) -> bytes:
        self._send(request)
        return self._receive()

    def _receive(self) -> bytes:
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return self._read(size)

    def _send(self, request: bytes) -> None:
        self._socket.sendall(_LENGTH.pack(len(request)) + request)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                received = self._socket.recv(size - len(data))
            except ConnectionResetError as error:
                raise ConnectionClosed from error
            if not received:
                raise ConnectionClosed
            data += received
        return bytes(data)


def one_of_everything(api_key: int, version: int) -> Payload:
    """A request with one element in every array, and zero, empty or null for everything else."""
    return _one_of(load_request_schema(api_key, version))


def _one_of(message_class: type[E]) -> E:
    return message_class(**{field.name: _value(field) for field in fields(message_class)})


def _value(field: Field[object]) -> object:
    annotation = field.type
    if get_origin(annotation) is types.UnionType:
        return None
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]
        return (_one_of(cast("type[Entity]", element)),) if is_dataclass(element) else ()
    if field.default is not MISSING:
        return field.default
    return _ZEROS[field.metadata["kafka_type"]]


_ZEROS: Mapping[str, object] = {
    "bool": False,
    "bytes": b"",
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "string": "",
    "timedelta_i32": datetime.timedelta(0),
}
