"""confluent-kafka, and with it every client built on librdkafka, works unmodified (G1).

Here it writes and reads; `test_confluent_kafka_admin.py` is about its admin client. Consumers use
`assign()` and commit nothing.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    TopicPartition,
)

from tests.compatibility.kafka_peer import Broker, StartBroker, new_broker
from tests.support.clients import (
    CLIENT_TIMEOUT_S,
    FIRST_TIMESTAMP_MS,
    NewRecord,
    Settings,
    numbered_records,
    read_partition,
    send,
)
from tests.support.confluent import (
    admin_client,
    deliver,
    exists,
    new_consumer,
    new_producer,
    plain_record,
    read,
    refusal,
    reported_error,
    topic_of_twenty,
)
from tests.support.server_process import wait_until
from tests.support.topics import new_topic, stored_batches, unused_name, value_filling
from tidelog.records.batch import Codec

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MAX_MESSAGE_BYTES = 1_048_588
DAY_MS = 86_400_000
# librdkafka's spelling of "the last n records".
OFFSET_TAIL_BASE = -2_000
LONG_WAIT_S = 20.0


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that creates no topic unless it is told to."""
    settings = {"auto.create.topics.enable": "false"}
    with new_broker(tmp_path_factory.mktemp("strict"), settings) as running:
        yield running


