"""A leader's answer that is taken in by the shortcut leaves a follower as Python would have.

Twins (`following_twins.py`): two followers in memory, one with the shortcut and one without, that
are given the same answers and meet with the same changes. After every step what they have asked, to
the byte, their files, and the books of their fetchers and partitions must be equal. That is the
whole specification of `_shortcuts_follow.pxi`.
"""

from collections.abc import Callable
from random import Random

import pytest

from tests.support.batches import idempotent_batch, with_header
from tests.unit.broker.compiled import only_compiled
from tests.unit.broker.far_end import FarEnd
from tests.unit.broker.followed import answer, stamped
from tests.unit.broker.following_twins import (
    PARTITIONS,
    FollowingTwins,
    Lane,
    following_twins,
)
from tests.unit.broker.played_leader import SESSION, registered
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import BROKER, OTHER, World
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.broker.network import ProtocolFactory
from tidelog.records.batch import (
    CONTROL_FLAG,
    HEADER_SIZE_BYTES,
    TRANSACTIONAL_FLAG,
    Codec,
    read_header,
)
from tidelog.records.control import ControlType, TransactionEnd, encode_transaction_end
from tidelog.records.record import Record, encode_batch, encode_plain_batch
from tidelog.storage.faulty_disk import FaultyDisk, FaultyLogFile
from tidelog.wire.fetch import FetchPartitionResult

pytestmark = only_compiled

STEPS = 120
BULK = {"tidelog.replica.bulk.bytes": "400"}
SMALL_SEGMENTS = {"internal.segment.bytes": "1000", "index.interval.bytes": "200"}


def batch(chance: Random, *, count: int = 1, value_bytes: int = 8, now_ms: int) -> bytearray:
    return encode_plain_batch(
        [
            Record(number, now_ms, b"key", chance.randbytes(value_bytes), ())
            for number in range(count)
        ],
        Codec.NONE,
    )


