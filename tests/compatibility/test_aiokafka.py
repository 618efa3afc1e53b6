"""aiokafka works unmodified (G1): it writes, reads and administrates on an event loop.

Consumers have no group, use `assign()` and commit nothing.
"""

import asyncio
import functools
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    for_code,
)

from tests.compatibility.kafka_peer import Broker, new_broker
from tests.support.clients import FIRST_TIMESTAMP_MS, NewRecord, numbered_records
from tests.support.subject import BROKER_COUNT
from tests.support.topics import new_topic, stored_batches, unused_name, value_filling
from tidelog.base.errors import ErrorCode
from tidelog.records.batch import Codec

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
MAX_MESSAGE_BYTES = 1_048_588
DAY_MS = 86_400_000
TIMEOUT_S = 30.0
LONG_WAIT_S = 20.0

P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 2 * TIMEOUT_S))

    return run


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that creates no topic unless it is told to."""
    settings = {"auto.create.topics.enable": "false"}
    with new_broker(tmp_path_factory.mktemp("strict"), settings) as running:
        yield running


class TestProducing:
    @pytest.mark.parametrize("codec", CODECS)
    @on_a_loop
    async def test_every_codec_arrives_whole(self, broker: Broker, codec: str | None) -> None:
        topic = new_topic(broker.bootstrap)
        records = numbered_records(200, value_size_bytes=200, seed=str(codec))
        await _send(broker, topic, records, compression_type=codec, linger_ms=20)
        read = await _read_all(broker, topic, 200)
        assert [record.offset for record in read] == list(range(200))
        assert [
            NewRecord(record.key, record.value, record.timestamp, tuple(record.headers))
            for record in read
        ] == records
        stored = {batch.codec for batch in stored_batches(broker.data_folder, topic)}
        assert stored == {Codec[(codec or "none").upper()]}

    @pytest.mark.parametrize("acks", [0, 1, "all"])
    @on_a_loop
    async def test_every_kind_of_acks_stores_the_records(
        self, broker: Broker, acks: int | str
    ) -> None:
        topic = new_topic(broker.bootstrap)
        records = numbered_records(50, value_size_bytes=50, seed=str(acks))
        await _send(broker, topic, records, acks=acks)
        assert len(await _read_all(broker, topic, 50)) == 50

    @on_a_loop
    async def test_idempotent_producer_numbers_its_batches(self, broker: Broker) -> None:
        """D2."""
        topic = new_topic(broker.bootstrap)
        records = numbered_records(200, value_size_bytes=100, seed="idempotent")
        await _send(broker, topic, records, enable_idempotence=True, max_batch_size=1_000)
        batches = stored_batches(broker.data_folder, topic)
        assert len(batches) > 10
        assert batches[0].producer_id >= 0
        assert all(batch.base_sequence == batch.base_offset for batch in batches)
        assert batches[-1].end_offset == 200

    @on_a_loop
    async def test_null_is_not_empty(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        pairs = [(b"key", None), (None, b"value"), (b"", b""), (None, b"")]
        records = [NewRecord(key, value, FIRST_TIMESTAMP_MS, ()) for key, value in pairs]
        await _send(broker, topic, records)
        assert [(record.key, record.value) for record in await _read_all(broker, topic, 4)] == pairs

    @on_a_loop
    async def test_log_append_time_is_told_to_producer_and_consumer(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"message.timestamp.type": "LogAppendTime"})
        before_ms = int(time.time() * 1000)
        (metadata,) = await _send(broker, topic, [_record(b"value")])
        (record,) = await _read_all(broker, topic, 1)
        assert before_ms <= metadata.timestamp <= int(time.time() * 1000)
        assert (metadata.timestamp_type, record.timestamp_type) == (1, 1)
        assert record.timestamp == metadata.timestamp

    @on_a_loop
    async def test_metadata_of_a_record_names_its_place(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        sent = await _send(broker, topic, [_record(b"a"), _record(b"b")])
        assert [(one.topic, one.partition, one.offset) for one in sent] == [
            (topic, 0, 0),
            (topic, 0, 1),
        ]

    @on_a_loop
    async def test_batch_of_exactly_the_limit_is_stored(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        value = value_filling(MAX_MESSAGE_BYTES)
        await _send(broker, topic, [_record(value)], **_large_messages())
        (record,) = await _read_all(broker, topic, 1)
        assert record.value == value

    @on_a_loop
    async def test_batch_of_a_byte_more_is_refused(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        record = _record(value_filling(MAX_MESSAGE_BYTES) + b"+")
        with pytest.raises(MessageSizeTooLargeError):
            await _send(broker, topic, [record], **_large_messages())
        assert stored_batches(broker.data_folder, topic) == []

    @pytest.mark.parametrize(
        ("config", "record", "code"),
        [
            (
                {"cleanup.policy": "compact"},
                NewRecord(None, b"value", FIRST_TIMESTAMP_MS, ()),
                ErrorCode.INVALID_RECORD,
            ),
            (
                {},
                NewRecord(None, b"value", int(time.time() * 1000) + DAY_MS, ()),
                ErrorCode.INVALID_TIMESTAMP,
            ),
        ],
        ids=["null key", "tomorrow"],
    )
    @on_a_loop
    async def test_impossible_record_is_refused(
        self, broker: Broker, *, config: Mapping[str, str], record: NewRecord, code: int
    ) -> None:
        topic = new_topic(broker.bootstrap, config=config)
        with pytest.raises(KafkaError) as refused:
            await _send(broker, topic, [record])
        assert isinstance(refused.value, for_code(code))
        assert stored_batches(broker.data_folder, topic) == []


class TestConsuming:
    @pytest.mark.parametrize("offset", [0, 7, 19])
    @on_a_loop
    async def test_reading_starts_at_an_offset(self, broker: Broker, offset: int) -> None:
        partition = await _partition_of_twenty(broker)
        async with _consumer(broker, partition) as consumer:
            consumer.seek(partition, offset)
            records = await _read(consumer, 20 - offset)
        assert [record.offset for record in records] == list(range(offset, 20))

    @on_a_loop
    async def test_beginning_and_end_are_found(self, broker: Broker) -> None:
        partition = await _partition_of_twenty(broker)
        async with _consumer(broker, partition) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 20}
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 20
            await consumer.seek_to_beginning(partition)
            assert await consumer.position(partition) == 0

    @pytest.mark.parametrize(
        ("after_ms", "expected"), [(-DAY_MS, 0), (0, 0), (7, 7), (19, 19), (20, None)]
    )
    @on_a_loop
    async def test_offsets_are_found_by_time(
        self, broker: Broker, after_ms: int, expected: int | None
    ) -> None:
        partition = await _partition_of_twenty(broker)
        async with _consumer(broker, partition) as consumer:
            wanted = {partition: FIRST_TIMESTAMP_MS + after_ms}
            found = (await consumer.offsets_for_times(wanted))[partition]
        if expected is None:
            assert found is None
        else:
            assert (found.offset, found.timestamp) == (expected, FIRST_TIMESTAMP_MS + expected)

    @on_a_loop
    async def test_read_committed_sees_records_of_no_transaction(self, broker: Broker) -> None:
        """R5."""
        partition = await _partition_of_twenty(broker)
        async with _consumer(broker, partition, isolation_level="read_committed") as consumer:
            consumer.seek(partition, 0)
            assert len(await _read(consumer, 20)) == 20
            assert consumer.last_stable_offset(partition) == 20
            assert consumer.highwater(partition) == 20

    @on_a_loop
    async def test_waiting_fetch_is_answered_by_the_next_append(self, broker: Broker) -> None:
        """R4."""
        partition = TopicPartition(new_topic(broker.bootstrap), 0)
        wait_ms = int(LONG_WAIT_S * 1000)
        async with _consumer(broker, partition, fetch_max_wait_ms=wait_ms) as consumer:
            consumer.seek(partition, 0)
            assert await consumer.getmany(timeout_ms=300) == {}
            sent_s = time.monotonic()
            await _send(broker, partition.topic, [_record(b"value")])
            await _read(consumer, 1)
        assert time.monotonic() - sent_s < LONG_WAIT_S / 2

    @on_a_loop
    async def test_too_few_bytes_are_waited_on(self, broker: Broker) -> None:
        """R4."""
        partition = await _partition_of_twenty(broker)
        waits = {"fetch_min_bytes": 100_000, "fetch_max_wait_ms": 1_000}
        async with _consumer(broker, partition, **waits) as consumer:
            started_s = time.monotonic()
            consumer.seek(partition, 0)
            await _read(consumer, 20)
        assert time.monotonic() - started_s > 0.9

    @on_a_loop
    async def test_batch_larger_than_every_fetch_limit_is_read(self, broker: Broker) -> None:
        partition = TopicPartition(new_topic(broker.bootstrap), 0)
        for size in (100_000, 10, 200_000):
            await _send(broker, partition.topic, [_record(bytes(size))])
        limits = {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 2_000}
        async with _consumer(broker, partition, **limits) as consumer:
            consumer.seek(partition, 0)
            sizes = [len(record.value) for record in await _read(consumer, 3)]
        assert sizes == [100_000, 10, 200_000]

    @on_a_loop
    async def test_seek_moves_both_ways(self, broker: Broker) -> None:
        partition = await _partition_of_twenty(broker)
        async with _consumer(broker, partition) as consumer:
            for offset in (10, 2, 18, 0):
                consumer.seek(partition, offset)
                assert (await consumer.getone()).offset == offset

    @on_a_loop
    async def test_paused_partition_is_silent_until_resumed(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        first, second = (TopicPartition(topic, n) for n in range(2))
        for n in range(2):
            await _send(broker, topic, [_record(b"value")], partition=n)
        async with _consumer(broker, first, second, auto_offset_reset="earliest") as consumer:
            consumer.pause(first)
            assert {record.partition for record in await _read(consumer, 1)} == {1}
            assert await consumer.getmany(timeout_ms=200) == {}
            consumer.resume(first)
            assert {record.partition for record in await _read(consumer, 1)} == {0}

    @on_a_loop
    async def test_many_partitions_each_keep_their_order(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=30)
        partitions = [TopicPartition(topic, n) for n in range(30)]
        async with _producer(broker) as producer:
            futures = [
                await producer.send(topic, str(n).encode(), key=str(n % 100).encode())
                for n in range(1_000)
            ]
            await asyncio.gather(*futures)
        async with _consumer(broker, *partitions, auto_offset_reset="earliest") as consumer:
            records = await _read(consumer, 1_000)
        numbers: dict[int, list[int]] = {}
        for record in records:
            numbers.setdefault(record.partition, []).append(int(record.value))
        assert len(numbers) > 20
        assert all(found == sorted(found) for found in numbers.values())
        assert sorted(n for found in numbers.values() for n in found) == list(range(1_000))

    @on_a_loop
    async def test_offset_beyond_the_end_is_out_of_range(self, broker: Broker) -> None:
        partition = await _partition_of_twenty(broker)
        async with _consumer(broker, partition, auto_offset_reset="none") as consumer:
            consumer.seek(partition, 21)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.getone()

    @on_a_loop
    async def test_consumer_out_of_range_starts_where_it_was_configured_to(
        self, broker: Broker
    ) -> None:
        partition = await _partition_of_twenty(broker)
        async with _consumer(broker, partition, auto_offset_reset="earliest") as consumer:
            consumer.seek(partition, 1_000)
            assert (await consumer.getone()).offset == 0


class TestAdministration:
    @on_a_loop
    async def test_created_topic_is_described(self, broker: Broker) -> None:
        topic = unused_name()
        async with _admin(broker) as admin:
            created = await admin.create_topics([NewTopic(topic, 3, BROKER_COUNT)])
            assert _codes(created.topic_errors) == [ErrorCode.NONE]
            described = await _described(admin, topic)
        partitions = sorted(part["partition"] for part in described["partitions"])
        assert partitions == [0, 1, 2]
        leaders = {part["leader"] for part in described["partitions"]}
        assert leaders == set(range(1, BROKER_COUNT + 1))

    @pytest.mark.parametrize(
        ("topic", "code"),
        [
            (NewTopic("bad/name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (NewTopic("no-partitions", 0, 1), ErrorCode.INVALID_PARTITIONS),
            (
                NewTopic("too-many-replicas", 1, BROKER_COUNT + 1),
                ErrorCode.INVALID_REPLICATION_FACTOR,
            ),
            (
                NewTopic("bad-value", 1, 1, topic_configs={"retention.ms": "soon"}),
                ErrorCode.INVALID_CONFIG,
            ),
        ],
        ids=lambda case: case.name,
    )
    @on_a_loop
    async def test_impossible_topic_is_refused(
        self, broker: Broker, *, topic: NewTopic, code: ErrorCode
    ) -> None:
        async with _admin(broker) as admin:
            refused = await admin.create_topics([topic])
            assert _codes(refused.topic_errors) == [code]
            assert topic.name not in await admin.list_topics()

    @on_a_loop
    async def test_deleted_topic_is_gone(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        async with _admin(broker) as admin:
            deleted = await admin.delete_topics([topic])
            assert _codes(deleted.topic_error_codes) == [ErrorCode.NONE]
            await _eventually(lambda: _is_gone(admin, topic))
            again = await admin.delete_topics([topic])
            assert _codes(again.topic_error_codes) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    @on_a_loop
    async def test_partitions_are_added(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        async with _admin(broker) as admin:
            await admin.create_partitions({topic: NewPartitions(4)})
            await _eventually(lambda: _has_partitions(admin, topic, 4))
            with pytest.raises(InvalidPartitionsError):
                await admin.create_partitions({topic: NewPartitions(2)})

    @on_a_loop
    async def test_cluster_is_described(self, broker: Broker) -> None:
        async with _admin(broker) as admin:
            described = await admin.describe_cluster()
        addresses = {f"{node['host']}:{node['port']}" for node in described["brokers"]}
        assert addresses == set(broker.bootstrap.split(","))
        assert described["controller_id"] in {node["node_id"] for node in described["brokers"]}
        assert described["cluster_id"]

    @on_a_loop
    async def test_altered_settings_are_described(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"flush.ms": "9000"})
        async with _admin(broker) as admin:
            assert (await _configs(admin, ConfigResourceType.TOPIC, topic))["flush.ms"] == "9000"
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1234567"})
            (altered,) = await admin.alter_configs([resource])
            assert _codes(altered.resources, position=0) == [ErrorCode.NONE]
            await _eventually(lambda: _has_setting(admin, topic, "retention.ms", "1234567"))
            # What the request did not name has its default again.
            assert await _has_setting(admin, topic, "flush.ms", str(2**63 - 1))

    @on_a_loop
    async def test_broker_settings_are_described(self, broker: Broker) -> None:
        async with _admin(broker) as admin:
            settings = await _configs(admin, ConfigResourceType.BROKER, "1")
        assert settings["node.id"] == "1"
        assert settings["num.partitions"] == "1"

    @on_a_loop
    async def test_deleted_records_are_gone(self, broker: Broker) -> None:
        partition = await _partition_of_twenty(broker)
        async with _admin(broker) as admin:
            deleted = await admin.delete_records({partition: RecordsToDelete(before_offset=5)})
            assert deleted == {partition: 5}
            with pytest.raises(OffsetOutOfRangeError):
                await admin.delete_records({partition: RecordsToDelete(before_offset=21)})
        async with _consumer(broker, partition) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 5}


class TestUnknownTopics:
    """P4."""

    @on_a_loop
    async def test_producing_creates_the_topic(self, broker: Broker) -> None:
        topic = unused_name()
        await _send(broker, topic, [_record(b"value")])
        assert len(await _read_all(broker, topic, 1)) == 1

    @on_a_loop
    async def test_consuming_creates_the_topic(self, broker: Broker) -> None:
        partition = TopicPartition(unused_name(), 0)
        async with _consumer(broker, partition, auto_offset_reset="earliest") as consumer:
            assert await consumer.getmany(timeout_ms=500) == {}
            await _send(broker, partition.topic, [_record(b"value")])
            assert (await _read(consumer, 1))[0].value == b"value"

    @on_a_loop
    async def test_broker_that_creates_nothing_refuses_the_record(
        self, strict_broker: Broker
    ) -> None:
        topic = unused_name()
        with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)):
            await _send(strict_broker, topic, [_record(b"value")], request_timeout_ms=500)
        async with _admin(strict_broker) as admin:
            assert topic not in await admin.list_topics()


# -- the client -------------------------------------------------------------------------------


@asynccontextmanager
async def _producer(broker: Broker, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    # What is read back has to be committed; by itself this client waits for the leader alone.
    settings = {"acks": "all", **settings}
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


def _large_messages() -> Mapping[str, int]:
    """Settings with which the client leaves it to the broker to refuse."""
    return {"max_request_size": 2 * MAX_MESSAGE_BYTES, "max_batch_size": 2 * MAX_MESSAGE_BYTES}


async def _send(
    broker: Broker, topic: str, records: Sequence[NewRecord], partition: int = 0, **settings: Any
) -> list[Any]:
    """Where each record was stored; raises the first refusal."""
    async with _producer(broker, **settings) as producer:
        futures = [
            await producer.send(
                topic,
                record.value,
                record.key,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            for record in records
        ]
        return await asyncio.gather(*futures)


def _record(value: bytes) -> NewRecord:
    return NewRecord(None, value, FIRST_TIMESTAMP_MS, ())


@asynccontextmanager
async def _consumer(
    broker: Broker, *partitions: TopicPartition, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, **settings
    )
    consumer.assign(list(partitions))
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def _read(consumer: AIOKafkaConsumer, record_count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(records) < record_count:
            for found in (await consumer.getmany(timeout_ms=500)).values():
                records += found
    return records


async def _read_all(broker: Broker, topic: str, record_count: int) -> list[Any]:
    partition = TopicPartition(topic, 0)
    async with _consumer(broker, partition) as consumer:
        consumer.seek(partition, 0)
        return await _read(consumer, record_count)


async def _partition_of_twenty(broker: Broker) -> TopicPartition:
    """Twenty records, a millisecond apart."""
    topic = new_topic(broker.bootstrap)
    await _send(broker, topic, numbered_records(20, value_size_bytes=50, seed=topic))
    return TopicPartition(topic, 0)


@asynccontextmanager
async def _admin(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """A Kafka broker hears of a change a moment after the client that made it."""
    async with asyncio.timeout(TIMEOUT_S):
        while not await condition():  # noqa: ASYNC110 - what changes is in another process
            await asyncio.sleep(0.05)


async def _described(admin: AIOKafkaAdminClient, topic: str) -> Mapping[str, Any]:
    await _eventually(lambda: _is_listed(admin, topic))
    (described,) = await admin.describe_topics([topic])
    found: Mapping[str, Any] = described
    return found


async def _is_listed(admin: AIOKafkaAdminClient, topic: str) -> bool:
    return topic in await admin.list_topics()


async def _is_gone(admin: AIOKafkaAdminClient, topic: str) -> bool:
    return not await _is_listed(admin, topic)


async def _has_partitions(admin: AIOKafkaAdminClient, topic: str, partition_count: int) -> bool:
    return len((await _described(admin, topic))["partitions"]) == partition_count


async def _has_setting(admin: AIOKafkaAdminClient, topic: str, setting: str, value: str) -> bool:
    settings = await _configs(admin, ConfigResourceType.TOPIC, topic)
    return settings[setting] == value


async def _configs(
    admin: AIOKafkaAdminClient, kind: ConfigResourceType, name: str
) -> Mapping[str, str]:
    (response,) = await admin.describe_configs([ConfigResource(kind, name)])
    (resource,) = response.resources
    return {entry[0]: entry[1] for entry in resource[4]}


def _codes(answers: Sequence[Sequence[Any]], *, position: int = 1) -> list[int]:
    """The codes in the answers of the admin client, which are tuples of the wire's fields."""
    return [answer[position] for answer in answers]
