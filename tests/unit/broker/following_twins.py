"""Two brokers that follow the same leader, one with shortcuts and one without. The leader is the
test: it reads what they ask, which must be the same to the byte, and gives both the same answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

from tests.unit.broker.books import all_books
from tests.unit.broker.far_end import FarConnection, FarEnd
from tests.unit.broker.played_leader import SESSION, registered
from tests.unit.broker.world import OTHER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId, TopicId
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.replica_fetcher import FETCH_VERSION, FollowShortcut, ReplicaFetcher
from tidelog.broker.shortcuts import NO_SHORTCUTS, SHORTCUTS, Shortcuts
from tidelog.wire.api import RequestHeader, decode_request_header
from tidelog.wire.fetch import (
    FetchPartitionResult,
    FetchRequest,
    decode_fetch,
    encode_fetch_response,
)

EPOCH = 3
PARTITIONS = {"t": 2, "u": 1}
TOPIC_IDS = {name: TopicId(UUID(int=number + 1)) for number, name in enumerate(PARTITIONS)}

Results = Mapping[str, list[FetchPartitionResult]]
"""By topic."""


class Taken:
    """How often the shortcut was good for something."""

    def __init__(self) -> None:
        self.requests = 0
        """Answers that were taken in and followed by a request."""
        self.answers = 0
        """Those after which Python made the request."""
        self.left = 0

    @property
    def shortcuts(self) -> Shortcuts:
        return replace(SHORTCUTS, follow=self.follow)

    def follow(self, fetcher: ReplicaFetcher) -> FollowShortcut | None:
        made = SHORTCUTS.follow(fetcher)
        return None if made is None else _Counting(self, made, fetcher)


class _Counting:
    def __init__(self, taken: Taken, made: FollowShortcut, fetcher: ReplicaFetcher) -> None:
        self._taken = taken
        self._made = made
        self._fetcher = fetcher

    def answered(self, buffer: bytearray, size_bytes: int) -> bool:
        outstanding = self._fetcher._outstanding
        before = outstanding[0] if outstanding else None
        if not self._made.answered(buffer, size_bytes):
            return False  # Which is counted below.
        if outstanding and outstanding[0] is before:
            self._taken.requests += 1
        else:
            self._taken.answers += 1
        return True

    def take_in(self, answer: memoryview) -> bytes | bool | None:
        taken_in = self._made.take_in(answer)
        if taken_in is None:
            self._taken.left += 1
        elif taken_in is True:
            self._taken.answers += 1
        else:
            self._taken.requests += 1
        return taken_in


class Lane:
    """One connection of each broker to its leader."""

    def __init__(self, connections: tuple[FarConnection, FarConnection]) -> None:
        self.connections = connections
        self.asked: list[tuple[RequestHeader, FetchRequest]] = []
        """And not answered."""
        self.named: set[tuple[str, int]] = set()
        """What the session has."""

    @property
    def is_closed(self) -> bool:
        return self.connections[0].is_closed

    def compare(self, *, in_order: bool) -> None:
        one, other = ([bytes(each) for each in far.requests()] for far in self.connections)
        if in_order:
            assert one == other
        else:
            assert [*map(_sorted, one)] == [*map(_sorted, other)]
        assert self.connections[0].is_closed == self.connections[1].is_closed
        for frame in one:
            header = decode_request_header(memoryview(frame))
            request = decode_fetch(memoryview(frame), header.body_position, FETCH_VERSION)
            self.asked.append((header, request))
            self._note(request)

    def _note(self, request: FetchRequest) -> None:
        if request.session_epoch == 0:
            self.named.clear()
        for _, topic_id, places in request.topics:
            self.named |= {(_name(topic_id), place.partition) for place in places}
        for _, topic_id, indexes in request.forgotten:
            self.named -= {(_name(topic_id), index) for index in indexes}


class FollowingTwins:
    """The same follower twice."""

    def __init__(
        self, worlds: tuple[World, World], taken: Taken, far_end: Callable[[], FarEnd]
    ) -> None:
        self.worlds = worlds
        self.taken = taken
        self.fars = (far_end(), far_end())
        for world, far in zip(worlds, self.fars, strict=True):
            world.far_end = far
        self.lanes: list[Lane] = []
        self.in_order = True
        """Whether partitions must be asked for in the same order. Which of two timers ends first
        that end at the same moment is not for a shortcut to say."""

    @property
    def quick(self) -> World:
        return self.worlds[0]

    def runner(self, topic: str = "t", partition: int = 0) -> PartitionRunner:
        return self.quick.runner(topic, partition)

    def create(self, topic: str, config: dict[str, str] | None = None) -> None:
        self.each(
            lambda world: world.create(
                topic,
                partitions=PARTITIONS[topic],
                config=config or {},
                topic_id=TOPIC_IDS[topic],
                state=replicated(OTHER, EPOCH),
            )
        )

    def each(self, act: Callable[[World], object]) -> None:
        for world in self.worlds:
            act(world)

    def compare(self) -> None:
        pairs = list(zip(self.fars[0].connections, self.fars[1].connections, strict=True))
        self.lanes += [Lane(pair) for pair in pairs[len(self.lanes) :]]
        for lane in self.lanes:
            lane.compare(in_order=self.in_order)
        one, other = self.worlds
        assert all_books(one) == all_books(other)
        assert fetchers_books(one) == fetchers_books(other)

    async def settle(self) -> None:
        for world in self.worlds:
            await world.settle()
        self.compare()

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.settle()

    def change(self, topic: str, partition: int, leader: BrokerId) -> None:
        """Elect a leader."""
        state = self.quick.image.topics[topic].partitions[partition]
        changed = replicated(leader, state.leader_epoch + 1)
        self.each(lambda world: world.change(topic, changed, partition))

    # -- answering -------------------------------------------------------------------------------

    def answer(
        self,
        results: Results,
        *,
        lane: Lane | None = None,
        session_id: int = SESSION,
        error: ErrorCode = ErrorCode.NONE,
        spoil: Callable[[bytearray], None] | None = None,
    ) -> None:
        """The oldest request of a lane, the first if it is not said which."""
        chosen = lane or next(one for one in self.lanes if one.asked and not one.is_closed)
        header, _ = chosen.asked.pop(0)
        frame = bytearray(
            b"".join(
                bytes(part)
                for part in encode_fetch_response(
                    FETCH_VERSION,
                    header.correlation_id,
                    [(None, TOPIC_IDS[topic].bytes, said) for topic, said in results.items()],
                    throttle_ms=0,
                    error_code=error,
                    session_id=session_id,
                    node_endpoints=(),
                )
            )
        )
        if spoil is not None:
            spoil(frame)
        for connection in chosen.connections:
            connection.send(bytes(frame))
        self.compare()


def _sorted(frame: bytes) -> tuple[RequestHeader, FetchRequest]:
    """A request, whatever the order of its partitions."""
    header = decode_request_header(memoryview(frame))
    request = decode_fetch(memoryview(frame), header.body_position, FETCH_VERSION)
    topics = [(None, each[1], sorted(each[2])) for each in request.topics]
    forgotten = [(None, each[1], sorted(each[2])) for each in request.forgotten]
    return header, request._replace(
        topics=sorted(topics, key=lambda each: each[1] or b""),
        forgotten=sorted(forgotten, key=lambda each: each[1] or b""),
    )


def _name(topic_id: bytes | None) -> str:
    return next(name for name, known in TOPIC_IDS.items() if known.bytes == topic_id)


def fetchers_books(world: World) -> list[object]:
    fetchers = world.fetchers
    return [
        {
            "place": place,
            "told": {key: told[1:] for key, told in one._told.items()},
            "changed": one._changed,
            "resting": one._resting.keys(),
            "refused": one._refused,
            "session": (one._session_id, one._session_epoch, one._left_session_id),
            "hopes": one._hopes_for_session,
            "counts": (one._sent_count, one._answered_count, len(one._outstanding)),
            "lulls": one._lulls,
            "unreachable": one._is_unreachable,
            "failure": repr(one._failure),
            "followers": one._followers.keys(),
            "woken": one._wake.is_set(),
        }
        for place, one in fetchers._fetchers.items()
    ] + [world.lost, len(fetchers._unplaced)]


@asynccontextmanager
async def following_twins(
    *,
    config: dict[str, str] | None = None,
    settings: dict[str, str] | None = None,
    topics: tuple[str, ...] = ("t", "u"),
    far_end: Callable[[], FarEnd] = FarEnd,
    dir_count: int = 1,
) -> AsyncIterator[FollowingTwins]:
    """`config` is of topics, `settings` of the brokers."""
    taken = Taken()
    async with (
        broker_world(
            settings=settings or {}, shortcuts=taken.shortcuts, dir_count=dir_count
        ) as quick,
        broker_world(settings=settings or {}, shortcuts=NO_SHORTCUTS, dir_count=dir_count) as slow,
    ):
        both = FollowingTwins((quick, slow), taken, far_end)
        both.each(lambda world: world.decide(registered(OTHER, 20)))
        for topic in topics:
            both.create(topic, config)
        await both.settle()
        try:
            yield both
            await both.settle()
        finally:
            for world in both.worlds:
                for task in world.replicas.stop_fetching():
                    await asyncio.wait([task])
