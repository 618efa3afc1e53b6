"""D5: a record that was sent before is dropped, whoever leads and whatever happened before."""

from random import Random
from unittest.mock import patch

import lz4.frame
import pytest

from tests.support.batches import NOW_MS, with_payload
from tests.unit.broker import transactions
from tests.unit.broker.followed import answer, stamped, take
from tests.unit.broker.served import served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.test_roles import become, fetch, replicated_world
from tests.unit.broker.world import (
    BROKER,
    OTHER,
    Produced,
    World,
    broker_world,
    power_cut,
    process_killed,
    replicated,
)
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import Offset
from tidelog.broker import deduplication, sent_ids
from tidelog.broker.append_terms import FromClient
from tidelog.broker.deduplication import AT_ONCE_BYTES
from tidelog.broker.shortcuts import NO_SHORTCUTS, SHORTCUTS, Shortcuts
from tidelog.records.batch import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    Codec,
    iter_headers,
    read_header,
)
from tidelog.records.ids import Kept, rewritten
from tidelog.records.record import (
    Record,
    assemble,
    encode_batch,
    uncompressed_payload,
    uncompressed_within,
)

ALL = -1
WINDOW_MS = 60_000
BY_HEADER = {"tidelog.dedup.header": "guid", "tidelog.dedup.window.ms": str(WINDOW_MS)}
CODECS = pytest.mark.parametrize("codec", list(Codec))


def batch(
    *ids: str | None,
    codec: Codec = Codec.NONE,
    at_ms: int = NOW_MS,
    producer: int = -1,
    sequence: int = -1,
    epoch: int = 0,
    is_transactional: bool = False,
    value: bytes = b"value",
) -> bytearray:
    """Records with these ids in the header `guid`, as a producer sends them."""
    return encode_batch(
        [
            Record(
                at,
                at_ms,
                None if one is None else one.encode(),
                value,
                () if one is None else (("guid", one.encode()),),
            )
            for at, one in enumerate(ids)
        ],
        leader_epoch=-1,
        codec=codec,
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
        is_control=False,
    )


async def send(world: World, sent: bytearray, *, acks: int = 1) -> Produced:
    header = read_header(sent, 0)
    guard = None
    if header.is_transactional:
        producers = world.runner("t").producers
        guard = producers.begin_verification(
            header.producer_id,
            header.producer_epoch,
            sequence=header.base_sequence,
            bumps_epoch=False,
            now_ms=NOW_MS,
        )
    produced = Produced()
    result = world.runner("t").append(
        bytearray(sent),
        acks=acks,
        now_ms=world.clock.now_ms(),
        settle=produced.results.append,
        terms=FromClient(guard),
    )
    if result is not None:
        produced.results.append(result)
    await world.settle()
    return produced


async def topic(world: World, **config: str) -> None:
    world.create("t", config={**BY_HEADER, **{n.replace("_", "."): v for n, v in config.items()}})
    await world.settle()


def stored_ids(world: World) -> list[tuple[int, str]]:
    return [(one.offset, (one.key or b"").decode()) for one in world.stored("t")]


def dropped(world: World) -> int:
    found = world.runner("t").deduplicator
    assert found is not None
    return found.dropped_records


def better_compressed(*ids: str) -> bytearray:
    """Which repeats what is further back than the broker looks, when it compresses it anew."""
    value = Random(1).randbytes(60_000)
    plain = batch(*ids, codec=Codec.LZ4, value=value)
    payload = bytes(uncompressed_payload(read_header(plain, 0), plain))
    return with_payload(plain, lz4.frame.compress(payload, block_linked=True, compression_level=9))


