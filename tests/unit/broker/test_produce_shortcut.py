"""The compiled shortcut differs from the way through Python in nothing but speed.

Twins: two brokers in memory, one with the shortcut and one without, that are sent the same requests
and meet with the same changes. After every step their answers, their files and their books must
be equal. That is the whole specification of `_shortcuts_produce.pxi`.
"""

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from tests.support.batches import (
    NOW_MS,
    idempotent_batch,
    plain_batch,
    refused_batches,
    transactional_batch,
)
from tests.support.kio_codec import Values, milliseconds
from tests.unit.broker.books import all_books
from tests.unit.broker.compiled import only_compiled
from tests.unit.broker.served import Client, ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.transactions import end
from tidelog.base.errors import DiskFull, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_OFFSET, TopicId
from tidelog.base.ports import Clock
from tidelog.broker.after_read import AfterRead
from tidelog.broker.connection import Answer, Connection, RequestShortcut
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.partitions import Partitions
from tidelog.broker.shortcuts import NO_SHORTCUTS, SHORTCUTS, Shortcuts, is_compiled
from tidelog.records.batch import Codec
from tidelog.storage.disk import RealDisk
from tidelog.wire.api import ApiKey
from tidelog.wire.produce_template import ProduceTemplate

pytestmark = only_compiled

TOPIC_ID = UUID(int=7)
VERSIONS = (9, 11, 12, 13)
FIRST_WITH_TOPIC_ID = 13
# Version and acks of each client.
FORMS = ((9, 1), (11, -1), (13, 1))
STEPS = 120
# Length, api key, version and correlation id.
HEAD_BYTES = 12
HOUR_MS = 3_600_000


def test_the_shortcut_is_there_where_it_can_be_compiled() -> None:
    """If this fails, `make setup` compiles it again."""
    assert is_compiled()


class Counted:
    """A shortcut that says how often it was good for something."""

    def __init__(self) -> None:
        self.taken = 0

    def produce(
        self,
        template: ProduceTemplate | None,
        partitions: Partitions,
        clock: Clock,
        connection: Connection,
        loop: asyncio.AbstractEventLoop,
        after_read: AfterRead,
        turns: HeavyTurns,
    ) -> RequestShortcut | None:
        made = SHORTCUTS.produce(template, partitions, clock, connection, loop, after_read, turns)
        return None if made is None else _Counting(self, made)

    @property
    def shortcuts(self) -> Shortcuts:
        return replace(SHORTCUTS, produce=self.produce)


class _Counting:
    def __init__(self, counted: Counted, made: RequestShortcut) -> None:
        self._counted = counted
        self._made = made

    def end(self) -> None:
        self._made.end()

    def answer(self, view: memoryview, start: int, end: int) -> Answer:
        before = bytes(view[start:end])
        answer = self._made.answer(view, start, end)
        if answer is None:
            assert bytes(view[start:end]) == before  # Nothing has changed.
        else:
            self._counted.taken += 1
        return answer


class Twins:
    """The same broker twice."""

    def __init__(self, served: tuple[ServedWorld, ServedWorld], counted: Counted) -> None:
        self.served = served
        self.counted = counted
        self.clients: list[tuple[Client, Client]] = []

    def each(self, act: Callable[[ServedWorld], None]) -> None:
        for served in self.served:
            act(served)

    def connect(self) -> None:
        self.clients.append((self.served[0].client(), self.served[1].client()))

    def send(self, number: int, *requests: tuple[int, Values]) -> None:
        """All in one piece, as a client does that does not wait for answers."""
        for client in self.clients[number]:
            client.send_together(
                client.frame(ApiKey.PRODUCE, version, values, is_answered=values["acks"] != 0)
                for version, values in requests
            )
        self.compare()

    def compare(self) -> None:
        for one, other in self.clients:
            assert one.take() == other.take()
            assert one.connection.is_closed == other.connection.is_closed
        assert all_books(self.served[0].world) == all_books(self.served[1].world)

    async def settle(self) -> None:
        for served in self.served:
            await served.world.settle()
        self.compare()


@asynccontextmanager
async def twins(config: dict[str, str]) -> AsyncIterator[Twins]:
    counted = Counted()
    async with (
        served_world(shortcuts=counted.shortcuts) as quick,
        served_world(shortcuts=NO_SHORTCUTS) as slow,
    ):
        both = Twins((quick, slow), counted)
        both.each(
            lambda served: served.world.create(
                "t", partitions=2, config=config, topic_id=TopicId(TOPIC_ID)
            )
        )
        both.connect()
        await both.settle()
        yield both
        await both.settle()


def request(batch: bytes | bytearray, *, partition: int = 0, acks: int = 1) -> tuple[int, Values]:
    return 9, values_of(9, batch, partition, acks)


def values_of(version: int, batch: bytes | bytearray, partition: int, acks: int) -> Values:
    named: Values = {"name": "t"} if version < FIRST_WITH_TOPIC_ID else {"topic_id": TOPIC_ID}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": milliseconds(1_000),
        "topic_data": [
            {**named, "partition_data": [{"index": partition, "records": bytes(batch)}]}
        ],
    }


