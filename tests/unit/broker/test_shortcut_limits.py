"""Requests and answers that a shortcut must leave to Python, or must survive: each was a mistake.

`[compiled]` and `[python]` have to agree. test_fetch_shortcut.py and test_follow_shortcut.py look
for differences at random.
"""

import asyncio
import struct
from dataclasses import replace

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.followed import answer, records
from tests.unit.broker.played_leader import followed, named, opened
from tests.unit.broker.served import ServedWorld, produce_values, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, OTHER, replicated
from tidelog.broker.shortcuts import NO_SHORTCUTS, SHORTCUTS, Shortcuts
from tidelog.core.controller.changes import BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import FetchPartition, FetchRequest
from tidelog.wire.fetch_client import encode_fetch_request

VERSION = 17
LONG_MS = 2**31 - 1
both_ways = pytest.mark.parametrize(
    "shortcuts", [SHORTCUTS, NO_SHORTCUTS], ids=["compiled", "python"]
)


class Pretender:
    """Somebody who says that he is broker 2, and follows."""

    def __init__(self, served: ServedWorld, topic_id: bytes) -> None:
        self.client = served.client()
        self.topic_id = topic_id
        self.session_id = 0
        self.epoch = 0
        self._correlation_id = 0

    def frame(
        self,
        *offsets: int,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        isolation_level: int = 0,
        client_id: str = "me",
    ) -> bytes:
        """Of partition 0, once for each of `offsets`."""
        wanted = [FetchPartition(0, 0, offset, 0, 0, 2**20) for offset in offsets]
        request = FetchRequest(
            replica_id=OTHER,
            replica_epoch=1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=2**20,
            isolation_level=isolation_level,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[(None, self.topic_id, wanted)] if wanted else [],
            forgotten=[],
            rack_id="",
            cluster_id=None,
        )
        self.epoch += 1
        self._correlation_id += 1
        return encode_fetch_request(VERSION, self._correlation_id, client_id, request)

    async def ask(self, *offsets: int, max_wait_ms: int = 500, min_bytes: int = 1) -> list[bytes]:
        """Ask; what has been answered two turns of the loop later."""
        frame = self.frame(*offsets, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        self.client.send_together([frame])
        return await self.answers()

    async def answers(self) -> list[bytes]:
        for _ in range(4):
            await asyncio.sleep(0)
        sent, found = self.client.transport.sent, []
        while sent:
            (size_bytes,) = struct.unpack_from(">i", sent)
            found.append(bytes(sent[4 : 4 + size_bytes]))
            del sent[: 4 + size_bytes]
        return found

    async def open(self, offset: int) -> None:
        (opened_with,) = await self.ask(offset, max_wait_ms=0)
        (self.session_id,) = struct.unpack_from(">i", opened_with, 11)
        assert self.session_id
        # The first of a session goes through Python, and makes the shortcut.
        await self.ask(offset, max_wait_ms=1)
        await asyncio.sleep(0.1)
        await self.answers()


async def led(served: ServedWorld) -> bytes:
    """A partition with one record, whose follower is nobody's business; the id of its topic."""
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9093)
    served.world.decide(BrokerRegistered(BrokerImage(OTHER, 1, (endpoint,), None, LastStop.CLEAN)))
    served.world.create("t", state=replicated(BROKER, 0))
    await served.world.settle()
    producer = served.client()
    producer.send(ApiKey.PRODUCE, 9, produce_values(plain_batch(1), ("t", 0), 1))
    await served.world.settle()
    assert served.world.runner("t").log.log_end_offset == 1
    return served.world.image.topics["t"].topic_id.bytes


@both_ways
@in_virtual_time
async def test_a_client_that_is_gone_leaves_no_timer(shortcuts: Shortcuts) -> None:
    """How long a fetch may wait is the client's word: up to 24 days."""
    async with served_world(shortcuts=shortcuts) as served:
        topic_id = await led(served)
        for _ in range(5):
            follower = Pretender(served, topic_id)
            await follower.open(1)
            await follower.ask(1, max_wait_ms=LONG_MS)
            await follower.ask(1, max_wait_ms=LONG_MS)
            await follower.ask(max_wait_ms=LONG_MS - 1)
            follower.client.disconnect()
        assert timers_beyond(1_000) == 0


def timers_beyond(after_s: float) -> int:
    loop = asyncio.get_running_loop()
    scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
    return sum(not one.cancelled() and one.when() - loop.time() > after_s for one in scheduled)


@both_ways
@in_virtual_time
async def test_a_partition_named_twice_costs_nothing(shortcuts: Shortcuts) -> None:
    async with served_world(shortcuts=shortcuts) as served:
        follower = Pretender(served, await led(served))
        await follower.open(1)
        await follower.ask(1, 1, max_wait_ms=1)
        await asyncio.sleep(0.1)
        assert len(await follower.answers()) <= 1
        assert not follower.client.transport.is_closed
        assert await follower.ask(1, max_wait_ms=1) == []


