"""Fetch: every fetch is answered, sees what it should, and leaves nothing behind (R4, R5)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import NOW_MS, plain_batch
from tests.unit.broker.served import (
    FETCH_VERSION,
    NEW_SESSION,
    NO_SESSION,
    Client,
    FetchAnswer,
    Place,
    ServedWorld,
    fetch_answer,
    fetch_values,
    served_world,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import BROKER, OTHER, replicated
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.base.ids import Offset, ProducerId
from tidelog.records.batch import Codec, read_header
from tidelog.records.control import (
    ControlType,
    TransactionEnd,
    encode_transaction_end,
    read_transaction_end,
)
from tidelog.records.record import Record, encode_batch
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.wire.api import ApiKey

T0 = ("t", 0)
U0 = ("u", 0)
LONG_MS = 60_000


async def with_topics(served: ServedWorld, *names: str) -> None:
    for name in names:
        served.world.create(name)
    await served.world.settle()


async def opened_session(served: ServedWorld, client: Client, *places: Place) -> int:
    """A session that has told all there is to tell."""
    client.fetch(dict.fromkeys(places, 0), session=NEW_SESSION, max_wait_ms=0)
    return client.fetched().session_id


# -- waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("partition_count", [1, 3])
@pytest.mark.parametrize("is_session", [True, False])
@in_virtual_time
async def test_a_full_answer_does_not_wait_for_more(
    partition_count: int, is_session: bool, is_cold: bool
) -> None:
    """`fetch.min.bytes` may be more than one answer can hold."""
    async with served_world() as served:
        served.world.create("t", partitions=partition_count)
        await served.world.settle()
        for _ in range(3):
            for partition in range(partition_count):
                served.world.produce("t", plain_batch(1), partition=partition)
        served.world.disk.is_cold = is_cold
        size_bytes = len(plain_batch(1))
        client = served.client()
        client.fetch(
            {("t", partition): 0 for partition in range(partition_count)},
            session=NEW_SESSION if is_session else NO_SESSION,
            max_wait_ms=LONG_MS,
            min_bytes=100 * size_bytes,
            max_bytes=2 * size_bytes + 1,
        )
        if is_cold:
            await served.world.settle()
        answer = client.fetched()
        assert sum(len(one.records) for one in answer.partitions.values()) == 2 * size_bytes


@in_virtual_time
async def test_what_lies_on_the_disk_does_not_come_by_waiting() -> None:
    """A thread reads one partition for each answer."""
    async with served_world() as served:
        await with_topics(served, "t", "u")
        for topic in ("t", "u"):
            served.world.produce(topic, plain_batch(1))
        served.world.disk.is_cold = True
        client = served.client()
        client.fetch({T0: 0, U0: 0}, max_wait_ms=LONG_MS, min_bytes=1_000)
        await served.world.settle()
        answer = client.fetched()
        assert sorted([answer.offsets(T0), answer.offsets(U0)]) == [[], [0]]


@pytest.mark.parametrize(
    ("client_max_bytes", "seen"),
    [(2**20, [0, 1, 2]), (1, [0])],
    ids=["the broker's bound", "the client's own"],
)
@in_virtual_time
async def test_who_always_asks_in_one_order_sees_all_unless_it_bounds_the_answer_itself(
    client_max_bytes: int, seen: list[int]
) -> None:
    async with served_world() as served:
        served.fetch.reader.fetch_max_bytes = 1
        served.world.create("t", partitions=3)
        await served.world.settle()
        places = [("t", partition) for partition in range(3)]
        for place in places:
            served.world.produce("t", plain_batch(1), partition=place[1])
        client = served.client()
        found = set()
        for _ in range(30):
            client.fetch(dict.fromkeys(places, 0), max_bytes=client_max_bytes)
            answer = client.fetched()
            found |= {place[1] for place in places if answer.offsets(place)}
        assert sorted(found) == seen


@in_virtual_time
async def test_a_follower_without_a_session_gets_to_every_partition() -> None:
    """It always asks in one order, and for less than an answer may hold."""
    async with served_world() as served:
        world = served.world
        world.create("t", partitions=3, state=replicated(BROKER, 3))
        await world.settle()
        places = [("t", partition) for partition in range(3)]
        for _, partition in places:
            world.produce("t", plain_batch(1), partition=partition)
        client = served.client()
        found = set()
        for _ in range(50):
            client.fetch(dict.fromkeys(places, 0), max_bytes=1, replica=OTHER)
            answer = client.fetched()
            found |= {place for place in places if answer.offsets(place)}
        assert found == set(places)


@in_virtual_time
async def test_a_parked_fetch_is_answered_by_the_next_append() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=LONG_MS)
        await served.world.settle()
        assert client.take() == []
        served.world.produce("t", plain_batch(2))
        await served.world.settle()
        assert client.fetched().offsets() == [0, 1]
        assert served.watcher_count() == 0


@in_virtual_time
async def test_a_parked_fetch_of_a_session_is_answered_by_the_next_append() -> None:
    async with served_world() as served:
        await with_topics(served, "t", "u")
        client = served.client()
        session_id = await opened_session(served, client, T0, U0)
        client.fetch({}, session=(session_id, 1), max_wait_ms=LONG_MS)
        await served.world.settle()
        served.world.produce("u", plain_batch(1))
        await served.world.settle()
        answer = client.fetched()
        assert list(answer.partitions) == [U0]
        assert answer.offsets(U0) == [0]


@in_virtual_time
async def test_a_fetch_is_answered_with_nothing_when_its_time_is_up() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=500)
        await asyncio.sleep(0.4)
        assert client.take() == []
        await asyncio.sleep(0.2)
        assert client.fetched().offsets() == []
        assert served.watcher_count() == 0


@in_virtual_time
async def test_a_fetch_waits_for_min_bytes_over_all_its_partitions() -> None:
    async with served_world() as served:
        await with_topics(served, "t", "u")
        size_bytes = len(plain_batch(1))
        client = served.client()
        client.fetch({T0: 0, U0: 0}, max_wait_ms=LONG_MS, min_bytes=2 * size_bytes)
        served.world.produce("t", plain_batch(1))
        await served.world.settle()
        assert client.take() == []
        served.world.produce("u", plain_batch(1))
        await served.world.settle()
        answer = client.fetched()
        assert answer.offsets(T0) == answer.offsets(U0) == [0]


@in_virtual_time
async def test_requests_behind_a_parked_fetch_wait_for_it() -> None:
    """As in Kafka. Their answers, which may be large, would only pile up behind it."""
    async with served_world() as served:
        await with_topics(served, "t", "u")
        served.world.produce("u", plain_batch(3))
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=500)
        client.fetch({U0: 0}, max_wait_ms=0)
        client.produce(plain_batch(1), U0)
        assert served.world.runner("u").log.log_end_offset == 3
        await asyncio.sleep(0.6)
        first, second, third = client.take()
        assert fetch_answer(first).offsets() == []
        assert fetch_answer(second).offsets(U0) == [0, 1, 2]
        assert third.responses[0].partition_responses[0].base_offset == 3


@in_virtual_time
async def test_a_client_that_hangs_up_while_its_fetch_is_parked_is_noticed() -> None:
    """Reading goes on while a fetch is parked, or nobody would hear of it."""
    async with served_world() as served:
        await with_topics(served, "t")
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=LONG_MS)
        await served.world.settle()
        assert client.transport.reads
        assert served.watcher_count() == 1
        client.disconnect()
        assert served.watcher_count() == 0


# -- answers that are not all ---------------------------------------------------------------------


@given(
    partition_max_bytes=st.integers(0, 700),
    max_bytes=st.integers(0, 900),
    appends=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=30),
    cold=st.lists(st.booleans(), min_size=1, max_size=12),
)
def test_a_session_consumes_every_record_in_order(
    partition_max_bytes: int, max_bytes: int, appends: list[tuple[int, int]], cold: list[bool]
) -> None:
    """However little fits an answer, and whether or not bytes are in memory."""

    @in_virtual_time
    async def scenario() -> None:
        async with served_world() as served:
            served.world.create("t", partitions=4, config={"internal.segment.bytes": "1000"})
            await served.world.settle()
            consumer = Consumer(served.client(), 4, partition_max_bytes, max_bytes)
            for number, (partition, count) in enumerate(appends):
                served.world.produce("t", plain_batch(count), partition=partition)
                await served.world.settle()
                served.world.disk.is_cold = cold[number % len(cold)]
                await consumer.poll()
            for number in range(3 * len(appends) + 10):
                served.world.disk.is_cold = cold[number % len(cold)]
                await consumer.poll()
            for partition in range(4):
                end = served.world.runner("t", partition).log.log_end_offset
                assert consumer.read[partition] == list(range(end))

    scenario()


class Consumer:
    """Keeps positions, and names a partition only if its position has changed (KIP-227)."""

    def __init__(
        self, client: Client, partitions: int, partition_max_bytes: int, max_bytes: int
    ) -> None:
        self.client = client
        self.read: dict[int, list[int]] = {number: [] for number in range(partitions)}
        self._partition_max_bytes = partition_max_bytes
        self._max_bytes = max_bytes
        self._session = NEW_SESSION
        self._changed = set(self.read)

    async def poll(self) -> None:
        offsets = {("t", number): len(self.read[number]) for number in sorted(self._changed)}
        self.client.fetch(
            offsets,
            session=self._session,
            max_wait_ms=100,
            partition_max_bytes=self._partition_max_bytes,
            max_bytes=self._max_bytes,
        )
        await asyncio.sleep(0.2)
        answer = self.client.fetched()
        assert answer.code == 0
        self._session = (answer.session_id, self._session[1] + 1)
        self._changed.clear()
        for (_, number), fetched in answer.partitions.items():
            assert fetched.code == 0
            offsets_read = answer.offsets(("t", number))
            # The first batch may begin before the position.
            fresh = [offset for offset in offsets_read if offset >= len(self.read[number])]
            if fresh:
                self.read[number] += fresh
                self._changed.add(number)


@in_virtual_time
async def test_a_cold_partition_is_read_although_a_hot_one_always_has_data() -> None:
    async with served_world() as served:
        served.world.create("t", config={"internal.segment.bytes": "150"})
        await with_topics(served, "u")
        for _ in range(3):
            served.world.produce("t", plain_batch(1))
            await served.world.settle()
        client = served.client()
        forget_open_files(served)
        client.fetch({T0: 0, U0: 0}, session=NEW_SESSION, max_wait_ms=0)
        await served.world.settle()
        session_id = client.fetched().session_id
        seen: list[int] = []
        hot = 0
        for epoch in range(1, 8):
            served.world.produce("u", plain_batch(1))
            forget_open_files(served)
            changed = {U0: hot}
            if seen:
                changed[T0] = len(seen)
            client.fetch(changed, session=(session_id, epoch), max_wait_ms=0)
            await served.world.settle()
            answer = client.fetched()
            seen += answer.offsets(T0)
            hot += len(answer.offsets(U0))
        assert seen in ([0, 1, 2], [1, 2])


def forget_open_files(served: ServedWorld) -> None:
    """The files of closed segments are opened by threads only."""
    log = served.world.runner("t").log
    log.files.forget_folder(log.folder)


@in_virtual_time
async def test_news_do_not_start_a_second_read_of_the_same_cold_bytes() -> None:
    async with served_world() as served:
        await with_topics(served, "t", "u")
        served.world.produce("t", plain_batch(1))
        client = served.client()
        client.fetch({T0: 1, U0: 0}, max_wait_ms=LONG_MS, min_bytes=1_000)
        await served.world.settle()
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        for _ in range(5):
            served.world.produce("t", plain_batch(1_000))
            await served.world.settle()
        assert served.world.executor.waiting(URGENT) == 1
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert client.fetched().offsets()[:1] == [1]


@in_virtual_time
async def test_time_that_is_up_during_a_cold_read_is_up_when_that_ends() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        served.world.produce("t", plain_batch(1))
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=100, min_bytes=100_000)
        await asyncio.sleep(0.5)
        served.world.executor.release(URGENT)
        await asyncio.sleep(0.2)
        assert client.fetched().offsets() == [0]


# -- going away in the middle ---------------------------------------------------------------------


@in_virtual_time
async def test_a_client_may_hang_up_during_a_cold_read() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        served.world.produce("t", plain_batch(1))
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        client = served.client()
        client.fetch({T0: 0}, session=NEW_SESSION, max_wait_ms=LONG_MS)
        client.disconnect()
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert client.take() == []


@in_virtual_time
async def test_a_client_may_hang_up_while_its_fetch_waits_for_memory() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        served.world.produce("t", plain_batch(1))
        served.answer_memory.hold(served.answer_memory.bound_bytes)
        client = served.client()
        client.fetch({T0: 0})
        client.disconnect()
        served.answer_memory.release(served.answer_memory.bound_bytes)
        await served.world.settle()
        assert client.take() == []
        assert served.watcher_count() == 0


@in_virtual_time
async def test_a_fetch_waits_while_clients_leave_too_much_unread() -> None:
    async with served_world(answer_bytes=100) as served:
        await with_topics(served, "t")
        served.world.produce("t", plain_batch(20))
        slow = served.client()
        slow.transport.is_stalled = True
        slow.fetch({T0: 0})
        assert served.answer_memory.is_exhausted
        other = served.client()
        other.fetch({T0: 0})
        await served.world.settle()
        assert other.take() == []
        slow.transport.take_all()
        await served.world.settle()
        assert other.fetched().offsets() == list(range(20))
        assert served.answer_memory.held_bytes == 0


@pytest.mark.parametrize("is_session", [False, True])
@in_virtual_time
async def test_a_topic_deleted_while_its_fetch_is_parked_is_told_at_once(is_session: bool) -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        client = served.client()
        if is_session:
            session_id = await opened_session(served, client, T0)
            client.fetch({}, session=(session_id, 1), max_wait_ms=LONG_MS)
        else:
            client.fetch({T0: 0}, max_wait_ms=LONG_MS)
        runner = served.world.runner("t")
        served.world.delete("t")
        await served.world.settle()
        code = client.fetched().partitions[T0].code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert runner.watcher_count == 0


@in_virtual_time
async def test_a_topic_deleted_during_a_cold_read_is_told() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        served.world.produce("t", plain_batch(1))
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=LONG_MS)
        served.world.delete("t")
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert client.fetched().partitions[T0].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert served.world.log_dir.is_online


@in_virtual_time
async def test_bytes_read_from_a_deleted_topic_are_not_the_new_ones_of_that_name() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        served.world.produce("t", plain_batch(3))
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=0)
        served.world.executor.step(URGENT)  # Read, but the loop has not heard of it.
        served.world.delete("t")
        served.world.create("t")
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert client.fetched().offsets() == []


@in_virtual_time
async def test_a_directory_that_fails_is_told_and_so_is_its_return() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        client = served.client()
        session_id = await opened_session(served, client, T0)
        client.fetch({}, session=(session_id, 1), max_wait_ms=LONG_MS)
        served.world.log_dir.on_failure(StorageError("test"))
        await served.world.settle()
        assert client.fetched().partitions[T0].code == ErrorCode.KAFKA_STORAGE_ERROR
        await served.world.reopen()
        client.fetch({}, session=(session_id, 2), max_wait_ms=0)
        assert client.fetched().partitions[T0].code == 0
        client.fetch({}, session=(session_id, 3), max_wait_ms=LONG_MS)
        served.world.produce("t", plain_batch(1))
        await served.world.settle()
        assert client.fetched().offsets() == [0]


@in_virtual_time
async def test_a_read_that_fails_takes_the_directory_offline_and_says_so() -> None:
    for is_cold in (False, True):
        async with served_world() as served:
            await with_topics(served, "t")
            served.world.produce("t", plain_batch(1))
            served.world.disk.is_cold = is_cold
            if is_cold:
                served.world.executor.hold(URGENT)
            else:
                served.world.disk.arm("read", "*.log", StorageError)
            client = served.client()
            client.fetch({T0: 0}, max_wait_ms=LONG_MS)
            served.world.disk.arm("read", "*.log", StorageError)
            served.world.executor.release(URGENT)
            await served.world.settle()
            assert client.fetched().partitions[T0].code == ErrorCode.KAFKA_STORAGE_ERROR
            assert not served.world.log_dir.is_online


@pytest.mark.parametrize("is_cold", [False, True])
@in_virtual_time
async def test_damaged_records_are_refused_and_their_neighbours_served(
    is_cold: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Any consumer that came upon them took the directory offline, every time it was back."""
    async with served_world() as served:
        await with_topics(served, "t", "u")
        for topic in ("t", "u"):
            served.world.produce(topic, plain_batch(1))
        served.world.overwrite("t")
        served.world.disk.is_cold = is_cold
        client = served.client()
        for _ in range(2):
            client.fetch({T0: 0}, max_wait_ms=LONG_MS)
            await served.world.settle()
            assert client.fetched().partitions[T0].code == ErrorCode.CORRUPT_MESSAGE
        client.fetch({U0: 0}, max_wait_ms=LONG_MS)
        await served.world.settle()
        assert client.fetched().offsets(U0) == [0]
        assert caplog.text.count("records are damaged") == 1


