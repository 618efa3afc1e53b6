"""Read a range of one partition as batches of bytes, over a connection of our own to its leader.

For who wants all records of a range and makes columns of them: librdkafka would make an object of
each. Everything that is asked once in a while, such as who leads (`Leaders`) and where a log
begins, is left to librdkafka, and so are records for people (`reader.py`).

    leader ──▶ answer 1 ──▶ answer 2 ──▶ ...     one request is always on its way: the next one is
                  │            ▲                 sent as soon as it is known where an answer ends,
                  └─ hand out ─┘                 and the answer is worked upon meanwhile

A leader that moves, or dies, is looked for again, up to `retry_timeout_s` without progress. An
offset that is not there is not made good here: `OffsetGone` says so, and `TopicGone` of all.

Who names a rack is sent by the leader to the replica in it, if there is one (KIP-392). A follower
is asked as long as it answers with records; whatever else it says, the rest comes from the leader.
"""

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tidelog.base.errors import CorruptBatch, ErrorCode, WireError
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError, ClusterUnreachable, RequestFailed
from tidelog.client.frames import receive_frame
from tidelog.records.batch import iter_headers
from tidelog.wire.fetch import (
    CONSUMER_REPLICA_ID,
    NO_REPLICA_EPOCH,
    NO_SESSION_EPOCH,
    NO_SESSION_ID,
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
)
from tidelog.wire.fetch_client import decode_fetch_response, encode_fetch_request