@pytest.mark.parametrize("at_once_bytes", [0, 2**30])
@in_virtual_time
async def test_rest_that_is_larger_than_a_batch_may_be_is_refused(at_once_bytes: int) -> None:
    """Readers would not get past it; by the loop and by a thread."""
    async with broker_world() as world:
        await topic(world, max_message_bytes="100000")
        await send(world, batch("a"))
        sent = better_compressed("a", "b", "c", "d")
        assert len(sent) < 100_000
        with (
            patch.object(deduplication, "AT_ONCE_BYTES", at_once_bytes),
            patch.object(deduplication, "AT_ONCE_UNCOMPRESSED_BYTES", at_once_bytes),
        ):
            refused = await send(world, sent)
        assert refused.code == ErrorCode.MESSAGE_TOO_LARGE
        assert stored_ids(world) == [(0, "a")]
        assert (await send(world, better_compressed("b", "c", "d"))).base_offset == 1


@CODECS
@in_virtual_time
async def test_second_copy_is_answered_with_the_offset_of_the_first(codec: Codec) -> None:
    async with broker_world() as world:
        await topic(world)
        first = await send(world, batch("a", codec=codec))
        await send(world, batch("b", codec=codec))
        again = await send(world, batch("a", codec=codec))
        assert (first.code, again.code) == (0, 0)
        assert (first.base_offset, again.base_offset) == (0, 0)
        assert stored_ids(world) == [(0, "a"), (1, "b")]
        assert dropped(world) == 1


@CODECS
@in_virtual_time
async def test_new_records_of_a_batch_have_the_offsets_that_clients_compute(codec: Codec) -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", "b", codec=codec))
        some = await send(world, batch("c", "a", "d", "b", codec=codec))
        after = await send(world, batch("e", codec=codec))
        assert (some.base_offset, after.base_offset) == (2, 6)
        assert stored_ids(world) == [(0, "a"), (1, "b"), (2, "c"), (4, "d"), (6, "e")]
        assert dropped(world) == 2