# -- stories -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(150))
@in_virtual_time
async def test_the_twins_agree_whatever_happens(seed: int) -> None:
    chance = Random(seed)
    async with twins({}) as both:
        for _ in range(2):
            both.connect()
        for _ in range(STEPS):
            if chance.random() < 0.9:
                number = chance.randrange(len(both.clients))
                count = chance.choice((1, 1, 3))
                both.send(number, *[random_request(chance, both, number) for _ in range(count)])
            else:
                await happen(both, chance)
            renew_closed(both)
        assert both.counted.taken > 0


@in_virtual_time
async def test_the_device_gets_what_was_appended_by_the_shortcut_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size_bytes = len(plain_batch(1))
    monkeypatch.setattr("tidelog.storage.log.WRITING_BYTES", 4 * size_bytes)
    async with twins({}) as both:
        for count in range(1, 14):
            both.send(0, request(plain_batch(1)))
            await both.settle()
            log = both.served[0].world.runner("t").log
            assert log._written_bytes == count // 4 * 4 * size_bytes
        assert both.counted.taken > 0


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
@in_virtual_time
async def test_what_is_ordinary_takes_the_shortcut(version: int, acks: int) -> None:
    """Otherwise the twins would agree because they are the same."""
    ordinary = [
        *(plain_batch(3, codec) for codec in Codec),
        plain_batch(40),
        *(plain_batch(timestamp_ms=NOW_MS + later_ms) for later_ms in (-HOUR_MS, 1, HOUR_MS)),
        *(idempotent_batch(2, base_sequence=sequence) for sequence in (0, 2, 4)),
    ]
    async with twins({"index.interval.bytes": "300"}) as both:
        for partition in (0, 1):  # The first batch of a segment and of an epoch is special.
            both.send(0, (version, values_of(version, plain_batch(), partition, acks)))
            await both.settle()
        for count, batch in enumerate(ordinary):
            assert both.counted.taken == 2 * count
            for partition in (0, 1):
                both.send(0, (version, values_of(version, batch, partition, acks)))
        before = both.counted.taken
        both.send(0, *[(version, values_of(version, plain_batch(), 0, acks))] * 5)
        assert both.counted.taken == before + 5


@pytest.mark.parametrize("seed", range(20))
@in_virtual_time
async def test_the_twins_agree_about_damaged_frames(seed: int) -> None:
    """Lengths that lie, names cut short, bytes too many: read here without a decoder."""
    chance = Random(seed)
    async with twins({}) as both:
        for _ in range(3):  # So that there is a form to compare with, and a segment to append to.
            both.send(0, request(plain_batch()))
            await both.settle()
        assert both.counted.taken > 0
        for _ in range(150):
            client = both.clients[0][0]
            good = client.frame(ApiKey.PRODUCE, *request(plain_batch()))
            damaged = damaged_frame(chance, good)
            assert answers_to(both.clients[0][0], damaged) == answers_to(
                both.clients[0][1], damaged
            )
            await both.settle()
            if both.clients[0][0].connection.is_closed:
                both.clients[0] = (both.served[0].client(), both.served[1].client())
                both.send(0, request(plain_batch()))


def damaged_frame(chance: Random, good: bytes) -> bytes:
    """A whole frame whose correlation id, at least, is right."""
    body = bytearray(good[HEAD_BYTES:])
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        body[chance.randrange(min(len(body), chance.choice((60, 10_000))))] = chance.randrange(256)
    match chance.randrange(4):
        case 0:
            del body[chance.randrange(len(body)) :]
        case 1:
            body += bytes(chance.randint(1, 9))
        case _:
            pass
    head = good[4:HEAD_BYTES]
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def answers_to(client: Client, frame: bytes) -> tuple[bytes, bool]:
    client.send_together([frame])
    answer = bytes(client.transport.sent)
    client.transport.sent.clear()
    client.forget_requests()
    return answer, client.connection.is_closed


@in_virtual_time
async def test_who_waits_for_records_is_woken() -> None:
    async with twins({}) as both:
        both.send(0, request(plain_batch()))
        await both.settle()
        both.connect()
        version, values = request(plain_batch())
        for producer, consumer in zip(*both.clients, strict=True):
            consumer.fetch({("t", 0): 3}, max_wait_ms=10_000)
            producer.send_together([producer.frame(ApiKey.PRODUCE, version, values)])
            assert consumer.fetched().offsets() == [3, 4, 5]
        assert both.counted.taken == 1
        both.compare()


# -- the real disk -------------------------------------------------------------------------------


@in_virtual_time
async def test_a_write_that_the_disk_takes_in_part_is_all_or_nothing(tmp_path: Path) -> None:
    """A limit on the size of files does to `write` what a full disk does."""
    counted = Counted()
    path = tmp_path / "segment.log"
    async with served_world(shortcuts=counted.shortcuts) as served:
        served.world.create("t", config={})
        await served.world.settle()
        client = served.client()
        client.produce(plain_batch())
        runner = served.world.runner("t")
        runner.log.segments[-1].file = RealDisk().open(path)
        client.produce(plain_batch(1))
        assert counted.taken == 1
        size_bytes = path.stat().st_size
        with file_size_limited(size_bytes + 10):
            client.produce(plain_batch(2))
        assert counted.taken == 1
        assert path.stat().st_size == size_bytes
        assert runner.is_offline
        codes = [answer.responses[0].partition_responses[0].error_code for answer in client.take()]
        assert codes == [0, 0, ErrorCode.KAFKA_STORAGE_ERROR]


