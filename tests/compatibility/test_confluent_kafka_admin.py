"""confluent-kafka's admin client works unmodified (G1, P1)."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

import pytest
from confluent_kafka import (
    OFFSET_END,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

# The package re-exports these without saying so.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.compatibility.kafka_peer import Broker
from tests.support.clients import CLIENT_TIMEOUT_S, FIRST_TIMESTAMP_MS, read_partition
from tests.support.confluent import (
    admin_client,
    code_of,
    deliver,
    exists,
    only,
    plain_record,
    refusal,
    topic_of_twenty,
)
from tests.support.server_process import wait_until
from tests.support.subject import BROKER_COUNT, replicas
from tests.support.topics import new_topic, unused_name

K = TypeVar("K")
T = TypeVar("T")

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_MAX_TIMESTAMP = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return admin_client(broker.bootstrap)


class TestTopics:
    def test_created_topic_is_described(self, broker: Broker, admin: AdminClient) -> None:
        topic = new_topic(broker.bootstrap, partition_count=3)
        described = only(admin.describe_topics(TopicCollection([topic])))
        assert described.name == topic
        assert not described.is_internal
        assert len(str(described.topic_id)) == 22
        assert [partition.id for partition in described.partitions] == [0, 1, 2]
        for partition, expected in zip(described.partitions, replicas(3, led_by=None), strict=True):
            assert partition.leader.id == expected[0]
            assert [node.id for node in partition.replicas] == expected
            assert sorted(node.id for node in partition.isr) == sorted(expected)

    def test_deleted_topic_is_gone(self, broker: Broker, admin: AdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        only(admin.delete_topics([topic]))
        assert topic not in admin.list_topics(timeout=CLIENT_TIMEOUT_S).topics
        _expect(KafkaError.UNKNOWN_TOPIC_OR_PART, lambda: admin.delete_topics([topic]))

    def test_topic_made_again_is_another_one(self, broker: Broker, admin: AdminClient) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        first_id = only(admin.describe_topics(TopicCollection([topic]))).topic_id
        only(admin.delete_topics([topic]))
        only(admin.create_topics([NewTopic(topic, 1, 1)]))
        wait_until(
            lambda: exists(broker.bootstrap, topic),
            within_s=CLIENT_TIMEOUT_S,
            what="the topic is known again",
        )
        assert only(admin.describe_topics(TopicCollection([topic]))).topic_id != first_id
        assert read_partition(broker.bootstrap, topic, 0) == []

    @pytest.mark.parametrize(
        ("topic", "code"),
        [
            (NewTopic("bad/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
            (NewTopic("n" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
            (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
            (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
            (
                NewTopic("too-many-replicas", 1, BROKER_COUNT + 1),
                KafkaError.INVALID_REPLICATION_FACTOR,
            ),
            (
                NewTopic("other-broker", 1, replica_assignment=[[7]]),
                KafkaError.INVALID_REPLICA_ASSIGNMENT,
            ),
            (
                NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}),
                KafkaError.INVALID_CONFIG,
            ),
            (
                NewTopic("bad-name", 1, 1, config={"no.such.setting": "1"}),
                KafkaError.INVALID_CONFIG,
            ),
        ],
        ids=lambda case: case.topic if isinstance(case, NewTopic) else "",
    )
    def test_impossible_topic_is_refused(
        self, admin: AdminClient, topic: NewTopic, code: int
    ) -> None:
        _expect(code, lambda: admin.create_topics([topic]))
        assert topic.topic not in admin.list_topics(timeout=CLIENT_TIMEOUT_S).topics

    def test_name_in_use_is_refused(self, broker: Broker, admin: AdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        _expect(
            KafkaError.TOPIC_ALREADY_EXISTS,
            lambda: admin.create_topics([NewTopic(topic, 1, 1)]),
        )

    def test_validation_alone_creates_nothing(self, admin: AdminClient) -> None:
        topic = unused_name()
        only(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True))
        assert topic not in admin.list_topics(timeout=CLIENT_TIMEOUT_S).topics

    def test_partitions_are_added(self, broker: Broker, admin: AdminClient) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        only(admin.create_partitions([NewPartitions(topic, 4)]))
        metadata = admin.list_topics(topic, timeout=CLIENT_TIMEOUT_S).topics[topic]
        assert sorted(metadata.partitions) == [0, 1, 2, 3]
        assert len(read_partition(broker.bootstrap, topic, 0)) == 20
        deliver(broker.bootstrap, topic, plain_record(b"value"), partition=3)

    @pytest.mark.parametrize("count", [1, 2])
    def test_partitions_are_never_taken_away(
        self, broker: Broker, admin: AdminClient, count: int
    ) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        _expect(
            KafkaError.INVALID_PARTITIONS,
            lambda: admin.create_partitions([NewPartitions(topic, count)]),
        )

    def test_cluster_is_described(self, broker: Broker, admin: AdminClient) -> None:
        described = admin.describe_cluster().result(CLIENT_TIMEOUT_S)
        addresses = {f"{node.host}:{node.port}" for node in described.nodes}
        assert addresses == set(broker.bootstrap.split(","))
        assert described.controller.id in {node.id for node in described.nodes}
        assert described.cluster_id

    def test_looking_for_a_topic_does_not_create_it(
        self, broker: Broker, admin: AdminClient
    ) -> None:
        topic = unused_name()
        _expect(
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            lambda: admin.describe_topics(TopicCollection([topic])),
        )
        assert not exists(broker.bootstrap, topic)


class TestConfigs:
    def test_topic_settings_say_where_they_come_from(
        self, broker: Broker, admin: AdminClient
    ) -> None:
        topic = new_topic(broker.bootstrap, config={"retention.ms": "1234567"})
        settings = _configs(admin, ResourceType.TOPIC, topic)
        assert settings["retention.ms"].value == "1234567"
        assert _source(settings["retention.ms"]) is ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert settings["segment.bytes"].value == "1073741824"
        assert _source(settings["segment.bytes"]) is ConfigSource.DEFAULT_CONFIG
        assert settings["segment.bytes"].is_default

    def test_broker_settings_are_described(self, admin: AdminClient) -> None:
        settings = _configs(admin, ResourceType.BROKER, "1")
        assert settings["node.id"].value == "1"
        assert settings["node.id"].is_read_only
        assert _source(settings["log.dirs"]) is ConfigSource.STATIC_BROKER_CONFIG
        assert settings["num.partitions"].value == "1"
        assert not settings["message.max.bytes"].is_read_only

    def test_incremental_change_leaves_the_rest_alone(
        self, broker: Broker, admin: AdminClient
    ) -> None:
        topic = new_topic(broker.bootstrap, config={"retention.ms": "1234567"})
        _alter(admin, ResourceType.TOPIC, topic, "segment.bytes", "1100000")
        settings = _configs(admin, ResourceType.TOPIC, topic)
        assert settings["segment.bytes"].value == "1100000"
        assert settings["retention.ms"].value == "1234567"
        _alter(admin, ResourceType.TOPIC, topic, "retention.ms", None)
        assert _configs(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"

    def test_lists_grow_and_shrink(self, broker: Broker, admin: AdminClient) -> None:
        topic = new_topic(broker.bootstrap)
        for operation, expected in (
            (AlterConfigOpType.APPEND, "delete,compact"),
            (AlterConfigOpType.SUBTRACT, "delete"),
        ):
            _alter(admin, ResourceType.TOPIC, topic, "cleanup.policy", "compact", operation)
            settings = _configs(admin, ResourceType.TOPIC, topic)
            assert settings["cleanup.policy"].value == expected

    @pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
    def test_whole_change_resets_what_it_does_not_name(
        self, broker: Broker, admin: AdminClient
    ) -> None:
        topic = new_topic(broker.bootstrap, config={"retention.ms": "1234567"})
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"flush.ms": "9000"})
        only(admin.alter_configs([resource]))
        settings = _configs(admin, ResourceType.TOPIC, topic)
        assert settings["flush.ms"].value == "9000"
        assert settings["retention.ms"].value == "604800000"

    def test_changed_limit_holds_for_the_next_record(
        self, broker: Broker, admin: AdminClient
    ) -> None:
        topic = new_topic(broker.bootstrap)
        deliver(broker.bootstrap, topic, plain_record(bytes(5_000)))
        _alter(admin, ResourceType.TOPIC, topic, "max.message.bytes", "1000")
        wait_until(
            lambda: (
                refusal(broker.bootstrap, topic, plain_record(bytes(5_000)))
                == KafkaError.MSG_SIZE_TOO_LARGE
            ),
            within_s=CLIENT_TIMEOUT_S,
            what="the new limit is in force",
        )

    def test_broker_setting_is_changed_while_it_runs(
        self, broker: Broker, admin: AdminClient
    ) -> None:
        topic = new_topic(broker.bootstrap)
        # Who is asked for a topic's settings knows its own.
        brokers = [str(1 + number) for number in range(BROKER_COUNT)]
        for name in brokers:
            _alter(admin, ResourceType.BROKER, name, "log.retention.ms", "7654321")
        try:
            wait_until(
                lambda: (
                    _configs(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "7654321"
                ),
                within_s=CLIENT_TIMEOUT_S,
                what="topics inherit the broker's setting",
            )
            changed = _configs(admin, ResourceType.BROKER, "1")["log.retention.ms"]
            assert _source(changed) is ConfigSource.DYNAMIC_BROKER_CONFIG
        finally:
            for name in brokers:
                _alter(admin, ResourceType.BROKER, name, "log.retention.ms", None)

    @pytest.mark.parametrize(
        ("kind", "name", "setting", "value", "code"),
        [
            ("TOPIC", "", "retention.ms", "soon", KafkaError.INVALID_CONFIG),
            ("TOPIC", "", "no.such.setting", "1", KafkaError.INVALID_CONFIG),
            ("TOPIC", "nowhere", "retention.ms", "1", KafkaError.UNKNOWN_TOPIC_OR_PART),
            ("BROKER", "1", "log.retention.ms", "soon", KafkaError.INVALID_REQUEST),
            ("BROKER", "1", "node.id", "7", KafkaError.INVALID_REQUEST),
        ],
    )
    def test_impossible_change_is_refused(
        self,
        broker: Broker,
        admin: AdminClient,
        *,
        kind: str,
        name: str,
        setting: str,
        value: str,
        code: int,
    ) -> None:
        resource = name or new_topic(broker.bootstrap)
        with pytest.raises(KafkaException) as refused:
            _alter(admin, ResourceType[kind], resource, setting, value)
        assert code_of(refused.value) == code

    def test_unknown_topic_has_no_settings(self, admin: AdminClient) -> None:
        with pytest.raises(KafkaException) as refused:
            _configs(admin, ResourceType.TOPIC, "nowhere")
        assert code_of(refused.value) == KafkaError.UNKNOWN_TOPIC_OR_PART


class TestOffsets:
    @pytest.mark.parametrize(
        ("spec", "offset", "timestamp_ms"),
        [
            (_EARLIEST, 0, -1),
            (_LATEST, 20, -1),
            (_MAX_TIMESTAMP, 19, FIRST_TIMESTAMP_MS + 19),
            (OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 7), 7, FIRST_TIMESTAMP_MS + 7),
            (OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 20), -1, -1),
        ],
        ids=["earliest", "latest", "max timestamp", "by time", "by a time after all"],
    )
    def test_offsets_are_listed(
        self,
        broker: Broker,
        admin: AdminClient,
        *,
        spec: OffsetSpec,
        offset: int,
        timestamp_ms: int,
    ) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        found = only(admin.list_offsets({TopicPartition(topic, 0): spec}))
        assert (found.offset, found.timestamp) == (offset, timestamp_ms)

    def test_deleted_records_are_gone(self, broker: Broker, admin: AdminClient) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        deleted = only(admin.delete_records([TopicPartition(topic, 0, 5)]))
        assert deleted.low_watermark == 5
        assert [record.offset for record in read_partition(broker.bootstrap, topic, 0)] == list(
            range(5, 20)
        )

    def test_all_records_are_deleted_up_to_the_end(
        self, broker: Broker, admin: AdminClient
    ) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        deleted = only(admin.delete_records([TopicPartition(topic, 0, OFFSET_END)]))
        assert deleted.low_watermark == 20
        assert read_partition(broker.bootstrap, topic, 0) == []

    def test_records_that_are_not_there_cannot_be_deleted(
        self, broker: Broker, admin: AdminClient
    ) -> None:
        topic = topic_of_twenty(broker.bootstrap)
        _expect(
            KafkaError.OFFSET_OUT_OF_RANGE,
            lambda: admin.delete_records([TopicPartition(topic, 0, 21)]),
        )


def _configs(admin: AdminClient, kind: ResourceType, name: str) -> Mapping[str, ConfigEntry]:
    settings = only(admin.describe_configs([ConfigResource(kind, name)]))
    assert isinstance(settings, dict)
    return settings


def _source(entry: ConfigEntry) -> ConfigSource:
    """The client gives the number where its type says the name."""
    return ConfigSource(entry.source)


def _alter(
    admin: AdminClient,
    kind: ResourceType,
    name: str,
    setting: str,
    value: str | None,
    operation: AlterConfigOpType = AlterConfigOpType.SET,
) -> None:
    """Change one setting; None takes it back."""
    if value is None:
        operation = AlterConfigOpType.DELETE
    entry = ConfigEntry(setting, value, incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    only(admin.incremental_alter_configs([resource]))


def _expect(code: int, attempt: Callable[[], Mapping[K, Future[T]]]) -> None:
    with pytest.raises(KafkaException) as refused:
        only(attempt())
    assert code_of(refused.value) == code
