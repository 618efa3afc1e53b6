"""D5: whatever a partition has been through, what it drops follows from its log alone.

A broker leads, follows, is cut, killed, restarted and told other settings, by chance. Before each
batch the test reads the log, byte by byte, and says by the slowest of models what must become of
the batch; the model knows nothing of what happened before.
"""

from collections.abc import Awaitable, Callable
from random import Random
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import NOW_MS
from tests.unit.broker import transactions
from tests.unit.broker.followed import answer, stamped, take
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.test_deduplication import batch, send
from tests.unit.broker.test_roles import become, fetch, replicated_world
from tests.unit.broker.world import BROKER, OTHER, World, broker_world, process_killed
from tests.unit.core.deduplication.test_index import MODEL_IDS_MAX, WINDOW_MS, Log
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_PRODUCER_ID, Offset
from tidelog.broker import deduplication
from tidelog.records.batch import BatchHeader, Codec, iter_headers, read_header
from tidelog.records.control import ControlType, decode_transaction_end
from tidelog.records.digest import BatchDigest, BatchKind
from tidelog.records.ids import ENTRY, fingerprint
from tidelog.records.record import Record, decode_records

CONFIG = {
    "tidelog_dedup_header": "guid",
    "tidelog_dedup_window_ms": str(WINDOW_MS),
    "tidelog_dedup_ids_max": str(MODEL_IDS_MAX),
}
IDEMPOTENT = 7
TRANSACTIONAL = (5, 6)
IDS = [f"id-{number}" for number in range(8)]

Stored = tuple[BatchHeader, list[Record]]


def batches_of(world: World) -> list[Stored]:
    """All of the log, as it is."""
    log = world.runner("t").log
    data = b"".join(log.disk.read_file(segment.log_path) for segment in log.segments)
    return [
        (header, decode_records(data[position : position + header.size_bytes]))
        for position, header in iter_headers(data)
    ]


def model_of(stored: list[Stored]) -> Log:
    return Log([_digest(header, records) for header, records in stored])


def _digest(header: BatchHeader, records: list[Record]) -> BatchDigest:
    kind = BatchKind.TRANSACTIONAL if header.is_transactional else BatchKind.PLAIN
    entries = b""
    if header.is_control:
        end = decode_transaction_end(records[0].key, records[0].value)
        assert end is not None
        is_commit = end.control_type is ControlType.COMMIT
        kind = BatchKind.COMMIT if is_commit else BatchKind.ABORT
    else:
        entries = b"".join(
            ENTRY.pack(
                fingerprint(dict(one.headers)["guid"] or b""), one.offset - header.base_offset
            )
            for one in records
            if one.headers
        )
    producer = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    return BatchDigest(
        header.base_offset,
        header.last_offset,
        0,
        0,
        header.max_timestamp_ms,
        producer,
        kind,
        entries,
    )


