"""Whatever happens to a partition, readers of committed records get those and no others (D3).

By chance: transactions of several producers, markers, ordinary records, followers that lag, rolls,
elections, disks that come back. A reader does what Kafka's clients do with an answer: it skips what
the list of aborted transactions tells it to, up to their markers.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.played_leader import registered
from tests.unit.broker.served import Client, Fetched, ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.transactions import end, follower_has, write
from tests.unit.broker.world import BROKER, OTHER, replicated
from tidelog.base.errors import StorageError
from tidelog.base.ids import BrokerId, Offset
from tidelog.records.batch import iter_headers
from tidelog.records.control import ControlType, read_transaction_end

T0 = ("t", 0)
PRODUCERS = (1, 2, 3)
STEPS = 60
READ_COMMITTED = 1


@dataclass
class Transaction:
    offsets: list[int] = field(default_factory=list)
    marker: int | None = None
    is_committed: bool = False
    is_settled: bool = False
    """Its marker is believed to be committed: a restart began with a snapshot behind it."""


@dataclass
class Model:
    """What was written, in the order of the log."""

    transactions: list[Transaction] = field(default_factory=list)
    plain: list[int] = field(default_factory=list)
    open: dict[int, Transaction] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PRODUCERS, 0))
    epochs: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PRODUCERS, 0))

    def last_stable_offset(self, high_watermark: int) -> int:
        undecided = [
            one.offsets[0]
            for one in self.transactions
            if one.marker is None or (one.marker >= high_watermark and not one.is_settled)
        ]
        return min([high_watermark, *undecided])

    def committed(self, start: int, end_offset: int) -> list[int]:
        """Offsets of what a reader gets from `start` on, to before `end_offset`."""
        found = list(self.plain)
        for one in self.transactions:
            if one.is_committed:
                found += one.offsets
        return sorted(offset for offset in found if start <= offset < end_offset)


class Story:
    def __init__(self, served: ServedWorld, chance: Random) -> None:
        self.served = served
        self.world = served.world
        self.chance = chance
        self.model = Model()
        self.client: Client = served.client()

    async def run(self) -> None:
        for _ in range(STEPS):
            await self.chance.choice(EVENTS)(self)
            await self.world.settle()
            self.check_stable()
        await self.read(0)

    # -- what happens ----------------------------------------------------------------------------

    async def produce(self) -> None:
        offset = self.end_offset
        count = self.chance.choice((1, 3))
        produced = self.world.produce("t", plain_batch(count))
        await self.world.settle()
        assert produced.code == 0
        self.model.plain += range(offset, offset + count)

    async def write(self) -> None:
        producer, count = self.chance.choice(PRODUCERS), self.chance.choice((1, 1, 4))
        model, offset = self.model, self.end_offset
        written = write(
            self.world,
            producer=producer,
            epoch=model.epochs[producer],
            sequence=model.sequences[producer],
            count=count,
        )
        await self.world.settle()
        assert written.code == 0
        if producer not in model.open:
            model.open[producer] = Transaction()
            model.transactions.append(model.open[producer])
        model.open[producer].offsets += range(offset, offset + count)
        model.sequences[producer] += count

    async def end(self) -> None:
        producer, commits = self.chance.choice(PRODUCERS), self.chance.random() < 0.5
        bumps = self.chance.random() < 0.5
        model, offset = self.model, self.end_offset
        if bumps:
            model.epochs[producer] += 1
            model.sequences[producer] = 0
        end(
            self.world,
            producer=producer,
            epoch=model.epochs[producer],
            version=2 if bumps else 1,
            commit=commits,
        )
        await self.world.settle()
        assert self.end_offset == offset + 1
        ended = model.open.pop(producer, None)
        if ended is not None:
            ended.marker, ended.is_committed = offset, commits

    async def follow(self) -> None:
        """The other replica catches up, or nearly."""
        log = self.world.runner("t").log
        ends = [Offset(0), *(Offset(header.end_offset) for header in log.headers_from(Offset(0)))]
        follower_has(self.world, self.chance.choice([x for x in ends if x >= self.high_watermark]))

    async def elect(self) -> None:
        await self.lead_by(BROKER, OTHER)

    async def lead_by(self, *isr: BrokerId) -> None:
        state = self.world.image.topics["t"].partitions[0]
        self.world.change("t", replicated(isr[0], state.leader_epoch + 1, isr=isr))
        await self.world.settle()

    async def reopen(self) -> None:
        """The directory fails and comes back: everything is read from the log again."""
        self.world.log_dir.on_failure(StorageError("for the test"))
        await self.lead_by(OTHER)
        await self.world.replicas.reopen(self.world.log_dir)
        await self.world.become_all()
        snapshot = self.world.runner("t").log.active_base_offset
        for one in self.model.transactions:
            one.is_settled |= one.marker is not None and one.marker < snapshot
        await self.elect()

    async def read_from_somewhere(self) -> None:
        await self.read(self.chance.randint(0, self.stable_offset))

    # -- what is true ----------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        return self.world.runner("t").log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.world.runner("t").high_watermark

    @property
    def stable_offset(self) -> int:
        return self.model.last_stable_offset(self.high_watermark)

    def check_stable(self) -> None:
        assert self.world.runner("t").last_stable_offset == self.stable_offset

    async def read(self, start: int) -> None:
        """All that there is from `start` on, in answers of all sizes."""
        offset = start
        while offset < self.stable_offset:
            self.client.fetch(
                {T0: offset},
                max_wait_ms=0,
                isolation_level=READ_COMMITTED,
                max_bytes=self.chance.choice((1, 300, 2**20)),
            )
            await self.world.settle()
            fetched = self.client.fetched().partitions[T0]
            assert fetched.code == 0
            assert fetched.last_stable_offset == self.stable_offset
            found, offset_after = as_a_client(fetched, offset)
            assert offset < offset_after <= self.stable_offset
            assert found == self.model.committed(offset, offset_after)
            offset = offset_after


def as_a_client(fetched: Fetched, start: int) -> tuple[list[int], int]:
    """The offsets that an application is given, and where the client goes on."""
    assert fetched.aborted is not None
    untold = sorted(fetched.aborted, key=lambda one: one[1])
    skipped: set[int] = set()
    found: list[int] = []
    next_offset = start
    for position, header in iter_headers(fetched.records):
        while untold and untold[0][1] <= header.last_offset:
            skipped.add(untold.pop(0)[0])
        if header.is_control:
            batch = fetched.records[position : position + header.size_bytes]
            ended = read_transaction_end(batch)
            assert ended is not None
            if ended.control_type is ControlType.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found += range(max(start, header.base_offset), header.end_offset)
        next_offset = header.end_offset
    return found, next_offset


EVENTS = [
    Story.produce,
    *[Story.write] * 4,
    *[Story.end] * 3,
    *[Story.follow] * 3,
    Story.elect,
    Story.reopen,
    *[Story.read_from_somewhere] * 2,
]


@pytest.mark.parametrize("seed", range(40))
@in_virtual_time
async def test_readers_get_what_is_committed_and_nothing_else(seed: int) -> None:
    chance = Random(seed)
    async with served_world() as served:
        served.world.decide(registered(OTHER, 20))
        config = chance.choice(({}, {"internal.segment.bytes": "600"}))
        served.world.create("t", config=config, state=replicated(BROKER, 0))
        await served.world.settle()
        assert served.world.runner("t").last_stable_offset == Offset(0)
        await Story(served, chance).run()
