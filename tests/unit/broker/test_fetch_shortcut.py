"""A follower's fetch that is compiled differs from the way through Python in nothing but speed.

Twins (`led_twins.py`): two leaders in memory, one with the shortcuts and one without, that are sent
the same requests of producers and followers and meet with the same changes. After every step what
they have said, their files, their books and those of their sessions must be equal, to the byte.
That is the whole specification of `_shortcuts_fetch.pxi`, and of what `_shortcuts_produce.pxi` does
with partitions that have followers.
"""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.compiled import only_compiled
from tests.unit.broker.followed import answer, take
from tests.unit.broker.led_twins import (
    ALL,
    FETCH_VERSION,
    THIRD,
    Twins,
    batch,
    led_twins,
)
from tests.unit.broker.served import ServedWorld
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import BROKER, OTHER
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.base.ids import Offset
from tidelog.records.batch import HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES, read_header

pytestmark = only_compiled


# -- what is ordinary ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [15, 16, 17])
@pytest.mark.parametrize("acks", [1, -1])
@in_virtual_time
async def test_what_is_ordinary_takes_the_shortcut(version: int, acks: int) -> None:
    """Otherwise the twins would agree because they are the same."""
    async with led_twins() as both:
        scene = await Scene.set(both, version=version)
        taken = both.taken
        scene.produce(acks=acks)  # The first makes the shortcut.
        for follower in scene.followers:
            follower.ask()
        for _ in range(5):
            before = (taken.produced, taken.parked)
            scene.producer.produce(scene.batch(), acks=acks)
            assert [follower.waiting for follower in scene.followers] == [0, 0]
            for follower in scene.followers:
                follower.ask()
            assert [follower.waiting for follower in scene.followers] == [1, 1]
            assert (taken.produced, taken.parked) == (before[0] + 1, before[1] + 2)
        assert (taken.started, taken.taken_over) == (0, 0)


@in_virtual_time
async def test_news_of_several_partitions_at_once_is_ordinary() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        follower = both.follower()
        places = [("t", 1), ("t", 0), ("u", 0)]
        for place in places:
            follower.follow(*place)
        for _ in range(3):
            follower.ask()
        assert follower.waiting
        scene.producer.produce_to(places, scene.batch())
        assert both.taken.taken_over == 0
        assert not follower.waiting
        assert sum(len(results) for _, _, results in follower.answer.topics) == 3


@pytest.mark.parametrize("seed", range(10))
@in_virtual_time
async def test_the_twins_agree_about_damaged_frames(seed: int) -> None:
    """Lengths that lie, names cut short, bytes too many: read here without a decoder."""
    chance = Random(seed)
    async with led_twins() as both:
        scene = await Scene.set(both)
        follower = scene.followers[0]
        for _ in range(100):
            if follower.pair.is_closed:
                follower.connect()
                both.pairs = [scene.producer, *(each.pair for each in scene.followers)]
            for _ in range(3):
                if not follower.waiting:
                    follower.ask()
            scene.producer.produce(scene.batch(), acks=1)
            wanted = [(key, follower.places[key]) for key in follower.unsaid()]
            good = follower.frame(wanted, [])
            bad = damaged(chance, good)
            for client in follower.pair.clients:
                client.send_together([bad])
            follower.pair.on_answers = lambda _answers: None
            await both.settle()
            follower.waiting = 0
            follower.pair.each(lambda client: client.disconnect())


def damaged(chance: Random, good: bytes) -> bytes:
    """A whole frame whose correlation id, at least, is right."""
    body = bytearray(good[12:])
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        body[chance.randrange(len(body))] = chance.randrange(256)
    match chance.randrange(4):
        case 0:
            del body[chance.randrange(len(body)) :]
        case 1:
            body += bytes(chance.randint(1, 9))
        case _:
            pass
    head = good[4:12]
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


# -- how a wait ends -----------------------------------------------------------------------------