class History:
    """One partition, and what chance does to it. Each `happen` is one event."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.epoch = 0
        self.at_ms = NOW_MS
        self.sent: list[bytearray] = []

    # -- sending ---------------------------------------------------------------------------------

    async def send(self, world: World) -> None:
        chance = self.chance
        self.at_ms += chance.choice((0, 1, 20, 60))
        world.clock.moment_ms = max(world.clock.moment_ms, self.at_ms)
        producer = chance.choice((-1, -1, IDEMPOTENT, *TRANSACTIONAL))
        ids = [chance.choice((None, *IDS)) for _ in range(chance.randint(1, 4))]
        sent = batch(
            *ids,
            codec=chance.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP)),
            at_ms=self.at_ms + chance.choice((0, 0, 0, 50, 120, 250, -150)),
            producer=producer,
            sequence=-1 if producer < 0 else _next_sequence(world, producer),
            is_transactional=producer in TRANSACTIONAL,
        )
        await self._send_and_compare(world, sent, ids)
        self.sent.append(sent)

    async def _send_and_compare(self, world: World, sent: bytearray, ids: list[str | None]) -> None:
        before, before_end = batches_of(world), world.runner("t").log.log_end_offset
        expected = _expected(world, before, read_header(sent, 0), ids)
        produced = await send(world, sent)
        added = batches_of(world)[len(before) :]
        if expected is None:
            assert produced.code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert added == []
            return
        assert produced.code == ErrorCode.NONE
        log_end = before_end
        kept = [at for at in range(len(ids)) if at not in expected]
        is_seen = not kept
        assert produced.base_offset == (expected[0] if is_seen else log_end)
        assert [one.offset for _, records in added for one in records] == [
            log_end + at for at in kept
        ]
        producer = read_header(sent, 0).producer_id
        assert len(added) == (0 if is_seen and producer < 0 else 1)
        for header, _ in added:
            assert header.last_offset == log_end + len(ids) - 1
            assert header.base_sequence == read_header(sent, 0).base_sequence

    async def retry(self, world: World) -> None:
        """The last batch of an idempotent producer, if it is still the last: stored once."""
        if not self.sent:
            return
        header = read_header(self.sent[-1], 0)
        before = batches_of(world)
        own = [one for one, _ in before if one.producer_id == IDEMPOTENT]
        if header.producer_id != IDEMPOTENT or not own:
            return
        if (own[-1].base_sequence, own[-1].last_sequence) != (
            header.base_sequence,
            header.last_sequence,
        ):
            return
        produced = await send(world, self.sent[-1])
        assert produced.code == ErrorCode.NONE
        assert batches_of(world) == before

    async def end(self, world: World) -> None:
        producer = self.chance.choice(TRANSACTIONAL)
        transactions.end(world, producer=producer, commit=self.chance.random() < 0.5)
        await world.settle()

    # -- what happens to brokers -----------------------------------------------------------------

    async def commit(self, world: World) -> None:
        fetch(world, world.runner("t").log.log_end_offset)
        await world.settle()

    async def delete(self, world: World) -> None:
        runner = world.runner("t")
        offset = self.chance.randint(runner.log.log_start_offset, runner.high_watermark)
        await runner.delete_records(Offset(offset))

    async def change_leader(self, world: World) -> None:
        """Another leads for a while: what it lacks is cut off, what it wrote is copied."""
        runner = world.runner("t")
        self.epoch += 1
        await become(world, OTHER, self.epoch)
        ends = [header.base_offset for header, _ in batches_of(world)]
        above = [one for one in ends if one >= runner.high_watermark]
        if above and self.chance.random() < 0.6:
            latest = runner.epochs.latest_epoch
            take(world, answer(diverging=(latest, self.chance.choice(above))))
            await world.settle()
        for _ in range(self.chance.randint(0, 2)):
            copied = batch(self.chance.choice(IDS), at_ms=self.at_ms)
            end_offset = runner.log.log_end_offset
            fetched = stamped(copied, offset=end_offset, epoch=self.epoch)
            take(world, answer(fetched, high_watermark=runner.high_watermark))
            await world.settle()
        if self.chance.random() < 0.5:
            runner.on_tick()
            await world.settle()
        self.epoch += 1
        await become(world, BROKER, self.epoch)

    async def reconfigure(self, world: World) -> None:
        """To something else and back: what is known is read again."""
        config = {name.replace("_", "."): value for name, value in CONFIG.items()}
        world.configure("t", {**config, "tidelog.dedup.window.ms": "7"})
        await world.settle()
        world.configure("t", config)
        await world.settle()

    def events(self) -> list[tuple[Callable[[World], Awaitable[None]], int]]:
        return [
            (self.send, 12),
            (self.retry, 3),
            (self.end, 3),
            (self.commit, 2),
            (self.delete, 1),
            (self.change_leader, 2),
            (self.reconfigure, 1),
        ]

    async def happen(self, world: World) -> None:
        kinds = self.events()
        (event,) = self.chance.choices([one for one, _ in kinds], [weight for _, weight in kinds])
        await event(world)


def _next_sequence(world: World, producer: int) -> int:
    """As who wrote all that is in the log would go on."""
    own = [
        header
        for header, _ in batches_of(world)
        if header.producer_id == producer and not header.is_control
    ]
    return own[-1].last_sequence + 1 if own else 0


def _expected(
    world: World, before: list[Stored], header: BatchHeader, ids: list[str | None]
) -> dict[int, int | None] | None:
    """Which places of a batch are dropped, and where their first copies are; None: not decided."""
    model = model_of(before)
    start = world.runner("t").log.log_start_offset
    producer = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    copies: dict[int, int | None] = {}
    try:
        for at, one in enumerate(ids):
            if one is None:
                continue
            copy = model.first_copy(
                fingerprint(one.encode()),
                at_ms=header.max_timestamp_ms,
                producer=producer,
                start=start,
            )
            if copy is not None or one in ids[:at]:
                copies[at] = copy
    except RequestRefused:
        return None
    return copies


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 4), st.sampled_from((0, 2, 100)))
def test_what_is_dropped_follows_from_the_log_alone(
    chance: Random, lives: int, at_once_records: int
) -> None:
    """Whether the loop decides, or leaves it to a thread."""
    with patch.object(deduplication, "AT_ONCE_RECORDS", at_once_records):
        tell_story(chance, lives)


@in_virtual_time
async def tell_story(chance: Random, lives: int) -> None:
    history = History(chance)
    segment_bytes = chance.choice(("200", "600", "1000000"))
    before: World | None = None
    for _ in range(lives):
        async with broker_world(before=before) as world:
            if before is None:
                await replicated_world(world, 0, internal_segment_bytes=segment_bytes, **CONFIG)
            else:
                history.epoch += 1
                await become(world, BROKER, history.epoch)
            for _ in range(chance.randint(1, 15)):
                await history.happen(world)
            if chance.random() < 0.5:
                await world.stop()
            else:
                process_killed(world)
        before = world