@in_virtual_time
async def test_records_deleted_under_a_parked_fetch_are_told() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        served.world.produce("t", plain_batch(3))
        client = served.client()
        client.fetch({T0: 1}, max_wait_ms=LONG_MS, min_bytes=100_000)
        await served.world.runner("t").delete_records(Offset(2))
        await served.world.settle()
        assert client.fetched().partitions[T0].code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- sessions ------------------------------------------------------------------------------------


@in_virtual_time
async def test_two_fetches_of_one_session_are_both_answered() -> None:
    """A client that lost its connection may be back before the broker has noticed."""
    async with served_world() as served:
        await with_topics(served, "t")
        first, second = served.client(), served.client()
        session_id = await opened_session(served, first, T0)
        first.fetch({}, session=(session_id, 1), max_wait_ms=LONG_MS)
        second.fetch({}, session=(session_id, 2), max_wait_ms=LONG_MS)
        await served.world.settle()
        assert first.fetched().partitions == {}
        assert second.take() == []
        served.world.produce("t", plain_batch(1))
        await served.world.settle()
        assert second.fetched().offsets() == [0]


@in_virtual_time
async def test_a_fetch_that_reads_from_disk_gives_way_to_the_next_of_its_session() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        first, second = served.client(), served.client()
        session_id = await opened_session(served, first, T0)
        served.world.produce("t", plain_batch(1))
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        first.fetch({}, session=(session_id, 1), max_wait_ms=LONG_MS)
        second.fetch({T0: 1}, session=(session_id, 2), max_wait_ms=LONG_MS)
        served.world.executor.release(URGENT)
        await served.world.settle()
        assert first.fetched().partitions == {}
        served.world.disk.is_cold = False
        served.world.produce("t", plain_batch(1))
        await served.world.settle()
        assert second.fetched().offsets() == [1]