class Scene:
    """Two followers that wait for records of one partition, and somebody who produces them."""

    def __init__(self, both: Twins) -> None:
        self.both = both
        self.chance = Random(1)
        self.producer = both.connect()
        self.followers = [both.follower(OTHER), both.follower(THIRD)]

    @classmethod
    async def set(cls, both: Twins, *, version: int = FETCH_VERSION, min_bytes: int = 1) -> "Scene":
        scene = cls(both)
        await scene.begin(version=version, min_bytes=min_bytes)
        return scene

    async def begin(self, *, version: int = FETCH_VERSION, min_bytes: int = 1) -> None:
        """Both wait, in sessions that have a shortcut."""
        self.producer.produce(self.batch(), acks=1)  # The first of an epoch is special.
        for follower in self.followers:
            follower.form = replace(follower.form, version=version, min_bytes=min_bytes)
            follower.follow()
            follower.ask()
            follower.ask()
            assert follower.waiting == 1
        # The first request within a session makes the shortcut, the next one takes it.
        self.producer.produce(self.batch(), self.batch(), self.batch(), acks=1)
        for follower in self.followers:
            assert follower.waiting == 0
            follower.ask()
            assert follower.waiting == 1
        await self.both.settle()
        self.both.taken.started = self.both.taken.taken_over = 0

    def batch(self, *, value_bytes: int = 8) -> bytearray:
        now_ms = self.both.quick.world.clock.now_ms()
        return batch(self.chance, value_bytes=value_bytes, now_ms=now_ms)

    def produce(self, **changes: Any) -> None:
        self.producer.produce(self.batch(), **changes)

    # -- ways out --------------------------------------------------------------------------------

    async def time_is_up(self) -> None:
        await self.both.pass_time(0.6)

    async def another_request_follows(self) -> None:
        for follower in self.followers:
            follower.ask()

    async def server_stops(self) -> None:
        for follower in self.followers:
            follower.pair.each(lambda client: client.connection.finish())

    async def client_goes(self) -> None:
        for follower in self.followers:
            follower.pair.each(lambda client: client.disconnect())

    async def another_connection_goes_on(self) -> None:
        for follower in self.followers:
            session = follower.session
            follower.connect()
            follower.session = session
            follower.ask()

    async def another_connection_ends_the_session(self) -> None:
        for follower in self.followers:
            follower.pair, other = self.both.connect(), follower.pair
            follower.pair.send(follower.frame([], [], session_epoch=-1))
            follower.pair = other

    async def more_than_is_copied(self) -> None:
        self.producer.produce(self.batch(value_bytes=70_000), acks=1)

    async def more_than_is_small(self) -> None:
        self.producer.produce(self.batch(value_bytes=200_000), acks=1)

    async def several_batches(self) -> None:
        self.producer.produce(*(self.batch() for _ in range(4)), acks=1)

    async def log_start_moves(self) -> None:
        await self.both.both(lambda served: served.world.runner("t").delete_records(Offset(1)))

    async def leader_changes(self) -> None:
        self.both.elect("t", 0, OTHER)

    async def epoch_changes(self) -> None:
        self.both.elect("t", 0, BROKER)

    async def topic_goes(self) -> None:
        self.both.each(lambda served: served.world.delete("t"))

    async def topic_is_made_anew(self) -> None:
        self.both.each(lambda served: served.world.delete("t"))
        await self.both.settle()
        self.both.create("t", {})

    async def follower_returns(self) -> None:
        self.both.register(OTHER, 21)
        await self.both.settle()
        self.produce(acks=1)

    async def follower_is_not_assigned(self) -> None:
        self.both.change("t", 0, isr=(BROKER, OTHER))
        await self.both.settle()
        self.both.change("t", 0, replicas=(BROKER, OTHER))
        await self.both.settle()
        self.produce(acks=1)

    async def no_follower_is_assigned(self) -> None:
        self.both.change("t", 0, isr=(BROKER,))
        await self.both.settle()
        self.both.change("t", 0, replicas=(BROKER,))
        await self.both.settle()
        self.produce(acks=1)

    async def disk_fails(self) -> None:
        self.both.each(lambda served: served.world.disk.arm("append", "*.log", StorageError))
        self.produce(acks=1)

    async def segment_is_full(self) -> None:
        config = {"internal.segment.bytes": "350"}
        self.both.each(lambda served: served.world.configure("t", config))
        self.produce(acks=1)
        await self.both.settle()

    async def records_are_flushed_first(self) -> None:
        self.both.each(lambda served: served.world.configure("t", {"flush.messages": "1"}))
        self.produce(acks=1)
        await self.both.settle()

    async def throttle_is_set(self) -> None:
        for served in self.both.served:
            served.fetch.reader.throttle.set_replicas("t", ("*",))
            served.fetch.reader.throttle.set_rate(1)
        self.both.change("t", 0, isr=(BROKER,))
        await self.both.settle()
        self.produce(acks=1)

    async def racks_matter(self) -> None:
        for served in self.both.served:
            served.fetch.reader.is_rack_aware = True
        self.produce(acks=1)

    async def answers_have_no_room(self) -> None:
        self.both.each(lambda served: served.answer_memory.hold(2**20))
        self.produce(acks=1)
        await self.both.settle()
        self.both.each(lambda served: served.answer_memory.release(2**20))

    async def answers_have_little_room(self) -> None:
        self.both.each(lambda served: served.answer_memory.hold(2**20 - 100))
        self.producer.produce(self.batch(), self.batch(), acks=1)
        await self.both.settle()
        self.both.each(lambda served: served.answer_memory.release(2**20 - 100))

    async def answer_is_exactly_full(self) -> None:
        held_bytes = 2**20 - len(self.batch())
        self.both.each(lambda served: served.answer_memory.hold(held_bytes))
        self.produce(acks=1)
        await self.both.settle()
        self.both.each(lambda served: served.answer_memory.release(held_bytes))

    async def records_are_undecided(self) -> None:
        for served in self.both.served:
            served.world.runner("t").producers._open_transactions[9] = Offset(1)
        self.produce(acks=1)

    async def place_is_forgotten(self) -> None:
        for served in self.both.served:
            recent = served.world.runner("t").log._recent
            recent[:] = [None] * len(recent)
        self.produce(acks=1)


