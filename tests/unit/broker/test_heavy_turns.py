"""Megabytes take turns, and small requests do not wait for several of them (T4)."""

import asyncio
from functools import partial
from itertools import pairwise

import pytest

from tests.unit.broker.followed import answer, records
from tests.unit.broker.played_leader import followed, opened
from tests.unit.broker.served import Client, ServedWorld, produce_values, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.broker.after_read import AfterRead
from tidelog.broker.heavy_turns import HEAVY_BYTES, SMALL_BYTES, SMALL_LATELY_S, HeavyTurns
from tidelog.broker.shortcuts import NO_SHORTCUTS, SHORTCUTS, Shortcuts
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_plain_batch
from tidelog.wire.api import ApiKey

NOW_MS = 1_700_000_000_000


def batch_of(size_bytes: int) -> bytearray:
    return encode_plain_batch([Record(0, NOW_MS, b"k", b"v" * size_bytes, ())], Codec.NONE)


async def prepared(served: ServedWorld) -> None:
    served.world.create("t")
    await served.world.settle()


def end_of(served: ServedWorld) -> int:
    return served.world.runner("t").log.log_end_offset


def produce(client: Client, size_bytes: int) -> None:
    client.send(ApiKey.PRODUCE, 9, produce_values(batch_of(size_bytes), ("t", 0), 1))


async def turn() -> None:
    await asyncio.sleep(0)


@in_virtual_time
async def test_one_piece_in_a_turn_first_come_first_served() -> None:
    turns = HeavyTurns(asyncio.get_running_loop(), pause_s=0)
    done: list[str] = []

    def piece(name: str) -> None:
        assert turns.take()
        done.append(name)

    assert turns.take()
    assert not turns.take()
    for name in "abc":
        turns.when_free(partial(piece, name))
    for so_far in ("a", "ab", "abc"):
        await turn()
        assert "".join(done) == so_far
    await turn()
    assert turns.take()


@in_virtual_time
async def test_who_asks_twice_is_called_once() -> None:
    turns = HeavyTurns(asyncio.get_running_loop(), pause_s=0)
    calls: list[int] = []

    def count() -> None:
        calls.append(1)

    assert turns.take_or_wait(count)
    for _ in range(3):
        assert not turns.take_or_wait(count)
    for _ in range(3):
        await turn()
    assert calls == [1]


@in_virtual_time
async def test_who_has_nothing_to_do_any_more_gives_its_turn_on() -> None:
    turns = HeavyTurns(asyncio.get_running_loop(), pause_s=0)
    done: list[bool] = []
    assert turns.take()
    turns.when_free(lambda: None)
    turns.when_free(lambda: done.append(turns.take()))
    await turn()
    assert done == [True]


@pytest.mark.parametrize("size_bytes", [HEAVY_BYTES + 1, 200_000, 400_000, 900_000])
@in_virtual_time
async def test_heavy_requests_of_many_clients_are_handled_one_in_a_turn(size_bytes: int) -> None:
    """Whether or not they fit the buffer that all connections share."""
    async with served_world() as served:
        await prepared(served)
        clients = [served.client() for _ in range(4)]
        for client in clients:
            produce(client, size_bytes)
        before = end_of(served)
        assert before <= 1
        for _ in range(200):
            await turn()
            for client in clients:
                client.deliver()
            assert end_of(served) - before <= 1
            before = end_of(served)
        assert end_of(served) == len(clients)


@in_virtual_time
async def test_a_small_request_does_not_wait_for_its_turn() -> None:
    async with served_world() as served:
        await prepared(served)
        heavy, small = served.client(), served.client()
        assert served.server.turns.take()
        produce(heavy, 200_000)
        produce(small, 100)
        assert end_of(served) == 1
        await turn()
        await turn()
        heavy.deliver()
        assert end_of(served) == 2


