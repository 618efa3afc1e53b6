"""A whole broker in memory and clients of it: all but sockets, threads and a coordinator."""

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.support.kio_codec import Values, milliseconds, request_bytes
from tests.unit.broker.fake_transport import FakeTransport, Outbox
from tests.unit.broker.fake_verifier import FakeVerifier
from tests.unit.broker.world import BROKER, LISTENER, World, broker_world
from tidelog.broker.after_read import AfterRead
from tidelog.broker.connection import Connection
from tidelog.broker.dispatch import DirectHandler, Dispatcher
from tidelog.broker.fetch_reader import FetchReader
from tidelog.broker.handlers.api_versions import ApiVersionsHandler
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.handlers.list_offsets import ListOffsetsHandler
from tidelog.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from tidelog.broker.handlers.produce import ProduceHandler
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.large_requests import LargeRequests
from tidelog.broker.memory import MemoryBound
from tidelog.broker.network import SocketNetwork
from tidelog.broker.produce_verification import ProduceVerification
from tidelog.broker.replication_throttle import ReplicationThrottle
from tidelog.broker.request_tasks import RequestTasks
from tidelog.broker.server import Server, ServerLimits
from tidelog.broker.shortcuts import SHORTCUTS, Shortcuts
from tidelog.core.sessions import FetchSessionCache
from tidelog.records.batch import iter_headers
from tidelog.records.record import Record, decode_records
from tidelog.wire.api import ApiKey, is_flexible, response_header_version

FETCH_VERSION = 12
PRODUCE_VERSION = 9
LIST_OFFSETS_VERSION = 7
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)
MANY_BYTES = 2**20

Place = tuple[str, int]


