"""Kafka's protocol over a bare blocking socket: the cheapest client there is.

Requests are encoded before the clock starts, answers are only received; what is left on the clock
is the trip to the server, its work, and the trip back. Produce v11 and Fetch v12 name their topics,
so the same bytes suit every broker.
"""

import gc
import io
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.produce.v11.request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.types import TopicName
from kio.serial import entity_writer
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64
from kio.static.protocol import Entity

from benchmarks.clients import stored_record_count
from benchmarks.harness import Bench
from benchmarks.results import Metric
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_plain_batch

SOCKET_TIMEOUT_S = 60.0
TURN_REQUESTS = 100
RECEIVE_BUFFER_BYTES = 4 << 20
ACKS_ALL = -1
FETCH_WAIT = i32Timedelta.parse(timedelta(milliseconds=500))
REQUEST_TIMEOUT = i32Timedelta.parse(timedelta(seconds=30))
_LENGTH = struct.Struct(">i")
# Size, correlation id, tags, throttle time, error code, session id.
_FETCH_PREFIX = struct.Struct(">iiBihi")


class RequestFailed(Exception):
    """A broker answered with an error where success was needed."""


class RawConnection:
    """One connection, one request at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", maxsplit=1)
        self._socket = socket.create_connection((host, int(port)), timeout=SOCKET_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def exchange(self, frame: bytes) -> memoryview:
        """Send a request and return its whole answer; valid until the next exchange."""
        self._socket.sendall(frame)
        received = self._socket.recv_into(self._buffer)
        while received < 4:
            received += self._receive_more(received)
        size_bytes: int = 4 + _LENGTH.unpack_from(self._buffer)[0]
        while received < size_bytes:
            received += self._receive_more(received)
        return self._buffer[:size_bytes]

    def _receive_more(self, received: int) -> int:
        more = self._socket.recv_into(self._buffer[received:])
        if more == 0:
            raise ConnectionError("the server closed the connection")
        return more


@dataclass(frozen=True, slots=True)
class Exchanges:
    """Requests that wait to be sent over one connection, one at a time."""

    connection: RawConnection
    frames: Sequence[bytes]


def time_in_turns(systems: Mapping[str, Exchanges]) -> dict[str, list[float]]:
    """Microseconds of every exchange of every system, sorted.

    The systems take turns every few requests. How fast a core wakes up changes within a second and
    by a factor of two; measured one after the other, two systems would see two machines.
    """
    elapsed_us: dict[str, list[float]] = {name: [] for name in systems}
    longest = max((len(exchanges.frames) for exchanges in systems.values()), default=0)
    gc.collect()
    gc.disable()
    try:
        for start in range(0, longest, TURN_REQUESTS):
            for name, exchanges in systems.items():
                frames = exchanges.frames[start : start + TURN_REQUESTS]
                elapsed_us[name] += _time_each(exchanges.connection, frames)
    finally:
        gc.enable()
    return {name: sorted(values) for name, values in elapsed_us.items()}


def _time_each(connection: RawConnection, frames: Sequence[bytes]) -> list[float]:
    elapsed_us: list[float] = []
    for frame in frames:
        started = time.perf_counter()
        connection.exchange(frame)
        elapsed_us.append((time.perf_counter() - started) * 1e6)
    return elapsed_us


def middle(sorted_values: Sequence[float]) -> float:
    return sorted_values[len(sorted_values) // 2]


def measure_passes(
    bench: Bench, what: str, systems: Mapping[str, Exchanges], p50: Metric, p99: Metric
) -> None:
    """All of `systems` in every round, a few requests each in turn."""
    for each in bench.passes(what):
        elapsed_us = time_in_turns(systems)
        each.record(p50, {name: middle(values) for name, values in elapsed_us.items()})
        each.record(
            p99, {name: values[len(values) * 99 // 100] for name, values in elapsed_us.items()}
        )


def answer_size(bootstraps: Mapping[str, str], frame: bytes) -> int:
    """What a broker answers, so that the floor sends as much."""
    for bootstrap in bootstraps.values():
        with RawConnection(bootstrap) as connection:
            return len(connection.exchange(frame)) - 4
    return 64


def require_stored(bootstraps: Mapping[str, str], topic: str, *, at_least: int) -> None:
    """An error code would have gone unread; a record that is missing does not.

    One more may be there: the one whose answer the floor has for its pattern.
    """
    for name, bootstrap in bootstraps.items():
        stored = stored_record_count(bootstrap, topic, partition_count=1)
        assert at_least <= stored <= at_least + 1, f"{name} holds {stored} records"


def produce_frame(topic: str, partition: int, batch: bytes, *, acks: int) -> bytes:
    data = PartitionProduceData(index=i32(partition), records=Records(batch))
    request = ProduceRequest(
        acks=i16(acks),
        timeout=REQUEST_TIMEOUT,
        topic_data=(TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
    )
    return request_frame(request, api_key=0, api_version=11)


def fetch_frame(
    offsets: Mapping[str, Sequence[tuple[int, int]]],
    *,
    partition_max_bytes: int,
    session_id: int,
    session_epoch: int,
) -> bytes:
    """`offsets`: pairs of partition and offset per topic. Session 0, epoch -1: no session."""
    topics = tuple(
        FetchTopic(
            topic=TopicName(topic),
            partitions=tuple(
                FetchPartition(
                    partition=i32(partition),
                    fetch_offset=i64(offset),
                    partition_max_bytes=i32(partition_max_bytes),
                )
                for partition, offset in pairs
            ),
        )
        for topic, pairs in offsets.items()
    )
    request = FetchRequest(
        max_wait=FETCH_WAIT,
        min_bytes=i32(1),
        max_bytes=i32(50 << 20),
        session_id=i32(session_id),
        session_epoch=i32(session_epoch),
        topics=topics,
        forgotten_topics_data=(),
    )
    return request_frame(request, api_key=1, api_version=12)


def api_versions_frame() -> bytes:
    header = RequestHeaderV1(
        request_api_key=i16(18),
        request_api_version=i16(0),
        correlation_id=i32(1),
        client_id="benchmark",
    )
    return _with_length(header, ApiVersionsRequest())


def fetched_session(answer: memoryview) -> int:
    """The session id in the answer to a Fetch; an error of the whole request is raised."""
    _size, _correlation, _tags, _throttle, error_code, session_id = _FETCH_PREFIX.unpack_from(
        answer
    )
    if error_code != 0:
        raise RequestFailed(f"Fetch: error code {error_code}")
    return int(session_id)


def batch_of(record_count: int, value_size_bytes: int, *, timestamp_ms: int) -> bytes:
    value = b"x" * value_size_bytes
    records = [Record(n, timestamp_ms, None, value, ()) for n in range(record_count)]
    return bytes(encode_plain_batch(records, Codec.NONE))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def request_frame(request: Entity, *, api_key: int, api_version: int) -> bytes:
    header = RequestHeader(
        request_api_key=i16(api_key),
        request_api_version=i16(api_version),
        correlation_id=i32(1),
        client_id="benchmark",
    )
    return _with_length(header, request)


def _with_length(*parts: Entity) -> bytes:
    output = io.BytesIO()
    for part in parts:
        entity_writer(type(part))(output, part)
    body = output.getvalue()
    return _LENGTH.pack(len(body)) + body
