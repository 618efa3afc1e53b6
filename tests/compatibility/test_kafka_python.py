"""kafka-python works unmodified (G1): it writes, reads through fetch sessions, and administrates.

Consumers use `assign()` and commit nothing. Of the three clients only this one keeps incremental
fetch sessions (KIP-227) and describes log directories.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidReplicationFactorError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer import OffsetSpec

from tests.compatibility.kafka_peer import Broker, new_broker
from tests.support.clients import FIRST_TIMESTAMP_MS, NewRecord, numbered_records
from tests.support.server_process import wait_until
from tests.support.subject import ASKED, BROKER_COUNT
from tests.support.topics import new_topic, stored_batches, unused_name, value_filling
from tidelog.records.batch import Codec

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
MAX_MESSAGE_BYTES = 1_048_588
DAY_MS = 86_400_000
TIMEOUT_S = 30.0
LONG_WAIT_S = 20.0


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that creates no topic unless it is told to."""
    settings = {"auto.create.topics.enable": "false"}
    with new_broker(tmp_path_factory.mktemp("strict"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


class TestProducing:
    @pytest.mark.parametrize("codec", CODECS)
    def test_every_codec_arrives_whole(self, broker: Broker, codec: str | None) -> None:
        topic = new_topic(broker.bootstrap)
        # The client leaves a batch as it is that a codec would not make smaller.
        records = [
            replace(record, value=(record.value or b"") * 2)
            for record in numbered_records(200, value_size_bytes=200, seed=str(codec))
        ]
        _send(broker, topic, records, compression_type=codec, linger_ms=20)
        read = _read_all(broker, topic, 200)
        assert [record.offset for record in read] == list(range(200))
        assert [
            NewRecord(record.key, record.value, record.timestamp, tuple(record.headers))
            for record in read
        ] == records
        stored = {batch.codec for batch in stored_batches(broker.data_folder, topic)}
        assert stored == {Codec[(codec or "none").upper()]}

    @pytest.mark.parametrize("acks", [0, 1, "all"])
    def test_every_kind_of_acks_stores_the_records(self, broker: Broker, acks: int | str) -> None:
        topic = new_topic(broker.bootstrap)
        records = numbered_records(50, value_size_bytes=50, seed=str(acks))
        _send(broker, topic, records, acks=acks, enable_idempotence=False)
        assert len(_read_all(broker, topic, 50)) == 50

    def test_idempotent_producer_numbers_its_batches(self, broker: Broker) -> None:
        """D2."""
        topic = new_topic(broker.bootstrap)
        records = numbered_records(200, value_size_bytes=100, seed="idempotent")
        _send(broker, topic, records, enable_idempotence=True, batch_size=1_000)
        batches = stored_batches(broker.data_folder, topic)
        assert len(batches) > 10
        assert batches[0].producer_id >= 0
        assert all(batch.base_sequence == batch.base_offset for batch in batches)
        assert batches[-1].end_offset == 200

    def test_null_value_is_not_an_empty_one(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        pairs = [(b"key", None), (b"key", b""), (None, b""), (b"", b"value")]
        records = [NewRecord(key, value, FIRST_TIMESTAMP_MS, ()) for key, value in pairs]
        _send(broker, topic, records)
        assert [(record.key, record.value) for record in _read_all(broker, topic, 4)] == pairs

    def test_log_append_time_is_told_to_producer_and_consumer(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"message.timestamp.type": "LogAppendTime"})
        before_ms = int(time.time() * 1000)
        (metadata,) = _send(broker, topic, [_record(b"value")])
        (record,) = _read_all(broker, topic, 1)
        assert before_ms <= metadata.timestamp <= int(time.time() * 1000)
        assert (record.timestamp_type, record.timestamp) == (1, metadata.timestamp)

    def test_metadata_of_a_record_names_its_place(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        sent = _send(broker, topic, [_record(b"a"), _record(b"b")])
        assert [(record.topic, record.partition, record.offset) for record in sent] == [
            (topic, 0, 0),
            (topic, 0, 1),
        ]

    def test_batch_of_exactly_the_limit_is_stored(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        value = value_filling(MAX_MESSAGE_BYTES)
        _send(broker, topic, [_record(value)], max_request_size=2 * MAX_MESSAGE_BYTES)
        (record,) = _read_all(broker, topic, 1)
        assert record.value == value

    def test_batch_of_a_byte_more_is_refused(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        record = _record(value_filling(MAX_MESSAGE_BYTES) + b"+")
        with pytest.raises(MessageSizeTooLargeError):
            _send(broker, topic, [record], max_request_size=2 * MAX_MESSAGE_BYTES)
        assert stored_batches(broker.data_folder, topic) == []

    def test_null_key_is_refused_by_a_compacted_topic(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"cleanup.policy": "compact"})
        with pytest.raises(InvalidRecordError):
            _send(broker, topic, [_record(b"value")])

    def test_timestamp_of_tomorrow_is_refused(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        tomorrow_ms = int(time.time() * 1000) + DAY_MS
        with pytest.raises(InvalidTimestampError):
            _send(broker, topic, [NewRecord(None, b"value", tomorrow_ms, ())])


class TestConsuming:
    @pytest.mark.parametrize("offset", [0, 7, 19])
    def test_reading_starts_at_an_offset(self, broker: Broker, offset: int) -> None:
        partition = _partition_of_twenty(broker)
        with _consumer(broker, partition) as consumer:
            consumer.seek(partition, offset)
            records = _read(consumer, 20 - offset)
        assert [record.offset for record in records] == list(range(offset, 20))

    def test_beginning_and_end_are_found(self, broker: Broker) -> None:
        partition = _partition_of_twenty(broker)
        with _consumer(broker, partition) as consumer:
            assert consumer.beginning_offsets([partition]) == {partition: 0}
            assert consumer.end_offsets([partition]) == {partition: 20}
            consumer.seek_to_end(partition)
            assert consumer.position(partition) == 20
            consumer.seek_to_beginning(partition)
            assert consumer.position(partition) == 0

    @pytest.mark.parametrize(
        ("after_ms", "expected"), [(-DAY_MS, 0), (0, 0), (7, 7), (19, 19), (20, None)]
    )
    def test_offsets_are_found_by_time(
        self, broker: Broker, after_ms: int, expected: int | None
    ) -> None:
        partition = _partition_of_twenty(broker)
        with _consumer(broker, partition) as consumer:
            found = consumer.offsets_for_times({partition: FIRST_TIMESTAMP_MS + after_ms})
        if expected is None:
            assert found == {partition: None}
        else:
            assert found[partition].offset == expected
            assert found[partition].timestamp == FIRST_TIMESTAMP_MS + expected

    def test_read_committed_sees_records_of_no_transaction(self, broker: Broker) -> None:
        """R5."""
        partition = _partition_of_twenty(broker)
        with _consumer(broker, partition, isolation_level="read_committed") as consumer:
            consumer.seek(partition, 0)
            assert len(_read(consumer, 20)) == 20
            assert consumer.end_offsets([partition]) == {partition: 20}

    def test_waiting_fetch_is_answered_by_the_next_append(self, broker: Broker) -> None:
        """R4."""
        partition = TopicPartition(new_topic(broker.bootstrap), 0)
        wait_ms = int(LONG_WAIT_S * 1000)
        with _consumer(broker, partition, fetch_max_wait_ms=wait_ms) as consumer:
            consumer.seek(partition, 0)
            assert consumer.poll(timeout_ms=300) == {}
            sent_s = time.monotonic()
            _send(broker, partition.topic, [_record(b"value")])
            _read(consumer, 1)
        assert time.monotonic() - sent_s < LONG_WAIT_S / 2

    def test_too_few_bytes_are_waited_on(self, broker: Broker) -> None:
        """R4."""
        partition = _partition_of_twenty(broker)
        waits = {"fetch_min_bytes": 100_000, "fetch_max_wait_ms": 1_000}
        with _consumer(broker, partition, **waits) as consumer:
            consumer.seek(partition, 0)
            started_s = time.monotonic()
            _read(consumer, 20)
        assert time.monotonic() - started_s > 0.9

    def test_batch_larger_than_every_fetch_limit_is_read(self, broker: Broker) -> None:
        partition = TopicPartition(new_topic(broker.bootstrap), 0)
        for size in (100_000, 10, 200_000):
            _send(broker, partition.topic, [_record(bytes(size))])
        limits = {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 2_000}
        with _consumer(broker, partition, **limits) as consumer:
            consumer.seek(partition, 0)
            sizes = [len(record.value) for record in _read(consumer, 3)]
        assert sizes == [100_000, 10, 200_000]

    def test_paused_partition_is_silent_until_resumed(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        first, second = (TopicPartition(topic, n) for n in range(2))
        for n in range(2):
            _send(broker, topic, [_record(b"value")], partition=n)
        with _consumer(broker, first, second) as consumer:
            consumer.seek_to_beginning()
            consumer.pause(first)
            assert {record.partition for record in _read(consumer, 1)} == {1}
            assert consumer.poll(timeout_ms=200) == {}
            consumer.resume(first)
            assert {record.partition for record in _read(consumer, 1)} == {0}

    def test_offset_beyond_the_end_is_out_of_range(self, broker: Broker) -> None:
        partition = _partition_of_twenty(broker)
        with _consumer(broker, partition, auto_offset_reset="none") as consumer:
            consumer.seek(partition, 21)
            with pytest.raises(OffsetOutOfRangeError):
                _read(consumer, 1)

    def test_consumer_out_of_range_starts_where_it_was_configured_to(self, broker: Broker) -> None:
        partition = _partition_of_twenty(broker)
        with _consumer(broker, partition, auto_offset_reset="earliest") as consumer:
            consumer.seek(partition, 1_000)
            assert _read(consumer, 20)[0].offset == 0


class TestFetchSessions:
    """KIP-227: after the first fetch only what changes is said, in both directions."""

    def test_each_of_many_partitions_is_heard_of(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=40)
        partitions = [TopicPartition(topic, n) for n in range(40)]
        with _consumer(broker, *partitions) as consumer, _producer(broker) as producer:
            consumer.seek_to_beginning()
            assert consumer.poll(timeout_ms=300) == {}
            for n in (39, 0, 17, 17, 3, 39):
                producer.send(topic, b"%d" % n, partition=n).get(TIMEOUT_S)
                (record,) = _read(consumer, 1)
                assert (record.partition, record.value) == (n, b"%d" % n)

    def test_partition_that_joins_later_is_read(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        first, second = (TopicPartition(topic, n) for n in range(2))
        for n in range(2):
            _send(broker, topic, [_record(b"%d" % n)], partition=n)
        with _consumer(broker, first) as consumer:
            consumer.seek(first, 0)
            assert _read(consumer, 1)[0].value == b"0"
            consumer.assign([first, second])
            consumer.seek(first, 1)
            consumer.seek(second, 0)
            assert _read(consumer, 1)[0].value == b"1"

    def test_partition_that_was_left_is_not_read_on(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        first, second = (TopicPartition(topic, n) for n in range(2))
        with _consumer(broker, first, second) as consumer:
            consumer.seek_to_beginning()
            assert consumer.poll(timeout_ms=200) == {}
            consumer.assign([second])
            consumer.seek(second, 0)
            for n in range(2):
                _send(broker, topic, [_record(b"%d" % n)], partition=n)
            assert _read(consumer, 1)[0].value == b"1"
            assert consumer.poll(timeout_ms=200) == {}

    def test_seek_within_a_session_is_followed(self, broker: Broker) -> None:
        partition = _partition_of_twenty(broker)
        with _consumer(broker, partition, max_poll_records=1) as consumer:
            for offset in (10, 2, 18, 0):
                consumer.seek(partition, offset)
                assert _read(consumer, 1)[0].offset == offset

    def test_consumer_without_sessions_reads_the_same(self, broker: Broker) -> None:
        partition = _partition_of_twenty(broker)
        with _consumer(broker, partition, enable_incremental_fetch_sessions=False) as consumer:
            consumer.seek(partition, 0)
            assert len(_read(consumer, 20)) == 20


class TestTopics:
    def test_created_topic_is_described(self, admin: KafkaAdminClient) -> None:
        topic = unused_name()
        options = {
            "num_partitions": 3,
            "replication_factor": BROKER_COUNT,
            "configs": {"flush.ms": "9000"},
        }
        created = admin.create_topics({topic: options}, wait_for_metadata=True)["topics"][0]
        assert (created["num_partitions"], created["replication_factor"]) == (3, BROKER_COUNT)
        assert created["configs"]["flush.ms"]["value"] == "9000"
        (described,) = admin.describe_topics([topic])
        assert described["topic_id"] == created["topic_id"]
        assert sorted(part["partition_index"] for part in described["partitions"]) == [0, 1, 2]
        leaders = {part["leader_id"] for part in described["partitions"]}
        assert leaders == set(range(1, BROKER_COUNT + 1))

    def test_defaults_are_the_brokers(self, admin: KafkaAdminClient) -> None:
        topic = unused_name()
        created = admin.create_topics([topic], wait_for_metadata=True)["topics"][0]
        assert (created["num_partitions"], created["replication_factor"]) == (1, BROKER_COUNT)

    def test_topic_is_described_by_its_id(self, broker: Broker, admin: KafkaAdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        (by_name,) = admin.describe_topics([topic])
        (by_id,) = admin.describe_topics([uuid.UUID(str(by_name["topic_id"]))])
        assert by_id["name"] == topic

    def test_partitions_are_described_in_pages(
        self, broker: Broker, admin: KafkaAdminClient
    ) -> None:
        topic = new_topic(broker.bootstrap, partition_count=5)
        first = admin.describe_topic_partitions([topic], response_partition_limit=3)
        assert _indexes(first) == [0, 1, 2]
        assert first["next_cursor"] == {"topic_name": topic, "partition_index": 3}
        second = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
        assert _indexes(second) == [3, 4]
        assert second["next_cursor"] is None

    @pytest.mark.parametrize("by_id", [False, True])
    def test_deleted_topic_is_gone(
        self, broker: Broker, admin: KafkaAdminClient, by_id: bool
    ) -> None:
        topic = new_topic(broker.bootstrap)
        (described,) = admin.describe_topics([topic])
        admin.delete_topics([uuid.UUID(str(described["topic_id"])) if by_id else topic])
        wait_until(
            lambda: topic not in admin.list_topics(),
            within_s=TIMEOUT_S,
            what="the topic is gone",
        )
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([topic])

    @pytest.mark.parametrize(
        ("name", "options", "refusal"),
        [
            ("bad/name", {}, InvalidTopicError),
            ("no-partitions", {"num_partitions": 0}, InvalidPartitionsError),
            (
                "too-many-replicas",
                {"replication_factor": BROKER_COUNT + 1},
                InvalidReplicationFactorError,
            ),
            ("bad-value", {"configs": {"retention.ms": "soon"}}, InvalidConfigurationError),
        ],
    )
    def test_impossible_topic_is_refused(
        self,
        admin: KafkaAdminClient,
        *,
        name: str,
        options: Mapping[str, object],
        refusal: type[KafkaError],
    ) -> None:
        with pytest.raises(refusal):
            admin.create_topics({name: options})

    def test_name_in_use_is_refused(self, broker: Broker, admin: KafkaAdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([topic])

    def test_partitions_are_added(self, broker: Broker, admin: KafkaAdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        admin.create_partitions({topic: 3})
        wait_until(
            lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 3,
            within_s=TIMEOUT_S,
            what="there are three partitions",
        )

    def test_partitions_are_never_taken_away(self, broker: Broker, admin: KafkaAdminClient) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        with pytest.raises(InvalidPartitionsError):
            admin.create_partitions({topic: 1})

    def test_cluster_is_described(self, broker: Broker, admin: KafkaAdminClient) -> None:
        described = admin.describe_cluster()
        addresses = {f"{node['host']}:{node['port']}" for node in described["brokers"]}
        assert addresses == set(broker.bootstrap.split(","))
        assert described["controller_id"] in {node["broker_id"] for node in described["brokers"]}
        assert described["cluster_id"]

    def test_log_directories_are_described(self, broker: Broker, admin: KafkaAdminClient) -> None:
        topic = _partition_of_twenty(broker).topic
        (answer,) = admin.describe_log_dirs({topic: [0]}, brokers=[ASKED])
        (log_dir,) = answer["log_dirs"]
        assert log_dir["error_code"] == 0
        assert log_dir["log_dir"] == str(broker.data_folder)
        assert log_dir["total_bytes"] >= log_dir["usable_bytes"] > 0
        (described,) = log_dir["topics"]
        assert described["name"] == topic
        (partition,) = described["partitions"]
        stored = stored_batches(broker.data_folder, topic)
        assert partition["partition_size"] == sum(batch.size_bytes for batch in stored)
        assert (partition["offset_lag"], partition["is_future_key"]) == (0, False)


class TestConfigs:
    def test_changed_setting_is_described(self, broker: Broker, admin: KafkaAdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        _alter(admin, "topic", topic, {"retention.ms": "1234567"})
        setting = _configs(admin, "topic", topic)["retention.ms"]
        assert setting["value"] == "1234567"
        assert setting["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        assert setting["config_type"] == "LONG"
        assert setting["synonyms"][0]["name"] == "retention.ms"

    @pytest.mark.parametrize("incremental", [True, False])
    def test_reset_setting_has_its_default_again(
        self, broker: Broker, admin: KafkaAdminClient, incremental: bool
    ) -> None:
        topic = new_topic(broker.bootstrap, config={"retention.ms": "1", "flush.ms": "9000"})
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
        admin.reset_configs([resource], incremental=incremental)
        wait_until(
            lambda: _configs(admin, "topic", topic)["retention.ms"]["value"] == "604800000",
            within_s=TIMEOUT_S,
            what="the default is back",
        )
        assert _configs(admin, "topic", topic)["flush.ms"]["value"] == "9000"

    def test_list_grows(self, broker: Broker, admin: KafkaAdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        _alter(admin, "topic", topic, {"cleanup.policy": (AlterConfigOp.APPEND, "compact")})
        assert _configs(admin, "topic", topic)["cleanup.policy"]["value"] == "delete,compact"

    def test_validation_alone_changes_nothing(
        self, broker: Broker, admin: KafkaAdminClient
    ) -> None:
        topic = new_topic(broker.bootstrap)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7"})
        admin.alter_configs([resource], validate_only=True)
        assert _configs(admin, "topic", topic)["retention.ms"]["value"] == "604800000"

    def test_wrong_value_is_refused(self, broker: Broker, admin: KafkaAdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "soon"})
        answer = admin.alter_configs([resource])["topic"][topic]
        assert "InvalidConfigurationError" in answer
        assert "retention.ms" in answer

    def test_broker_settings_are_described(self, admin: KafkaAdminClient) -> None:
        settings = _configs(admin, "broker", "1")
        assert settings["node.id"]["value"] == "1"
        assert settings["node.id"]["read_only"]
        assert settings["log.dirs"]["config_source"] == "STATIC_BROKER_CONFIG"

    def test_broker_setting_is_changed_while_it_runs(self, admin: KafkaAdminClient) -> None:
        _alter(admin, "broker", "1", {"log.cleaner.threads": "2"})
        setting = _configs(admin, "broker", "1")["log.cleaner.threads"]
        assert (setting["value"], setting["config_source"]) == ("2", "DYNAMIC_BROKER_CONFIG")
        _alter(admin, "broker", "1", {"log.cleaner.threads": (AlterConfigOp.DELETE, None)})


class TestOffsets:
    @pytest.mark.parametrize(
        ("spec", "offset"),
        [
            (OffsetSpec.EARLIEST, 5),
            (OffsetSpec.LATEST, 20),
            (OffsetSpec.MAX_TIMESTAMP, 19),
            (OffsetSpec.EARLIEST_LOCAL, 5),
            (FIRST_TIMESTAMP_MS + 12, 12),
            (FIRST_TIMESTAMP_MS, 5),
            (FIRST_TIMESTAMP_MS + 20, -1),
        ],
    )
    def test_offsets_of_a_log_that_was_cut_are_listed(
        self, broker: Broker, admin: KafkaAdminClient, spec: int, offset: int
    ) -> None:
        partition = _partition_of_twenty(broker)
        admin.delete_records({partition: 5})
        assert admin.list_partition_offsets({partition: spec})[partition].offset == offset

    def test_deleted_records_are_gone(self, broker: Broker, admin: KafkaAdminClient) -> None:
        partition = _partition_of_twenty(broker)
        assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 20
        with _consumer(broker, partition) as consumer:
            assert consumer.beginning_offsets([partition]) == {partition: 20}

    def test_records_that_are_not_there_cannot_be_deleted(
        self, broker: Broker, admin: KafkaAdminClient
    ) -> None:
        partition = _partition_of_twenty(broker)
        with pytest.raises(OffsetOutOfRangeError):
            admin.delete_records({partition: 21})


class TestUnknownTopics:
    """P4."""

    def test_producing_creates_the_topic(self, broker: Broker) -> None:
        topic = unused_name()
        _send(broker, topic, [_record(b"value")])
        assert len(_read_all(broker, topic, 1)) == 1

    def test_consuming_creates_the_topic(self, broker: Broker, admin: KafkaAdminClient) -> None:
        partition = TopicPartition(unused_name(), 0)
        with _consumer(broker, partition, auto_offset_reset="earliest") as consumer:
            consumer.poll(timeout_ms=200)
            _send(broker, partition.topic, [_record(b"value")])
            assert _read(consumer, 1)[0].value == b"value"
        assert partition.topic in admin.list_topics()

    def test_broker_that_creates_nothing_refuses_the_record(self, strict_broker: Broker) -> None:
        with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)):
            _send(strict_broker, unused_name(), [_record(b"value")], max_block_ms=500)

    def test_broker_that_creates_nothing_has_no_partitions(self, strict_broker: Broker) -> None:
        topic = unused_name()
        with _consumer(strict_broker) as consumer:
            assert not consumer.partitions_for_topic(topic)
            assert topic not in consumer.topics()


# -- the client -------------------------------------------------------------------------------


@contextmanager
def _producer(broker: Broker, **settings: object) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    try:
        yield producer
    finally:
        producer.close(timeout=TIMEOUT_S)


def _send(
    broker: Broker, topic: str, records: Sequence[NewRecord], partition: int = 0, **settings: object
) -> list[Any]:
    """Where each record was stored; raises the first refusal."""
    with _producer(broker, **settings) as producer:
        futures = [
            producer.send(
                topic,
                record.value,
                record.key,
                headers=list(record.headers),
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        return [future.get(TIMEOUT_S) for future in futures]


def _record(value: bytes) -> NewRecord:
    return NewRecord(None, value, FIRST_TIMESTAMP_MS, ())


@contextmanager
def _consumer(
    broker: Broker, *partitions: TopicPartition, **settings: Any
) -> Iterator[KafkaConsumer]:
    wait_ms = settings.get("fetch_max_wait_ms", 500)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        enable_auto_commit=False,
        request_timeout_ms=wait_ms + int(TIMEOUT_S * 1000),
        **settings,
    )
    try:
        consumer.assign(list(partitions))
        yield consumer
    finally:
        consumer.close()


def _read(consumer: KafkaConsumer, record_count: int) -> list[Any]:
    records: list[Any] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(records) < record_count:
        assert time.monotonic() < deadline_s, f"{len(records)} of {record_count} were read"
        for found in consumer.poll(timeout_ms=500).values():
            records += found
    return records


def _read_all(broker: Broker, topic: str, record_count: int) -> list[Any]:
    partition = TopicPartition(topic, 0)
    with _consumer(broker, partition) as consumer:
        consumer.seek(partition, 0)
        return _read(consumer, record_count)


def _partition_of_twenty(broker: Broker) -> TopicPartition:
    """Twenty records, a millisecond apart."""
    topic = new_topic(broker.bootstrap)
    _send(broker, topic, numbered_records(20, value_size_bytes=50, seed=topic))
    return TopicPartition(topic, 0)


def _indexes(described: Mapping[str, Any]) -> list[int]:
    (topic,) = described["topics"]
    return [partition["partition_index"] for partition in topic["partitions"]]


def _configs(admin: KafkaAdminClient, kind: str, name: str) -> Mapping[str, Any]:
    described = admin.describe_configs(
        [ConfigResource(kind, name)], include_synonyms=True, config_filter="all"
    )
    settings: Mapping[str, Any] = described[kind][name]
    return settings


def _alter(admin: KafkaAdminClient, kind: str, name: str, changes: Mapping[str, object]) -> None:
    """Change settings and wait until the broker describes the change."""
    before = _configs(admin, kind, name)
    answer = admin.alter_configs([ConfigResource(kind, name, dict(changes))])
    assert answer == {kind: {name: "OK"}}
    wait_until(
        lambda: _configs(admin, kind, name) != before,
        within_s=TIMEOUT_S,
        what="the change is in force",
    )
