"""Look records up by their id, in a topic that has ids (D6).

The leader of each partition is asked where they are, and then the records are read as any consumer
reads them: what belongs to an aborted transaction is not among them.
"""

import socket
import struct
from collections.abc import Iterable
from typing import Final

from tidelog.base.errors import ErrorCode, WireError
from tidelog.client.admin import Admin
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, ClusterUnreachable, RequestFailed
from tidelog.client.reader import FetchedRecord, OffsetRange, RangeReader
from tidelog.client.values import TopicDescription, TopicResource
from tidelog.wire.api import ApiKey, decode_response_header
from tidelog.wire.find_records import (
    FIND_RECORDS_VERSION,
    FindRecordsRequest,
    FoundInPartition,
    decode_find_records_response,
    encode_find_records_request,
)

_CLIENT_ID: Final = "tidelog"
_CORRELATION_ID: Final = 1
# A log without its files of ids is read from end to end.
_SEARCH_TIMEOUT_S: Final = 300.0
_READ_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.25
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class NoIds(ClientError):
    """The topic's records have no ids that its brokers know of."""


class Finder:
    """Finds records by id in one cluster."""

    def __init__(self, bootstrap: str, admin: Admin) -> None:
        self._bootstrap = bootstrap
        self._admin = admin

    def find(self, topic: str, record_id: bytes) -> list[FetchedRecord]:
        """Every record with this id, by partition and offset. Raises ClientError."""
        (description,) = self._admin.describe_topics([topic])
        header = self._id_header(topic)
        found: list[FetchedRecord] = []
        for answer in self._ask_leaders(description, record_id):
            for offset, _timestamp_ms in answer.places:
                record = self._read(topic, answer.partition, offset)
                if record is not None and _has_id(record, header, record_id):
                    found.append(record)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def _id_header(self, topic: str) -> str | None:
        """Where the topic's ids are: in a header of this name; None: in the key."""
        configs = self._admin.configs(TopicResource(topic))
        values = {config.name: config.value for config in configs}
        header = values.get("tidelog.dedup.header")
        if values.get("tidelog.dedup") is None and not header:
            raise NoIds(
                f"the records of {topic} have no ids: set tidelog.dedup.header to the header that "
                "holds them, or to key"
            )
        return None if header in {None, "", "key"} else header

    def _ask_leaders(
        self, description: TopicDescription, record_id: bytes
    ) -> Iterable[FoundInPartition]:
        cluster = self._admin.describe_cluster()
        addresses = {node.id: Address(node.host, node.port) for node in cluster.brokers}
        led: dict[int, list[int]] = {}
        for partition in description.partitions:
            if partition.leader is None or partition.leader not in addresses:
                raise RequestFailed(
                    "LEADER_NOT_AVAILABLE",
                    f"partition {partition.partition} of {description.name} has no leader",
                )
            led.setdefault(partition.leader, []).append(partition.partition)
        for leader, partitions in led.items():
            request = FindRecordsRequest(description.name, partitions, record_id)
            for answer in _ask(addresses[leader], request):
                _require_success(answer, description.name)
                yield answer

    def _read(self, topic: str, partition: int, offset: int) -> FetchedRecord | None:
        wanted = OffsetRange(start_offset=offset, end_offset=offset + 1)
        with RangeReader(
            self._bootstrap,
            topic,
            {partition: wanted},
            is_following=False,
            expected_records=1,
            on_skipped=lambda _partition, _skipped: None,
        ) as reader:
            for _ in range(round(_READ_TIMEOUT_S / _POLL_S)):
                for record in reader.read(timeout_s=_POLL_S):
                    if record.offset == offset:
                        return record
                if reader.is_done:
                    return None
        raise ClusterUnreachable(f"offset {offset} of partition {partition} could not be read")


def _has_id(record: FetchedRecord, header: str | None, record_id: bytes) -> bool:
    """What is found goes by 128 bits of an id."""
    if header is None:
        return record.key == record_id
    values = [value for name, value in record.headers or () if name == header]
    return not values or values[-1] == record_id


def _ask(address: Address, request: FindRecordsRequest) -> list[FoundInPartition]:
    version = FIND_RECORDS_VERSION
    asked = encode_find_records_request(version, _CORRELATION_ID, _CLIENT_ID, request)
    try:
        with socket.create_connection(address, timeout=_SEARCH_TIMEOUT_S) as connection:
            connection.sendall(asked)
            answer = memoryview(_receive(connection))
        _, position = decode_response_header(answer, ApiKey.FIND_RECORDS, version)
        return decode_find_records_response(answer, position, version).partitions
    except OSError as error:
        reason = error.strerror or str(error)
        raise ClusterUnreachable(f"the broker at {address} did not answer: {reason}") from error
    except WireError as error:
        raise ClientError(f"the broker at {address} does not know how to find: {error}") from error


def _receive(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        length = stream.read(4)
        if len(length) < 4:
            raise ConnectionResetError("it closed the connection")
        (size_bytes,) = struct.unpack(">i", length)
        if not 0 <= size_bytes <= _ANSWER_BYTES_MAX:
            raise ClientError(f"the broker announced an answer of {size_bytes} bytes")
        return stream.read(size_bytes)


def _require_success(answer: FoundInPartition, topic: str) -> None:
    if answer.error_code == ErrorCode.NONE:
        return
    if answer.error_code == ErrorCode.INVALID_REQUEST:
        raise NoIds(f"the records of {topic} have no ids that the broker knows of")
    name = ErrorCode(answer.error_code).name
    raise RequestFailed(name, f"partition {answer.partition} of {topic}: {name}")