class TestProducing:
    @pytest.mark.parametrize("codec", CODECS)
    def test_every_codec_arrives_whole(self, broker: Broker, codec: str) -> None:
        topic = new_topic(broker.bootstrap)
        records = numbered_records(300, value_size_bytes=200, seed=codec)
        settings: Settings = {"compression.type": codec, "linger.ms": 50}
        send(broker.bootstrap, topic, records, partition=0, settings=settings)
        stored = read_partition(broker.bootstrap, topic, 0)
        assert [record.offset for record in stored] == list(range(300))
        assert [
            NewRecord(record.key, record.value, record.timestamp_ms, record.headers)
            for record in stored
        ] == records
        assert _codecs(broker, topic) == {Codec[codec.upper()]}

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_every_kind_of_acks_stores_the_records(self, broker: Broker, acks: str) -> None:
        topic = new_topic(broker.bootstrap)
        records = numbered_records(100, value_size_bytes=50, seed=acks)
        send(broker.bootstrap, topic, records, partition=0, settings={"acks": acks})
        wait_until(
            lambda: len(read_partition(broker.bootstrap, topic, 0)) == 100,
            within_s=CLIENT_TIMEOUT_S,
            what="100 records are in the log",
        )

    def test_idempotent_producer_numbers_its_batches(self, broker: Broker) -> None:
        """D2: the sequences in the log have no gap and no repetition."""
        topic = new_topic(broker.bootstrap)
        records = numbered_records(500, value_size_bytes=50, seed="idempotent")
        settings: Settings = {"enable.idempotence": True, "batch.num.messages": 50}
        send(broker.bootstrap, topic, records, partition=0, settings=settings)
        batches = stored_batches(broker.data_folder, topic)
        assert len(batches) >= 10
        assert len({batch.producer_id for batch in batches}) == 1
        assert batches[0].producer_id >= 0
        assert all(batch.base_sequence == batch.base_offset for batch in batches)
        assert batches[-1].end_offset == 500

    @pytest.mark.parametrize(
        ("key", "value"),
        [(None, b"value"), (b"key", None), (None, None), (b"", b""), (b"\x00\xff", b"\xfe\x00")],
    )
    def test_null_is_not_empty(
        self, broker: Broker, key: bytes | None, value: bytes | None
    ) -> None:
        topic = new_topic(broker.bootstrap)
        deliver(broker.bootstrap, topic, NewRecord(key, value, FIRST_TIMESTAMP_MS, ()))
        (record,) = read_partition(broker.bootstrap, topic, 0)
        assert (record.key, record.value) == (key, value)

    def test_headers_keep_their_order_and_repetitions(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        headers: list[tuple[str, str | bytes | None]] = [
            ("trace", b"1"),
            ("empty", b""),
            ("trace", b"2"),
            ("null", None),
            ("naïve", "sí".encode()),
        ]
        with new_producer(broker.bootstrap, {}) as producer:
            producer.produce(topic, b"value", headers=headers)
        with new_consumer(broker.bootstrap, {}) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            (message,) = read(consumer, 1)
        assert message.headers() == headers

    def test_timestamp_of_the_producer_is_kept(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        for timestamp_ms in (FIRST_TIMESTAMP_MS, 1):
            deliver(broker.bootstrap, topic, plain_record(b"value", timestamp_ms=timestamp_ms))
        stored = read_partition(broker.bootstrap, topic, 0)
        assert [(record.timestamp_type, record.timestamp_ms) for record in stored] == [
            (TIMESTAMP_CREATE_TIME, FIRST_TIMESTAMP_MS),
            (TIMESTAMP_CREATE_TIME, 1),
        ]

    def test_log_append_time_replaces_it(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"message.timestamp.type": "LogAppendTime"})
        before_ms = int(time.time() * 1000)
        deliver(broker.bootstrap, topic, plain_record(b"value"))
        (record,) = read_partition(broker.bootstrap, topic, 0)
        assert record.timestamp_type == TIMESTAMP_LOG_APPEND_TIME
        assert before_ms <= record.timestamp_ms <= int(time.time() * 1000)

    def test_delivery_report_names_the_place(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=3)
        for offset in range(3):
            message = deliver(broker.bootstrap, topic, plain_record(b"value"), partition=2)
            assert (message.partition(), message.offset()) == (2, offset)

    def test_batch_of_exactly_the_limit_is_stored(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        value = value_filling(MAX_MESSAGE_BYTES)
        deliver(broker.bootstrap, topic, plain_record(value))
        (batch,) = stored_batches(broker.data_folder, topic)
        assert batch.size_bytes == MAX_MESSAGE_BYTES
        (record,) = read_partition(broker.bootstrap, topic, 0)
        assert record.value == value

    def test_batch_of_a_byte_more_is_refused(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        value = value_filling(MAX_MESSAGE_BYTES) + b"+"
        assert _refusal(broker, topic, plain_record(value)) == KafkaError.MSG_SIZE_TOO_LARGE

    def test_topic_has_a_limit_of_its_own(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"max.message.bytes": "1000"})
        deliver(broker.bootstrap, topic, plain_record(value_filling(1_000)))
        record = plain_record(value_filling(1_001))
        assert _refusal(broker, topic, record) == KafkaError.MSG_SIZE_TOO_LARGE

    def test_null_key_is_refused_by_a_compacted_topic(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"cleanup.policy": "compact"})
        assert _refusal(broker, topic, plain_record(b"value")) == KafkaError.INVALID_RECORD
        deliver(broker.bootstrap, topic, NewRecord(b"key", b"value", FIRST_TIMESTAMP_MS, ()))

    def test_timestamp_of_tomorrow_is_refused(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        record = plain_record(b"value", timestamp_ms=int(time.time() * 1000) + DAY_MS)
        assert _refusal(broker, topic, record) == KafkaError.INVALID_TIMESTAMP

    def test_topic_of_one_codec_stores_everything_in_it(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"compression.type": "gzip"})
        records = numbered_records(50, value_size_bytes=100, seed="recompressed")
        for codec in ("none", "zstd", "gzip"):
            settings: Settings = {"compression.type": codec}
            send(broker.bootstrap, topic, records, partition=0, settings=settings)
        stored = read_partition(broker.bootstrap, topic, 0)
        assert [record.value for record in stored] == [record.value for record in records] * 3
        assert _codecs(broker, topic) == {Codec.GZIP}


class TestConsuming:
    @pytest.mark.parametrize(
        ("position", "expected"),
        [(OFFSET_BEGINNING, 0), (0, 0), (7, 7), (OFFSET_TAIL_BASE - 3, 17), (19, 19)],
    )
    def test_reading_starts_where_it_was_told_to(
        self, broker: Broker, position: int, expected: int
    ) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        with new_consumer(broker.bootstrap, {}) as consumer:
            consumer.assign([TopicPartition(topic, 0, position)])
            messages = read(consumer, 20 - expected)
        assert [message.offset() for message in messages] == list(range(expected, 20))

    def test_end_is_where_the_next_record_goes(self, broker: Broker) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        with new_consumer(broker.bootstrap, {"enable.partition.eof": True}) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
            assert reported_error(consumer) == KafkaError._PARTITION_EOF
            deliver(broker.bootstrap, topic, plain_record(b"next"))
            (message,) = read(consumer, 1)
        assert (message.offset(), message.value()) == (20, b"next")

    @pytest.mark.parametrize(
        ("after_ms", "expected"), [(-DAY_MS, 0), (0, 0), (7, 7), (19, 19), (20, OFFSET_END)]
    )
    def test_offsets_are_found_by_time(self, broker: Broker, after_ms: int, expected: int) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        with new_consumer(broker.bootstrap, {}) as consumer:
            wanted = TopicPartition(topic, 0, FIRST_TIMESTAMP_MS + after_ms)
            (found,) = consumer.offsets_for_times([wanted], timeout=CLIENT_TIMEOUT_S)
        assert found.error is None
        assert found.offset == expected

    def test_read_committed_sees_records_of_no_transaction(self, broker: Broker) -> None:
        """R5."""
        topic = topic_of_twenty(broker.bootstrap)
        with new_consumer(broker.bootstrap, {"isolation.level": "read_committed"}) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            assert len(read(consumer, 20)) == 20

    def test_waiting_fetch_is_answered_by_the_next_append(self, broker: Broker) -> None:
        """R4: nobody waits for `fetch.wait.max.ms` once there is something to read."""
        topic = new_topic(broker.bootstrap)
        with new_consumer(broker.bootstrap, _waiting_for(1, LONG_WAIT_S)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            assert consumer.poll(0.5) is None
            sent_s = time.monotonic()
            deliver(broker.bootstrap, topic, plain_record(b"value"))
            read(consumer, 1)
        assert time.monotonic() - sent_s < LONG_WAIT_S / 2

    def test_too_few_bytes_are_waited_on(self, broker: Broker) -> None:
        """R4."""
        topic = new_topic(broker.bootstrap)
        deliver(broker.bootstrap, topic, plain_record(b"value"))
        with new_consumer(broker.bootstrap, _waiting_for(100_000, 1.0)) as consumer:
            consumer.list_topics(topic, timeout=CLIENT_TIMEOUT_S)
            started_s = time.monotonic()
            consumer.assign([TopicPartition(topic, 0, 0)])
            read(consumer, 1)
        assert time.monotonic() - started_s > 0.9

    def test_enough_bytes_end_the_wait(self, broker: Broker) -> None:
        """R4."""
        topic = new_topic(broker.bootstrap)
        with new_consumer(broker.bootstrap, _waiting_for(5_000, LONG_WAIT_S)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            assert consumer.poll(0.5) is None
            sent_s = time.monotonic()
            records = numbered_records(10, value_size_bytes=1_000, seed="enough")
            settings: Settings = {"batch.num.messages": 1}
            send(broker.bootstrap, topic, records, partition=0, settings=settings)
            read(consumer, 5)
        assert time.monotonic() - sent_s < LONG_WAIT_S / 2

    def test_batch_larger_than_every_fetch_limit_is_read(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        for size in (100_000, 10, 200_000):
            deliver(broker.bootstrap, topic, plain_record(bytes(size)))
        limits: Settings = {
            "max.partition.fetch.bytes": 1_000,
            "fetch.max.bytes": 2_000,
            "message.max.bytes": 2_000,
        }
        with new_consumer(broker.bootstrap, limits) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            sizes = [len(message.value() or b"") for message in read(consumer, 3)]
        assert sizes == [100_000, 10, 200_000]

    def test_seek_moves_both_ways(self, broker: Broker) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        with new_consumer(broker.bootstrap, {}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 10)])
            assert read(consumer, 1)[0].offset() == 10
            for offset in (2, 18, 0):
                consumer.seek(TopicPartition(topic, 0, offset))
                assert read(consumer, 1)[0].offset() == offset

    def test_paused_partition_is_silent_until_resumed(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        first, second = (TopicPartition(topic, n, 0) for n in range(2))
        with new_consumer(broker.bootstrap, {}) as consumer:
            consumer.assign([first, second])
            consumer.pause([first])
            for n in range(2):
                deliver(broker.bootstrap, topic, plain_record(b"value"), partition=n)
            assert read(consumer, 1)[0].partition() == 1
            assert consumer.poll(0.2) is None
            consumer.resume([first])
            assert read(consumer, 1)[0].partition() == 0

    def test_many_partitions_each_keep_their_order(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=60)
        with new_producer(broker.bootstrap, {}) as producer:
            for n in range(3_000):
                producer.produce(topic, str(n).encode(), key=str(n % 200).encode())
        with new_consumer(broker.bootstrap, {}) as consumer:
            consumer.assign([TopicPartition(topic, n, 0) for n in range(60)])
            messages = read(consumer, 3_000)
        numbers: dict[int | None, list[int]] = {}
        for message in messages:
            numbers.setdefault(message.partition(), []).append(int(message.value() or b""))
        assert len(numbers) > 40
        assert all(found == sorted(found) for found in numbers.values())
        assert sorted(n for found in numbers.values() for n in found) == list(range(3_000))

    def test_offset_beyond_the_end_is_out_of_range(self, broker: Broker) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        with new_consumer(broker.bootstrap, {"auto.offset.reset": "error"}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 21)])
            assert reported_error(consumer) == KafkaError._AUTO_OFFSET_RESET

    def test_consumer_out_of_range_starts_where_it_was_configured_to(self, broker: Broker) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        with new_consumer(broker.bootstrap, {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 1_000)])
            assert read(consumer, 1)[0].offset() == 0

    def test_watermarks_are_start_and_end(self, broker: Broker) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        with new_consumer(broker.bootstrap, {}) as consumer:
            partition = TopicPartition(topic, 0)
            found = consumer.get_watermark_offsets(partition, timeout=CLIENT_TIMEOUT_S)
        assert found == (0, 20)