WAYS_OUT: dict[Callable[[Scene], Coroutine[None, None, None]], int] = {
    Scene.time_is_up: 2,
    Scene.another_request_follows: 2,
    Scene.server_stops: 2,
    Scene.client_goes: 0,
    Scene.another_connection_goes_on: 0,
    Scene.another_connection_ends_the_session: 0,
    Scene.more_than_is_copied: 0,
    Scene.more_than_is_small: 0,
    Scene.several_batches: 0,
    Scene.log_start_moves: 2,
    Scene.leader_changes: 2,
    Scene.epoch_changes: 2,
    Scene.topic_goes: 2,
    Scene.topic_is_made_anew: 2,
    Scene.follower_returns: 1,
    Scene.follower_is_not_assigned: 1,
    Scene.no_follower_is_assigned: 2,
    Scene.disk_fails: 2,
    Scene.segment_is_full: 0,
    Scene.records_are_flushed_first: 0,
    Scene.throttle_is_set: 2,
    Scene.racks_matter: 2,
    Scene.answers_have_no_room: 2,
    Scene.answers_have_little_room: 0,
    Scene.answer_is_exactly_full: 0,
    Scene.records_are_undecided: 0,
    Scene.place_is_forgotten: 0,
}
"""And for how many of the two waits Python has to be asked."""


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way_out: way_out.__name__)
@in_virtual_time
async def test_the_twins_agree_however_a_wait_ends(
    way_out: Callable[[Scene], Coroutine[None, None, None]],
) -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        await way_out(scene)
        both.compare()
        await both.settle()
        assert both.taken.taken_over == WAYS_OUT[way_out]
        await both.pass_time(0.2)
        for _ in range(5):
            for follower in scene.followers:
                if follower.pair.is_closed:
                    follower.connect()
                if not follower.waiting:
                    follower.ask(forgotten=follower.look_around())
            scene.produce()
            await both.settle()
            await both.pass_time(0.3)


