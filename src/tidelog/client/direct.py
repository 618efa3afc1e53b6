"""Requests for which librdkafka has no call, sent one at a time over a socket of our own.

DescribeLogDirs, and the settings that are the default for all brokers (librdkafka refuses a broker
without a number). Everything else goes through `admin.py`. The versions used are those that every
broker since Kafka 3.3 speaks.

Importing this module imports kio, which takes longer than most commands take to run; `admin.py`
does it only when one of these requests is to be sent.
"""

import io
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import TypeVar

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse, DescribeLogDirsResult
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i8, i32
from kio.static.protocol import HeaderV1ResponsePayload, HeaderV2RequestPayload

from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, ClusterUnreachable, RequestFailed
from tidelog.client.values import CONFIG_SOURCES, ConfigValue, LogDirDescription, ReplicaOnDisk

_BROKER_RESOURCE = 4
_ALL_BROKERS = ""
_SET = 0
_DELETE = 1
_CLIENT_ID = "tidelog"
# An answer longer than this is not one of the three kinds asked for here.
_ANSWER_BYTES_MAX = 256 * 1024 * 1024

E = TypeVar("E", bound=HeaderV1ResponsePayload)


def describe_log_dirs(
    address: Address, broker_id: int, *, timeout_s: float
) -> tuple[LogDirDescription, ...]:
    """Every log dir of the broker at `address`, with all of its partitions."""
    request = DescribeLogDirsRequest(topics=None)
    answer = _ask(address, request, DescribeLogDirsResponse, timeout_s=timeout_s)
    _require_success(answer.error_code, None)
    return tuple(_log_dir(broker_id, result) for result in answer.results)


def describe_cluster_defaults(address: Address, *, timeout_s: float) -> tuple[ConfigValue, ...]:
    """The settings that were made the default of all brokers."""
    resource = DescribeConfigsResource(
        resource_type=i8(_BROKER_RESOURCE), resource_name=_ALL_BROKERS, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=False, include_documentation=False
    )
    (result,) = _ask(address, request, DescribeConfigsResponse, timeout_s=timeout_s).results
    _require_success(result.error_code, result.error_message)
    return tuple(_config_value(config) for config in result.configs)


def alter_cluster_defaults(
    address: Address, *, set_values: Mapping[str, str], deleted: Sequence[str], timeout_s: float
) -> None:
    """Change the settings that hold for every broker without one of its own."""
    configs = [
        AlterableConfig(name=name, config_operation=i8(_SET), value=value)
        for name, value in set_values.items()
    ]
    configs += [
        AlterableConfig(name=name, config_operation=i8(_DELETE), value=None) for name in deleted
    ]
    resource = AlterConfigsResource(
        resource_type=i8(_BROKER_RESOURCE), resource_name=_ALL_BROKERS, configs=tuple(configs)
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = _ask(address, request, IncrementalAlterConfigsResponse, timeout_s=timeout_s)
    for response in answer.responses:
        _require_success(response.error_code, response.error_message)


def _ask(
    address: Address, request: HeaderV2RequestPayload, answer_class: type[E], *, timeout_s: float
) -> E:
    """Send `request` and wait for its answer. One connection each: these are rare."""
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(_frame(request))
            answer = _receive_frame(connection)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterUnreachable(f"the broker at {address} did not answer: {reason}") from error
    return _decode(answer, answer_class)


def _frame(request: HeaderV2RequestPayload) -> bytes:
    buffer = io.BytesIO()
    header = RequestHeader(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(1),
        client_id=_CLIENT_ID,
    )
    entity_writer(RequestHeader)(buffer, header)
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return struct.pack(">i", len(body)) + body


def _receive_frame(connection: socket.socket) -> bytes:
    (size_bytes,) = struct.unpack(">i", _receive(connection, 4))
    if not 0 <= size_bytes <= _ANSWER_BYTES_MAX:
        raise ClientError(f"the broker announced an answer of {size_bytes} bytes")
    return _receive(connection, size_bytes)


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < size_bytes:
        chunk = connection.recv(min(size_bytes - len(received), 1024 * 1024))
        if not chunk:
            raise ConnectionResetError("it closed the connection")
        received += chunk
    return bytes(received)


def _decode(answer: bytes, answer_class: type[E]) -> E:
    try:
        _header, header_size_bytes = entity_reader(ResponseHeader)(answer, 0)
        message, _size_bytes = entity_reader(answer_class)(answer, header_size_bytes)
    except (SerialError, ValueError) as error:
        raise ClientError(f"the broker's answer is not a {answer_class.__name__}") from error
    return message


def _require_success(code: ErrorCode, message: str | None) -> None:
    if code.value != 0:
        name = code.name.upper()
        raise RequestFailed(name, message or name)


def _log_dir(broker_id: int, result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        broker_id=broker_id,
        path=result.log_dir,
        error=result.error_code.name.upper() if result.error_code.value != 0 else None,
        total_bytes=result.total_bytes if result.total_bytes >= 0 else None,
        usable_bytes=result.usable_bytes if result.usable_bytes >= 0 else None,
        replicas=tuple(
            ReplicaOnDisk(
                topic=topic.name,
                partition=partition.partition_index,
                size_bytes=partition.partition_size,
                offset_lag=partition.offset_lag,
            )
            for topic in result.topics
            for partition in topic.partitions
        ),
    )


def _config_value(config: DescribeConfigsResourceResult) -> ConfigValue:
    return ConfigValue(
        name=config.name,
        value=config.value,
        source=CONFIG_SOURCES.get(config.config_source, "unknown"),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
    )