@in_virtual_time
async def test_hanging_up_an_old_fetch_leaves_the_newer_one_of_its_session_parked() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        first, second = served.client(), served.client()
        session_id = await opened_session(served, first, T0)
        served.world.produce("t", plain_batch(1))
        served.world.disk.is_cold = True
        served.world.executor.hold(URGENT)
        first.fetch({}, session=(session_id, 1), max_wait_ms=LONG_MS)
        served.world.disk.is_cold = False
        second.fetch({T0: 1}, session=(session_id, 2), max_wait_ms=LONG_MS)
        first.disconnect()
        served.world.executor.release(URGENT)
        await served.world.settle()
        served.world.produce("t", plain_batch(1))
        await served.world.settle()
        assert second.fetched().offsets() == [1]


@pytest.mark.parametrize("how", ["closed", "opened anew", "evicted"])
@in_virtual_time
async def test_a_session_that_ends_while_its_fetch_is_parked_leaves_no_ear(how: str) -> None:
    async with served_world(session_slots=1) as served:
        await with_topics(served, "t", "u")
        parked, other = served.client(), served.client()
        session_id = await opened_session(served, parked, T0)
        served.world.produce("t", plain_batch(1))
        parked.fetch({}, session=(session_id, 1), max_wait_ms=1_000, min_bytes=100_000)
        await served.world.settle()
        match how:
            case "closed":
                other.fetch({}, session=(session_id, -1), max_wait_ms=0)
            case "opened anew":
                other.fetch({T0: 0}, session=(session_id, 0), max_wait_ms=0)
            case _:
                served.world.clock.moment_ms += 200_000
                other.fetch({T0: 0, U0: 0}, session=NEW_SESSION, max_wait_ms=0)
        await asyncio.sleep(2)
        assert parked.fetched().partitions == {}
        new_session_id = other.fetched().session_id
        other.fetch({}, session=(new_session_id, -1), max_wait_ms=0)
        await served.world.settle()
        assert served.watcher_count() == 0