class ServedWorld:
    """A world with a server and the handlers that need no controller."""

    def __init__(
        self,
        world: World,
        tasks: asyncio.TaskGroup,
        *,
        session_slots: int,
        answer_bytes: int,
        shortcuts: Shortcuts,
        is_rack_aware: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.world = world
        self.shortcuts = shortcuts
        self.answer_memory = MemoryBound(answer_bytes)
        after_read = AfterRead(loop)
        turns = HeavyTurns(loop, pause_s=0)
        self.frame_memory = MemoryBound(2**20)
        self.sessions = FetchSessionCache(
            slots_max=session_slots, partitions_max=1_000, chance=Random(3)
        )
        partitions = world.partitions
        self.fetch = FetchHandler(
            reader=FetchReader(
                partitions=partitions,
                answer_memory=self.answer_memory,
                fetch_max_bytes=50 * 2**20,
                throttle=ReplicationThrottle(BROKER, world.clock),
                is_rack_aware=is_rack_aware,
            ),
            sessions=self.sessions,
            answer_memory=self.answer_memory,
            clock=world.clock,
            loop=loop,
            after_read=after_read,
            turns=turns,
            shortcut=shortcuts.fetch,
        )
        self.requests = RequestTasks(tasks)
        self.large = LargeRequests(world.request_memory)
        self.verifier = FakeVerifier()
        self.is_verifying = True
        self.unverified_memory = MemoryBound(2**20)
        self.produce = ProduceHandler(
            partitions,
            world.clock,
            loop,
            after_read,
            turns,
            shortcuts.produce,
            ProduceVerification(
                partitions=partitions,
                verifier=self.verifier,
                memory=self.unverified_memory,
                clock=world.clock,
                is_enabled=lambda: self.is_verifying,
            ),
            self.requests,
        )
        self.direct: dict[ApiKey, DirectHandler] = {
            ApiKey.FETCH: self.fetch,
            ApiKey.LIST_OFFSETS: ListOffsetsHandler(partitions, self.requests, self.large),
            ApiKey.API_VERSIONS: ApiVersionsHandler(),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(
                partitions, self.requests, self.large
            ),
        }
        self.server = Server(
            limits=ServerLimits(
                request_max_bytes=2**20,
                read_budget_bytes=2**16,
                connections_max=100,
                connections_max_per_ip=100,
                connections_max_per_ip_overrides={},
                connections_per_second_max=2**31 - 1,
                unpaced_listener=None,
                descriptor_max=1_000,
                idle_max_ms=600_000,
                slow_reader_max_ms=30_000,
                send_buffer_bytes=-1,
                receive_buffer_bytes=-1,
            ),
            network=SocketNetwork(loop),
            clock=world.clock,
            loop=loop,
            frame_memory=self.frame_memory,
            request_memory=world.request_memory,
            answer_memory=self.answer_memory,
            after_read=after_read,
            turns=turns,
            protocol=shortcuts.protocol,
            dispatch=self._dispatcher().dispatch,
        )

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            produce=self.produce,
            direct=self.direct,
            inter_broker={},
            forwarding=None,
            load_cold=lambda: {},
            tasks=self.requests,
            large=self.large,
        )

    def serve(self, handlers: Mapping[ApiKey, DirectHandler]) -> None:
        """Answer these as well, which need more than partitions."""
        self.direct |= handlers
        self.server.dispatch = self._dispatcher().dispatch

    def client(self) -> "Client":
        return Client(self)

    def watcher_count(self) -> int:
        """How many ears there are at all partitions."""
        return sum(runner.watcher_count for runner in self.world.partitions)


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition in an answer."""

    code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    preferred_read_replica: int
    diverging: tuple[int, int] | None
    records: bytes


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    code: int
    session_id: int
    partitions: Mapping[Place, Fetched]

    def offsets(self, place: Place = ("t", 0)) -> list[int]:
        return [one.offset for one in self.records_of(place)]

    def records_of(self, place: Place) -> list[Record]:
        found = self.partitions.get(place)
        records: list[Record] = []
        if found is not None:
            for position, header in iter_headers(found.records):
                records += decode_records(found.records[position : position + header.size_bytes])
        return records


class Client:
    """One connection. Answers are read when asked for."""

    def __init__(self, served: ServedWorld) -> None:
        self.served = served
        self.transport = FakeTransport()
        self.connection = Connection(served.server, LISTENER)
        protocol = served.shortcuts.protocol(self.connection, served.server)
        self.transport.protocol = protocol
        protocol.connection_made(self.transport)
        self._outbox = Outbox(protocol, self.transport)
        self._asked: list[tuple[int, int, int]] = []
        self._correlation_id = 0
        self.client_id = "me"

    def send(
        self, api_key: ApiKey, version: int, values: Values, *, is_answered: bool = True
    ) -> None:
        self._outbox.send(self.frame(api_key, version, values, is_answered=is_answered))

    def send_together(self, frames: Iterable[bytes]) -> None:
        self._outbox.send(b"".join(frames))

    def frame(
        self, api_key: ApiKey, version: int, values: Values, *, is_answered: bool = True
    ) -> bytes:
        self._correlation_id += 1
        if is_answered:
            self._asked.append((api_key, version, self._correlation_id))
        client_id = self.client_id.encode()
        head = struct.pack(">hhih", api_key, version, self._correlation_id, len(client_id))
        head += client_id
        if is_flexible(api_key, version):
            head += b"\x00"
        body = head + request_bytes(api_key, version, values)
        return struct.pack(">i", len(body)) + body

    def deliver(self) -> None:
        """What the broker would not read before, if it will now."""
        self._outbox.deliver()

    def disconnect(self) -> None:
        self.transport.is_closed = True
        self.connection.connection_lost(None)

    @property
    def waiting(self) -> int:
        """How many answers have not been taken yet."""
        return len(self._asked)

    def forget_requests(self) -> None:
        """Whoever asked has read the bytes of the answers, or wants none."""
        self._asked.clear()

    def take(self) -> list[Any]:
        """The answers that are there, in the order of the requests, in kio's shape."""
        self._outbox.deliver()
        answers = []
        sent = self.transport.sent
        while len(sent) >= 4:
            (size_bytes,) = struct.unpack_from(">i", sent)
            assert len(sent) >= 4 + size_bytes
            answer = bytes(sent[4 : 4 + size_bytes])
            del sent[: 4 + size_bytes]
            answers.append(self._decode(answer))
        return answers

    def _decode(self, answer: bytes) -> Any:
        api_key, version, correlation_id = self._asked.pop(0)
        assert struct.unpack_from(">i", answer) == (correlation_id,)  # In order.
        start = 4 + response_header_version(api_key, version)
        message, size_bytes = entity_reader(load_response_schema(api_key, version))(answer, start)
        assert start + size_bytes == len(answer)
        return message

    # -- requests --------------------------------------------------------------------------------

    def produce(self, batch: bytearray, place: Place = ("t", 0), *, acks: int = 1) -> None:
        self.send(ApiKey.PRODUCE, PRODUCE_VERSION, produce_values(batch, place, acks))

    def fetch(
        self,
        offsets: Mapping[Place, int],
        *,
        session: tuple[int, int] = NO_SESSION,
        forgotten: Iterable[Place] = (),
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = MANY_BYTES,
        partition_max_bytes: int = MANY_BYTES,
        isolation_level: int = 0,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        rack: str = "",
        replica: int = -1,
        version: int = FETCH_VERSION,
    ) -> None:
        self.send(
            ApiKey.FETCH,
            version,
            fetch_values(
                offsets,
                session=session,
                forgotten=forgotten,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
                isolation_level=isolation_level,
                leader_epoch=leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
                rack=rack,
                replica=replica,
            ),
        )

    def fetched(self) -> FetchAnswer:
        """The only answer there is, to a fetch."""
        (answer,) = self.take()
        return fetch_answer(answer)