FETCH_VERSION: Final = 12
"""The last that names topics, which Kafka has known since 2.7."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_RESPONSE_HEADER_BYTES: Final = 5
"""The correlation id, and that there are no tagged fields."""
_RETRY_INTERVAL_S: Final = 0.1
_UNKNOWN_TOPIC_S: Final = 10.0
"""For so long a broker that has just started may not have heard of a topic."""
_RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)


class OffsetGone(ClientError):
    """The log does not have the offset that comes next: it begins behind it, or ends before.

    Where it begins the answer does not tell: who wants to go on has to ask.
    """

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(f"{topic}-{partition} does not have offset {offset}")
        self.offset = offset


class TopicGone(ClientError):
    """No broker knows the topic, or not any more."""


class Leaders(Protocol):
    """Who leads a partition, and where brokers are."""

    def leader_of(self, topic: str, partition: int) -> Address:
        """As far as the cluster knows now. Raises ClientError."""
        ...

    def address_of(self, broker_id: int) -> Address:
        """Of a replica that a leader has named. Raises ClientError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much to ask for at a time, and how long to wait."""

    max_bytes: int
    partition_max_bytes: int
    max_wait_ms: int
    request_timeout_s: float
    retry_timeout_s: float


class FetchedBatches(NamedTuple):
    """Whole batches, in order. Those of aborted transactions are among them."""

    records: memoryview
    aborted: tuple[AbortedTransaction, ...]
    next_offset: int
    """Behind the last of them."""


class RangeFetcher:
    """Offsets `[start_offset, end_offset)` of one partition, read once."""

    def __init__(
        self,
        leaders: Leaders,
        topic: str,
        partition: int,
        *,
        start_offset: int,
        end_offset: int,
        isolation_level: int,
        limits: FetchLimits,
        client_id: str,
        rack: str,
    ) -> None:
        """An empty `rack` is none."""
        self._leaders = leaders
        self._topic = topic
        self._partition = partition
        self._offset = start_offset
        self._end_offset = end_offset
        self._isolation_level = isolation_level
        self._limits = limits
        self._client_id = client_id
        self._rack = rack
        self._connection: _Connection | None = None
        self._is_at_follower = False

    def __iter__(self) -> Iterator[FetchedBatches]:
        """Until the range is done. What is behind its end may come with the last batches.

        Raises OffsetGone, TopicGone, RequestFailed, ClusterUnreachable.
        """
        try:
            while self._offset < self._end_offset:
                fetched = self._next()
                self._offset = fetched.next_offset
                if self._offset < self._end_offset:
                    self._ask_ahead()
                yield fetched
        finally:
            self._disconnect()

    def _next(self) -> FetchedBatches:
        """The next batches, however often somebody has to be asked for them."""
        begun_s = time.monotonic()
        while True:
            try:
                result = self._answer()
                if result.error_code == ErrorCode.NONE:
                    fetched = self._fetched(result)
                    if fetched is not None:
                        return fetched
                    problem: ClientError = ClientError(f"there is nothing at {self._offset} yet")
                else:
                    problem = self._refusal(result)
            except OSError as error:
                problem = ClusterUnreachable(f"its leader did not answer: {error}")
            except ClusterUnreachable as error:
                problem = error
            except RequestFailed as error:
                problem = self._passing(error)
            waited_s = time.monotonic() - begun_s
            if isinstance(problem, TopicGone) and waited_s > _UNKNOWN_TOPIC_S:
                raise problem
            if waited_s > self._limits.retry_timeout_s:
                place = f"{self._topic}-{self._partition} could not be read at {self._offset}"
                raise type(problem)(f"{place}: {problem}") from None
            if self._is_at_follower:
                self._rack = ""  # The leader would send us there again.
            self._disconnect()
            time.sleep(_RETRY_INTERVAL_S)

    def _refusal(self, result: FetchPartitionResult) -> ClientError:
        """What to say if it stays so. Raises it if it will."""
        code = ErrorCode(result.error_code)
        if self._is_at_follower:
            # It may not have yet, or not know of yet, what the leader has.
            return ClusterUnreachable(code.name)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetGone(self._topic, self._partition, self._offset)
        if code not in _RETRIED:
            raise RequestFailed(code.name, f"{self._topic}-{self._partition}: {code.name}")
        return ClusterUnreachable(code.name)

    def _passing(self, error: RequestFailed) -> ClientError:
        """The same of what whoever was asked for the leader said. Raises what does not pass."""
        if error.is_unknown_topic:
            return TopicGone(f"there is no topic {self._topic}")
        if error.code_name != ErrorCode.LEADER_NOT_AVAILABLE.name:
            raise error
        return ClusterUnreachable(error.code_name)

    def _fetched(self, result: FetchPartitionResult) -> FetchedBatches | None:
        """None if there is nothing yet."""
        records = memoryview(result.records)
        end, next_offset = 0, self._offset
        try:
            for position, header in iter_headers(records):
                end, next_offset = position + header.size_bytes, header.end_offset
        except CorruptBatch as error:
            place = f"{self._topic}-{self._partition}"
            raise ClientError(f"{place} cannot be read at {next_offset}: {error}") from error
        if next_offset <= self._offset:
            return None
        return FetchedBatches(records[:end], tuple(result.aborted or ()), next_offset)

    # -- one leader ------------------------------------------------------------------------------

    def _answer(self) -> FetchPartitionResult:
        """Raises OSError, ClientError."""
        if self._connection is None:
            self._connect(self._leaders.leader_of(self._topic, self._partition))
        result = self._received()
        if result.preferred_read_replica < 0 or self._is_at_follower:
            return result
        self._disconnect()
        self._is_at_follower = True  # Also if it is not to be found.
        self._connect(self._leaders.address_of(result.preferred_read_replica))
        return self._received()

    def _connect(self, address: Address) -> None:
        self._connection = _Connection(address, timeout_s=self._limits.request_timeout_s)

    def _received(self) -> FetchPartitionResult:
        connection = self._connection
        assert connection is not None
        if not connection.is_asked:
            connection.send(self._request())
        return connection.receive()

    def _ask_ahead(self) -> None:
        if self._connection is not None:
            try:
                self._connection.send(self._request())
            except OSError:
                self._disconnect()  # Whoever reads on looks for the leader again.

    def _request(self) -> bytes:
        limits = self._limits
        wanted = FetchPartition(
            self._partition, -1, self._offset, -1, -1, limits.partition_max_bytes
        )
        request = FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            replica_epoch=NO_REPLICA_EPOCH,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=1,
            max_bytes=limits.max_bytes,
            isolation_level=self._isolation_level,
            session_id=NO_SESSION_ID,
            session_epoch=NO_SESSION_EPOCH,
            topics=[(self._topic, None, [wanted])],
            forgotten=[],
            rack_id=self._rack,
            cluster_id=None,
        )
        return encode_fetch_request(FETCH_VERSION, 0, self._client_id, request)

    def _disconnect(self) -> None:
        self._is_at_follower = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection:
    """To one broker; one request at a time."""

    def __init__(self, address: Address, *, timeout_s: float) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._address = address
        self.is_asked = False

    def send(self, request: bytes) -> None:
        assert not self.is_asked
        self._socket.sendall(request)
        self.is_asked = True

    def receive(self) -> FetchPartitionResult:
        """The result of the one partition that was asked for."""
        assert self.is_asked
        frame = receive_frame(self._socket)
        if len(frame) < _RESPONSE_HEADER_BYTES:
            raise ClientError(f"{self._address} sent an answer of {len(frame)} bytes")
        self.is_asked = False
        try:
            response = decode_fetch_response(frame, _RESPONSE_HEADER_BYTES, FETCH_VERSION)
        except WireError as error:
            raise ClientError(f"the answer of {self._address} cannot be read: {error}") from error
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            raise RequestFailed(code.name, f"{self._address} refused a fetch: {code.name}")
        results = [result for _, _, results in response.topics for result in results]
        if len(results) != 1:
            raise ClientError(f"{self._address} answered about {len(results)} partitions, not one")
        return results[0]

    def close(self) -> None:
        self._socket.close()