class Teller:
    """Says what a leader would of one partition, and what it would not."""

    def __init__(self, both: FollowingTwins, chance: Random) -> None:
        self.both = both
        self.chance = chance

    def batches(self, topic: str, partition: int, count: int) -> list[bytearray]:
        """What comes next in that log."""
        chance, runner = self.chance, self.both.runner(topic, partition)
        made: list[bytearray] = []
        offset, epoch = int(runner.log.log_end_offset), int(runner.leader_epoch)
        for _ in range(count):
            one = self.batch()
            if chance.random() < 0.02:
                epoch = max(0, epoch + chance.choice((-1, 1)))
            made.append(bytearray(stamped(one, offset=offset, epoch=epoch)))
            offset += read_header(one, 0).last_offset_delta + 1
        return made

    def batch(self) -> bytearray:
        chance = self.chance
        match chance.randrange(20):
            case 0:
                attributes = chance.choice((TRANSACTIONAL_FLAG, 0x4000, 0x08))
                sent = idempotent_batch(1, producer_id=5, base_sequence=chance.randrange(3))
                return with_header(sent, attributes=attributes)
            case 1:
                return marker(chance.choice((ControlType.COMMIT, ControlType.ABORT)))
            case 2 | 3:
                producer_id = chance.choice((1, 2))
                return idempotent_batch(
                    chance.choice((1, 2)),
                    producer_id=producer_id,
                    base_sequence=chance.randrange(100),
                )
            case 4:
                return batch(chance, value_bytes=500, now_ms=self.now_ms + chance.choice((0, 9**9)))
            case 5:
                return batch(chance, count=1 + chance.randrange(30), now_ms=self.now_ms)
            case _:
                return batch(chance, now_ms=self.now_ms)

    @property
    def now_ms(self) -> int:
        return self.both.quick.clock.now_ms()

    def result(self, topic: str, partition: int) -> FetchPartitionResult:
        """Mostly what is ordinary."""
        chance, runner = self.chance, self.both.runner(topic, partition)
        sent = self.batches(topic, partition, chance.choice((0, 1, 1, 1, 2, 3)))
        end = runner.log.log_end_offset + sum(read_header(one, 0).record_count for one in sent)
        high_watermark = max(0, end - chance.choice((0, 1, 2, -3)))
        said = answer(
            b"".join(map(bytes, sent)),
            high_watermark=high_watermark,
            log_start=runner.log.log_start_offset,
            partition=partition,
        )
        if chance.random() < 0.9:
            return said
        return self.spoiled(said, runner.log.log_end_offset)

    def spoiled(self, said: FetchPartitionResult, end: int) -> FetchPartitionResult:
        chance = self.chance
        sent = bytearray(said.records)
        match chance.randrange(9):
            case 0 if sent:
                # Offset and epoch are not covered by the checksum: any would be believed.
                size_bytes = read_header(sent, 0).size_bytes
                at = chance.choice((8, 10, 11, chance.randrange(16, size_bytes)))
                sent[at] ^= 1 << chance.randrange(8)
            case 1 if len(sent) > HEADER_SIZE_BYTES:
                moved = max(0, read_header(sent, 0).base_offset + chance.choice((-1, 1, 5)))
                sent[:8] = moved.to_bytes(8, "big")
            case 2 if sent:
                del sent[chance.randrange(len(sent)) :]
            case 3:
                code: ErrorCode = chance.choice(
                    (
                        ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        ErrorCode.FENCED_LEADER_EPOCH,
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                )
                return said._replace(error_code=code, records=b"")
            case 4:
                cut = max(0, end - chance.randrange(4))
                return answer(
                    diverging=(chance.choice((0, 2, 3, 4)), cut), partition=said.partition
                )
            case 5:
                return said._replace(log_start_offset=max(0, end - chance.randrange(4)))
            case 6:
                return said._replace(partition=said.partition + 7)
            case 7:
                return said._replace(high_watermark=chance.choice((-1, 0, 10**6)))
            case _:
                sent = sent * 2
        return said._replace(records=bytes(sent))


def marker(kind: ControlType) -> bytearray:
    """The end of a transaction of producer 5."""
    key, value = encode_transaction_end(TransactionEnd(kind, 0))
    return encode_batch(
        [Record(0, 1_700_000_000_000, key, value, ())],
        leader_epoch=-1,
        codec=Codec.NONE,
        producer_id=5,
        producer_epoch=0,
        base_sequence=-1,
        is_transactional=True,
        is_control=True,
    )


# -- what is ordinary ----------------------------------------------------------------------------


async def in_session(
    both: FollowingTwins, *, topic: str = "t", partitions: tuple[int, ...] = (0,)
) -> Teller:
    """The session is open, and the logs are not empty: the first batch of an epoch is special."""
    teller = Teller(both, Random(1))
    both.answer({})
    await both.settle()
    for partition in partitions:
        both.answer({topic: [ordinary(teller, topic, partition)]})
        await both.settle()
    both.taken.requests = both.taken.left = both.taken.answers = 0
    return teller


def ordinary(
    teller: Teller, topic: str = "t", partition: int = 0, count: int = 1
) -> FetchPartitionResult:
    """So many batches of one record."""
    runner = teller.both.runner(topic, partition)
    offset, epoch = runner.log.log_end_offset, runner.leader_epoch
    sent = [
        stamped(batch(teller.chance, now_ms=teller.now_ms), offset=offset + number, epoch=epoch)
        for number in range(count)
    ]
    return answer(b"".join(sent), high_watermark=offset, partition=partition)


@in_virtual_time
async def test_what_is_ordinary_takes_the_shortcut() -> None:
    """Otherwise the twins would agree because they are the same."""
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        for count in range(1, 6):
            both.answer({"t": [ordinary(teller)]})
            assert both.lanes[0].asked  # Before anything else happens.
            assert (both.taken.requests, both.taken.left) == (count, 0)
        both.answer({"t": [ordinary(teller, count=4)]})
        assert (both.taken.requests, both.taken.left) == (6, 0)
        assert both.runner().log.log_end_offset == 10


@in_virtual_time
async def test_several_partitions_in_one_answer_are_ordinary() -> None:
    async with following_twins() as both:
        teller = await in_session(both, partitions=(0, 1))
        both.answer({"u": [ordinary(teller, "u")]})
        before = both.taken.requests
        for _ in range(3):
            both.answer(
                {
                    "t": [ordinary(teller, partition=1), ordinary(teller)],
                    "u": [ordinary(teller, "u", count=2)],
                }
            )
        assert both.taken.requests == before + 3
        assert len(both.lanes[0].asked[-1][1].topics) == 2


@in_virtual_time
async def test_producers_are_known_after_their_batches_were_copied() -> None:
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        for sequence in range(4):
            end = both.runner().log.log_end_offset
            sent = stamped(idempotent_batch(1, base_sequence=sequence), offset=end, epoch=3)
            both.answer({"t": [answer(sent, high_watermark=end)]})
        assert both.taken.requests == 4
        ((entry),) = both.runner().producers.entries()
        assert entry.batches[-1].last_sequence == 3
        assert teller.both is both


# -- what is not ---------------------------------------------------------------------------------


def _flip(said: FetchPartitionResult, at: int) -> FetchPartitionResult:
    sent = bytearray(said.records)
    sent[at] ^= 1
    return said._replace(records=bytes(sent))


def _with_header(said: FetchPartitionResult, **changes: int) -> FetchPartitionResult:
    return said._replace(records=bytes(with_header(bytearray(said.records), **changes)))


SPOILED: dict[str, Callable[[FetchPartitionResult], FetchPartitionResult]] = {
    "checksum": lambda said: _flip(said, 17),
    "record": lambda said: _flip(said, 70),
    "offset before": lambda said: _with_header(said, base_offset=0),
    "offset after": lambda said: _with_header(said, base_offset=9),
    "another epoch": lambda said: _with_header(said, leader_epoch=4),
    "an older epoch": lambda said: _with_header(said, leader_epoch=2),
    "magic": lambda said: _with_header(said, magic=1),
    "length": lambda said: _with_header(said, batch_length=len(said.records) - 13),
    "short length": lambda said: _with_header(said, batch_length=10),
    "negative length": lambda said: _with_header(said, batch_length=-1),
    "offset delta": lambda said: _with_header(said, last_offset_delta=-1),
    "record count": lambda said: _with_header(said, record_count=-1),
    "transactional": lambda said: _with_header(
        said, attributes=TRANSACTIONAL_FLAG, producer_id=5, producer_epoch=0, base_sequence=0
    ),
    "control": lambda said: _with_header(said, attributes=CONTROL_FLAG),
    "the same twice": lambda said: said._replace(records=bytes(said.records) * 2),
    "half a batch": lambda said: said._replace(records=bytes(said.records)[:-1]),
    "one and a half": lambda said: said._replace(
        records=bytes(said.records) + bytes(said.records)[:70]
    ),
    "a few bytes": lambda said: said._replace(records=bytes(said.records)[:20]),
    "error": lambda said: said._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    "out of range": lambda said: said._replace(
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=5, records=b""
    ),
    "diverging": lambda said: answer(diverging=(3, 0)),
    "log start": lambda said: said._replace(log_start_offset=1, high_watermark=2),
    "another partition": lambda said: said._replace(partition=1),
    "high watermark beyond": lambda said: said._replace(high_watermark=100),
    "high watermark -1": lambda said: said._replace(high_watermark=-1),
}
TAKEN = {"high watermark beyond", "high watermark -1"}


@pytest.mark.parametrize("name", SPOILED)
@in_virtual_time
async def test_the_twins_agree_about_what_is_not_ordinary(name: str) -> None:
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        both.answer({"t": [ordinary(teller)]})
        both.answer({"t": [SPOILED[name](ordinary(teller))]})
        await both.settle()
        assert both.taken.left == (name not in TAKEN)
        for _ in range(3):
            await both.pass_time(1.1)
            for lane in both.lanes:
                if lane.asked and not lane.is_closed:
                    both.answer({"t": [ordinary(teller)]})


@in_virtual_time
async def test_a_partition_that_is_answered_twice_is_taken_in_once() -> None:
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        both.answer({"t": [ordinary(teller), ordinary(teller)]})
        await both.settle()
        assert both.taken.left == 1


@pytest.mark.parametrize("session_id", [0, 1, SESSION + 1])
@in_virtual_time
async def test_the_twins_agree_about_other_sessions(session_id: int) -> None:
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        both.answer({"t": [ordinary(teller)]}, session_id=session_id)
        await both.settle()
        assert both.taken.left == 1
        both.answer({"t": [ordinary(teller)]})
        await both.settle()


@in_virtual_time
async def test_the_twins_agree_about_answers_to_older_questions() -> None:
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        said = ordinary(teller)
        both.change("t", 0, OTHER)
        await both.settle()
        assert len(both.lanes[0].asked) == 2
        both.answer({"t": [said]})
        await both.settle()
        assert both.taken.requests == 0
        for _ in range(4):
            both.answer({"t": [ordinary(teller)]})
            await both.settle()
        assert both.taken.requests > 0


def _other_correlation_id(frame: bytearray) -> None:
    frame[7] ^= 1


def _bytes_too_many(frame: bytearray) -> None:
    frame += bytes(5)


def _another_answer(frame: bytearray) -> None:
    frame += bytes(frame)


@pytest.mark.parametrize("spoil", [_other_correlation_id, _bytes_too_many, _another_answer])
@in_virtual_time
async def test_who_sends_what_nobody_asked_for_is_left(spoil: Callable[[bytearray], None]) -> None:
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        (lane,) = both.lanes
        both.answer({"t": [ordinary(teller)]}, spoil=spoil)
        if not lane.is_closed:
            both.answer({"t": [ordinary(teller)]})
        assert lane.is_closed
        await both.pass_time(1.1)
        assert len(both.lanes) == 2


@in_virtual_time
async def test_who_sends_before_it_was_asked_is_left() -> None:
    """As early as the connection is made, and not yet known to whom it was made for."""

    class Hasty(FarEnd):
        async def connect(self, host: str, port: int, factory: ProtocolFactory) -> None:
            await super().connect(host, port, factory)
            self.connection.send((4).to_bytes(4, "big") + bytes(4))

    async with following_twins(topics=(), far_end=Hasty) as both:
        both.create("t")
        await both.settle()
        assert both.fars[0].attempts == 1
        assert both.lanes[0].is_closed
        await both.pass_time(1.1)
        assert both.fars[0].attempts > 1


@in_virtual_time
async def test_what_follows_a_bad_answer_is_not_taken_in() -> None:
    """Before the task that deals with the failure has had its turn."""
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        both.change("t", 1, OTHER)
        await both.settle()
        assert len(both.lanes[0].asked) == 2
        said = ordinary(teller)
        both.answer({"t": [said]}, spoil=_short_topic_count)
        assert both.runner().log.log_end_offset == 1
        both.answer({"t": [said]})
        assert both.runner().log.log_end_offset == 1
        await both.settle()


def _short_topic_count(frame: bytearray) -> None:
    """Twenty topics, where there is one."""
    frame[19] = 21


@in_virtual_time
async def test_the_twins_agree_about_answers_to_who_has_another_epoch() -> None:
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        both.answer({"t": [ordinary(teller)]})
        both.each(lambda world: world.decide(registered(BROKER, 2)))
        await both.settle()
        both.answer({"t": [ordinary(teller)]})
        await both.settle()
        assert both.lanes[-1].asked[-1][1].replica_epoch == 2


@pytest.mark.parametrize("config", [SMALL_SEGMENTS, {"flush.messages": "3"}, {"segment.ms": "1"}])
@in_virtual_time
async def test_the_twins_agree_when_a_thread_is_needed(config: dict[str, str]) -> None:
    async with following_twins(topics=("t",), config=config) as both:
        teller = await in_session(both)
        for _ in range(40):
            both.each(lambda world: world.clock.advance(1))
            both.answer({"t": [ordinary(teller, count=teller.chance.choice((1, 3)))]})
            await both.settle()
        assert both.taken.left > 0
        assert both.taken.requests > 0


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("name", ["*.log", "*.index", "*.timeindex"])
@in_virtual_time
async def test_the_twins_agree_when_the_disk_fails(name: str, after: int) -> None:
    async with following_twins(config={"index.interval.bytes": "100"}) as both:
        teller = await in_session(both, partitions=(0, 1))
        both.each(lambda world: world.disk.arm("append", name, StorageError, after=after))
        for _ in range(3):
            if both.lanes[0].asked:
                both.answer({"t": [ordinary(teller, count=2), ordinary(teller, partition=1)]})
        assert both.runner().is_offline == (name == "*.log")
        await both.settle()
        await both.pass_time(1.1)


@pytest.mark.parametrize("failing", [0, 1])
@in_virtual_time
async def test_one_disk_that_fails_does_not_hold_up_the_others(failing: int) -> None:
    """What an answer brings for other disks is appended, and asked on from."""

    def fail(world: World) -> None:
        broken = FaultyDisk(world.memory_disk)
        broken.arm("append", "*.log", StorageError)
        segment = world.runner("t", failing).log.segments[-1]
        assert segment.file is not None
        segment.file = FaultyLogFile(broken, segment.file)

    async with following_twins(topics=("t",), dir_count=2) as both:
        teller = await in_session(both, partitions=(0, 1))
        assert both.runner().log_directory is not both.runner("t", 1).log_directory
        both.each(fail)
        both.answer({"t": [ordinary(teller), ordinary(teller, partition=1)]})
        assert both.taken.answers == 1
        ((_, request),) = both.lanes[0].asked
        ((_, _, (place,)),) = request.topics
        assert (place.partition, place.fetch_offset) == (1 - failing, 2)
        await both.settle()


@in_virtual_time
async def test_who_answers_in_time_may_do_so_for_ever() -> None:
    """Each question has a deadline of its own, though it is the same one put again."""
    async with following_twins(topics=("t",)) as both:
        teller = await in_session(both)
        (lane,) = both.lanes
        timeout_s = both.fars[0].timeout_ms / 1_000
        for _ in range(5):
            await both.pass_time(0.6 * timeout_s)
            both.answer({"t": [ordinary(teller)]})
        assert (both.taken.requests, both.taken.left) == (5, 0)
        await both.pass_time(0.9 * timeout_s)
        assert not lane.is_closed
        await both.pass_time(0.2 * timeout_s)
        assert lane.is_closed


@in_virtual_time
async def test_a_partition_changes_lanes_as_it_did() -> None:
    async with following_twins(settings=BULK) as both:
        teller = await in_session(both, partitions=(0, 1))
        for count in (6, 6, 6, 1, 1, 6, *[1] * 12, 6, 1):
            for partition in (0, 1):
                for lane in both.lanes:
                    if lane.asked and not lane.is_closed:
                        said = ordinary(teller, partition=partition, count=count)
                        both.answer({"t": [said]}, lane=lane)
                await both.settle()
        assert len(both.lanes) == 2
        assert both.taken.requests > 10


# -- stories -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
@in_virtual_time
async def test_the_twins_agree_whatever_happens(seed: int) -> None:
    chance = Random(seed)
    settings = chance.choice(({}, BULK))
    async with following_twins(settings=settings) as both:
        await Story(chance).run(both)


class Story:
    """One sequence of events, by chance."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.is_over = False

    async def run(self, both: FollowingTwins) -> None:
        chance = self.chance
        self.both = both
        both.in_order = False
        self.teller = Teller(both, chance)
        for _ in range(STEPS):
            lanes = [lane for lane in both.lanes if lane.asked and not lane.is_closed]
            if not lanes:
                await both.pass_time(chance.choice((0.01, 1.1)))
            elif chance.random() < 0.85:
                self.answer(chance.choice(lanes))
            else:
                await chance.choice(EVENTS)(self)
            if chance.random() < 0.5:
                await both.settle()
            if self.is_over:
                break

    def answer(self, lane: Lane) -> None:
        chance = self.chance
        places = [(name, each) for name, of in PARTITIONS.items() for each in range(of)]
        if chance.random() < 0.95:
            places = [place for place in places if place in lane.named]
        chance.shuffle(places)
        results: dict[str, list[FetchPartitionResult]] = {}
        for topic, partition in places[: chance.choice((0, 1, 1, 1, 2, 3))]:
            results.setdefault(topic, []).append(self.teller.result(topic, partition))
            if chance.random() < 0.02:
                results[topic] *= 2
        session_id, error, spoil = SESSION, ErrorCode.NONE, None
        match chance.randrange(40):
            case 0:
                session_id = chance.choice((0, SESSION + 1))
            case 1:
                error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            case 2:
                spoil = self.spoil
            case _:
                pass
        self.both.answer(results, lane=lane, session_id=session_id, error=error, spoil=spoil)

    def spoil(self, frame: bytearray) -> None:
        """Anything before and behind records but its length and correlation id."""
        at = self.chance.choice((-1, -2, -3, self.chance.randrange(8, min(66, len(frame)))))
        frame[at] = self.chance.randrange(256)

    async def time_passes(self) -> None:
        await self.both.pass_time(self.chance.choice((0.01, 0.1, 1.1)))

    async def clock_moves(self) -> None:
        by_ms = self.chance.choice((1, 1_000, 10**9))
        self.both.each(lambda world: world.clock.advance(by_ms))

    async def leader_changes(self) -> None:
        topic, partition = self.chance.choice((("t", 0), ("t", 1), ("u", 0)))
        for leader in self.chance.choice(((OTHER,), (BROKER, OTHER))):
            self.both.change(topic, partition, leader)
            await self.both.settle()

    async def connection_breaks(self) -> None:
        lane = self.chance.choice(self.both.lanes)
        if not lane.is_closed:
            for connection in lane.connections:
                connection.close()
            lane.asked.clear()

    async def threads_are_slow(self) -> None:
        self.both.each(lambda world: world.executor.hold(URGENT))
        for _ in range(self.chance.randrange(4)):
            lanes = [lane for lane in self.both.lanes if lane.asked and not lane.is_closed]
            if lanes:
                self.answer(self.chance.choice(lanes))
                await self.both.settle()
        self.both.each(lambda world: world.executor.release(URGENT))
        await self.both.settle()

    async def disk_fails(self) -> None:
        after = self.chance.randrange(3)
        name = self.chance.choice(("*.log", "*.index", "*.timeindex"))
        self.both.each(lambda world: world.disk.arm("append", name, StorageError, after=after))
        for _ in range(3):
            lanes = [lane for lane in self.both.lanes if lane.asked and not lane.is_closed]
            if lanes:
                self.answer(self.chance.choice(lanes))
                await self.both.settle()
        # Logs are opened again in any order, and what is asked for first depends on that.
        self.is_over = True

    async def configure(self) -> None:
        topic = self.chance.choice(("t", "u"))
        config = self.chance.choice(
            ({}, SMALL_SEGMENTS, {"flush.messages": "4"}, {"segment.ms": "9"})
        )
        self.both.each(lambda world: world.configure(topic, config))

    async def throttle(self) -> None:
        rate = self.chance.choice((1, 10_000, 2**63 - 1, 2**63 - 1))
        setting = self.chance.choice(((), ("*",)))

        def set_throttle(world: World) -> None:
            world.fetchers._throttle.set_rate(rate)
            world.fetchers._throttle.set_replicas("t", setting)

        self.both.each(set_throttle)

    async def broker_epoch_changes(self) -> None:
        epoch = self.both.quick.image.brokers[BROKER].broker_epoch + 1
        self.both.each(lambda world: world.decide(registered(BROKER, epoch)))


EVENTS = [
    Story.time_passes,
    Story.clock_moves,
    Story.leader_changes,
    Story.leader_changes,
    Story.connection_breaks,
    Story.threads_are_slow,
    Story.disk_fails,
    *[Story.configure] * 3,
    Story.time_passes,
    Story.threads_are_slow,
    Story.leader_changes,
    Story.broker_epoch_changes,
    Story.configure,
    Story.throttle,
    Story.broker_epoch_changes,
]