def fetch_answer(answer: Any) -> FetchAnswer:
    return FetchAnswer(
        int(answer.error_code),
        answer.session_id,
        {
            (topic.topic, partition.partition_index): Fetched(
                int(partition.error_code),
                partition.high_watermark,
                partition.last_stable_offset,
                partition.log_start_offset,
                _aborted(partition.aborted_transactions),
                getattr(partition, "preferred_read_replica", -1),  # From version 11 on.
                _diverging(partition),
                bytes(partition.records or b""),
            )
            for topic in answer.responses
            for partition in topic.partitions
        },
    )


def _aborted(transactions: Any) -> list[tuple[int, int]] | None:
    if transactions is None:
        return None
    return [(one.producer_id, one.first_offset) for one in transactions]


def _diverging(partition: Any) -> tuple[int, int] | None:
    end = getattr(partition, "diverging_epoch", None)  # From version 12 on.
    return None if end is None or end.epoch < 0 else (end.epoch, end.end_offset)


def produce_values(batch: bytearray, place: Place, acks: int) -> Values:
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": milliseconds(1_000),
        "topic_data": [
            {
                "name": place[0],
                "partition_data": [{"index": place[1], "records": bytes(batch)}],
            }
        ],
    }


def fetch_values(
    offsets: Mapping[Place, int],
    *,
    session: tuple[int, int] = NO_SESSION,
    forgotten: Iterable[Place] = (),
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = MANY_BYTES,
    partition_max_bytes: int = MANY_BYTES,
    isolation_level: int = 0,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    rack: str = "",
    replica: int = -1,
) -> Values:
    return {
        "cluster_id": None,
        "replica_id": replica,
        "max_wait": milliseconds(max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": leader_epoch,
                        "fetch_offset": offset,
                        "last_fetched_epoch": last_fetched_epoch,
                        "log_start_offset": -1,
                        "partition_max_bytes": partition_max_bytes,
                    }
                ],
            }
            for (topic, partition), offset in offsets.items()
        ],
        "forgotten_topics_data": [
            {"topic": topic, "partitions": (partition,)} for topic, partition in forgotten
        ],
        "rack_id": rack,
    }


def list_offsets_values(place: Place, timestamp_ms: int) -> Values:
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [
            {
                "name": place[0],
                "partitions": [
                    {
                        "partition_index": place[1],
                        "current_leader_epoch": -1,
                        "timestamp": timestamp_ms,
                    }
                ],
            }
        ],
    }


@asynccontextmanager
async def served_world(
    *,
    session_slots: int = 10,
    answer_bytes: int = 2**20,
    dir_count: int = 1,
    shortcuts: Shortcuts = SHORTCUTS,
    is_rack_aware: bool = False,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[ServedWorld]:
    async with (
        broker_world(dir_count=dir_count, shortcuts=shortcuts, settings=settings) as world,
        asyncio.TaskGroup() as tasks,
    ):
        yield ServedWorld(
            world,
            tasks,
            session_slots=session_slots,
            answer_bytes=answer_bytes,
            shortcuts=shortcuts,
            is_rack_aware=is_rack_aware,
        )


def unknown_topic_id() -> uuid.UUID:
    return uuid.UUID(int=99)