@in_virtual_time
async def test_a_session_that_nobody_uses_costs_appends_nothing() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        for _ in range(5):
            await opened_session(served, served.client(), T0)
        assert served.watcher_count() == 5
        served.world.produce("t", plain_batch(1))
        assert served.watcher_count() == 0


@in_virtual_time
async def test_a_forgotten_partition_is_neither_told_nor_listened_to() -> None:
    async with served_world() as served:
        await with_topics(served, "t", "u")
        client = served.client()
        session_id = await opened_session(served, client, T0, U0)
        client.fetch({}, session=(session_id, 1), forgotten=[T0], max_wait_ms=0)
        assert client.fetched().partitions == {}
        assert served.world.runner("t").watcher_count == 0
        served.world.produce("t", plain_batch(1))
        client.fetch({}, session=(session_id, 2), max_wait_ms=0)
        assert client.fetched().partitions == {}


@in_virtual_time
async def test_a_log_start_that_moves_is_told_once() -> None:
    async with served_world() as served:
        await with_topics(served, "t")
        served.world.produce("t", plain_batch(3))
        client = served.client()
        client.fetch({T0: 3}, session=NEW_SESSION, max_wait_ms=0)
        session_id = client.fetched().session_id
        await served.world.runner("t").delete_records(Offset(2))
        client.fetch({}, session=(session_id, 1), max_wait_ms=0)
        assert client.fetched().partitions[T0].log_start_offset == 2
        client.fetch({}, session=(session_id, 2), max_wait_ms=0)
        assert client.fetched().partitions == {}