@both_ways
@in_virtual_time
async def test_who_asks_for_no_bytes_does_not_wait(shortcuts: Shortcuts) -> None:
    async with served_world(shortcuts=shortcuts) as served:
        follower = Pretender(served, await led(served))
        await follower.open(1)
        for _ in range(3):
            assert len(await follower.ask(1, max_wait_ms=30_000, min_bytes=0)) == 1


@in_virtual_time
async def test_who_reads_committed_records_is_told_of_no_aborted_ones_in_the_same_bytes() -> None:
    told = []
    for shortcuts in (SHORTCUTS, NO_SHORTCUTS):
        async with served_world(shortcuts=shortcuts) as served:
            follower = Pretender(served, await led(served))
            await follower.open(1)
            for _ in range(3):
                follower.client.send_together([follower.frame(1, isolation_level=1)])
                producer = served.client()
                producer.send(ApiKey.PRODUCE, 9, produce_values(plain_batch(1), ("t", 0), 1))
                told += await follower.answers()
    assert len(told) == 6
    for compiled, python in zip(told[:3], told[3:], strict=True):
        assert compiled[32:70] == python[32:70]  # Behind the id of the topic, which is random.


@both_ways
@in_virtual_time
async def test_two_connections_that_share_a_session_end_nobody(shortcuts: Shortcuts) -> None:
    """What a fetch of one commits lets the other, which was full of producers' requests, go on with
    a fetch of the same session, in the middle of the first."""
    async with served_world(shortcuts=shortcuts) as served:
        topic_id = await led(served)
        one, other = Pretender(served, topic_id), Pretender(served, topic_id)
        values = produce_values(plain_batch(1), ("t", 0), -1)
        other.client.send_together([other.client.frame(ApiKey.PRODUCE, 9, values)])
        await one.open(1)
        other.session_id, other.epoch = one.session_id, one.epoch
        await other.ask(2, max_wait_ms=20)
        one.epoch = other.epoch
        for _ in range(2):
            await asyncio.sleep(0.1)
            await other.answers()
            await one.ask(2, max_wait_ms=40)
        await asyncio.sleep(0.1)
        await one.answers()
        for _ in range(512):
            other.client.send_together([other.client.frame(ApiKey.PRODUCE, 9, values)])
            await asyncio.sleep(0)
            other.client.deliver()
        end_offset = served.world.runner("t").log.log_end_offset
        assert end_offset == 2 + 512
        other.epoch = one.epoch + 1
        other.client.send_together([other.frame(end_offset, max_wait_ms=20)])
        await one.ask(end_offset, max_wait_ms=40)
        await asyncio.sleep(1)
        await one.answers()
        assert not one.client.transport.is_closed
        assert not other.client.transport.is_closed
        assert served.world.runner("t").high_watermark == end_offset


@in_virtual_time
async def test_a_partition_that_is_answered_twice_is_appended_once() -> None:
    async with followed(1) as (world, leader):
        await opened(leader)
        leader.answer(answer(records(1, offset=0, epoch=3), high_watermark=0))
        assert named(await leader.asked_once()) == {0: 1}
        batch = records(1, offset=1, epoch=3)
        leader.answer(answer(batch, high_watermark=1), answer(batch, high_watermark=1))
        await leader.asked_once()
        assert world.runner("t").log.size_bytes == 2 * len(batch)


@in_virtual_time
async def test_requests_are_counted_without_an_end() -> None:
    """Two billion of them are five days of a busy partition."""
    async with followed(1) as (world, leader):
        await opened(leader)
        leader.answer(answer(records(1, offset=0, epoch=3), high_watermark=0))
        assert named(await leader.asked_once()) == {0: 1}
        for fetcher in world.fetchers._fetchers.values():
            more = 2**31 - 1 - fetcher._sent_count
            fetcher._sent_count += more
            fetcher._answered_count += more
            fetcher._told = {
                key: told._replace(number=told.number + more) for key, told in fetcher._told.items()
            }
        for end_offset in (2, 3):
            batch = records(1, offset=end_offset - 1, epoch=3)
            leader.answer(answer(batch, high_watermark=1))
            assert named(await leader.asked_once()) == {0: end_offset}


@both_ways
@in_virtual_time
async def test_what_cannot_be_is_left_to_the_task_that_fetches(shortcuts: Shortcuts) -> None:
    """And not taken for an answer that went well. Here: nobody knows this broker any more."""
    async with followed(1, shortcuts=shortcuts) as (world, leader):
        await opened(leader)
        leader.answer(answer(records(1, offset=0, epoch=3), high_watermark=0))
        await leader.asked_once()
        known, world.image = world.image, replace(world.image, brokers={})
        leader.answer(answer(records(1, offset=1, epoch=3), high_watermark=0))
        world.image = known
        (fetcher,) = world.fetchers._fetchers.values()
        assert isinstance(fetcher._failure, KeyError)
        assert fetcher._wake.is_set()
        fetcher._failure = None  # It would end the broker.
