"""A follower's fetch that is compiled differs from the way through Python in nothing but speed.

Twins (`led_twins.py`): two leaders in memory, one with the shortcuts and one without, that are sent
the same requests of producers and followers and meet with the same changes. After every step what
they have said, their files, their books and those of their sessions must be equal, to the byte.
That is the whole specification of `_shortcuts_fetch.pxi`, and of what `_shortcuts_produce.pxi` does
with partitions that have followers.
"""

import os
import shutil
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.support.batches import idempotent_batch, plain_batch
from tests.unit.broker.followed import answer, records, take
from tests.unit.broker.led_twins import (
    ALL,
    FETCH_VERSION,
    PARTITIONS,
    THIRD,
    WAITS_MS,
    Follower,
    Pair,
    Twins,
    led_twins,
)
from tests.unit.broker.served import ServedWorld
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import BROKER, OTHER
from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset
from tidelog.broker.shortcuts import is_compiled
from tidelog.core.controller.changes import BrokerGone
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_plain_batch

pytestmark = pytest.mark.skipif(
    not is_compiled() and (shutil.which("cc") is None or "TIDELOG_PURE_PYTHON" in os.environ),
    reason="there is no C compiler here, or nothing was to be compiled",
)

STEPS = 150


def batch(chance: Random, *, count: int = 1, value_bytes: int = 8, now_ms: int) -> bytearray:
    """Of the same size as any other with so many records, and unlike them."""
    return encode_plain_batch(
        [
            Record(number, now_ms, b"key", chance.randbytes(value_bytes), ())
            for number in range(count)
        ],
        Codec.NONE,
    )


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
        scene.producer.produce(scene.batch(), acks=1)  # The first of an epoch is special.
        for follower in scene.followers:
            follower.form = replace(follower.form, version=version, min_bytes=min_bytes)
            follower.follow()
            follower.ask()
            follower.ask()
            assert follower.waiting == 1
        # The first request within a session makes the shortcut, the next one takes it.
        scene.producer.produce(scene.batch(), scene.batch(), scene.batch(), acks=1)
        for follower in scene.followers:
            assert follower.waiting == 0
            follower.ask()
            assert follower.waiting == 1
        await both.settle()
        both.taken.started = both.taken.taken_over = 0
        return scene

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
            leader = served.world.runner("t").leader
            assert leader is not None
            leader.on_transactions_changed(Offset(1))
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


# -- stories -------------------------------------------------------------------------------------


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
        self.chance.choice(self.followers).pair.each(lambda client: client.connection.finish())

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
        offset = self.chance.choice((None, Offset(0), Offset(3)))
        for served in self.both.served:
            runner = served.world.partitions.find(topic, partition)
            if runner is not None and runner.leader is not None:
                runner.leader.on_transactions_changed(offset)


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