class TestUnknownTopics:
    """P4."""

    def test_producing_creates_the_topic(self, broker: Broker) -> None:
        topic = unused_name()
        deliver(broker.bootstrap, topic, plain_record(b"value"))
        assert len(read_partition(broker.bootstrap, topic, 0)) == 1

    def test_created_topic_has_as_many_partitions_as_configured(
        self, start_broker: StartBroker, tmp_path: Path
    ) -> None:
        broker = start_broker(tmp_path, {"num.partitions": "3"})
        deliver(broker.bootstrap, "first-use", plain_record(b"value"))
        metadata = admin_client(broker.bootstrap).list_topics(timeout=CLIENT_TIMEOUT_S)
        assert sorted(metadata.topics["first-use"].partitions) == [0, 1, 2]

    def test_consuming_creates_the_topic_if_the_client_allows(self, broker: Broker) -> None:
        topic = unused_name()
        with new_consumer(broker.bootstrap, {"allow.auto.create.topics": True}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            wait_until(
                lambda: consumer.poll(0.1) is None and exists(broker.bootstrap, topic),
                within_s=CLIENT_TIMEOUT_S,
                what="the topic exists",
            )

    def test_consuming_creates_nothing_otherwise(self, broker: Broker) -> None:
        topic = unused_name()
        assert _code_for_consumer(broker, topic, {}) == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert not exists(broker.bootstrap, topic)

    def test_broker_that_creates_nothing_refuses_the_record(self, strict_broker: Broker) -> None:
        topic = unused_name()
        settings: Settings = {"topic.metadata.propagation.max.ms": 10}
        code = refusal(strict_broker.bootstrap, topic, plain_record(b"value"), settings)
        assert code == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert not exists(strict_broker.bootstrap, topic)

    def test_broker_that_creates_nothing_refuses_the_consumer(self, strict_broker: Broker) -> None:
        topic = unused_name()
        code = _code_for_consumer(strict_broker, topic, {"allow.auto.create.topics": True})
        assert code == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert not exists(strict_broker.bootstrap, topic)


def _waiting_for(size_bytes: int, wait_s: float) -> Settings:
    return {"fetch.min.bytes": size_bytes, "fetch.wait.max.ms": int(wait_s * 1000)}


def _refusal(broker: Broker, topic: str, record: NewRecord) -> int:
    """The code with which a record is refused. Nothing of it may be in the log."""
    stored = stored_batches(broker.data_folder, topic)
    code = refusal(broker.bootstrap, topic, record)
    assert stored_batches(broker.data_folder, topic) == stored
    return code


def _code_for_consumer(broker: Broker, topic: str, settings: Settings) -> int:
    """What a consumer that wants to read an unknown topic learns about it."""
    with new_consumer(broker.bootstrap, settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(0.3) is None
        error = consumer.list_topics(topic, timeout=CLIENT_TIMEOUT_S).topics[topic].error
        return KafkaError.NO_ERROR if error is None else error.code()


def _codecs(broker: Broker, topic: str) -> set[Codec]:
    return {batch.codec for batch in stored_batches(broker.data_folder, topic)}
