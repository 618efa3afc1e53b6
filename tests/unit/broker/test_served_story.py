"""Whatever clients, topics and disks do: every request is answered, and nothing is left behind.

A random story of a broker without sockets. Clients fetch and produce, in sessions and without,
pipeline, stop reading and hang up; topics go and come, disks fail and return, threads run piece by
piece. In the end everybody reads again, and every request must have been answered, in order.
"""

import asyncio
from random import Random

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.served import (
    NEW_SESSION,
    NO_SESSION,
    Client,
    FetchAnswer,
    ServedWorld,
    fetch_answer,
    list_offsets_values,
    served_world,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.wire.api import ApiKey

BOTH = (URGENT, BACKGROUND)
TOPICS = ("t", "u")
PLACES = [(topic, partition) for topic in TOPICS for partition in range(2)]
STEPS = 200
OUTSTANDING_MAX = 6


class Visitor:
    """One client with a mind of its own."""

    def __init__(self, served: ServedWorld, chance: Random) -> None:
        self.served = served
        self.chance = chance
        self.client = served.client()
        self.session = NO_SESSION
        self.answered = 0

    def act(self) -> None:
        self.take()
        acts = [self.fetch, self.fetch, self.produce, self.list_offsets, self.stall, self.hang_up]
        weights = [8, 8, 6, 2, 1, 1]
        if self.client.waiting < OUTSTANDING_MAX:
            self.chance.choices(acts, weights)[0]()

    def fetch(self) -> None:
        places = self.chance.sample(PLACES, self.chance.randint(0, len(PLACES)))
        session = self.session
        if self.chance.random() < 0.3:
            session = self.chance.choice([NO_SESSION, NEW_SESSION])
        self.client.fetch(
            {place: self.chance.randint(0, 10) for place in places},
            session=session,
            max_wait_ms=self.chance.choice([0, 10, 500]),
            min_bytes=self.chance.choice([0, 1, 200, 100_000]),
            max_bytes=self.chance.choice([0, 100, 2**20]),
        )

    def produce(self) -> None:
        batch = plain_batch(self.chance.randint(1, 5))
        self.client.produce(batch, self.chance.choice(PLACES), acks=self.chance.choice([1, -1]))

    def list_offsets(self) -> None:
        place = self.chance.choice(PLACES)
        values = list_offsets_values(place, self.chance.choice([-1, -2, 0]))
        self.client.send(ApiKey.LIST_OFFSETS, 7, values)

    def stall(self) -> None:
        if self.client.transport.is_stalled:
            self.client.transport.take_all()
        else:
            self.client.transport.is_stalled = True

    def hang_up(self) -> None:
        self.client.disconnect()
        self.client = Client(self.served)
        self.session = NO_SESSION

    def take(self) -> None:
        """Answers come in order, or decoding them fails."""
        for answer in self.client.take():
            self.answered += 1
            if type(answer).__name__ == "FetchResponse":
                self.on_fetched(fetch_answer(answer))

    def on_fetched(self, answer: FetchAnswer) -> None:
        if answer.code != ErrorCode.NONE:
            self.session = NEW_SESSION
        elif answer.session_id:
            epoch = self.session[1] + 1 if self.session[0] == answer.session_id else 1
            self.session = (answer.session_id, epoch)


async def happen(served: ServedWorld, chance: Random) -> None:
    """Something that no client has a hand in."""
    world = served.world
    match chance.randrange(40):
        case 0:
            name = chance.choice(TOPICS)
            if name in world.image.topics:
                world.delete(name)
        case 1 | 2:
            create_missing(served)
        case 3:
            world.log_dir.on_failure(StorageError("test"))
        case 4 | 5 if not world.log_dir.is_online:
            world.executor.release(*BOTH)
            await world.upkeep.retry_offline()
            world.executor.hold(*BOTH)
        case 6:
            world.disk.is_cold = not world.disk.is_cold
        case 7 | 8:
            await asyncio.sleep(chance.random())
        case number if number < 22:
            lane = chance.choice(BOTH)
            if world.executor.waiting(lane):
                world.executor.step(lane)
        case _:
            await asyncio.sleep(0)


def create_missing(served: ServedWorld) -> None:
    for name in TOPICS:
        if name not in served.world.image.topics:
            config = {"internal.segment.bytes": "400", "flush.messages": "3"}
            served.world.create(name, partitions=2, config=config)


async def end(served: ServedWorld, visitors: list[Visitor]) -> None:
    """Everything works again and everybody reads."""
    world = served.world
    world.disk.is_cold = False
    world.executor.release(*BOTH)
    await world.settle()
    if not world.log_dir.is_online:
        await world.upkeep.retry_offline()
    create_missing(served)
    await world.replicas.settled()
    for _ in range(12):
        for visitor in visitors:
            if visitor.client.transport.is_stalled:
                visitor.client.transport.take_all()
            visitor.take()
        await asyncio.sleep(1)


@pytest.mark.parametrize("seed", range(60))
@in_virtual_time
async def test_every_request_is_answered(seed: int) -> None:
    chance = Random(seed)
    async with served_world(session_slots=2, answer_bytes=chance.choice([500, 2**20])) as served:
        create_missing(served)
        await served.world.settle()
        visitors = [Visitor(served, chance) for _ in range(3)]
        served.world.executor.hold(*BOTH)
        for _ in range(STEPS):
            if chance.random() < 0.5:
                chance.choice(visitors).act()
            else:
                await happen(served, chance)
        await end(served, visitors)
        for visitor in visitors:
            assert not visitor.client.transport.is_closed
            assert visitor.client.waiting == 0
            visitor.client.disconnect()
        assert sum(visitor.answered for visitor in visitors) > 10
        assert served.answer_memory.held_bytes == 0
        assert served.frame_memory.held_bytes == 0
        assert served.world.request_memory.held_bytes == 0
        assert served.watcher_count() <= 2 * len(PLACES)  # Those of the sessions that are left.
        assert served.server.connection_count == 0
