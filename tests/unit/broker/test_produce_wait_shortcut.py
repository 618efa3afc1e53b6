"""An answer that a producer waits for leaves as it would without the shortcuts, whatever state its
connection is in when the last follower has the batch.

Twins, as in `test_fetch_shortcut.py`, which also compare all that a connection remembers. Here is
what `_send_only` and `_advance` of `_shortcuts_produce.pxi` have to leave to Python.
"""

from collections.abc import Callable
from random import Random

import pytest

from tests.unit.broker.compiled import only_compiled
from tests.unit.broker.led_twins import (
    PRODUCE_VERSION,
    Follower,
    Pair,
    Twins,
    batch,
    led_twins,
)
from tests.unit.broker.served import Client, produce_values
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.test_fetch_shortcut import Scene
from tests.unit.broker.world import BROKER, OTHER
from tidelog.broker.heavy_turns import HEAVY_BYTES
from tidelog.wire.api import ApiKey

pytestmark = only_compiled


async def waiting(both: Twins) -> tuple[Scene, list[bytes]]:
    """A producer of whose last request the shortcut waits for one follower; what it is answered."""
    scene = await Scene.set(both)
    for changes in ({"isr": (BROKER, OTHER)}, {"replicas": (BROKER, OTHER)}):
        both.change("t", 0, **changes)
        await both.settle()
    scene.produce()  # The first makes the shortcut.
    commit(both)
    answers: list[bytes] = []
    scene.producer.on_answers = answers.append
    before = both.taken.produced
    scene.produce()
    await both.settle()
    assert both.taken.produced == before + 1
    assert answers == []
    return scene, answers


def commit(both: Twins) -> None:
    """The only follower that counts has all there is."""
    follower = both.follower()
    follower.follow()
    follower.ask()


def stall(client: Client) -> None:
    """Something else has filled the socket."""
    client.transport.is_stalled = True
    client.connection.send_one(b"....")


def finish(client: Client) -> None:
    client.connection.finish()


def spend_budget(client: Client) -> None:
    client.connection.end_turn()


def ask_for_more(client: Client) -> None:
    """And have the request kept until its turn has come."""
    assert client.served.server.turns.take()
    now_ms = client.served.world.clock.now_ms()
    heavy = batch(Random(2), value_bytes=HEAVY_BYTES, now_ms=now_ms)
    client.send(ApiKey.PRODUCE, PRODUCE_VERSION, produce_values(heavy, ("u", 0), 1))
    client.forget_requests()


def close(client: Client) -> None:
    client.connection.close()


@pytest.mark.parametrize("happen", [stall, finish, spend_budget, ask_for_more, close])
@in_virtual_time
async def test_the_twins_agree_however_a_connection_is(happen: Callable[[Client], None]) -> None:
    async with led_twins() as both:
        scene, answers = await waiting(both)
        scene.producer.each(happen)
        both.compare()
        commit(both)
        assert len(answers) == (happen in {finish, spend_budget, ask_for_more})
        assert scene.producer.is_closed == (happen in {finish, close})
        both.compare()
        if happen is stall:
            scene.producer.each(lambda client: client.transport.take_all())
        both.compare()
        await both.settle()


@in_virtual_time
async def test_answers_of_one_read_keep_their_order() -> None:
    """A request whose answer is ready but not sent, one that waits, and one that ends the wait."""
    async with led_twins() as both:
        scene, answers = await waiting(both)
        commit(both)
        answers.clear()
        end, before = both.runner().log.log_end_offset, both.taken.produced
        follower = both.follower()
        follower.stand(end + 1)
        send_in_one_piece(scene, scene.producer, follower)
        assert both.taken.produced == before + 1
        assert both.runner().high_watermark == end + 1
        (answer,) = answers
        assert correlation_ids(answer) == [1, 2, 9]


def send_in_one_piece(scene: Scene, pair: Pair, follower: Follower) -> None:
    ((key, place),) = follower.places.items()
    follower._correlation_id = 8
    fetch = follower.frame([(key, place)], [])
    produce = pair._values("t", 0, scene.batch(), -1, 1_000)
    for client in pair.clients:
        client._correlation_id = 0
        versions = client.frame(ApiKey.API_VERSIONS, 0, {})
        client.send_together(
            [versions, client.frame(ApiKey.PRODUCE, PRODUCE_VERSION, produce), fetch]
        )
        client.forget_requests()
    scene.both.compare()


def correlation_ids(answers: bytes) -> list[int]:
    found = []
    while answers:
        found.append(int.from_bytes(answers[4:8], "big"))
        answers = answers[4 + int.from_bytes(answers[:4], "big") :]
    return found


@pytest.mark.parametrize("acks", [1, -1])
@in_virtual_time
async def test_what_no_follower_counts_for_is_committed_with_the_append(acks: int) -> None:
    """There are followers, but none is in sync, or about to be."""
    async with led_twins() as both:
        scene = await Scene.set(both)
        scene.produce(acks=acks)
        both.change("t", 0, isr=(BROKER,))
        both.each(lambda served: served.world.clock.advance(60_000))
        await both.settle()
        answers: list[bytes] = []
        scene.producer.on_answers = answers.append
        before = both.taken.produced
        consumer = both.connect()
        for client in consumer.clients:
            client.fetch({("t", 0): both.runner().log.log_end_offset}, max_wait_ms=60_000)
            client.forget_requests()
        both.compare()
        scene.produce(acks=acks)
        assert both.taken.produced == before + 1
        assert both.runner().high_watermark == both.runner().log.log_end_offset
        assert len(answers) == 1
        both.compare()
        await both.settle()
