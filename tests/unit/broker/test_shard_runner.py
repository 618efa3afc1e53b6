"""One shard of a coordinator on a real partition: W1-W4 of `core/coordinators.py` (P3, D3).

The machine keeps one number per name. Time is virtual, the other replica is played by the test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass, field

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import BROKER, OTHER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.broker.append_terms import Marker
from tidelog.broker.coordinators import Coordinators
from tidelog.broker.shard_runner import ShardRunner
from tidelog.core.controller.changes import BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop
from tidelog.core.coordinators import Effects, Perform, Reply, Token, Transactional, Write
from tidelog.records.batch import Codec
from tidelog.records.control import ControlType, TransactionEnd

OTHER_EPOCH = 20
TIMEOUT_MS = 5_000
PRODUCER = Transactional(ProducerId(7), ProducerEpoch(1))


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

    def create(self, *, leader_epoch: int, record_max_bytes: int) -> Numbers:
        return Numbers(record_max_bytes)

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        assert isinstance(record, tuple)
        name, number = record
        return name.encode(), None if number is None else str(number).encode()

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        if key == b"unknown":
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
            partitions=world.partitions,
            clock=world.clock,
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


# -- answering -----------------------------------------------------------------------------------


@in_virtual_time
async def test_an_answer_is_given_when_the_record_is_in_the_log() -> None:
    async with coordinated_world() as one:
        assert one.set("a", 1).result() == 1
        assert one.get("a").result() == 1
        assert stored(one.world) == [(b"a", b"1")]


@in_virtual_time
async def test_an_answer_waits_until_the_other_replica_has_the_record() -> None:
    """W2: also that of somebody who only reads what was written."""
    async with coordinated_world(alone=False) as one:
        written, read = one.set("a", 1), one.get("a")
        await one.world.settle()
        assert not written.done()
        assert not read.done()
        one.fetched(1)
        assert written.result() == 1
        assert read.result() == 1


@in_virtual_time
async def test_a_sign_of_life_waits_for_nothing() -> None:
    async with coordinated_world(alone=False) as one:
        one.set("a", 1)
        assert one.ping().result() == "pong"


@in_virtual_time
async def test_answers_are_given_in_the_order_of_what_was_written() -> None:
    async with coordinated_world(alone=False) as one:
        first, second = one.set("a", 1), one.set("a", 2)
        one.fetched(1)
        assert first.done()
        assert not second.done()
        one.fetched(2)
        assert second.result() == 2


@in_virtual_time
async def test_a_deed_waits_like_an_answer() -> None:
    async with coordinated_world(alone=False) as one:
        one.runner.tell(lambda _shard, _now: (Write((("a", 1),)), Perform("send it")))
        assert one.kind.deeds == []
        one.fetched(1)
        assert one.kind.deeds == ["send it"]


@in_virtual_time
async def test_who_waits_too_long_may_ask_again_and_finds_it_written() -> None:
    async with coordinated_world(alone=False) as one:
        waiting = one.set("a", 1)
        await asyncio.sleep(TIMEOUT_MS / 1000 - 0.01)
        assert not waiting.done()
        await asyncio.sleep(0.02)
        assert refusal(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        one.fetched(1)
        assert one.get("a").result() == 1


@in_virtual_time
async def test_who_stops_waiting_harms_nobody() -> None:
    async with coordinated_world(alone=False) as one:
        first, second = one.set("a", 1), one.set("b", 2)
        first.cancel()
        one.fetched(2)
        await one.world.settle()
        assert second.result() == 2
        assert not one.runner._waiting


# -- what cannot be written ----------------------------------------------------------------------


@in_virtual_time
async def test_nothing_is_decided_while_nothing_can_be_written() -> None:
    """W3: a set that is too small for min.insync.replicas is known beforehand."""
    async with coordinated_world(alone=False, min_insync_replicas="2") as one:
        one.world.runner("t").on_isr_changed(frozenset({BROKER}), version=1)
        refused = one.set("a", 1)
        assert refusal(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert one.machine.known == {}
        assert one.ping().result() == "pong"


@in_virtual_time
async def test_what_is_on_too_few_replicas_is_kept_but_nobody_is_told() -> None:
    async with coordinated_world(alone=False, min_insync_replicas="2") as one:
        waiting = one.set("a", 1)
        one.runner.tell(lambda _shard, _now: (Perform("send it"),))
        one.world.runner("t").on_isr_changed(frozenset({BROKER}), version=1)
        assert refusal(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert one.machine.known == {"a": 1}
        assert one.kind.deeds == []
        one.world.runner("t").on_isr_changed(frozenset({BROKER, OTHER}), version=2)
        await asyncio.sleep(1)
        assert one.kind.deeds == ["send it"]


@in_virtual_time
async def test_a_write_that_is_refused_after_all_leaves_what_the_log_says() -> None:
    """W3: the set shrinks while the log is rolled, with the write in the queue."""
    async with coordinated_world(alone=False, min_insync_replicas="2") as one:
        one.set("a", 1)
        one.fetched(1)
        one.world.executor.hold(URGENT)
        partition = one.world.runner("t")
        partition.queue.roll(one.world.clock.now_ms())
        lost, reader = one.set("a", 2), one.get("a")
        partition.on_isr_changed(frozenset({BROKER}), version=1)
        one.world.executor.release(URGENT)
        await one.world.settle()
        assert refusal(lost) is ErrorCode.NOT_COORDINATOR
        assert refusal(reader) is ErrorCode.NOT_COORDINATOR
        assert one.runner.is_active
        assert one.machine.known == {"a": 1}
        assert one.get("a").result() == 1


@in_virtual_time
async def test_a_failing_disk_ends_the_shard() -> None:
    async with coordinated_world() as one:
        runner = one.runner
        one.world.log_dir.on_failure(StorageError("gone"))
        refused = runner.ask(lambda shard, token, now: shard.on_ping(token, now))
        assert refusal(refused) is ErrorCode.NOT_COORDINATOR
        with pytest.raises(RequestRefused):
            one.coordinators.of("a")


@in_virtual_time
async def test_more_than_a_batch_holds_is_written_in_several() -> None:
    async with coordinated_world(max_message_bytes="400") as one:
        names = [f"name-{number}" for number in range(40)]
        one.runner.tell(lambda _shard, _now: (Write(tuple((name, 1) for name in names)),))
        assert [key for key, _ in stored(one.world)] == [name.encode() for name in names]


# -- loading -------------------------------------------------------------------------------------


def overtaken(one: Coordinated) -> None:
    one.world.change("t", replicated(OTHER, 1))


def elected_again(one: Coordinated, epoch: int) -> None:
    one.world.change("t", replicated(BROKER, epoch))


@in_virtual_time
async def test_the_next_leader_knows_what_the_log_says() -> None:
    async with coordinated_world() as one:
        one.set("a", 1)
        one.set("a", 2)
        one.set("b", 3)
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == {"a": 2, "b": 3}


@in_virtual_time
async def test_a_log_is_loaded_in_as_many_pieces_as_it_takes() -> None:
    async with coordinated_world(load_bytes=1) as one:
        for number in range(20):
            one.set(f"name-{number % 7}", number)
        before = dict(one.machine.known)
        elected_again(one, 1)
        await one.world.settle()
        while not one.runner.is_active:
            await one.world.settle()
        assert one.machine.known == before


@in_virtual_time
async def test_nobody_is_answered_before_all_of_the_log_is_read() -> None:
    async with coordinated_world() as one:
        one.set("a", 1)
        one.world.executor.hold(URGENT)
        elected_again(one, 1)
        await one.world.settle()
        assert refusal(one.get("a")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        one.world.executor.release(URGENT)
        await one.world.settle()
        assert one.runner.is_active


@in_virtual_time
async def test_what_was_read_may_be_told_when_it_is_committed() -> None:
    """W2: a new leader's log may end with what nobody else has."""
    async with coordinated_world(alone=False) as one:
        one.set("a", 1)
        elected_again(one, 1)
        await one.world.settle()
        reader = one.get("a")
        assert not reader.done()
        one.fetched(1)
        assert reader.result() == 1