@in_virtual_time
async def test_less_than_was_asked_for_waits_on() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both, min_bytes=200)
        size_bytes = len(scene.batch())
        assert size_bytes < 200 < 3 * size_bytes
        for _ in range(2):
            scene.produce(acks=1)
            await both.settle()
            assert [follower.waiting for follower in scene.followers] == [1, 1]
        assert both.taken.taken_over == 0
        scene.produce(acks=1)
        assert [follower.waiting for follower in scene.followers] == [0, 0]


@in_virtual_time
async def test_the_time_of_each_request_is_its_own() -> None:
    """Though there is one timer for all of them."""
    async with led_twins() as both:
        scene = await Scene.set(both)
        await both.pass_time(0.3)
        scene.produce(acks=1)
        for follower in scene.followers:
            follower.ask()
        await both.pass_time(0.4)
        assert [follower.waiting for follower in scene.followers] == [1, 1]
        await both.pass_time(0.2)
        assert [follower.waiting for follower in scene.followers] == [0, 0]


@pytest.mark.parametrize(
    "changes", [{"min_bytes": 0}, {"max_wait_ms": 0}, {"isolation_level": 1}, {"rack_id": "a"}]
)
@in_virtual_time
async def test_the_twins_agree_about_unusual_forms(changes: dict[str, Any]) -> None:
    async with led_twins() as both:
        scene = Scene(both)
        follower = scene.followers[0]
        follower.form = replace(follower.form, **changes)
        follower.follow()
        for _ in range(3):
            for _ in range(3):
                if not follower.waiting:
                    follower.ask()
            scene.produce(acks=1)
            await both.settle()
        assert both.taken.parked == both.taken.started == 0


@in_virtual_time
async def test_a_partition_that_is_named_twice_is_asked_for_once() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        follower = scene.followers[0]
        scene.produce(acks=1)
        ((key, place),) = follower.places.items()
        follower.pair.send(follower.frame([(key, place), (key, place)], []))
        assert not follower.pair.is_closed
        assert follower.waiting == 1


@in_virtual_time
async def test_a_full_answer_has_nothing_else() -> None:
    """What is behind it in the session comes first next time, even if there is nothing to read."""
    async with led_twins() as both:
        scene = await Scene.set(both)
        first, second = scene.followers
        for follower in scene.followers:
            follower.follow("u")
            follower.ask()
            await both.settle()
            if not follower.waiting:
                follower.ask()
        second.pair.each(lambda client: client.disconnect())
        size_bytes = len(scene.batch())
        both.each(lambda served: served.answer_memory.hold(2**20 - size_bytes))
        both.change("u", 0, isr=(BROKER,))
        scene.produce(acks=1)
        await both.settle()
        assert first.waiting == 0
        both.each(lambda served: served.answer_memory.release(2**20 - size_bytes))


@in_virtual_time
async def test_only_the_first_batch_of_an_answer_may_be_too_large() -> None:
    """There is room for a part of the second, and so for nothing of it."""
    async with led_twins() as both:
        scene = await Scene.set(both)
        follower = both.follower()
        places = [("t", 0), ("t", 1), ("u", 0)]
        for place in places:
            follower.follow(*place)
        for _ in range(3):
            follower.ask()
        scene.producer.produce_to(places, scene.batch())  # The first of an epoch is special.
        follower.ask()
        await both.settle()
        assert follower.waiting
        held_bytes = 2**20 - len(scene.batch()) - 10
        both.each(lambda served: served.answer_memory.hold(held_bytes))
        both.taken.taken_over = 0
        scene.producer.produce_to(places, scene.batch())
        assert both.taken.taken_over == 0
        assert not follower.waiting
        results = [result for _, _, results in follower.answer.topics for result in results]
        assert [len(result.records) for result in results if result.records] == [len(scene.batch())]
        both.each(lambda served: served.answer_memory.release(held_bytes))
        await both.settle()


