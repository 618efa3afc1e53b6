"""Two brokers that lead the same partitions, one with shortcuts and one without, and whoever talks
to them: producers, and followers that fetch in sessions as real ones do.

Everything is sent to both, and after every step both must have said and kept the same.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from uuid import UUID

from tests.support.kio_codec import Values, milliseconds
from tests.unit.broker.books import all_books, connection_books, session_books
from tests.unit.broker.played_leader import registered
from tests.unit.broker.served import Client, ServedWorld, served_world, unknown_topic_id
from tests.unit.broker.world import BROKER, OTHER
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId, LeaderEpoch, TopicId
from tidelog.base.ports import Clock
from tidelog.broker.after_read import AfterRead
from tidelog.broker.connection import Answer, Connection, RequestShortcut
from tidelog.broker.fetch_interest import FetchInterest
from tidelog.broker.handlers.fetch import FetchHandler
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.shortcuts import NO_SHORTCUTS, SHORTCUTS, Shortcuts
from tidelog.core.controller.image import PartitionImage
from tidelog.core.sessions import next_epoch
from tidelog.records.batch import Codec, iter_headers
from tidelog.records.record import Record, encode_plain_batch
from tidelog.wire.api import ApiKey, RequestHeader, decode_response_header
from tidelog.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest
from tidelog.wire.fetch_client import decode_fetch_response, encode_fetch_request
from tidelog.wire.produce_template import ProduceTemplate

THIRD = BrokerId(3)
FOLLOWERS = {OTHER: 20, THIRD: 30}
"""With their broker epochs, to begin with."""
WAITS_MS = {OTHER: 503, THIRD: 487}
"""Not the same: who is first when two times are up at once is not for a shortcut to say."""
ALL = (BROKER, OTHER, THIRD)
PARTITIONS = {"t": 2, "u": 1}
FETCH_VERSION = 17
PRODUCE_VERSION = 11
NO_SESSION = (0, 0)

Key = tuple[bytes, int]
"""Topic id and partition."""


class Taken:
    """How often a shortcut was good for something."""

    def __init__(self) -> None:
        self.produced = 0
        self.answered = 0
        self.parked = 0
        self.started = 0
        """Taken in by the shortcut, and begun by Python."""
        self.taken_over = 0

    @property
    def shortcuts(self) -> Shortcuts:
        return replace(SHORTCUTS, produce=self.produce, fetch=self.fetch)

    def produce(
        self,
        template: ProduceTemplate | None,
        partitions: Partitions,
        clock: Clock,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
        after_read: AfterRead,
        turns: HeavyTurns,
    ) -> RequestShortcut | None:
        made = SHORTCUTS.produce(template, partitions, clock, connection, loop, after_read, turns)
        return None if made is None else _Counting(made, self.on_produced)

    def on_produced(self, _answer: object) -> None:
        self.produced += 1

    def fetch(
        self,
        handler: FetchHandler,
        connection: Connection,
        interest: FetchInterest,
        header: RequestHeader,
        request: FetchRequest,
        frame: memoryview,
    ) -> RequestShortcut | None:
        listening: Any = _ListeningHandler(handler, self)
        made = SHORTCUTS.fetch(listening, connection, interest, header, request, frame)
        return None if made is None else _Counting(made, self.on_fetched)

    def on_fetched(self, answer: object) -> None:
        if isinstance(answer, bytes | list):
            self.answered += 1
        else:
            self.parked += 1


class _Counting:
    def __init__(self, made: RequestShortcut, on_taken: Callable[[object], None]) -> None:
        self._made = made
        self._on_taken = on_taken

    def end(self) -> None:
        self._made.end()

    def answer(self, view: memoryview, start: int, end: int) -> Answer:
        before = bytes(view[start:end])
        answer = self._made.answer(view, start, end)
        if answer is None:
            assert bytes(view[start:end]) == before  # Nothing has changed.
        else:
            self._on_taken(answer)
        return answer


class _ListeningHandler:
    """The handler, as the shortcut sees it."""

    def __init__(self, handler: FetchHandler, taken: Taken) -> None:
        self._handler = handler
        self._taken = taken

    def __getattr__(self, name: str) -> object:
        return getattr(self._handler, name)

    def start(self, *args: Any) -> object:
        self._taken.started += 1
        started = self._handler.start(*args)
        if isinstance(started, bytes | list):
            self._taken.answered -= 1
        else:
            self._taken.parked -= 1
        return started

    def take_over(self, *args: Any, **kwargs: Any) -> None:
        self._taken.taken_over += 1
        self._handler.take_over(*args, **kwargs)


class Pair:
    """A client of both brokers."""

    def __init__(self, both: "Twins") -> None:
        self._both = both
        self.clients: tuple[Client, Client] = (both.served[0].client(), both.served[1].client())
        self.on_answers: Callable[[bytes], None] = _ignore

    @property
    def is_closed(self) -> bool:
        return self.clients[0].connection.is_closed

    def send(self, data: bytes) -> None:
        for client in self.clients:
            client.send_together([data])
        self._both.compare()

    def each(self, act: Callable[[Client], None]) -> None:
        for client in self.clients:
            act(client)

    def compare(self) -> None:
        one, other = (_said(client) for client in self.clients)
        assert one == other
        books, others = (connection_books(client.connection) for client in self.clients)
        assert books | {"shortcut": None} == others | {"shortcut": None}  # The other has none.
        if one:
            self.on_answers(one)

    def produce(
        self,
        *batches: bytes | bytearray,
        topic: str = "t",
        partition: int = 0,
        acks: int = -1,
        version: int = PRODUCE_VERSION,
        timeout_ms: int = 1_000,
    ) -> None:
        """All in one piece, as a client does that does not wait for answers."""
        self._produce(
            version,
            [self._values(topic, partition, batch, acks, timeout_ms) for batch in batches],
        )

    def produce_to(self, places: Iterable[tuple[str, int]], batch: bytearray) -> None:
        """The same to several partitions, in one piece."""
        self._produce(PRODUCE_VERSION, [self._values(*place, batch, 1, 0) for place in places])

    def _produce(self, version: int, requests: list[Values]) -> None:
        for client in self.clients:
            client.send_together(client.frame(ApiKey.PRODUCE, version, one) for one in requests)
            client.forget_requests()
        self._both.compare()

    def _values(
        self, topic: str, partition: int, batch: bytes | bytearray, acks: int, timeout_ms: int
    ) -> Values:
        known = self._both.quick.world.image.topics.get(topic)
        return {
            "transactional_id": None,
            "acks": acks,
            "timeout": milliseconds(timeout_ms),
            "topic_data": [
                {
                    "name": topic,
                    "topic_id": unknown_topic_id() if known is None else known.topic_id,
                    "partition_data": [{"index": partition, "records": bytes(batch)}],
                }
            ],
        }


class Twins:
    """The same leader twice."""

    def __init__(self, served: tuple[ServedWorld, ServedWorld], taken: Taken) -> None:
        self.served = served
        self.taken = taken
        self.pairs: list[Pair] = []
        self._topic_count = 0

    @property
    def quick(self) -> ServedWorld:
        return self.served[0]

    def connect(self) -> Pair:
        pair = Pair(self)
        self.pairs.append(pair)
        return pair

    def follower(self, replica: BrokerId = OTHER) -> "Follower":
        return Follower(self, replica)

    def each(self, act: Callable[[ServedWorld], object]) -> None:
        for served in self.served:
            act(served)

    async def both(self, act: Callable[[ServedWorld], Awaitable[object]]) -> None:
        await asyncio.gather(*(act(served) for served in self.served))
        await self.settle()

    def compare(self) -> None:
        for pair in self.pairs:
            pair.compare()
        one, other = self.served
        assert all_books(one.world) == all_books(other.world)
        assert session_books(one) == session_books(other)

    async def settle(self) -> None:
        for served in self.served:
            await served.world.settle()
        self.compare()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.settle()

    # -- the cluster -----------------------------------------------------------------------------

    def create(self, topic: str, config: dict[str, str]) -> None:
        """Another topic of that name each time."""
        self._topic_count += 1
        topic_id = TopicId(UUID(int=self._topic_count))
        self.each(
            lambda served: served.world.create(
                topic, partitions=PARTITIONS[topic], config=config, topic_id=topic_id, state=led(0)
            )
        )

    def state(self, topic: str, partition: int) -> PartitionImage:
        return self.quick.world.image.topics[topic].partitions[partition]

    def change(self, topic: str, partition: int, **changes: Any) -> None:
        state = self.state(topic, partition)
        changed = replace(state, partition_epoch=state.partition_epoch + 1, **changes)
        self.each(lambda served: served.world.change(topic, changed, partition))

    def elect(self, topic: str, partition: int, leader: BrokerId) -> None:
        state = self.state(topic, partition)
        epoch = LeaderEpoch(state.leader_epoch + 1)
        isr = state.isr if leader in state.isr else (*state.isr, leader)
        self.change(topic, partition, leader=leader, leader_epoch=epoch, isr=isr)

    def register(self, replica: BrokerId, epoch: int) -> None:
        self.each(lambda served: served.world.decide(registered(replica, epoch)))

    def runner(self, topic: str = "t", partition: int = 0) -> PartitionRunner:
        return self.quick.world.runner(topic, partition)

    def keys(self) -> dict[Key, PartitionRunner]:
        """All partitions that there are."""
        return {
            (topic.topic_id.bytes, partition): runner
            for name, topic in self.quick.world.image.topics.items()
            for partition in range(len(topic.partitions))
            if (runner := self.quick.world.partitions.find(name, partition)) is not None
        }


@dataclass(frozen=True, slots=True)
class Form:
    """What all requests of a follower have in common."""

    max_wait_ms: int
    version: int = FETCH_VERSION
    min_bytes: int = 1
    max_bytes: int = 2**20
    partition_max_bytes: int = 2**20
    isolation_level: int = 0
    rack_id: str = ""


class Follower:
    """Asks as a follower does: in a session, what has changed, and on from what it was given."""

    def __init__(self, both: Twins, replica: BrokerId) -> None:
        self._both = both
        self.replica = replica
        self.epoch = FOLLOWERS[replica]
        self.form = Form(max_wait_ms=WAITS_MS[replica])
        self.places: dict[Key, FetchPartition] = {}
        self._correlation_id = 0
        self.connect()

    def connect(self) -> None:
        """Anew, and so with a new session."""
        self.pair = self._both.connect()
        self.pair.on_answers = self._on_answers
        self.waiting = 0
        self._begin_session()

    def _begin_session(self) -> None:
        self.session = NO_SESSION
        self.known: set[Key] = set()
        """What the leader has been told, as it is here."""

    @property
    def is_new(self) -> bool:
        return self.session[1] == 0

    def unsaid(self) -> list[Key]:
        return [key for key in self.places if key not in self.known]

    # -- asking ----------------------------------------------------------------------------------

    def look_around(self) -> list[Key]:
        """Follow what there is, and no more what there is not."""
        keys = self._both.keys()
        gone = [key for key in self.places if key not in keys]
        for key in gone:
            del self.places[key]
        for key, runner in keys.items():
            if key not in self.places:
                self.places[key] = self.position(key, runner, runner.log.log_end_offset)
        return [key for key in gone if key in self.known]

    def position(self, key: Key, runner: PartitionRunner, offset: int) -> FetchPartition:
        """As of one who has all below `offset`."""
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=runner.leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=runner.epochs.latest_epoch,
            log_start_offset=runner.log.log_start_offset,
            max_bytes=self.form.partition_max_bytes,
        )

    def follow(self, topic: str = "t", partition: int = 0) -> None:
        self.stand(self._both.runner(topic, partition).log.log_end_offset, topic, partition)

    def stand(self, offset: int, topic: str = "t", partition: int = 0) -> None:
        """Be somewhere else than the leader believes."""
        runner = self._both.runner(topic, partition)
        key = (runner.topic_id.bytes, partition)
        self.places[key] = self.position(key, runner, offset)
        self.known.discard(key)

    def ask(self, *, forgotten: Iterable[Key] = ()) -> None:
        """For what has changed."""
        wanted = [(key, self.places[key]) for key in self.unsaid()]
        self.known.update(key for key, _ in wanted)
        self.known.difference_update(forgotten)
        self.pair.send(self.frame(wanted, forgotten))

    def frame(
        self,
        wanted: Iterable[tuple[Key, FetchPartition]],
        forgotten: Iterable[Key],
        **changes: Any,
    ) -> bytes:
        """The next request of the session."""
        request = FetchRequest(
            replica_id=self.replica,
            replica_epoch=self.epoch,
            max_wait_ms=0 if self.is_new else self.form.max_wait_ms,
            min_bytes=self.form.min_bytes,
            max_bytes=self.form.max_bytes,
            isolation_level=self.form.isolation_level,
            session_id=self.session[0],
            session_epoch=self.session[1],
            topics=[(None, key[0], [place]) for key, place in wanted],
            forgotten=[(None, topic_id, [partition]) for topic_id, partition in forgotten],
            rack_id=self.form.rack_id,
            cluster_id=None,
        )
        request = request._replace(topics=_grouped(request), **changes)
        self.session = (self.session[0], next_epoch(self.session[1]))
        self._correlation_id += 1
        self.waiting += 1
        return encode_fetch_request(self.form.version, self._correlation_id, "f", request)

    # -- being answered --------------------------------------------------------------------------

    def _on_answers(self, sent: bytes) -> None:
        rest = memoryview(sent)
        while rest:
            end = 4 + int.from_bytes(rest[:4], "big")
            assert len(rest) >= end
            self.waiting -= 1
            self._on_answer(rest[4:end])
            rest = rest[end:]

    def _on_answer(self, answer: memoryview) -> None:
        version = self.form.version
        _, position = decode_response_header(answer, ApiKey.FETCH, version)
        self.answer = response = decode_fetch_response(answer, position, version)
        if response.error_code or response.session_id == 0:
            self._begin_session()
        else:
            self.session = (response.session_id, self.session[1])
        for _, topic_id, results in response.topics:
            assert topic_id is not None
            for result in results:
                self._on_result((bytes(topic_id), result.partition), result)

    def _on_result(self, key: Key, result: FetchPartitionResult) -> None:
        place = self.places.get(key)
        runner = self._both.keys().get(key)
        if place is None or runner is None:
            return
        if result.diverging_epoch is not None:
            epoch, end_offset = result.diverging_epoch
            place = place._replace(fetch_offset=end_offset, last_fetched_epoch=epoch)
        elif result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            place = self.position(key, runner, result.log_start_offset)
        elif result.error_code:
            place = self.position(key, runner, runner.log.log_end_offset)
        else:
            for _, header in iter_headers(result.records):
                place = place._replace(
                    fetch_offset=header.last_offset + 1, last_fetched_epoch=header.leader_epoch
                )
            start = max(place.log_start_offset, result.log_start_offset)
            place = place._replace(log_start_offset=start)
        if place != self.places[key]:
            self.places[key] = place
            self.known.discard(key)


def _grouped(request: FetchRequest) -> list[Any]:
    topics: list[tuple[None, bytes | None, list[FetchPartition]]] = []
    for _, topic_id, places in request.topics:
        if topics and topics[-1][1] == topic_id:
            topics[-1][2].extend(places)
        else:
            topics.append((None, topic_id, list(places)))
    return topics


def led(leader_epoch: int) -> PartitionImage:
    return PartitionImage(
        leader=BROKER,
        leader_epoch=LeaderEpoch(leader_epoch),
        replicas=ALL,
        isr=ALL,
        adding_replicas=(),
        removing_replicas=(),
        partition_epoch=leader_epoch,
    )


def _said(client: Client) -> bytes:
    """All that was sent to it since it was last asked."""
    client.send_together([])
    said = bytes(client.transport.sent)
    client.transport.sent.clear()
    return said


def _ignore(_answers: bytes) -> None:
    """Somebody who does not care."""


@asynccontextmanager
async def led_twins(
    config: dict[str, str] | None = None, *, session_slots: int = 10
) -> AsyncIterator[Twins]:
    taken = Taken()
    async with (
        served_world(shortcuts=taken.shortcuts, session_slots=session_slots) as quick,
        served_world(shortcuts=NO_SHORTCUTS, session_slots=session_slots) as slow,
    ):
        both = Twins((quick, slow), taken)
        for replica, epoch in FOLLOWERS.items():
            both.register(replica, epoch)
        for topic in PARTITIONS:
            both.create(topic, config or {})
        await both.settle()
        try:
            yield both
            await both.settle()
        finally:
            for served in both.served:
                for task in served.world.replicas.stop_fetching():
                    await asyncio.wait([task])


def batch(chance: Random, *, count: int = 1, value_bytes: int = 8, now_ms: int) -> bytearray:
    """Of the same size as any other with so many records, and unlike them."""
    return encode_plain_batch(
        [
            Record(number, now_ms, b"key", chance.randbytes(value_bytes), ())
            for number in range(count)
        ],
        Codec.NONE,
    )