@in_virtual_time
async def test_who_waits_for_a_leader_that_is_overtaken_looks_for_the_next() -> None:
    async with coordinated_world(alone=False) as one:
        waiting, runner = one.set("a", 1), one.runner
        overtaken(one)
        await one.world.settle()
        assert refusal(waiting) is ErrorCode.NOT_COORDINATOR
        assert not runner.is_active
        with pytest.raises(RequestRefused) as refused:
            one.coordinators.of("a")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_a_reply_held_since_loading_is_not_given_by_losing_the_lead() -> None:
    """Whoever waits for an offset is woken also when this broker does not lead any more."""
    async with coordinated_world(alone=False) as one:
        one.set("a", 1)
        elected_again(one, 1)
        await one.world.settle()
        reader = one.get("a")
        one.world.change("t", replicated(OTHER, 2))
        await one.world.settle()
        assert refusal(reader) is ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_what_is_not_known_is_skipped() -> None:
    async with coordinated_world() as one:
        one.runner.tell(lambda _shard, _now: (Write((("unknown", 1), ("a", 2))),))
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == {"a": 2}


def vouch_for_producer(one: Coordinated) -> None:
    """As its coordinator does, before anything is written in its transaction."""
    one.world.runner("t").producers.begin_verification(
        *astuple(PRODUCER), sequence=0, bumps_epoch=True, now_ms=0
    )


