"""Whatever disk, topics and power do: what was acknowledged is there, in order, and nothing else.

A random story of one broker, told step by step. Threads run piece by piece in any interleaving, the
disk fails at any operation, directories go and come back, topics are deleted and made again, the
power goes. In the end everything is healed and read.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random

import pytest

from tests.support.batches import record
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import Produced, World, broker_world, power_cut, process_killed
from tidelog.base.errors import DiskFull, ErrorCode, StorageError
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_batch, encode_plain_batch

BOTH = (URGENT, BACKGROUND)
TOPIC = "t"
STEPS = 120
FAULTS = ("append", "flush", "open", "rename", "replace_file", "flush_folder", "read", "truncate")
Act = Callable[[], Coroutine[None, None, None]]


class Story:
    """What happens to one topic, and what its producers believe."""

    def __init__(self, world: World, chance: Random, *, is_durable: bool) -> None:
        self.world = world
        self.chance = chance
        self.is_durable = is_durable
        self.sent: dict[bytes, Produced] = {}
        self.number = 0
        self.tasks: set[asyncio.Task[object]] = set()

    def config(self) -> dict[str, str]:
        """Flushed before it is acknowledged, if the power may go."""
        config = {"internal.segment.bytes": "400", "file.delete.delay.ms": "0"}
        if self.is_durable:
            config["flush.messages"] = "1"
        elif self.chance.random() < 0.5:
            config["flush.messages"] = str(self.chance.randint(1, 5))
        if self.chance.random() < 0.3:
            config["compression.type"] = "gzip"
        return config

    async def produce(self) -> None:
        if self.world.partitions.find(TOPIC, 0) is None:
            return
        for _ in range(self.chance.randint(1, 4)):
            value = b"%d" % self.number
            self.number += 1
            batch = encode_plain_batch(
                [record(0)._replace(value=value, timestamp_ms=self.world.clock.now_ms())],
                Codec.NONE,
            )
            acks = self.chance.choice([1, -1])
            self.sent[value] = self.world.produce(TOPIC, batch, acks=acks)

    async def step(self) -> None:
        lane = self.chance.choice(BOTH)
        if self.world.executor.waiting(lane):
            self.world.executor.step(lane)

    async def settle(self) -> None:
        await self.world.settle()

    async def recreate(self) -> None:
        """The old topic's records are nobody's business any more."""
        if TOPIC in self.world.image.topics:
            self.world.delete(TOPIC)
        self.sent.clear()
        self.world.create(TOPIC, config=self.config())

    async def fault(self) -> None:
        if self.chance.random() < 0.7:
            self.world.disk.heal()
            return
        error = self.chance.choice([DiskFull, StorageError])
        after = self.chance.randint(0, 3)
        self.world.disk.arm(self.chance.choice(FAULTS), "*", error, after=after)

    async def reopen(self) -> None:
        self._begin(self._reopen())

    async def _reopen(self) -> None:
        await self.world.upkeep.retry_offline()
        await self.world.elect_recovered()

    async def retention(self) -> None:
        """Finds nothing old, and has to keep everything whatever happens meanwhile."""
        self._begin(self.world.upkeep.enforce_retention())

    async def checkpoint(self) -> None:
        self._begin(self.world.upkeep.checkpoint())

    async def elect(self) -> None:
        if TOPIC in self.world.image.topics:
            self.world.elect(TOPIC)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """One job at a time, as in `Upkeep`."""
        if self.tasks:
            work.close()
            return
        task: asyncio.Task[object] = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def tell(self) -> None:
        self.world.executor.hold(*BOTH)
        acts: list[Act] = [
            self.produce,
            self.step,
            self.settle,
            self.recreate,
            self.fault,
            self.reopen,
            self.retention,
            self.checkpoint,
            self.elect,
        ]
        weights = [20, 30, 15, 1, 3, 3, 2, 2, 1]
        for _ in range(STEPS):
            await self.chance.choices(acts, weights)[0]()

    async def heal(self) -> None:
        self.world.disk.heal()
        self.world.executor.release(*BOTH)
        while self.tasks:
            await asyncio.wait(self.tasks)
        await self.world.replicas.settled()
        for _ in self.sent:  # Each may need a roll or a rewrite of its own.
            await self.world.settle()
        if not self.world.log_dir.is_online:
            await self.world.replicas.reopen(self.world.log_dir)
        await self.world.elect_recovered()
        assert self.world.log_dir.is_online

    def acknowledged(self) -> list[tuple[int, bytes]]:
        return [
            (produced.base_offset, value)
            for value, produced in self.sent.items()
            if produced.is_settled and produced.code == ErrorCode.NONE
        ]

    def check(self, records: list[Record]) -> None:
        """A record may be stored although it was refused, never the other way round."""
        stored = {one.offset: one.value for one in records}
        assert [one.offset for one in records] == list(range(len(records)))
        for offset, value in self.acknowledged():
            assert stored[offset] == value
        values = [one.value for one in records]
        assert len(set(values)) == len(values)
        order = list(self.sent)
        numbers = [order.index(value) for value in values if value in self.sent]
        assert len(numbers) == len(values)
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("seed", range(40))
@in_virtual_time
async def test_what_is_acknowledged_survives_a_failing_disk(seed: int) -> None:
    async with broker_world() as world:
        world.create(TOPIC)
        await world.settle()
        story = Story(world, Random(seed), is_durable=False)
        await story.recreate()
        await story.tell()
        await story.heal()
        assert all(one.is_settled for one in story.sent.values())
        story.check(world.stored(TOPIC))
        assert world.request_memory.held_bytes == 0
        await world.stop()
        assert world.is_marked_clean()
        async with broker_world(before=world) as restarted:
            story.check(restarted.stored(TOPIC))


@pytest.mark.parametrize("seed", range(25))
@in_virtual_time
async def test_what_is_acknowledged_survives_a_kill(seed: int) -> None:
    async with broker_world() as world:
        story = Story(world, Random(1_000 + seed), is_durable=False)
        await story.recreate()
        await story.tell()
        while story.tasks:
            story.tasks.pop().cancel()
        acknowledged = story.acknowledged()
        process_killed(world)
        async with broker_world(before=world) as restarted:
            assert restarted.log_dir.is_online, restarted.log_dir.offline_reason
            stored = {one.offset: one.value for one in restarted.stored(TOPIC)}
            for offset, value in acknowledged:
                assert stored[offset] == value
        world.executor.release(*BOTH)


@pytest.mark.parametrize("seed", range(40))
@in_virtual_time
async def test_what_is_flushed_and_acknowledged_survives_a_power_cut(seed: int) -> None:
    async with broker_world() as world:
        story = Story(world, Random(2_000 + seed), is_durable=True)
        await story.recreate()
        await story.tell()
        while story.tasks:
            story.tasks.pop().cancel()
        acknowledged = story.acknowledged()
        power_cut(world, seed)
        async with broker_world(before=world) as restarted:
            assert restarted.log_dir.is_online, restarted.log_dir.offline_reason
            stored = {one.offset: one.value for one in restarted.stored(TOPIC)}
            for offset, value in acknowledged:
                assert stored[offset] == value
        world.executor.release(*BOTH)


class RetryingStory(Story):
    """An idempotent producer with one batch in flight, which it sends until it is acknowledged."""

    def __init__(self, world: World, chance: Random) -> None:
        super().__init__(world, chance, is_durable=True)
        self.sequence = 0
        self.tries: list[Produced] = []

    async def produce(self) -> None:
        """Again if it was refused, or if the answer took too long; else the next one."""
        if self.world.partitions.find(TOPIC, 0) is None:
            return
        if any(one.is_settled and one.code == ErrorCode.NONE for one in self.tries):
            self.sequence += 1
            self.tries.clear()
        if self.tries and not self.tries[-1].is_settled and self.chance.random() < 0.7:
            return
        batch = encode_batch(
            [record(0)._replace(value=b"%d" % self.sequence)],
            leader_epoch=-1,
            codec=Codec.NONE,
            producer_id=7,
            producer_epoch=0,
            base_sequence=self.sequence,
            is_transactional=False,
            is_control=False,
        )
        self.tries.append(self.world.produce(TOPIC, batch, acks=self.chance.choice([1, -1])))

    async def recreate(self) -> None:
        """Once: a producer does not survive its topic."""
        if TOPIC not in self.world.image.topics:
            self.world.create(TOPIC, config=self.config())

    async def finish(self) -> None:
        """Until the batch in flight is acknowledged."""
        last = self.sequence
        for _ in range(200):
            await self.produce()
            await self.world.settle()
        assert self.sequence > last, [one.results for one in self.tries[-3:]]


@pytest.mark.parametrize("seed", range(40))
@in_virtual_time
async def test_a_producer_that_tries_again_stores_every_record_once(seed: int) -> None:
    """D2, through failing disks, a power cut and another broker process."""
    async with broker_world() as world:
        story = RetryingStory(world, Random(3_000 + seed))
        await story.recreate()
        await story.tell()
        while story.tasks:
            story.tasks.pop().cancel()
        power_cut(world, seed)
        async with broker_world(before=world) as restarted:
            story.world = restarted
            story.tries = [one for one in story.tries if one.is_settled]
            await story.tell()
            await story.heal()
            await story.finish()
            values = [one.value for one in restarted.stored(TOPIC)]
            assert values == [b"%d" % number for number in range(len(values))]
            assert len(values) >= story.sequence
        world.executor.release(*BOTH)