@in_virtual_time
async def test_every_answer_of_many_pipelined_fetches_leaves_in_order() -> None:
    async with served_world() as served:
        await with_topics(served, "t", "u")
        served.world.produce("t", plain_batch(3))
        client = served.client()
        client.send_together(
            client.frame(
                ApiKey.FETCH,
                FETCH_VERSION,
                fetch_values({T0 if number % 2 else U0: 0}, max_wait_ms=100),
            )
            for number in range(10)
        )
        await asyncio.sleep(5)
        answers: list[FetchAnswer] = [fetch_answer(answer) for answer in client.take()]
        assert [len(answer.offsets(T0)) for answer in answers] == [0, 3] * 5
        assert client.waiting == 0


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-(2**31), ErrorCode.NONE),
        (-2, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@in_virtual_time
async def test_a_negative_epoch_is_no_claim(epoch: int, code: ErrorCode) -> None:
    """R7, KIP-320."""
    async with served_world() as served:
        await with_topics(served, "t")
        served.world.elect("t")
        await served.world.settle()
        client = served.client()
        client.fetch({T0: 0}, max_wait_ms=0, leader_epoch=epoch)
        assert client.fetched().partitions[T0].code == code


# -- transactions --------------------------------------------------------------------------------

READ_COMMITTED = 1


def _append_transactional(served: ServedWorld, producer_id: int, end: ControlType | None) -> None:
    """As a Kafka that was here before did: clients of ours may not."""
    runner = served.world.runner("t")
    log = runner.log
    offset = log.log_end_offset
    key, value = b"key", b"value"
    if end is not None:
        key, value = encode_transaction_end(TransactionEnd(end, 0))
    batch = encode_batch(
        [Record(offset, NOW_MS, key, value, ())],
        leader_epoch=0,
        codec=Codec.NONE,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=-1 if end is not None else 0,
        is_transactional=True,
        is_control=end is not None,
    )
    log.append(batch, base_offset=offset, last_offset=offset, max_timestamp_ms=NOW_MS)
    runner.producers.on_replayed(read_header(batch, 0), read_transaction_end(batch))
    runner.leading.on_append(log.log_end_offset, now_ms=NOW_MS)


async def with_aborted(served: ServedWorld) -> None:
    """A transaction of producer 7 at offsets 0 and 1, aborted; one of 8 at 2 and 3, committed."""
    await with_topics(served, "t")
    _append_transactional(served, 7, None)
    _append_transactional(served, 7, ControlType.ABORT)
    served.world.runner("t").log.append_aborted(
        AbortedTransaction(ProducerId(7), Offset(0), Offset(1), Offset(2))
    )
    _append_transactional(served, 8, None)
    _append_transactional(served, 8, ControlType.COMMIT)


@in_virtual_time
async def test_a_read_committed_fetch_is_told_of_aborted_transactions() -> None:
    """D3. Also when the bytes, or only the index, have to come from the disk."""
    for is_cold in (False, True):
        async with served_world() as served:
            await with_aborted(served)
            served.world.disk.is_cold = is_cold
            client = served.client()
            for offset, aborted in ((0, [(7, 0)]), (1, [(7, 0)]), (2, [])):
                client.fetch({T0: offset}, isolation_level=READ_COMMITTED)
                await served.world.settle()
                fetched = client.fetched().partitions[T0]
                assert fetched.aborted == aborted
                assert len(fetched.records) > 0


@in_virtual_time
async def test_a_read_uncommitted_fetch_is_not_told_of_aborted_transactions() -> None:
    async with served_world() as served:
        await with_aborted(served)
        client = served.client()
        client.fetch({T0: 0})
        await served.world.settle()
        answer = client.fetched()
        assert answer.partitions[T0].aborted is None
        assert answer.offsets() == [0, 1, 2, 3]


@in_virtual_time
async def test_a_read_committed_fetch_ends_where_an_undecided_transaction_begins() -> None:
    """R5. Kafka was stopped before the transaction was decided."""
    async with served_world() as served:
        await with_aborted(served)
        _append_transactional(served, 9, None)
        served.world.elect("t")
        await served.world.settle()
        client = served.client()
        client.fetch({T0: 0}, isolation_level=READ_COMMITTED)
        await served.world.settle()
        answer = client.fetched()
        assert answer.offsets() == [0, 1, 2, 3]
        assert answer.partitions[T0].last_stable_offset == 4
        assert answer.partitions[T0].high_watermark == 5


@in_virtual_time
async def test_a_transaction_index_that_cannot_be_read_takes_the_directory_offline() -> None:
    async with served_world() as served:
        await with_aborted(served)
        served.world.disk.arm("read", "*.txnindex", StorageError)
        client = served.client()
        client.fetch({T0: 0}, isolation_level=READ_COMMITTED)
        await served.world.settle()
        assert client.fetched().partitions[T0].code == ErrorCode.KAFKA_STORAGE_ERROR


@in_virtual_time
async def test_a_follower_that_asked_before_its_leader_led_is_heard() -> None:
    """It has been answered, and will not say again where it stands: nothing has changed."""
    async with served_world() as served:
        world = served.world
        world.create("cold", state=replicated(BROKER, 4))
        world.create("t", state=replicated(OTHER, 3))
        await world.settle()
        world.produce("cold", plain_batch(1))
        follower = served.client()
        world.disk.is_cold = True
        follower.fetch(
            {("cold", 0): 0, ("t", 0): 0}, session=NEW_SESSION, leader_epoch=4, replica=OTHER
        )
        world.change("t", replicated(BROKER, 4))
        await world.settle()
        assert follower.fetched().partitions[T0].code == ErrorCode.NONE
        assert world.runner("t").leading.followers[OTHER].log_end_offset == 0