def end(one: Coordinated, control_type: ControlType) -> None:
    marker = Marker(
        PRODUCER.producer_id, PRODUCER.producer_epoch, TransactionEnd(control_type, 3), 1
    )
    one.world.runner("t").append_marker(
        marker, now_ms=one.world.clock.now_ms(), settle=lambda _: None
    )


@in_virtual_time
async def test_a_transaction_counts_from_its_marker_on() -> None:
    async with coordinated_world() as one:
        vouch_for_producer(one)
        one.runner.tell(lambda _shard, _now: (Write((("a", 1),), PRODUCER),))
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == {}
        assert one.machine.undecided == {7: {"a": 1}}
        end(one, ControlType.COMMIT)
        assert one.machine.known == {"a": 1}


@in_virtual_time
async def test_nobody_is_told_what_a_marker_has_changed_before_that_is_committed() -> None:
    """W2"""
    async with coordinated_world(alone=False) as one:
        vouch_for_producer(one)
        one.runner.tell(lambda _shard, _now: (Write((("a", 1),), PRODUCER),))
        one.fetched(1)
        end(one, ControlType.COMMIT)
        read = one.get("a")
        await one.world.settle()
        assert not read.done()
        one.fetched(2)
        assert read.done()


@pytest.mark.parametrize("control_type", list(ControlType))
@in_virtual_time
async def test_a_marker_in_the_log_is_replayed(control_type: ControlType) -> None:
    async with coordinated_world() as one:
        vouch_for_producer(one)
        one.runner.tell(lambda _shard, _now: (Write((("a", 1),), PRODUCER),))
        end(one, control_type)
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == ({"a": 1} if control_type is ControlType.COMMIT else {})
        assert one.machine.undecided == {}


@in_virtual_time
async def test_a_partition_that_is_deleted_has_no_coordinator() -> None:
    async with coordinated_world() as one:
        runner = one.runner
        one.world.delete("t")
        await one.world.settle()
        assert not runner.is_active
        with pytest.raises(RequestRefused):
            one.coordinators.of("a")


# -- time ----------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_machine_is_told_when_it_wanted_to_be() -> None:
    async with coordinated_world() as one:
        start_ms = one.world.clock.now_ms()

        def wake_at(shard: Numbers, now_ms: int) -> Effects:
            shard.deadline_ms = now_ms + 700
            return ()

        one.runner.tell(wake_at)
        one.pass_time(700)
        await asyncio.sleep(0.71)
        assert one.machine.ticks == [start_ms + 700]
        assert stored(one.world) == [(b"tick", str(start_ms + 700).encode())]


@in_virtual_time
async def test_what_is_due_waits_while_it_cannot_be_written() -> None:
    async with coordinated_world(alone=False, min_insync_replicas="2") as one:
        partition = one.world.runner("t")
        partition.on_isr_changed(frozenset({BROKER}), version=1)

        def wake_at(shard: Numbers, now_ms: int) -> Effects:
            shard.deadline_ms = now_ms
            return ()

        one.runner.tell(wake_at)
        await asyncio.sleep(3)
        assert one.machine.ticks == []
        partition.on_isr_changed(frozenset({BROKER, OTHER}), version=2)
        await asyncio.sleep(1)
        assert len(one.machine.ticks) == 1


# -- who else writes there -----------------------------------------------------------------------


@in_virtual_time
async def test_the_queue_says_when_it_is_idle() -> None:
    async with coordinated_world() as one:
        partition = one.world.runner("t")
        await asyncio.wait_for(partition.queue.idle(), 1)
        one.world.executor.hold(URGENT)
        partition.queue.roll(one.world.clock.now_ms())
        one.world.produce("t", plain_batch(1))
        waiting = asyncio.ensure_future(partition.queue.idle())
        await one.world.settle()
        assert not waiting.done()
        one.world.executor.release(URGENT)
        await asyncio.wait_for(waiting, 1)
        assert one.world.stored_offsets("t") == [0]