def random_request(chance: Random, both: Twins, number: int) -> tuple[int, Values]:
    """Mostly of the form that this client always uses."""
    version, acks = FORMS[number]
    if chance.random() < 0.1:
        version, acks = chance.choice(VERSIONS), chance.choice((1, -1, 0, 5))
    partition = chance.choices((0, 1, 2, -1), (20, 20, 1, 1))[0]
    if chance.random() < 0.05:
        sequence = next_sequence(both, partition, 7) or 0
        values = values_of(version, transactional_batch(sequence), partition, acks)
        return version, {**values, "transactional_id": chance.choice(("id", "id", None))}
    return version, values_of(version, random_batch(chance, both, partition), partition, acks)


def random_batch(chance: Random, both: Twins, partition: int) -> bytes | bytearray:
    now_ms = both.served[0].world.clock.now_ms()
    match chance.randrange(10):
        case 0:
            return chance.choice([*refused_batches(now_ms).values()])
        case 1:
            flipped = plain_batch(timestamp_ms=now_ms)
            flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
            return flipped
        case 2 | 3 | 4:
            producer_id = chance.choice((1, 2))
            sequence = next_sequence(both, partition, producer_id)
            if sequence is None or chance.random() < 0.3:
                sequence = chance.choice((0, 1, 2, 3, 2**31 - 1))
            return idempotent_batch(
                chance.choice((1, 2)),
                producer_id=producer_id,
                producer_epoch=chance.choices((0, 1), (5, 1))[0],
                base_sequence=sequence,
            )
        case 5:
            return plain_batch(2, chance.choice([*Codec]), timestamp_ms=now_ms)
        case _:
            timestamp_ms = now_ms + chance.choice((-HOUR_MS, -1, 0, 1, HOUR_MS, HOUR_MS + 1))
            return plain_batch(chance.randint(1, 40), timestamp_ms=timestamp_ms)


def next_sequence(both: Twins, partition: int, producer_id: int) -> int | None:
    runner = both.served[0].world.partitions.find("t", partition)
    for entry in () if runner is None else runner.producers.entries():
        if entry.producer_id == producer_id and entry.batches:
            return (entry.batches[-1].last_sequence + 1) % 2**31
    return None


CONFIGS = [
    {},
    {"internal.segment.bytes": "2000"},
    {"index.interval.bytes": "200", "internal.segment.bytes": "4000"},
    {"segment.ms": "1000"},
    {"flush.messages": "7"},
    {"compression.type": "gzip"},
    {"cleanup.policy": "compact"},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.after.max.ms": "1"},
    {"message.timestamp.before.max.ms": "1000"},
    {"max.message.bytes": "150"},
    {"min.insync.replicas": "2"},
]


async def happen(both: Twins, chance: Random) -> None:
    """Something that no producer has a hand in."""
    match chance.randrange(14):
        case 12 | 13:
            is_commit = chance.random() < 0.5
            for served in both.served:
                end(served.world, partition=1, commit=is_commit)
        case 0 | 1:
            config = chance.choice(CONFIGS)
            both.each(lambda served: served.world.configure("t", config))
        case 2:
            both.each(lambda served: served.world.configure("t", {}))
        case 3:
            passed_ms = chance.choice((1, 1_000, HOUR_MS, 8 * 24 * HOUR_MS))
            both.each(lambda served: served.world.clock.advance(passed_ms))
        case 4:
            both.each(lambda served: served.world.elect("t", 0))
        case 5:
            error = chance.choice((DiskFull, StorageError))
            name = chance.choice(("*.log", "*.index", "*.timeindex"))
            both.each(lambda served: served.world.disk.arm("append", name, error))
        case 6:
            both.each(lambda served: served.world.replicas.drop_roles())
        case 7:
            await both.settle()  # One of them would have more to delete.
            await asyncio.gather(*map(delete_all, both.served))
        case _:
            await asyncio.gather(*map(mend, both.served))
    await both.settle()


@contextmanager
def file_size_limited(limit_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def mend(served: ServedWorld) -> None:
    await served.world.become_all()
    served.world.disk.heal()
    if not served.world.log_dir.is_online:
        await served.world.reopen()


async def delete_all(served: ServedWorld) -> None:
    runner = served.world.partitions.find("t", 0)
    assert runner is not None
    with suppress(RequestRefused):
        await runner.delete_records(NO_OFFSET)


def renew_closed(both: Twins) -> None:
    """A request without an answer that is refused closes its connection."""
    for number, (one, _other) in enumerate(both.clients):
        if one.connection.is_closed:
            both.clients[number] = (both.served[0].client(), both.served[1].client())