@in_virtual_time
async def test_who_is_a_segment_behind_does_not_read_the_newest() -> None:
    """At the position that is remembered of the other one."""
    async with led_twins() as both:
        scene = await Scene.set(both)
        config = {"internal.segment.bytes": "350"}
        both.each(lambda served: served.world.configure("t", config))
        for _ in range(4):
            scene.produce(acks=1)
            await both.settle()
        assert len(both.runner().log.segments) == 2
        follower = scene.followers[0]
        follower.stand(1)
        follower.ask()
        await both.settle()
        ((_, _, (result,)),) = follower.answer.topics
        assert read_header(result.records, 0).base_offset == 1


@in_virtual_time
async def test_two_connections_of_one_session_take_turns() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        follower = scene.followers[0]
        before = both.taken.parked
        pairs = [follower.pair, both.connect()]
        pairs[1].on_answers = pairs[0].on_answers
        for number in range(8):
            follower.pair = pairs[number % 2]
            follower.ask()
            await both.settle()
            if number % 3 == 0:
                scene.produce(acks=1)
        assert both.taken.parked > before


@in_virtual_time
async def test_who_is_below_the_start_is_told() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        follower = scene.followers[0]
        scene.produce(acks=1)
        for each in scene.followers:
            each.ask()
        scene.produce(acks=1)
        await both.both(lambda served: served.world.runner("t").delete_records(Offset(2)))
        follower.stand(1)
        follower.ask()
        await both.settle()
        ((_, _, (result,)),) = follower.answer.topics
        assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@in_virtual_time
async def test_who_waits_is_woken_by_what_it_did_not_listen_to_before() -> None:
    """A session that nobody waits in hears only the first news of a partition."""
    async with led_twins() as both:
        scene = await Scene.set(both)
        follower = scene.followers[0]
        scene.produce(acks=1)
        scene.produce(acks=1)
        before = both.taken.parked
        follower.follow()
        follower.ask()
        assert (follower.waiting, both.taken.parked) == (1, before + 1)
        scene.produce(acks=1)
        assert follower.waiting == 0


@in_virtual_time
async def test_a_replica_that_was_taken_away_and_given_back_is_heard_of_again() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        both.change("t", 0, isr=(BROKER, OTHER))
        await both.settle()
        for replicas in ((BROKER, OTHER), ALL):
            both.change("t", 0, replicas=replicas)
            await both.settle()
        assert scene.followers[1].waiting == 1
        scene.produce(acks=1)
        await both.settle()
        leader = both.runner().leader
        assert leader is not None
        assert leader.has_fetched(THIRD)


@in_virtual_time
async def test_what_is_being_flushed_is_not_served() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        limit = str(both.runner().flusher.unflushed_records + 2)
        both.each(lambda served: served.world.configure("t", {"flush.messages": limit}))
        await both.settle()
        both.each(lambda served: served.world.executor.hold(URGENT, BACKGROUND))
        scene.producer.produce(scene.batch(), scene.batch(), acks=1)
        leader = both.runner().leader
        assert leader is not None
        assert leader.log_end_offset < both.runner().log.log_end_offset
        assert [follower.waiting for follower in scene.followers] == [0, 0]
        both.each(lambda served: served.world.executor.release(URGENT, BACKGROUND))
        await both.settle()


def exceed_throttle(served: ServedWorld) -> None:
    throttle = served.fetch.reader.throttle
    throttle.set_replicas("t", ("*",))
    throttle.set_rate(1)
    throttle.record(10**6)