@CODECS
@in_virtual_time
async def test_large_batches_are_read_and_rewritten_on_a_thread(codec: Codec) -> None:
    async with broker_world() as world:
        await topic(world)
        ids = [f"{number}-{'x' * 200}" for number in range(2 * AT_ONCE_BYTES // 200)]
        noise = bytes(range(256)) * 2
        assert len(batch(*ids, codec=codec, value=noise)) > 0
        first = await send(world, batch(*ids, codec=codec, value=noise))
        second = await send(world, batch("new", *ids, "last", codec=codec, value=noise))
        assert (first.base_offset, second.base_offset) == (0, len(ids))
        offsets = [offset for offset, _ in stored_ids(world)]
        assert offsets == [*range(len(ids)), len(ids), 2 * len(ids) + 1]


@pytest.mark.parametrize("size_bytes", [20, 2 * AT_ONCE_BYTES])
@in_virtual_time
async def test_what_is_left_is_compressed_as_the_topic_wants_it(size_bytes: int) -> None:
    words = [b"%d" % (number * number) for number in range(500)]
    value = b" ".join(words * (1 + size_bytes // 2_000))
    fast, thorough = [
        await stored_bytes(value, compression_type="zstd", compression_zstd_level=level)
        for level in ("-50", "19")
    ]
    assert thorough < 0.9 * fast


async def stored_bytes(value: bytes, **config: str) -> int:
    """Of a batch of two records of which one was seen before."""
    async with broker_world() as world:
        await topic(world, **config)
        await send(world, batch("a", codec=Codec.ZSTD))
        before = world.runner("t").log.size_bytes
        await send(world, batch("a", "b", codec=Codec.ZSTD, value=value))
        assert stored_ids(world) == [(0, "a"), (2, "b")]
        return world.runner("t").log.size_bytes - before


@CODECS
@in_virtual_time
async def test_large_batch_of_nothing_but_duplicates_is_unpacked_once(codec: Codec) -> None:
    """Its ids were read out of it; that nothing is left needs no other look at it."""
    async with broker_world() as world:
        await topic(world)
        ids = [Random(number).randbytes(200).hex() for number in range(2 * AT_ONCE_BYTES // 200)]
        await send(world, batch(*ids, codec=codec))
        again = batch(*ids, codec=codec, producer=7, sequence=0)
        assert len(again) > AT_ONCE_BYTES
        with (
            patch.object(sent_ids, "uncompressed_within", wraps=uncompressed_within) as unpacked,
            patch.object(sent_ids, "uncompressed_payload", wraps=uncompressed_payload) as rest,
        ):
            produced = await send(world, again)
        assert (unpacked.call_count, rest.call_count) == (1, 0)
        assert (produced.base_offset, dropped(world)) == (0, len(ids))


@in_virtual_time
async def test_record_without_an_id_is_never_dropped() -> None:
    async with broker_world() as world:
        await topic(world)
        for _ in range(3):
            await send(world, batch(None))
        assert len(stored_ids(world)) == 3
        assert dropped(world) == 0


@in_virtual_time
async def test_id_is_the_key_if_the_topic_says_so() -> None:
    async with broker_world() as world:
        world.create("t", config={"tidelog.dedup": "key"})
        await world.settle()
        await send(world, batch("a"))
        await send(world, batch("a"))
        assert stored_ids(world) == [(0, "a")]


@in_virtual_time
async def test_window_is_by_the_timestamps_of_batches() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", at_ms=NOW_MS))
        await send(world, batch("a", at_ms=NOW_MS + WINDOW_MS - 1))
        await send(world, batch("a", at_ms=NOW_MS + WINDOW_MS))
        assert stored_ids(world) == [(0, "a"), (1, "a")]


@pytest.mark.parametrize("base_ms", [-(2**63), 253_402_300_800_000, 2**63 - 1])
@in_virtual_time
async def test_batch_with_a_duplicate_does_not_become_younger_than_it_says(base_ms: int) -> None:
    """It says now, which is let through, and its records tell of the year 9999, say."""
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", "b"))
        lying = batch("a", "c")
        header = read_header(lying, 0)._replace(base_timestamp_ms=base_ms)
        some = await send(world, assemble(header, lying[HEADER_SIZE_BYTES:]))
        again = await send(world, batch("b"))
        assert (some.code, again.code) == (0, 0)
        assert stored_ids(world) == [(0, "a"), (1, "b"), (3, "c")]


@in_virtual_time
async def test_window_is_by_the_brokers_clock_where_that_stamps_records() -> None:
    async with broker_world() as world:
        await topic(world, message_timestamp_type="LogAppendTime")
        await send(world, batch("a", at_ms=5))
        world.clock.advance(WINDOW_MS - 1)
        await send(world, batch("a", at_ms=7))
        world.clock.advance(1)
        await send(world, batch("a", at_ms=5))
        assert stored_ids(world) == [(0, "a"), (1, "a")]


@in_virtual_time
async def test_topic_can_be_told_to_begin_and_to_end_while_it_lives() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        await send(world, batch("a"))
        world.configure("t", BY_HEADER)
        again = await send(world, batch("a"))
        assert (again.base_offset, stored_ids(world)) == (0, [(0, "a")])
        world.configure("t", {})
        await send(world, batch("a"))
        assert stored_ids(world) == [(0, "a"), (1, "a")]


@in_virtual_time
async def test_another_header_or_a_longer_window_is_read_from_the_log() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", at_ms=NOW_MS))
        await send(world, batch("b", at_ms=NOW_MS + 5 * WINDOW_MS))
        world.configure("t", {**BY_HEADER, "tidelog.dedup.window.ms": str(10 * WINDOW_MS)})
        await send(world, batch("a", at_ms=NOW_MS + 5 * WINDOW_MS))
        assert stored_ids(world) == [(0, "a"), (1, "b")]
        world.configure("t", {"tidelog.dedup.header": "nothing-has-it"})
        await send(world, batch("a"))
        assert stored_ids(world) == [(0, "a"), (1, "b"), (2, "a")]


@in_virtual_time
async def test_batch_that_waits_is_judged_by_what_the_topic_is_told_meanwhile() -> None:
    def keyed(guid: bytes) -> bytearray:
        values = [(key, noise) for key, noise in ((b"k", b""), (b"l", random.randbytes(2**15)))]
        return encode_batch(
            [
                Record(at, NOW_MS, key, value, (("guid", guid + key),))
                for at, (key, value) in enumerate(values)
            ],
            leader_epoch=-1,
            codec=Codec.GZIP,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            is_transactional=False,
            is_control=False,
        )

    random = Random(1)
    async with broker_world() as world:
        await topic(world)
        await send(world, keyed(b"first"))
        world.executor.hold(URGENT)
        waiting = world.produce("t", keyed(b"second"))
        world.configure("t", {"tidelog.dedup": "key"})
        world.executor.release(URGENT)
        await world.settle()
        assert (waiting.base_offset, len(stored_ids(world))) == (0, 2)


@in_virtual_time
async def test_batch_that_waits_keeps_its_codec_when_the_topic_is_told_another() -> None:
    """It was compressed with lz4 already, to which the level of gzip is no level."""
    async with broker_world() as world:
        await topic(world, compression_type="lz4")
        await send(world, batch("a"))
        world.executor.hold(URGENT)
        noise = Random(1).randbytes(AT_ONCE_BYTES)
        waiting = world.produce("t", batch("a", "b", value=noise))
        world.executor.step(URGENT)  # It is compressed, and then its ids are to be read.
        await world.settle()
        world.configure("t", {**BY_HEADER, "compression.type": "gzip"})
        world.executor.release(URGENT)
        await world.settle()
        assert (waiting.code, stored_ids(world)) == (0, [(0, "a"), (2, "b")])


@in_virtual_time
async def test_beyond_the_bound_the_oldest_is_forgotten() -> None:
    async with broker_world() as world:
        await topic(world, tidelog_dedup_ids_max="2")
        for one in ("a", "b", "c", "a", "c"):
            await send(world, batch(one))
        assert [one for _, one in stored_ids(world)] == ["a", "b", "c", "a"]


@in_virtual_time
async def test_batch_whose_records_cannot_be_read_is_refused() -> None:
    async with broker_world() as world:
        await topic(world)
        refused = await send(world, with_payload(batch("a"), b"\xff\xff"))
        assert refused.code == ErrorCode.INVALID_RECORD
        assert (await send(world, batch("a"))).base_offset == 0


@in_virtual_time
async def test_ids_outlive_their_segment_being_rolled() -> None:
    async with broker_world() as world:
        await topic(world, internal_segment_bytes="150")
        for one in ("a", "b", "c", "a", "b", "d"):
            await send(world, batch(one))
        assert [one for _, one in stored_ids(world)] == ["a", "b", "c", "d"]


@in_virtual_time
async def test_id_goes_with_its_record() -> None:
    """What retention or DeleteRecords took is not known any more: its offset leads nowhere."""
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a"))
        await send(world, batch("b"))
        await world.runner("t").delete_records(Offset(1))
        await send(world, batch("a"))
        await send(world, batch("b"))
        assert stored_ids(world) == [(1, "b"), (2, "a")]


@pytest.mark.parametrize("shortcuts", [SHORTCUTS, NO_SHORTCUTS], ids=["compiled", "python"])
@in_virtual_time
async def test_compiled_shortcut_stands_aside(shortcuts: Shortcuts) -> None:
    """Also if a topic is told to begin while requests take it."""
    async with served_world(shortcuts=shortcuts) as served:
        world = served.world
        world.create("t")
        await world.settle()
        client = served.client()
        for one in ("a", "b", "b"):
            client.produce(batch(one))
            await world.settle()
        world.configure("t", BY_HEADER)
        await world.settle()
        for one in ("a", "b", "c", "c"):
            client.produce(batch(one))
            await world.settle()
        assert [one for _, one in stored_ids(world)] == ["a", "b", "b", "c"]


# -- idempotent producers --------------------------------------------------------------------------


@in_virtual_time
async def test_sequences_go_on_after_a_batch_of_duplicates() -> None:
    """Nothing of it is stored but its sequences, on all replicas and for ever."""
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", "b"))
        seen = await send(world, batch("a", "b", producer=5, sequence=0))
        after = await send(world, batch("c", producer=5, sequence=2))
        assert (seen.code, seen.base_offset) == (0, 0)
        assert (after.code, after.base_offset) == (0, 4)
        assert stored_ids(world) == [(0, "a"), (1, "b"), (4, "c")]


@in_virtual_time
async def test_sequences_go_on_after_some_duplicates() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("b"))
        some = await send(world, batch("a", "b", producer=5, sequence=0))
        after = await send(world, batch("c", producer=5, sequence=2))
        assert (some.base_offset, after.base_offset) == (1, 3)


@in_virtual_time
async def test_retry_of_a_batch_gets_the_answer_it_had() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", "b"))
        whole = batch("a", "b", producer=5, sequence=0)
        some = batch("b", "c", producer=5, sequence=2)
        new = batch("d", "e", producer=5, sequence=4)
        first = [(await send(world, one)).base_offset for one in (whole, some, new)]
        again = [(await send(world, one)).base_offset for one in (whole, some, new)]
        assert first == again == [0, 4, 6]
        assert [one for _, one in stored_ids(world)] == ["a", "b", "c", "d", "e"]
        assert dropped(world) == 3


@in_virtual_time
async def test_new_leader_gives_a_retry_the_answer_it_would_have_had() -> None:
    async with broker_world() as world:
        await followed_world(world)
        whole = batch("a", producer=5, sequence=0)
        empty = rewritten(read_header(whole, 0), Kept(b"", 0, -1), log_time_ms=NOW_MS, level=None)
        copied = stamped(batch("a"), offset=0, epoch=1) + stamped(empty, offset=1, epoch=1)
        take(world, answer(copied, high_watermark=2))
        await become(world, BROKER, 2)
        assert (await send(world, whole)).base_offset == 0


# -- acks=all --------------------------------------------------------------------------------------


@in_virtual_time
async def test_second_copy_is_acknowledged_when_the_first_is_committed() -> None:
    async with broker_world() as world:
        await replicated_world(world, tidelog_dedup_header="guid")
        first = await send(world, batch("a"), acks=ALL)
        again = await send(world, batch("a"), acks=ALL)
        assert not first.is_settled
        assert not again.is_settled
        fetch(world, 1)
        await world.settle()
        assert (first.base_offset, again.base_offset) == (0, 0)


@in_virtual_time
async def test_second_copy_is_not_acknowledged_by_who_does_not_lead_any_more() -> None:
    async with broker_world() as world:
        await replicated_world(world, tidelog_dedup_header="guid")
        await send(world, batch("a"), acks=ALL)
        again = await send(world, batch("a"), acks=ALL)
        await become(world, OTHER, 1)
        assert again.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- leaders that come and go ----------------------------------------------------------------------


async def followed_world(world: World) -> None:
    await replicated_world(world, tidelog_dedup_header="guid")
    await become(world, OTHER, 1)


@in_virtual_time
async def test_new_leader_knows_what_it_copied() -> None:
    async with broker_world() as world:
        await followed_world(world)
        take(world, answer(stamped(batch("a"), offset=0, epoch=1), high_watermark=1))
        await become(world, BROKER, 2)
        again = await send(world, batch("a"))
        new = await send(world, batch("b"))
        assert (again.base_offset, new.base_offset) == (0, 1)


@in_virtual_time
async def test_requests_wait_until_a_new_leader_knows() -> None:
    async with broker_world() as world:
        await followed_world(world)
        take(world, answer(stamped(batch("a"), offset=0, epoch=1), high_watermark=1))
        await become(world, BROKER, 2)
        world.executor.hold(URGENT)
        again = world.produce("t", batch("a"))
        new = world.produce("t", batch("b"))
        await world.settle()
        assert not again.is_settled
        assert not new.is_settled
        world.executor.release(URGENT)
        await world.settle()
        assert (again.base_offset, new.base_offset) == (0, 1)


@in_virtual_time
async def test_what_was_cut_off_is_not_known_any_more() -> None:
    """The leader has changed between two copies, and the first was not committed."""
    async with broker_world() as world:
        await replicated_world(world, tidelog_dedup_header="guid")
        await send(world, batch("a"))
        await send(world, batch("b"))
        fetch(world, 1)
        await become(world, OTHER, 1)
        take(world, answer(diverging=(0, 1)))
        await world.settle()
        take(world, answer(stamped(batch("c"), offset=1, epoch=1), high_watermark=2))
        await become(world, BROKER, 2)
        for one in ("a", "b", "c"):
            await send(world, batch(one))
        fetch(world, 3)
        assert stored_ids(world) == [(0, "a"), (1, "c"), (2, "b")]


@in_virtual_time
async def test_follower_reads_on_while_it_follows() -> None:
    async with broker_world() as world:
        await followed_world(world)
        take(world, answer(stamped(batch("a"), offset=0, epoch=1), high_watermark=1))
        runner = world.runner("t")
        assert runner.deduplicator is not None
        assert not runner.deduplicator.is_current
        runner.on_tick()
        await world.settle()
        assert runner.deduplicator.is_current


@in_virtual_time
async def test_leader_that_resigns_while_it_catches_up_refuses_who_waits() -> None:
    async with broker_world() as world:
        await followed_world(world)
        take(world, answer(stamped(batch("a"), offset=0, epoch=1), high_watermark=1))
        await become(world, BROKER, 2)
        world.executor.hold(URGENT)
        waiting = world.produce("t", batch("a"))
        world.change("t", replicated(OTHER, 3))
        world.executor.release(URGENT)
        await world.settle()
        assert waiting.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- restarts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
@in_virtual_time
async def test_restarted_broker_knows_what_its_log_has(is_clean: bool) -> None:
    async with broker_world() as before:
        await topic(before, internal_segment_bytes="150")
        for one in ("a", "b", "c"):
            await send(before, batch(one, producer=5, sequence=ord(one) - ord("a")))
        await send(before, batch("a", producer=5, sequence=3))
        if is_clean:
            await before.stop()
        else:
            process_killed(before)
    async with broker_world(before=before) as world:
        await world.settle()
        world.elect("t")
        await world.settle()
        again = [await send(world, batch(one)) for one in ("c", "a", "b")]
        next_one = await send(world, batch("d", producer=5, sequence=4))
        assert [one.base_offset for one in again] == [2, 0, 1]
        assert (next_one.code, next_one.base_offset) == (0, 4)


@pytest.mark.parametrize("seed", range(8))
@in_virtual_time
async def test_after_a_power_cut_what_is_lost_is_new_again(seed: int) -> None:
    ids = [f"id-{number}" for number in range(12)]
    async with broker_world() as before:
        await topic(before, internal_segment_bytes="250")
        for one in ids:
            await send(before, batch(one))
        power_cut(before, seed)
    async with broker_world(before=before) as world:
        world.elect("t")
        await world.settle()
        for _ in range(2):
            for one in reversed(ids):
                await send(world, batch(one))
        assert sorted(one for _, one in stored_ids(world)) == sorted(ids)


@in_virtual_time
async def test_ids_of_closed_segments_are_in_files_that_are_believed_only_if_whole() -> None:
    async with broker_world() as world:
        await topic(world, internal_segment_bytes="150")
        for one in ("a", "b", "c"):
            await send(world, batch(one))
        paths = [segment.path(".ids") for segment in world.runner("t").log.segments[:-1]]
        assert all(world.disk.exists(path) for path in paths)
        world.memory_disk.remove(paths[0])
        file = world.disk.open_existing(paths[1])
        file.truncate(file.size_bytes - 3)
        world.elect("t")
        world.configure("t", {**BY_HEADER, "tidelog.dedup.window.ms": "50000"})
        for one in ("a", "b", "c", "d"):
            await send(world, batch(one))
        assert [one for _, one in stored_ids(world)] == ["a", "b", "c", "d"]
        assert world.disk.exists(paths[0])


# -- transactions ----------------------------------------------------------------------------------


async def end(world: World, producer: int, *, commit: bool) -> None:
    ended = transactions.end(world, producer=producer, commit=commit)
    await world.settle()
    assert ended.code == 0


@in_virtual_time
async def test_id_of_an_aborted_transaction_does_not_count() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", producer=5, sequence=0, is_transactional=True))
        await end(world, 5, commit=False)
        assert (await send(world, batch("a"))).base_offset == 2


@in_virtual_time
async def test_id_of_a_committed_transaction_counts() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", producer=5, sequence=0, is_transactional=True))
        await end(world, 5, commit=True)
        assert (await send(world, batch("a"))).base_offset == 0


@in_virtual_time
async def test_id_of_a_committed_transaction_counts_whatever_time_its_records_tell_of() -> None:
    """Markers have the broker's time. A restarted leader has to come to the same verdict."""
    async with broker_world() as world:
        await topic(world, internal_segment_bytes="150")
        long_ago_ms = NOW_MS - 100 * WINDOW_MS
        for sequence, one in enumerate(("a", "b", "c")):
            sent = batch(
                one, at_ms=long_ago_ms, producer=5, sequence=sequence, is_transactional=True
            )
            await send(world, sent)
            await end(world, 5, commit=True)
        again = [await send(world, batch(one, at_ms=long_ago_ms)) for one in ("a", "b", "c")]
        assert [one.base_offset for one in again] == [0, 2, 4]
        world.configure("t", {})
        world.configure("t", {**BY_HEADER, "internal.segment.bytes": "150"})
        again = [await send(world, batch(one, at_ms=long_ago_ms)) for one in ("a", "b", "c")]
        assert [one.base_offset for one in again] == [0, 2, 4]


@in_virtual_time
async def test_id_of_another_open_transaction_is_to_be_sent_again() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", producer=5, sequence=0, is_transactional=True))
        other = batch("b", "a", producer=6, sequence=0)
        refused = await send(world, other)
        assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
        await end(world, 5, commit=False)
        assert (await send(world, other)).base_offset == 2


@in_virtual_time
async def test_repetition_within_a_transaction_is_dropped() -> None:
    async with broker_world() as world:
        await topic(world)
        await send(world, batch("a", producer=5, sequence=0, is_transactional=True))
        again = await send(world, batch("a", producer=5, sequence=1, is_transactional=True))
        assert (again.code, again.base_offset) == (0, 0)
        empty = [header.record_count for _, header in _headers(world)]
        assert empty == [1, 0]
        assert all(header.is_transactional for _, header in _headers(world))


def _headers(world: World) -> list[tuple[int, BatchHeader]]:
    log = world.runner("t").log
    data = log.read(
        Offset(0), end_offset=log.log_end_offset, max_bytes=2**20, at_least_one=True
    ).data
    return [*iter_headers(data)]


@CODECS
@in_virtual_time
async def test_topic_without_it_does_nothing_for_it(codec: Codec) -> None:
    """No index, no thread, no way around the compiled one; and nothing is unpacked."""
    async with broker_world() as world:
        world.create("t", config={})
        await world.settle()
        runner = world.runner("t")
        world.executor.hold(URGENT)
        with patch.object(sent_ids, "uncompressed_payload", side_effect=AssertionError):
            results = [world.produce("t", batch("x", "x", codec=codec)) for _ in range(2)]
        assert [result.base_offset for result in results] == [0, 2]
        assert runner.deduplicator is None
        assert not runner._may_rewrite
        world.executor.release(URGENT)
