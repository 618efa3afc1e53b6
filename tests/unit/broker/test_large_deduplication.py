"""D5: a batch with very many ids is judged, and remembered, by a thread; the loop goes on."""

import gc
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.batches import NOW_MS
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.test_deduplication import (
    WINDOW_MS,
    batch,
    dropped,
    end,
    send,
    stored_ids,
    topic,
)
from tests.unit.broker.world import World, broker_world
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import Offset
from tidelog.broker import deduplication
from tidelog.broker.deduplication import AT_ONCE_BYTES, AT_ONCE_UNCOMPRESSED_BYTES
from tidelog.broker.sent_ids import SentIds
from tidelog.core.deduplication.index import IdIndex
from tidelog.records.batch import Codec

AT_ONCE = 3
MANY = tuple("abcdef")
"""Of which what is left without the first two are still many."""


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What an index was asked and told. More than AT_ONCE are many."""
    made: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        method = getattr(IdIndex, name)

        def note(self: IdIndex, *args: Any, **kwargs: Any) -> Any:
            made.append(name)
            return method(self, *args, **kwargs)

        return note

    for name in ("judge", "on_batch"):
        monkeypatch.setattr(IdIndex, name, noted(name))
    monkeypatch.setattr(deduplication, "AT_ONCE_RECORDS", AT_ONCE)
    return made


async def begun(world: World, calls: list[str], **config: str) -> None:
    """A topic with the ids `a` and `b`, and nothing of it is done by a thread from now on."""
    await topic(world, **config)
    await send(world, batch("a", "b"))
    assert calls == ["judge", "on_batch"]
    calls.clear()
    world.executor.hold(URGENT)


async def step(world: World) -> None:
    """A thread does one thing, and there was one."""
    assert world.executor.waiting(URGENT) == 1
    world.executor.step(URGENT)
    await world.settle()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@in_virtual_time
async def test_thread_judges_once_and_then_remembers(codec: Codec, calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        sent = await send(world, batch(*MANY, codec=codec))
        assert (calls, sent.results) == ([], [])
        await step(world)
        assert (calls, sent.base_offset) == (["judge"], 2)
        assert [one for _, one in stored_ids(world)] == ["a", "b", "c", "d", "e", "f"]
        await step(world)
        assert calls == ["judge", "on_batch"]
        assert world.executor.waiting(URGENT) == 0
        assert dropped(world) == 2


@in_virtual_time
async def test_next_batch_waits_until_the_ids_are_remembered(calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        await send(world, batch(*MANY))
        await step(world)
        waiting = await send(world, batch("c"))
        assert waiting.results == []
        await step(world)
        assert waiting.base_offset == 4
        assert [offset for offset, _ in stored_ids(world)] == [0, 1, 4, 5, 6, 7]


@in_virtual_time
async def test_few_need_no_thread(calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        assert (await send(world, batch("a", "b", "c"))).base_offset == 2
        assert calls == ["judge", "on_batch"]


@in_virtual_time
async def test_nothing_but_duplicates_leave_nothing_to_remember(calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        sent = await send(world, batch(*"abab"))
        await step(world)
        assert (calls, sent.base_offset) == (["judge"], 0)
        assert stored_ids(world) == [(0, "a"), (1, "b")]
        assert world.executor.waiting(URGENT) == 0


@in_virtual_time
async def test_retry_is_judged_by_a_thread_and_gets_the_answer_it_had(calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        world.executor.release(URGENT)
        all_seen = batch(*"abab", producer=5, sequence=0)
        new = batch(*"cdefa", producer=5, sequence=4)
        first = [(await send(world, one)).base_offset for one in (all_seen, new)]
        calls.clear()
        world.executor.hold(URGENT)
        for told, one in zip(first, (all_seen, new), strict=True):
            again = await send(world, one)
            assert again.results == []
            await step(world)
            assert again.base_offset == told
        assert calls == ["judge", "judge"]
        assert first == [0, 6]


@in_virtual_time
async def test_brokers_clock_that_goes_on_meanwhile_is_not_asked_again(calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls, message_timestamp_type="LogAppendTime")
        sent = await send(world, batch(*MANY, at_ms=5))
        world.executor.step(URGENT)
        world.clock.advance(WINDOW_MS)
        await world.settle()
        assert (calls, sent.base_offset) == (["judge"], 2)
        assert [one.timestamp_ms for one in world.stored("t")][-1] == NOW_MS + WINDOW_MS


@in_virtual_time
async def test_what_is_deleted_meanwhile_is_judged_anew(calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        await send(world, batch(*MANY))
        world.executor.step(URGENT)
        world.executor.release(URGENT)
        await world.runner("t").delete_records(Offset(1))
        await world.settle()
        assert calls == ["judge", "judge", "on_batch"]
        assert [one for _, one in stored_ids(world)] == ["b", *"acdef"]


@in_virtual_time
async def test_end_of_a_transaction_with_many_ids_is_remembered_by_a_thread(
    calls: list[str],
) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        world.executor.release(URGENT)
        for sequence in (0, 2):
            ids = [f"{sequence}-{number}" for number in range(2)]
            sent = batch(*ids, producer=5, sequence=sequence, is_transactional=True)
            assert (await send(world, sent)).code == ErrorCode.NONE
        other = batch("0-0", "x", "y", "z")
        assert (await send(world, other)).code == ErrorCode.NOT_ENOUGH_REPLICAS
        calls.clear()
        world.executor.hold(URGENT)
        await end(world, 5, commit=True)
        assert calls == []
        await step(world)
        assert calls == ["on_batch"]
        world.executor.release(URGENT)
        assert (await send(world, other)).base_offset == 7
        assert dropped(world) == 1


@in_virtual_time
async def test_what_was_made_of_a_batch_that_is_refused_goes_with_the_answer(
    calls: list[str],
) -> None:
    """And not when somebody looks for cycles: a client tries it again and again, with megabytes."""
    async with broker_world() as world:
        await begun(world, calls)
        world.executor.release(URGENT)
        await send(world, batch("x", producer=5, sequence=0, is_transactional=True))
        gc.collect()
        gc.disable()
        try:
            refused = await send(world, batch("x", *MANY))
            left = [one for one in gc.get_objects() if type(one) is SentIds]
        finally:
            gc.enable()
        assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert left == []


@in_virtual_time
async def test_what_was_made_of_a_batch_counts_as_held_while_it_waits() -> None:
    """For a new segment, behind what threads have to do for others."""
    async with broker_world() as world:
        sent = batch(*MANY, value=bytes(50_000))
        await topic(world, segment_bytes=str(2**20 + 100))
        await send(world, batch("a", value=bytes(1_000_000)))
        world.executor.hold(URGENT)
        produced = await send(world, sent)
        assert world.request_memory.held_bytes == len(sent)
        await step(world)
        assert world.executor.waiting(URGENT) == 1
        assert world.request_memory.held_bytes > len(sent) + 5 * 50_000
        world.executor.release(URGENT)
        await world.settle()
        assert (produced.code, world.request_memory.held_bytes) == (ErrorCode.NONE, 0)


@in_virtual_time
async def test_table_that_has_to_grow_does_so_on_a_thread(calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        with patch.object(IdIndex, "entries_touched_by", return_value=AT_ONCE + 1):
            await send(world, batch("c"))
        assert calls == ["judge"]
        await step(world)
        assert calls == ["judge", "on_batch"]


@in_virtual_time
async def test_little_that_much_is_made_of_is_unpacked_by_a_thread(calls: list[str]) -> None:
    async with broker_world() as world:
        await begun(world, calls)
        sent = batch("c", codec=Codec.ZSTD, value=bytes(2 * AT_ONCE_UNCOMPRESSED_BYTES))
        assert len(sent) < AT_ONCE_BYTES
        produced = await send(world, sent)
        assert (calls, produced.results) == ([], [])
        await step(world)
        assert (calls, produced.base_offset) == (["judge", "on_batch"], 2)