@in_virtual_time
async def test_a_wait_that_python_goes_on_with_ends_when_it_would_have() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        both.change("t", 0, isr=(BROKER,))
        await both.pass_time(0.3)
        both.each(exceed_throttle)
        scene.produce(acks=1)
        await both.settle()
        assert [follower.waiting for follower in scene.followers] == [1, 1]
        assert both.taken.taken_over == 2
        await both.pass_time(0.25)
        assert [follower.waiting for follower in scene.followers] == [0, 0]


@pytest.mark.parametrize("is_behind", [False, True])
@in_virtual_time
async def test_who_is_throttled_stays_so(is_behind: bool) -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        both.change("t", 0, isr=(BROKER,))
        await both.settle()
        scene.produce(acks=1)
        both.each(exceed_throttle)
        if is_behind:
            scene.produce(acks=1)
        for follower in scene.followers:
            follower.ask()
            assert follower.waiting == 1
        await both.settle()


@pytest.mark.parametrize("is_behind", [False, True])
@in_virtual_time
async def test_who_asks_while_there_is_no_room_for_answers_waits_for_that(is_behind: bool) -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        scene.produce(acks=1)
        if is_behind:
            scene.produce(acks=1)
        both.each(lambda served: served.answer_memory.hold(2**20))
        for follower in scene.followers:
            follower.ask()
            assert follower.waiting == 1
        both.each(lambda served: served.answer_memory.release(2**20))
        await both.settle()


# -- what was written anew -----------------------------------------------------------------------


@in_virtual_time
async def test_what_was_cut_off_is_not_served() -> None:
    """A batch of the same size, at the same place in the same file, in place of another one."""
    async with led_twins() as both:
        scene = await Scene.set(both)
        end = both.runner().log.log_end_offset
        scene.produce(acks=1)
        scene.produce(acks=1)  # This one is remembered, at `end + 1`.
        both.elect("t", 0, OTHER)
        await both.settle()
        said = answer(diverging=(both.runner().epochs.latest_epoch, end))
        both.each(lambda served: take(served.world, said))
        await both.settle()
        assert both.runner().log.log_end_offset == end
        both.elect("t", 0, BROKER)
        await both.settle()
        scene.produce(acks=1)
        assert both.runner().log.log_end_offset == end + 1
        follower = both.follower()
        follower.follow()
        follower.ask()
        follower.ask()
        await both.pass_time(0.6)
        before = both.taken.parked
        follower.ask()
        assert (follower.waiting, both.taken.parked) == (1, before + 1)
        both.taken.taken_over = 0
        written = scene.batch()
        both.connect().produce(written, acks=1)  # The first of a connection goes through Python.
        assert follower.waiting == both.taken.taken_over == 0
        ((_, _, (result,)),) = follower.answer.topics
        assert bytes(result.records)[16:] == bytes(written)[16:]


@pytest.mark.parametrize("length", [-1, 0, HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES - 1])
@pytest.mark.parametrize(("number", "more_bytes"), [(0, 2**20), (0, 40), (1, 40)])
@in_virtual_time
async def test_a_batch_whose_length_cannot_be_is_not_served(
    length: int, number: int, more_bytes: int
) -> None:
    """One of two that follow each other; whether or not the answer has room for both."""
    async with led_twins() as both:
        scene = await Scene.set(both)
        scene.produce(acks=1)
        size_bytes = len(scene.batch())
        at = both.runner().log.size_bytes + number * size_bytes
        scene.producer.produce(scene.batch(), scene.batch(), acks=1)
        both.each(lambda served: overwrite(served, at + 8, length.to_bytes(4, "big", signed=True)))
        follower = scene.followers[0]
        follower.form = replace(follower.form, partition_max_bytes=size_bytes + more_bytes)
        follower.stand(both.runner().log.log_end_offset - 2)
        follower.ask()
        await both.settle()
        ((_, _, (result,)),) = follower.answer.topics
        assert result.error_code == ErrorCode.CORRUPT_MESSAGE