@in_virtual_time
async def test_a_turn_is_not_lost_to_the_budget_of_a_read() -> None:
    """Those behind a producer in the queue do not overtake it."""
    async with served_world() as served:
        await prepared(served)
        turns, client = served.server.turns, served.client()
        ends: list[int] = []

        def behind() -> None:
            ends.append(end_of(served))
            assert turns.take()

        produce(client, 400_000)
        await turn()
        await turn()
        assert turns.take()
        client.deliver()
        turns.when_free(behind)
        for _ in range(4):
            await turn()
            client.deliver()
        assert ends[0] == 1


@in_virtual_time
async def test_a_client_that_goes_while_it_waits_costs_nobody_a_turn() -> None:
    async with served_world() as served:
        await prepared(served)
        turns, gone, stays = served.server.turns, served.client(), served.client()
        assert turns.take()
        for client in (gone, stays):
            produce(client, 200_000)
        gone.disconnect()
        await turn()
        await turn()
        stays.deliver()
        assert end_of(served) == 1


@in_virtual_time
async def test_what_a_read_makes_due_is_done_at_its_end_and_once() -> None:
    after_read = AfterRead(asyncio.get_running_loop())
    done: list[str] = []
    after_read.begin()
    after_read.call(lambda: done.append("first"))
    assert done == []
    after_read.end()
    assert done == ["first"]
    after_read.call(lambda: done.append("second"))
    assert done == ["first"]
    await turn()
    assert done == ["first", "second"]


@in_virtual_time
async def test_what_becomes_due_by_that_waits_for_the_next_turn() -> None:
    after_read = AfterRead(asyncio.get_running_loop())
    done: list[str] = []
    after_read.begin()
    after_read.call(lambda: after_read.call(lambda: done.append("later")))
    after_read.end()
    assert done == []
    await turn()
    assert done == ["later"]


@in_virtual_time
async def test_after_a_heavy_piece_there_is_a_pause_while_small_records_are_about() -> None:
    loop = asyncio.get_running_loop()
    turns = HeavyTurns(loop, pause_s=0.002)
    begun: list[float] = []

    def piece() -> None:
        assert turns.take()
        begun.append(loop.time())

    async def three_pieces() -> list[float]:
        begun.clear()
        piece()
        for _ in range(2):
            turns.when_free(partial(piece))  # Another one each time.
        await asyncio.sleep(1)
        return [later - earlier for earlier, later in pairwise(begun)]

    assert await three_pieces() == [0, 0]
    turns.note_small()
    assert await three_pieces() == pytest.approx([0.002, 0.002])
    await asyncio.sleep(SMALL_LATELY_S)
    assert await three_pieces() == [0, 0]


@pytest.mark.parametrize("shortcuts", [SHORTCUTS, NO_SHORTCUTS], ids=["compiled", "python"])
@pytest.mark.parametrize("size_bytes", [100, 100_000])
@in_virtual_time
async def test_small_batches_are_noticed_however_they_are_appended(
    size_bytes: int, shortcuts: Shortcuts
) -> None:
    async with served_world(shortcuts=shortcuts) as served:
        await prepared(served)
        client = served.client()
        for _ in range(3):
            await asyncio.sleep(1)
            produce(client, size_bytes)
            is_noticed = served.server.turns.small_at_s == asyncio.get_running_loop().time()
            assert is_noticed is (size_bytes < SMALL_BYTES)


@pytest.mark.parametrize("shortcuts", [SHORTCUTS, NO_SHORTCUTS], ids=["compiled", "python"])
@in_virtual_time
async def test_a_follower_notices_small_records_as_well(shortcuts: Shortcuts) -> None:
    async with followed(1, shortcuts=shortcuts) as (world, leader):
        await opened(leader)
        for offset in range(3):
            await asyncio.sleep(0.01)
            leader.answer(answer(records(1, offset=offset, epoch=3), high_watermark=0))
            await leader.asked_once()
            (quick,) = (one for one in world.fetchers._fetchers.values() if not one.is_bulk)
            now_s = asyncio.get_running_loop().time()
            assert now_s - quick._peer.turns.small_at_s < 0.01
