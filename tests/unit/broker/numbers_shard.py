"""A partition of an internal topic with its coordinator, whose machine keeps a number per name.

Time is virtual, the other replica is played by the test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.hash_keys import HASH_KEY
from tests.unit.broker.world import BROKER, OTHER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.broker.coordinators import Coordinators
from tidelog.broker.shard_runner import ShardRunner
from tidelog.core.controller.changes import BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop
from tidelog.core.coordinators import Effects, Reply, Token, Transactional, Write
from tidelog.records.batch import Codec

OTHER_EPOCH = 20
TIMEOUT_MS = 5_000
REPLACED = 1
REPLACED_NAME = "\0\1name"
"""Its key says that of its records only the last counts."""
UNREADABLE = b"?"


@dataclass
class Numbers:
    """The machine."""

    record_max_bytes: int
    known: dict[str, int] = field(default_factory=dict)
    undecided: dict[int, dict[str, int]] = field(default_factory=dict)
    deadline_ms: int | None = None
    ticks: list[int] = field(default_factory=list)

    @property
    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def on_loaded(self, now_ms: int) -> Effects:
        return ()

    def on_tick(self, now_ms: int) -> Effects:
        self.deadline_ms = None
        self.ticks.append(now_ms)
        return (Write((("tick", now_ms),)),)

    def on_set(self, name: str, number: int, token: Token, now_ms: int) -> Effects:
        if len(name) > self.record_max_bytes:
            raise RequestRefused(ErrorCode.INVALID_REQUEST)
        self.known[name] = number
        return Write(((name, number),)), Reply(token, number)

    def on_get(self, name: str, token: Token, now_ms: int) -> Effects:
        return (Reply(token, self.known.get(name)),)

    def on_ping(self, token: Token, now_ms: int) -> Effects:
        return (Reply(token, "pong", is_held=False),)

    def on_end(self, producer_id: int, is_committed: bool) -> Effects:
        numbers = self.undecided.pop(producer_id, {})
        if is_committed:
            self.known |= numbers
        return ()


@dataclass
class NumbersKind:
    """How it is written."""

    deeds: list[object] = field(default_factory=list)
    codec: Codec = Codec.NONE
    kinds: tuple[int, ...] = (REPLACED,)
    kinds_in_transactions: tuple[int, ...] = (REPLACED,)
    decoded: list[bytes] = field(default_factory=list)

    def create(self, *, leader_epoch: int, record_max_bytes: int) -> Numbers:
        return Numbers(record_max_bytes)

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        assert isinstance(record, tuple)
        name, number = record
        return name.encode(), None if number is None else str(number).encode()

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        self.decoded.append(key)
        if key == b"unknown" or value == UNREADABLE:
            return None
        return key.decode(), None if value is None else int(value)

    def replay(self, shard: Numbers, record: object, transactional: Transactional | None) -> None:
        assert isinstance(record, tuple)
        name, number = record
        if transactional is not None:
            shard.undecided.setdefault(transactional.producer_id, {})[name] = number
        else:
            shard.known[name] = number

    def on_transaction_ended(
        self, shard: Numbers, producer: Transactional, *, is_committed: bool, now_ms: int
    ) -> Effects:
        return shard.on_end(producer.producer_id, is_committed)

    def perform(self, runner: ShardRunner[Numbers], deed: object) -> None:
        self.deeds.append(deed)


class Coordinated:
    """A partition of an internal topic, with its coordinator."""

    def __init__(self, world: World, load_bytes: int) -> None:
        self.world = world
        self.kind = NumbersKind()
        self.coordinators: Coordinators[Numbers] = Coordinators(
            "t",
            self.kind,
            broker_id=BROKER,
            partitions=world.partitions,
            clock=world.clock,
            hash_key=HASH_KEY,
            loop=asyncio.get_running_loop(),
            tasks=world.tasks,
            reply_timeout_ms=TIMEOUT_MS,
            load_bytes=load_bytes,
        )
        world.partitions.attach_to("t", self.coordinators.attach)

    @property
    def runner(self) -> ShardRunner[Numbers]:
        return self.coordinators.of("anything")

    @property
    def machine(self) -> Numbers:
        return self.runner._active_shard

    def set(self, name: str, number: int) -> "asyncio.Future[object]":
        return self.runner.ask(lambda shard, token, now: shard.on_set(name, number, token, now))

    def send(self, name: str, number: int) -> "asyncio.Future[object]":
        """As a client does: whoever is to decide may not be in office yet."""
        return self.coordinators.ask(
            name, lambda shard, token, now: shard.on_set(name, number, token, now), may_write=True
        )

    def get(self, name: str) -> "asyncio.Future[object]":
        return self.runner.ask(
            lambda shard, token, now: shard.on_get(name, token, now), may_write=False
        )

    def ping(self) -> "asyncio.Future[object]":
        return self.runner.ask(lambda shard, token, now: shard.on_ping(token, now), may_write=False)

    def fetched(self, offset: int) -> None:
        """The other replica has everything below `offset`."""
        self.world.runner("t").on_follower_fetch(
            OTHER,
            broker_epoch=OTHER_EPOCH,
            fetch_offset=Offset(offset),
            log_start_offset=Offset(0),
        )

    def pass_time(self, by_ms: int) -> None:
        """The loop's timers are told by `asyncio.sleep`; the clock by this."""
        self.world.clock.advance(by_ms)


@asynccontextmanager
async def coordinated_world(
    *, alone: bool = True, load_bytes: int = 2**20, **config: str
) -> AsyncIterator[Coordinated]:
    """This broker leads partition t-0, `alone` or with another that is in sync."""
    async with broker_world() as world:
        coordinated = Coordinated(world, load_bytes)
        named = {name.replace("_", "."): value for name, value in config.items()}
        if alone:
            world.create("t", config=named)
        else:
            endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "other", 9092)
            world.decide(
                BrokerRegistered(BrokerImage(OTHER, OTHER_EPOCH, (endpoint,), None, LastStop.CLEAN))
            )
            world.create("t", config=named, state=replicated(BROKER, 0))
        await world.settle()
        yield coordinated


def refusal(future: "asyncio.Future[object]") -> ErrorCode:
    error = future.exception()
    assert isinstance(error, RequestRefused)
    return error.code


def stored(world: World) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in world.stored("t")]


def overtaken(one: Coordinated) -> None:
    one.world.change("t", replicated(OTHER, 1))


def elected_again(one: Coordinated, epoch: int) -> None:
    one.world.change("t", replicated(BROKER, epoch))
