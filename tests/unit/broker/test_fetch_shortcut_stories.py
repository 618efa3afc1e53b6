"""Two leaders in memory, one with the shortcuts and one without, live through the same stories.

What happens is drawn by chance from everything that can happen to a leader whose partitions are
followed: see `test_fetch_shortcut.py`, which has the cases that have a name.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from tests.support.batches import idempotent_batch
from tests.unit.broker.compiled import only_compiled
from tests.unit.broker.followed import answer, records, take
from tests.unit.broker.led_twins import (
    ALL,
    PARTITIONS,
    THIRD,
    WAITS_MS,
    Follower,
    Pair,
    Twins,
    batch,
    led_twins,
)
from tests.unit.broker.served import ServedWorld
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.transactions import end, write
from tests.unit.broker.world import BROKER, OTHER
from tidelog.base.errors import RequestRefused, StorageError
from tidelog.base.ids import Offset
from tidelog.core.controller.changes import BrokerGone

pytestmark = only_compiled

STEPS = 150


@pytest.mark.parametrize("seed", range(60))
@in_virtual_time
async def test_the_twins_agree_whatever_happens(seed: int) -> None:
    story = Story(Random(seed))
    async with led_twins(session_slots=4) as both:
        await story.run(both)


class Story:
    """One sequence of events, by chance."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    async def run(self, both: Twins) -> None:
        chance = self.chance
        self.both = both
        self.producers = [both.connect() for _ in range(3)]
        self.followers = [both.follower(OTHER), both.follower(THIRD)]
        for _ in range(STEPS):
            match chance.randrange(10):
                case 0:
                    await self.happen()
                case 1 | 2 | 3 | 4:
                    if chance.random() < 0.7:
                        self.catch_up()
                    self.produce()
                case _:
                    self.fetch(chance.choice(self.followers))
            if chance.random() < 0.5:
                await both.settle()
            self.renew_closed()

    def renew_closed(self) -> None:
        for number, pair in enumerate(self.producers):
            if pair.is_closed:
                self.producers[number] = self.both.connect()
        for follower in self.followers:
            if follower.pair.is_closed:
                follower.connect()
        self.both.pairs = [*self.producers, *(follower.pair for follower in self.followers)]

    # -- producers -------------------------------------------------------------------------------

    def produce(self) -> None:
        chance = self.chance
        number = chance.randrange(3)
        acks = (-1, 1, 0)[number] if chance.random() < 0.9 else chance.choice((-1, 1, 0, 5))
        topic, partition = chance.choice((("t", 0), ("t", 0), ("t", 1), ("u", 0)))
        if number == 1 and chance.random() < 0.9:
            topic, partition = "u", 0
        self.producers[number].produce(
            *(self.batch(topic, partition) for _ in range(chance.choice((1, 1, 1, 3)))),
            topic=topic,
            partition=partition,
            acks=acks,
            timeout_ms=1_000 if chance.random() < 0.95 else chance.choice((0, -1, 100)),
        )

    def batch(self, topic: str, partition: int) -> bytearray:
        chance = self.chance
        now_ms = self.both.quick.world.clock.now_ms()
        match chance.randrange(50):
            case 0:
                return batch(chance, value_bytes=chance.choice((70_000, 140_000)), now_ms=now_ms)
            case 1:
                flipped = batch(chance, now_ms=now_ms)
                flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
                return flipped
            case 2 | 3 | 4:
                producer_id = chance.choice((1, 2))
                sequence = self.next_sequence(topic, partition, producer_id)
                if chance.random() < 0.2:
                    sequence = chance.choice((0, 1, 2))
                return idempotent_batch(1, producer_id=producer_id, base_sequence=sequence)
            case _:
                return batch(chance, count=chance.choice((1, 1, 2, 30)), now_ms=now_ms)

    def next_sequence(self, topic: str, partition: int, producer_id: int) -> int:
        runner = self.both.quick.world.partitions.find(topic, partition)
        for entry in () if runner is None else runner.producers.entries():
            if entry.producer_id == producer_id and entry.batches:
                return (entry.batches[-1].last_sequence + 1) % 2**31
        return 0

    # -- followers -------------------------------------------------------------------------------

    def fetch(self, follower: Follower) -> None:
        chance = self.chance
        if follower.waiting > (chance.random() < 0.1):
            return
        gone = follower.look_around()
        match chance.randrange(12):
            case 0:
                self.stray(follower)
            case 1 if follower.known:
                keys = [key for key in follower.places if key in follower.known]
                follower.ask(forgotten=[chance.choice(keys)] if keys else [])
            case 2:
                follower.pair.send(follower.frame([], []) + follower.frame([], gone))
                follower.known.difference_update(gone)
            case _:
                follower.ask(forgotten=gone)

    def catch_up(self) -> None:
        """All followers ask until there is nothing to say to them."""
        for follower in self.followers:
            for _ in range(4):
                if not follower.waiting:
                    follower.ask(forgotten=follower.look_around())

    def stray(self, follower: Follower) -> None:
        """Ask for something that is not as it should be."""
        chance = self.chance
        keys = list(follower.places)
        chance.shuffle(keys)
        wanted = []
        for key in keys[: chance.choice((1, 1, 3))]:
            place = follower.places[key]
            field = chance.choice(place._fields)
            moved = getattr(place, field) + chance.choice((-1, 1, -3, 3, 0))
            wanted.append((key, place._replace(**{field: moved})))
        changes: dict[str, int] = {}
        match chance.randrange(8):
            case 0:
                changes["session_epoch"] = chance.choice((-1, 0, 1, 2**31 - 1))
            case 1:
                changes["session_id"] = chance.choice((0, 1, follower.session[0] + 1))
            case 2:
                changes["replica_epoch"] = follower.epoch + chance.choice((-1, 1))
            case 3:
                changes["replica_id"] = chance.choice((*ALL, 7, -1))
            case 4:
                wanted += wanted
            case _:
                pass
        follower.known.difference_update(key for key, _ in wanted)
        follower.pair.send(follower.frame(wanted, [], **changes))

    # -- the rest of the world -------------------------------------------------------------------

    async def happen(self) -> None:
        chance = self.chance
        event = chance.choice(EVENTS)
        await self.both.settle()
        await event(self)
        if chance.random() < 0.7:
            await self.both.settle()

    def any_partition(self) -> tuple[str, int]:
        return self.chance.choice(
            [(name, each) for name, of in PARTITIONS.items() for each in range(of)]
        )

    async def time_passes(self) -> None:
        await self.both.pass_time(self.chance.choice((0.1, 0.3, 0.5, 0.6, 1.1)))

    async def clock_moves(self) -> None:
        by_ms = self.chance.choice((1, 600, 3_000, 40_000, 200_000))
        self.both.each(lambda served: served.world.clock.advance(by_ms))

    async def tick(self) -> None:
        def all_tick(served: ServedWorld) -> None:
            for runner in served.world.partitions:
                runner.on_tick()

        self.both.each(all_tick)

    async def configure(self) -> None:
        topic, _ = self.any_partition()
        config = self.chance.choice(CONFIGS)
        self.both.each(lambda served: served.world.configure(topic, config))

    async def delete_records(self) -> None:
        topic, partition = self.any_partition()
        share = self.chance.random()

        async def delete(served: ServedWorld) -> None:
            runner = served.world.partitions.find(topic, partition)
            if runner is not None:
                before = Offset(int(share * (runner.high_watermark + 1)))
                with suppress(RequestRefused):
                    await runner.delete_records(before)

        await self.both.both(delete)

    async def make_anew(self) -> None:
        topic, _ = self.any_partition()
        self.both.each(lambda served: served.world.delete(topic))
        if self.chance.random() < 0.5:
            await self.both.settle()
            for follower in self.followers:
                self.fetch(follower)
        self.both.create(topic, {})
        await self.both.settle()

    async def lead(self) -> None:
        self.both.elect(*self.any_partition(), BROKER)

    async def follow(self) -> None:
        topic, partition = self.any_partition()
        self.both.elect(topic, partition, OTHER)
        await self.both.settle()
        runner = self.both.quick.world.partitions.find(topic, partition)
        follower = runner and runner.follower
        if runner and follower and follower.may_fetch and self.chance.random() < 0.7:
            log = runner.log
            end = self.chance.randint(
                max(log.log_start_offset, log.log_end_offset - 4), log.log_end_offset
            )
            said = answer(diverging=(runner.epochs.latest_epoch, end), partition=partition)
            if self.chance.random() < 0.3:
                epoch = runner.leader_epoch
                sent = records(2, offset=log.log_end_offset, epoch=epoch)
                said = answer(sent, high_watermark=log.log_end_offset, partition=partition)
            self.both.each(lambda served: take(served.world, said, topic))
            await self.both.settle()
        if self.chance.random() < 0.8:
            self.both.elect(topic, partition, BROKER)
            await self.both.settle()

    async def broker_returns(self) -> None:
        follower = self.chance.choice(self.followers)
        if self.chance.random() < 0.3:
            with suppress(KeyError):
                self.both.each(lambda served: served.world.decide(BrokerGone(follower.replica)))
            await self.both.settle()
        follower.epoch += self.chance.choice((0, 1))
        self.both.register(follower.replica, follower.epoch)
        await self.both.settle()

    async def isr_changes(self) -> None:
        topic, partition = self.any_partition()
        isr = tuple(each for each in ALL if each == BROKER or self.chance.random() < 0.6)
        self.both.change(topic, partition, isr=isr)

    async def replicas_are_taken_away(self) -> None:
        """And given back, a while later."""
        topic, partition = self.any_partition()
        state = self.both.state(topic, partition)
        if state.leader != BROKER:
            return
        stay = tuple(each for each in ALL if each == BROKER or self.chance.random() < 0.3)
        self.both.change(topic, partition, isr=tuple(set(state.isr).intersection(stay)))
        await self.both.settle()
        self.both.change(topic, partition, replicas=stay)
        await self.both.settle()
        for _ in range(3):
            self.produce()
            self.fetch(self.chance.choice(self.followers))
        await self.both.settle()
        self.both.change(topic, partition, replicas=ALL)

    async def proposals_are_decided(self) -> None:
        is_granted = self.chance.random() < 0.7
        proposed = self.both.quick.world.proposed[-1:]
        if is_granted:
            for runner, said in proposed:
                if runner.leader is not None and runner.leader.isr_in_flight == said.isr:
                    self.both.change(*runner.topic_partition, isr=tuple(sorted(said.isr)))
        else:
            for served in self.both.served:
                for runner, said in served.world.proposed[-1:]:
                    runner.on_isr_refused(said)
        self.both.each(lambda served: served.world.proposed.clear())

    async def connection_is_lost(self) -> None:
        self.chance.choice([*self.producers, *(each.pair for each in self.followers)]).each(
            lambda client: client.disconnect()
        )

    async def connection_finishes(self) -> None:
        self.chance.choice([*self.producers, *(each.pair for each in self.followers)]).each(
            lambda client: client.connection.finish()
        )

    async def client_stalls(self) -> None:
        pair = self.chance.choice([*self.producers, *(each.pair for each in self.followers)])

        def stall(pair: Pair, is_stalled: bool) -> None:
            for client in pair.clients:
                if is_stalled:
                    client.transport.is_stalled = True
                else:
                    client.transport.take_all()

        stall(pair, True)
        for follower in self.followers:
            self.fetch(follower)
        self.produce()
        await self.both.settle()
        if not pair.is_closed:
            stall(pair, False)

    async def memory_is_exhausted(self) -> None:
        held_bytes = 2**20 - self.chance.choice((0, 0, 100, 5_000))
        self.both.each(lambda served: served.answer_memory.hold(held_bytes))
        for follower in self.followers:
            self.fetch(follower)
        self.produce()
        await self.both.settle()
        self.both.each(lambda served: served.answer_memory.release(held_bytes))

    async def throttle(self) -> None:
        topic, _ = self.any_partition()
        setting = self.chance.choice(((), ("*",)))
        rate = self.chance.choice((1, 1_000, 2**63 - 1))
        for served in self.both.served:
            throttle = served.fetch.reader.throttle
            throttle.set_replicas(topic, setting)
            throttle.set_rate(rate)

    async def racks(self) -> None:
        is_rack_aware = self.chance.random() < 0.3
        for served in self.both.served:
            served.fetch.reader.is_rack_aware = is_rack_aware

    async def form_changes(self) -> None:
        chance, follower = self.chance, self.chance.choice(self.followers)
        if follower.waiting:
            return
        follower.form = replace(
            follower.form,
            version=chance.choice((15, 16, 17, 17)),
            max_wait_ms=WAITS_MS[follower.replica] * chance.choice((0, 1, 2, 2)) // 2,
            min_bytes=chance.choice((0, 1, 1, 1, 200)),
            max_bytes=chance.choice((1, 500, 2**20, 2**20)),
            partition_max_bytes=chance.choice((0, 100, 2**20, 2**20)),
            isolation_level=chance.choice((0, 0, 0, 1)),
            rack_id=chance.choice(("", "", "a")),
        )

    async def disk_fails(self) -> None:
        error = StorageError
        name = self.chance.choice(("*.log", "*.index", "*.timeindex"))
        self.both.each(lambda served: served.world.disk.arm("append", name, error))

    async def disk_is_mended(self) -> None:
        async def mend(served: ServedWorld) -> None:
            await served.world.become_all()
            served.world.disk.heal()
            if not served.world.log_dir.is_online:
                await served.world.reopen()

        await self.both.both(mend)

    async def session_is_evicted(self) -> None:
        for number in range(2):
            pair = self.both.connect()
            for client in pair.clients:
                client.fetch({("t", number): 0}, session=(0, 0), max_wait_ms=0)
                client.forget_requests()
            self.both.compare()

    async def transaction(self) -> None:
        topic, partition = self.any_partition()
        producer, ends = self.chance.choice((7, 8)), self.chance.random() < 0.6
        is_commit = self.chance.random() < 0.5
        sequence = self.next_sequence(topic, partition, producer)
        for served in self.both.served:
            if served.world.partitions.find(topic, partition) is None:
                continue
            act = partial(end, commit=is_commit) if ends else partial(write, sequence=sequence)
            act(served.world, topic, partition=partition, producer=producer)


EVENTS = [
    Story.time_passes,
    Story.time_passes,
    Story.clock_moves,
    Story.tick,
    Story.configure,
    Story.delete_records,
    Story.delete_records,
    Story.make_anew,
    Story.lead,
    Story.follow,
    Story.follow,
    Story.broker_returns,
    Story.isr_changes,
    Story.replicas_are_taken_away,
    Story.replicas_are_taken_away,
    Story.proposals_are_decided,
    Story.proposals_are_decided,
    Story.connection_is_lost,
    Story.connection_finishes,
    Story.client_stalls,
    Story.memory_is_exhausted,
    Story.throttle,
    Story.racks,
    Story.form_changes,
    Story.disk_fails,
    Story.disk_is_mended,
    Story.disk_is_mended,
    Story.session_is_evicted,
    Story.transaction,
]

CONFIGS = [
    {},
    {},
    {"internal.segment.bytes": "2000"},
    {"index.interval.bytes": "200", "internal.segment.bytes": "4000"},
    {"segment.ms": "1000"},
    {"flush.messages": "7"},
    {"compression.type": "gzip"},
    {"max.message.bytes": "150"},
    {"min.insync.replicas": "2"},
    {"min.insync.replicas": "3"},
]
