"""Fetch at a broker that follows: consumers read what it knows to be committed (KIP-392)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from tests.support.batches import NOW_MS, plain_batch
from tests.unit.broker.followed import answer, follower_of, records, stamped, take
from tests.unit.broker.served import (
    NEW_SESSION,
    Client,
    Fetched,
    ServedWorld,
    served_world,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import BROKER, OTHER, World, replicated
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.base.ids import NO_BROKER, Offset
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered
from tidelog.core.controller.image import BrokerImage, LastStop
from tidelog.records.batch import Codec
from tidelog.records.control import ControlType, TransactionEnd, encode_transaction_end
from tidelog.records.record import Record, encode_batch

T0 = ("t", 0)
EPOCH = 3
LONG_MS = 60_000
READ_COMMITTED = 1
# The leader has the first two of these.
PARTED = records(2, offset=0, epoch=0) + records(2, offset=2, epoch=1)


@asynccontextmanager
async def following(config: Mapping[str, str] | None = None) -> AsyncIterator[ServedWorld]:
    """A broker that follows another one, and serves clients."""
    async with served_world() as served:
        world = served.world
        world.decide(BrokerRegistered(BrokerImage(OTHER, 1, (), None, LastStop.CLEAN)))
        world.create("t", config=config, state=replicated(OTHER, EPOCH))
        await world.settle()
        yield served


def copy(world: World, count: int, *, high_watermark: int) -> None:
    """The leader sends so many records from where the log ends."""
    offset = world.runner("t").log.log_end_offset
    sent = records(count, offset=offset, epoch=EPOCH)
    take(world, answer(sent, high_watermark=high_watermark))


def fetched_at(
    client: Client, offset: int, *, leader_epoch: int = -1, last_fetched_epoch: int = -1
) -> Fetched:
    """What a consumer is told at once."""
    client.fetch(
        {T0: offset},
        max_wait_ms=0,
        leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return client.fetched().partitions[T0]


def code_at(client: Client, offset: int = 0) -> int:
    return fetched_at(client, offset).code


async def parked(served: ServedWorld, offset: int = 0, *, leader_epoch: int = -1) -> Client:
    """A consumer who waits for more."""
    client = served.client()
    client.fetch({T0: offset}, max_wait_ms=LONG_MS, leader_epoch=leader_epoch)
    await served.world.settle()
    assert client.take() == []
    return client


async def told(served: ServedWorld, client: Client) -> Fetched:
    """What it is told, without its time being up."""
    await served.world.settle()
    return client.fetched().partitions[T0]


# -- who is served -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (7, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (10, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (11, ErrorCode.NONE),
        (12, ErrorCode.NONE),
    ],
)
@in_virtual_time
async def test_consumers_are_served_from_version_11_on(version: int, code: ErrorCode) -> None:
    """Clients of older ones expect to be told that somebody else leads."""
    async with following() as served:
        copy(served.world, 2, high_watermark=2)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=0, version=version)
        answered = client.fetched()
        assert answered.partitions[T0].code == code
        assert answered.offsets() == ([] if code else [0, 1])


@in_virtual_time
async def test_other_followers_are_not_served() -> None:
    async with following() as served:
        copy(served.world, 2, high_watermark=2)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=0, replica=7)
        assert client.fetched().partitions[T0].code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("claimed", "code"),
    [
        (EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH, ErrorCode.NONE),
        (EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@in_virtual_time
async def test_a_consumer_has_to_know_the_epoch_that_is_followed(
    claimed: int, code: ErrorCode
) -> None:
    async with following() as served:
        assert fetched_at(served.client(), 0, leader_epoch=claimed).code == code


# -- what they are given -------------------------------------------------------------------------


@in_virtual_time
async def test_what_is_known_to_be_committed_is_served_and_no_more() -> None:
    async with following() as served:
        copy(served.world, 4, high_watermark=2)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=0)
        answered = client.fetched()
        assert answered.offsets() == [0, 1]
        assert answered.partitions[T0].high_watermark == 2
        assert answered.partitions[T0].last_stable_offset == 2


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (5, ErrorCode.NONE),
        (6, ErrorCode.OFFSET_NOT_AVAILABLE),
        (99, ErrorCode.OFFSET_NOT_AVAILABLE),
    ],
)
@in_virtual_time
async def test_only_a_leader_says_that_an_offset_is_beyond_the_end(
    offset: int, code: ErrorCode
) -> None:
    """Up to the own end they wait, as the leader sends them here before we know what it knows."""
    async with following() as served:
        take(
            served.world,
            answer(records(5, offset=0, epoch=EPOCH), high_watermark=3, log_start=2),
        )
        fetched = fetched_at(served.client(), offset)
        assert fetched.code == code
        assert (fetched.high_watermark, fetched.log_start_offset) == ((-1, -1) if code else (3, 2))
        assert bool(fetched.records) == (offset == 2)


@in_virtual_time
async def test_read_committed_ends_at_the_first_open_transaction() -> None:
    async with following() as served:
        sent = records(1, offset=0, epoch=EPOCH) + transactional(1, offset=1)
        take(served.world, answer(sent + records(1, offset=2, epoch=EPOCH), high_watermark=3))
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=0, isolation_level=READ_COMMITTED)
        answered = client.fetched()
        assert answered.offsets() == [0]
        assert answered.partitions[T0].last_stable_offset == 1
        assert answered.partitions[T0].high_watermark == 3
        client.fetch({T0: 0}, max_wait_ms=0)
        assert client.fetched().offsets() == [0, 1, 2]


@in_virtual_time
async def test_read_committed_waits_until_a_marker_that_was_copied_is_committed() -> None:
    """M4 of `core/transactions/producers.py`: another leader may take it back."""
    async with following() as served:
        sent = transactional(1, offset=0)
        sent += end_of_transaction(ControlType.COMMIT, offset=1, producer=9)
        take(served.world, answer(sent, high_watermark=1))
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=LONG_MS, isolation_level=READ_COMMITTED)
        await served.world.settle()
        assert client.take() == []
        take(served.world, answer(b"", high_watermark=2))
        fetched = await told(served, client)
        assert fetched.last_stable_offset == 2
        assert len(fetched.records) > 0


@in_virtual_time
async def test_read_committed_is_told_of_aborted_transactions_that_were_copied() -> None:
    async with following() as served:
        sent = (
            transactional(1, offset=0, producer=7)
            + transactional(1, offset=1, producer=8)
            + end_of_transaction(ControlType.ABORT, offset=2, producer=7)
            + end_of_transaction(ControlType.COMMIT, offset=3, producer=8)
            + end_of_transaction(ControlType.ABORT, offset=4, producer=9)
        )
        take(served.world, answer(sent, high_watermark=5))
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=LONG_MS, isolation_level=READ_COMMITTED)
        fetched = await told(served, client)
        assert fetched.last_stable_offset == 5
        assert fetched.aborted == [(7, 0)]
        # As the log says, so does the index that a restart makes from it.
        log = served.world.runner("t").log
        assert log.aborted_transactions(Offset(0), end_offset=Offset(5)) == ((7, 0, 2, 1),)


@pytest.mark.parametrize(
    ("offset", "epoch", "code", "diverging"),
    [
        (3, 1, ErrorCode.NONE, None),
        (2, 0, ErrorCode.NONE, None),
        (3, 0, ErrorCode.NONE, (0, 2)),
        (4, 2, ErrorCode.OFFSET_NOT_AVAILABLE, None),
        (6, 3, ErrorCode.OFFSET_NOT_AVAILABLE, None),
    ],
    ids=["same", "end of an epoch", "parted", "parted where nothing is certain", "ahead"],
)
@in_virtual_time
async def test_logs_part_only_below_what_is_known_to_be_committed(
    offset: int, epoch: int, code: ErrorCode, diverging: tuple[int, int] | None
) -> None:
    async with following() as served:
        take(served.world, answer(PARTED, high_watermark=3))
        fetched = fetched_at(served.client(), offset, last_fetched_epoch=epoch)
        assert (fetched.code, fetched.diverging) == (code, diverging)


# -- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_session", [True, False])
@in_virtual_time
async def test_a_parked_consumer_hears_what_is_committed(is_session: bool) -> None:
    async with following() as served:
        client = served.client()
        if is_session:
            client.fetch({T0: 0}, max_wait_ms=0, session=NEW_SESSION)
            session_id = client.fetched().session_id
            client.fetch({}, max_wait_ms=LONG_MS, session=(session_id, 1))
        else:
            client.fetch({T0: 0}, max_wait_ms=LONG_MS)
        copy(served.world, 2, high_watermark=0)
        await served.world.settle()
        assert client.take() == []
        copy(served.world, 0, high_watermark=1)
        await served.world.settle()
        assert client.fetched().offsets() == [0]


@in_virtual_time
async def test_a_consumer_who_comes_before_the_high_watermark_waits_for_it() -> None:
    async with following() as served:
        copy(served.world, 3, high_watermark=1)
        client = await parked(served, 2)
        copy(served.world, 0, high_watermark=2)
        await served.world.settle()
        assert client.take() == []
        copy(served.world, 0, high_watermark=3)
        await served.world.settle()
        assert client.fetched().offsets() == [2]


@in_virtual_time
async def test_a_consumer_of_a_leader_that_follows_now_waits_on() -> None:
    """It makes no claim about who leads."""
    async with served_world() as served:
        world = served.world
        world.decide(BrokerRegistered(BrokerImage(OTHER, 1, (), None, LastStop.CLEAN)))
        world.create("t", state=replicated(BROKER, EPOCH - 1))
        await world.settle()
        client = await parked(served)
        world.change("t", replicated(OTHER, EPOCH))
        await world.settle()
        assert client.take() == []
        copy(world, 1, high_watermark=1)
        await world.settle()
        assert client.fetched().offsets() == [0]


@in_virtual_time
async def test_parked_consumers_hear_that_somebody_else_leads() -> None:
    async with following() as served:
        client = await parked(served, leader_epoch=EPOCH)
        served.world.change("t", replicated(OTHER, EPOCH + 1))
        assert (await told(served, client)).code == ErrorCode.FENCED_LEADER_EPOCH
        client = await parked(served, leader_epoch=EPOCH + 1)
        served.world.change("t", replicated(BROKER, EPOCH + 2))
        assert (await told(served, client)).code == ErrorCode.FENCED_LEADER_EPOCH


# -- when they are refused -----------------------------------------------------------------------


@in_virtual_time
async def test_consumers_are_refused_when_the_role_ends() -> None:
    async with following() as served:
        client = await parked(served)
        served.world.change("t", replicated(NO_BROKER, EPOCH + 1))
        assert (await told(served, client)).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_at(served.client()) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_consumers_are_refused_when_the_session_is_lost() -> None:
    async with following() as served:
        client = await parked(served)
        served.world.decide(BrokerGone(BROKER))
        assert (await told(served, client)).code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_consumers_are_refused_while_the_disk_is_gone() -> None:
    async with following() as served:
        client = await parked(served)
        served.world.log_dir.on_failure(StorageError("gone"))
        assert (await told(served, client)).code == ErrorCode.KAFKA_STORAGE_ERROR
        assert code_at(served.client()) == ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_consumers_go_to_the_leader_while_a_follower_is_not_in_sync() -> None:
    async with following() as served:
        world = served.world
        client = await parked(served)
        world.change("t", replicated(OTHER, EPOCH, isr=(OTHER,), partition_epoch=EPOCH + 1))
        assert (await told(served, client)).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_at(served.client()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.change("t", replicated(OTHER, EPOCH, partition_epoch=EPOCH + 2))
        await world.settle()
        assert code_at(served.client()) == ErrorCode.NONE


@in_virtual_time
async def test_who_left_the_isr_while_it_waited_for_its_role_is_not_in_sync() -> None:
    async with following() as served:
        world = served.world
        take(world, answer(PARTED, high_watermark=2))
        world.executor.hold(BACKGROUND)
        take(world, answer(diverging=(0, 2)))
        await world.settle()
        world.change("t", replicated(BROKER, EPOCH + 1))
        await world.settle()
        world.change("t", replicated(OTHER, EPOCH + 2))
        await world.settle()
        world.change("t", replicated(OTHER, EPOCH + 2, isr=(OTHER,), partition_epoch=EPOCH + 3))
        await world.settle()
        world.executor.release(BACKGROUND)
        await world.settle()
        assert follower_of(world).machine.leader_epoch == EPOCH + 2
        assert code_at(served.client()) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_nobody_reads_a_log_that_is_being_cut() -> None:
    async with following() as served:
        world = served.world
        take(world, answer(PARTED, high_watermark=2))
        world.executor.hold(URGENT, BACKGROUND)
        take(world, answer(diverging=(0, 2)))
        assert code_at(served.client()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.executor.release(URGENT)
        await world.settle()
        assert code_at(served.client()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.executor.release(BACKGROUND)
        await world.settle()
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=0)
        assert client.fetched().offsets() == [0, 1]


@in_virtual_time
async def test_a_log_is_not_cut_while_a_thread_reads_it() -> None:
    """What was read is given to nobody: the next look refuses, or reads what there is by then."""
    async with following() as served:
        world = served.world
        take(world, answer(PARTED, high_watermark=2))
        world.disk.is_cold = True
        world.executor.hold(URGENT)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=LONG_MS)
        assert world.executor.waiting(URGENT) == 1
        take(world, answer(diverging=(0, 2)))
        await world.settle()
        assert world.runner("t").log.truncation_count == 0
        world.executor.step(URGENT)
        assert (await told(served, client)).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.executor.release(URGENT)
        await world.settle()
        assert world.runner("t").log.log_end_offset == 2


@in_virtual_time
async def test_what_a_thread_read_before_a_cut_is_read_again() -> None:
    async with following() as served:
        world = served.world
        take(world, answer(records(2, offset=0, epoch=0), high_watermark=2))
        world.disk.is_cold = True
        world.executor.hold(URGENT)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=LONG_MS)
        # Somebody was elected who lacks what was committed: all is lost, and other records come.
        log = world.runner("t").log
        world.executor.step(URGENT)
        log.truncate_to(log.log_start_offset)
        sent = stamped(plain_batch(2), offset=0, epoch=EPOCH)
        take(world, answer(sent, high_watermark=2))
        await world.settle()
        assert client.take() == []
        world.executor.release(URGENT)
        await world.settle()
        assert client.fetched().partitions[T0].records == sent


@in_virtual_time
async def test_parked_consumers_hear_that_the_log_begins_elsewhere() -> None:
    async with following() as served:
        client = await parked(served)
        take(
            served.world,
            answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=7, high_watermark=9),
        )
        assert (await told(served, client)).code == ErrorCode.OFFSET_OUT_OF_RANGE
        fetched = fetched_at(served.client(), 7)
        assert (fetched.code, fetched.high_watermark, fetched.log_start_offset) == (0, 7, 7)


def transactional(count: int, *, offset: int, producer: int = 9) -> bytes:
    """A batch of a transaction, as the leader has it."""
    batch = encode_batch(
        [Record(number, NOW_MS, None, b"value", ()) for number in range(count)],
        leader_epoch=-1,
        codec=Codec.NONE,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        is_control=False,
    )
    return stamped(batch, offset=offset, epoch=EPOCH)


def end_of_transaction(end: ControlType, *, offset: int, producer: int) -> bytes:
    """The marker that ends a transaction, as the leader has it."""
    key, value = encode_transaction_end(TransactionEnd(end, 0))
    batch = encode_batch(
        [Record(0, NOW_MS, key, value, ())],
        leader_epoch=-1,
        codec=Codec.NONE,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=-1,
        is_transactional=True,
        is_control=True,
    )
    return stamped(batch, offset=offset, epoch=EPOCH)