def overwrite(served: ServedWorld, at: int, data: bytes) -> None:
    """As a disk that lies does."""
    file = served.world.runner("t").log.segments[-1].file
    assert file is not None
    stored = bytearray(file.read(0, file.size_bytes))
    stored[at : at + len(data)] = data
    file.truncate(0)
    file.append(stored)


# -- producers who wait --------------------------------------------------------------------------


async def _time_is_up(both: Twins) -> None:
    await both.pass_time(1.1)


async def _leader_changes(both: Twins) -> None:
    both.elect("t", 0, OTHER)


async def _epoch_changes(both: Twins) -> None:
    both.elect("t", 0, BROKER)


async def _topic_goes(both: Twins) -> None:
    both.each(lambda served: served.world.delete("t"))


async def _disk_fails(both: Twins) -> None:
    both.each(lambda served: served.world.disk.arm("append", "*.log", StorageError))
    both.connect().produce(plain_batch(), acks=1)


async def _followers_leave(both: Twins) -> None:
    both.change("t", 0, isr=(BROKER,))


async def _too_many_followers_leave(both: Twins) -> None:
    both.each(lambda served: served.world.configure("t", {"min.insync.replicas": "2"}))
    both.change("t", 0, isr=(BROKER,))


async def _log_start_moves(both: Twins) -> None:
    await both.both(lambda served: served.world.runner("t").delete_records(Offset(1)))
    both.change("t", 0, isr=(BROKER,))


async def _producer_goes(both: Twins) -> None:
    both.pairs[0].each(lambda client: client.disconnect())


@pytest.mark.parametrize(
    ("way_out", "code"),
    [
        (_time_is_up, ErrorCode.REQUEST_TIMED_OUT),
        (_leader_changes, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_epoch_changes, None),
        (_topic_goes, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_disk_fails, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_followers_leave, ErrorCode.NONE),
        (_too_many_followers_leave, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (_log_start_moves, ErrorCode.NONE),
        (_producer_goes, None),
    ],
)
@pytest.mark.parametrize("version", [9, 11, 13])
@in_virtual_time
async def test_the_twins_agree_however_a_produce_ends(
    way_out: Callable[[Twins], Coroutine[None, None, None]],
    code: ErrorCode | None,
    version: int,
) -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        scene.produce(version=version)  # The first makes the shortcut.
        for _ in range(2):
            for follower in scene.followers:
                if not follower.waiting:
                    follower.ask()
        before = both.taken.produced
        answers: list[bytes] = []
        scene.producer.on_answers = answers.append
        scene.produce(version=version)
        assert both.taken.produced == before + 1
        await both.settle()
        assert answers == []
        await way_out(both)
        await both.settle()
        assert [code_in(answer, version) for answer in answers] == [code] * (code is not None)
        await both.pass_time(2)


@in_virtual_time
async def test_nothing_is_appended_that_too_few_replicas_would_have() -> None:
    async with led_twins() as both:
        scene = await Scene.set(both)
        scene.produce()
        both.each(lambda served: served.world.configure("t", {"min.insync.replicas": "2"}))
        both.change("t", 0, isr=(BROKER,))
        await both.settle()
        end, before = both.runner().log.log_end_offset, both.taken.produced
        scene.produce()
        assert (both.runner().log.log_end_offset, both.taken.produced) == (end, before)
        both.change("t", 0, isr=(BROKER, OTHER))
        await both.settle()
        scene.produce()
        assert (both.runner().log.log_end_offset, both.taken.produced) == (end + 1, before + 1)


def code_in(answer: bytes, version: int) -> int:
    """Of the only partition."""
    named_bytes = 16 if version >= 13 else 2
    at = 4 + 4 + 1 + 1 + named_bytes + 1 + 4
    return int.from_bytes(answer[at : at + 2], "big")
