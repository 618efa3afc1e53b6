"""Administration: requests that admin clients refuse to send are answered with Kafka's codes (P1).

Requests are made by hand. Each expectation was seen on Kafka 4.3 (`TIDELOG_SUBJECT=kafka`).
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.compatibility.kafka_peer import Broker
from tests.support.batches import plain_batch
from tests.support.clients import FIRST_TIMESTAMP_MS
from tests.support.kio_codec import Values, milliseconds
from tests.support.raw_client import RawClient, Topic
from tests.support.subject import ASKED, BROKER_COUNT, replicas
from tests.support.topics import new_topic, unused_name
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import ApiKey

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
UNKNOWN_ID = uuid.UUID("00000000-0000-4000-8000-00000000abcd")
BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as connected:
        yield connected


@pytest.fixture
def topic(broker: Broker, client: RawClient) -> Topic:
    """Two partitions, three records in the first."""
    made = client.topic(new_topic(broker.bootstrap, led_by=ASKED, partition_count=2))
    client.produce(made, plain_batch(timestamp_ms=FIRST_TIMESTAMP_MS))
    return made


class TestCreateTopics:
    @pytest.mark.parametrize(
        ("partition_count", "replication_factor", "assignment", "code"),
        [
            (1, 1, [], ErrorCode.NONE),
            (-1, -1, [], ErrorCode.NONE),
            (0, 1, [], ErrorCode.INVALID_PARTITIONS),
            (-2, 1, [], ErrorCode.INVALID_PARTITIONS),
            (1, 0, [], ErrorCode.INVALID_REPLICATION_FACTOR),
            (1, -2, [], ErrorCode.INVALID_REPLICATION_FACTOR),
            (1, BROKER_COUNT + 1, [], ErrorCode.INVALID_REPLICATION_FACTOR),
            (-1, -1, [(0, [1])], ErrorCode.NONE),
            (-1, -1, [(1, [1]), (0, [1])], ErrorCode.NONE),
            (1, -1, [(0, [1])], ErrorCode.INVALID_REQUEST),
            (-1, 1, [(0, [1])], ErrorCode.INVALID_REQUEST),
            (-1, -1, [(1, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (-1, -1, [(0, [7])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (-1, -1, [(0, [1, 1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (-1, -1, [(0, [1]), (0, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (-1, -1, [(0, [])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    def test_shape_of_a_topic_must_be_possible(
        self,
        client: RawClient,
        *,
        partition_count: int,
        replication_factor: int,
        assignment: Sequence[tuple[int, Sequence[int]]],
        code: ErrorCode,
    ) -> None:
        wanted = {
            **_new_topic(unused_name()),
            "num_partitions": partition_count,
            "replication_factor": replication_factor,
            "assignments": [
                {"partition_index": index, "broker_ids": tuple(brokers)}
                for index, brokers in assignment
            ],
        }
        assert _create(client, wanted) == [code]

    @pytest.mark.parametrize("name", ["", ".", "..", " ", "a/b", "é", "n" * 250])
    def test_illegal_name_is_refused(self, client: RawClient, name: str) -> None:
        assert _create(client, _new_topic(name)) == [ErrorCode.INVALID_TOPIC_EXCEPTION]

    def test_longest_name_is_legal(self, client: RawClient) -> None:
        name = unused_name()
        assert _create(client, _new_topic(name + "n" * (249 - len(name)))) == [ErrorCode.NONE]

    def test_names_that_metrics_confuse_do_not_coexist(self, client: RawClient) -> None:
        name = unused_name()
        assert _create(client, _new_topic(f"{name}.a")) == [ErrorCode.NONE]
        refused = _create(client, _new_topic(f"{name}_a"))
        assert refused == [ErrorCode.INVALID_TOPIC_EXCEPTION]

    def test_name_in_use_is_refused(self, client: RawClient, topic: Topic) -> None:
        assert _create(client, _new_topic(topic.name)) == [ErrorCode.TOPIC_ALREADY_EXISTS]

    def test_name_given_twice_is_created_by_neither(self, client: RawClient) -> None:
        twice, once = _new_topic(unused_name()), _new_topic(unused_name())
        assert _create(client, twice, twice, once) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("retention.ms", "soon"),
            ("retention.ms", None),
            ("cleanup.policy", "sometimes"),
            ("min.insync.replicas", "0"),
            ("no.such.setting", "1"),
        ],
    )
    def test_impossible_setting_is_refused(
        self, client: RawClient, name: str, value: str | None
    ) -> None:
        wanted = {**_new_topic(unused_name()), "configs": [{"name": name, "value": value}]}
        assert _create(client, wanted) == [ErrorCode.INVALID_CONFIG]

    def test_no_time_is_too_little(self, client: RawClient) -> None:
        refused = _create(client, _new_topic(unused_name()), timeout_ms=0)
        assert refused == [ErrorCode.REQUEST_TIMED_OUT]

    def test_validation_finds_what_creation_would(self, client: RawClient, topic: Topic) -> None:
        name = unused_name()
        assert _create(client, _new_topic(name), validate_only=True) == [ErrorCode.NONE]
        assert client.metadata({"name": name, "topic_id": None}).error_code != ErrorCode.NONE
        taken = _create(client, _new_topic(topic.name), validate_only=True)
        assert taken == [ErrorCode.TOPIC_ALREADY_EXISTS]

    @pytest.mark.parametrize("version", range(2, 8))
    def test_every_version_creates(self, client: RawClient, version: int) -> None:
        assert _create(client, _new_topic(unused_name()), version=version) == [ErrorCode.NONE]


class TestDeleteTopics:
    def test_unknown_topic_is_refused(self, client: RawClient) -> None:
        assert _delete(client, ("nobody", None)) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert _delete(client, (None, UNKNOWN_ID)) == {ErrorCode.UNKNOWN_TOPIC_ID}

    def test_topic_is_given_by_name_or_by_id(self, client: RawClient, topic: Topic) -> None:
        assert _delete(client, (topic.name, topic.id)) == {ErrorCode.INVALID_REQUEST}
        assert _delete(client, (None, None)) == {ErrorCode.INVALID_REQUEST}

    def test_topic_given_twice_stays(self, client: RawClient, topic: Topic) -> None:
        by_name, by_id = (topic.name, None), (None, topic.id)
        for twice in ((by_name, by_name), (by_id, by_id), (by_name, by_id)):
            assert _delete(client, *twice) == {ErrorCode.INVALID_REQUEST}
        assert client.topic(topic.name) == topic

    def test_topic_given_by_name_and_by_id_is_answered_once(
        self, client: RawClient, topic: Topic
    ) -> None:
        by_name, by_id = (topic.name, None), (None, topic.id)
        once = [(topic.name, topic.id, ErrorCode.INVALID_REQUEST)]
        assert _deleted(client, by_name, by_id) == once
        assert _deleted(client, by_id, by_name) == once
        id_twice = (None, topic.id, ErrorCode.INVALID_REQUEST)
        assert _deleted(client, by_id, by_name, by_id) == sorted([*once, id_twice], key=str)
        assert client.topic(topic.name) == topic

    def test_name_given_twice_does_not_keep_the_id_from_being_deleted(
        self, client: RawClient, topic: Topic
    ) -> None:
        by_name, by_id = (topic.name, None), (None, topic.id)
        assert _deleted(client, by_name, by_id, by_name) == sorted(
            [(topic.name, None, ErrorCode.INVALID_REQUEST), (topic.name, topic.id, ErrorCode.NONE)],
            key=str,
        )

    @pytest.mark.parametrize("version", range(1, 7))
    def test_every_version_deletes(self, client: RawClient, topic: Topic, version: int) -> None:
        assert _delete(client, (topic.name, None), version=version) == {ErrorCode.NONE}


class TestCreatePartitions:
    @pytest.mark.parametrize(
        ("count", "assignment", "code"),
        [
            (2, None, ErrorCode.INVALID_PARTITIONS),
            (1, None, ErrorCode.INVALID_PARTITIONS),
            (0, None, ErrorCode.INVALID_PARTITIONS),
            (-1, None, ErrorCode.INVALID_PARTITIONS),
            (3, [[7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (3, replicas(1, led_by=ASKED), ErrorCode.NONE),
        ],
    )
    def test_growth_must_be_possible(
        self,
        client: RawClient,
        topic: Topic,
        *,
        count: int,
        assignment: Sequence[Sequence[int]] | None,
        code: ErrorCode,
    ) -> None:
        assert _grow(client, (topic.name, count, assignment)) == [code]

    def test_unknown_topic_is_refused(self, client: RawClient) -> None:
        refused = _grow(client, ("nobody", 3, None))
        assert refused == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_topic_given_twice_is_refused(self, client: RawClient, topic: Topic) -> None:
        wanted = (topic.name, 3, None)
        assert _grow(client, wanted, wanted) == [ErrorCode.INVALID_REQUEST]


class TestConfigs:
    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "1", ErrorCode.NONE),
            (BROKER, "", ErrorCode.NONE),
            (BROKER, "7", ErrorCode.INVALID_REQUEST),
            (BROKER, "one", ErrorCode.INVALID_REQUEST),
            (0, "x", ErrorCode.INVALID_REQUEST),
            (3, "x", ErrorCode.INVALID_REQUEST),
            (99, "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_described_resource_must_exist(
        self, client: RawClient, kind: int, name: str, code: ErrorCode
    ) -> None:
        assert _describe(client, kind, name).error_code == code

    @pytest.mark.parametrize(
        ("names", "found"),
        [(["retention.ms"], {"retention.ms"}), (["no.such.setting"], set())],
    )
    def test_only_what_is_asked_for_is_described(
        self, client: RawClient, topic: Topic, names: list[str], found: set[str]
    ) -> None:
        described = _describe(client, TOPIC, topic.name, names)
        assert described.error_code == ErrorCode.NONE
        assert {entry.name for entry in described.configs} == found

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ([("retention.ms", SET, "5000")], ErrorCode.NONE),
            ([], ErrorCode.NONE),
            ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
            ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
            ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
            ([("no.such.setting", SET, "1")], ErrorCode.INVALID_CONFIG),
            ([("no.such.setting", DELETE, None)], ErrorCode.NONE),
            ([("flush.ms", DELETE, None)], ErrorCode.NONE),
            ([("cleanup.policy", APPEND, "delete")], ErrorCode.NONE),
            ([("cleanup.policy", APPEND, "sometimes")], ErrorCode.INVALID_CONFIG),
            ([("cleanup.policy", SUBTRACT, "compact")], ErrorCode.NONE),
            (
                [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
                ErrorCode.INVALID_REQUEST,
            ),
        ],
    )
    def test_change_of_a_topic_must_be_possible(
        self,
        client: RawClient,
        topic: Topic,
        changes: Sequence[tuple[str, int, str | None]],
        code: ErrorCode,
    ) -> None:
        assert _alter(client, TOPIC, topic.name, changes) == {code}

    @pytest.mark.parametrize(
        ("kind", "name", "setting", "code"),
        [
            (TOPIC, "nobody", "retention.ms", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "bad/name", "retention.ms", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "1", "node.id", ErrorCode.INVALID_REQUEST),
            (BROKER, "7", "log.retention.ms", ErrorCode.INVALID_REQUEST),
            (BROKER, "one", "log.retention.ms", ErrorCode.INVALID_REQUEST),
            (BROKER, "", "listeners", ErrorCode.INVALID_REQUEST),
            (0, "x", "retention.ms", ErrorCode.INVALID_REQUEST),
            (99, "x", "retention.ms", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_changed_resource_must_exist(
        self, client: RawClient, *, kind: int, name: str, setting: str, code: ErrorCode
    ) -> None:
        assert _alter(client, kind, name, [(setting, SET, "5000000")]) == {code}

    @pytest.mark.parametrize(
        ("kind", "name", "settings", "code"),
        [
            (TOPIC, None, {"retention.ms": "5000"}, ErrorCode.NONE),
            (TOPIC, None, {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
            (TOPIC, None, {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
            (TOPIC, "nobody", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (BROKER, "1", {"node.id": "7"}, ErrorCode.INVALID_REQUEST),
            (77, "1", {}, ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_replacement_of_all_settings_must_be_possible(
        self,
        client: RawClient,
        topic: Topic,
        *,
        kind: int,
        name: str | None,
        settings: Mapping[str, str | None],
        code: ErrorCode,
    ) -> None:
        resource = {
            "resource_type": kind,
            "resource_name": topic.name if name is None else name,
            "configs": [{"name": key, "value": value} for key, value in settings.items()],
        }
        values = {"resources": [resource], "validate_only": False}
        (answer,) = client.request(ApiKey.ALTER_CONFIGS, 2, values).responses
        assert answer.error_code == code


class TestDeleteRecords:
    @pytest.mark.parametrize(
        ("partition", "offset", "expected"),
        [
            (0, 2, (ErrorCode.NONE, 2)),
            (0, 3, (ErrorCode.NONE, 3)),
            (0, -1, (ErrorCode.NONE, 3)),
            (0, 4, (ErrorCode.OFFSET_OUT_OF_RANGE, -1)),
            (0, -2, (ErrorCode.OFFSET_OUT_OF_RANGE, -1)),
            (9, 0, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)),
        ],
    )
    def test_offset_must_be_in_the_log(
        self,
        client: RawClient,
        topic: Topic,
        *,
        partition: int,
        offset: int,
        expected: tuple[int, int],
    ) -> None:
        assert _delete_records(client, topic.name, partition, offset) == expected

    def test_start_of_the_log_never_goes_back(self, client: RawClient, topic: Topic) -> None:
        _delete_records(client, topic.name, 0, 2)
        assert _delete_records(client, topic.name, 0, 1) == (ErrorCode.NONE, 2)

    @pytest.mark.parametrize(
        ("policy", "code"),
        [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE)],
    )
    def test_topic_that_is_only_compacted_keeps_its_records(
        self, broker: Broker, client: RawClient, policy: str, code: ErrorCode
    ) -> None:
        topic = client.topic(
            new_topic(broker.bootstrap, led_by=ASKED, config={"cleanup.policy": policy})
        )
        assert _delete_records(client, topic.name, 0, 0)[0] == code


class TestDescribeTopicPartitions:
    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_unknown_topic_is_refused(self, client: RawClient, name: str, code: ErrorCode) -> None:
        assert _page(client, [name]) == ([(code, [])], None)

    @pytest.mark.parametrize("limit", [-1, 0, 1])
    def test_page_has_at_least_one_partition(
        self, client: RawClient, topic: Topic, limit: int
    ) -> None:
        assert _page(client, [topic.name], limit=limit) == ([(0, [0])], (topic.name, 1))

    def test_page_starts_at_the_cursor(self, client: RawClient, topic: Topic) -> None:
        assert _page(client, [topic.name], cursor=(topic.name, 1)) == ([(0, [1])], None)

    @pytest.mark.parametrize("cursor", [("zzz", 0), (None, -1)])
    def test_impossible_cursor_is_refused(
        self, client: RawClient, topic: Topic, cursor: tuple[str | None, int]
    ) -> None:
        name, partition = cursor
        refused = _page(client, [topic.name], cursor=(name or topic.name, partition))
        assert refused == ([(ErrorCode.INVALID_REQUEST, [])], None)

    def test_topic_given_twice_is_described_once(self, client: RawClient, topic: Topic) -> None:
        assert _page(client, [topic.name, topic.name]) == ([(0, [0, 1])], None)


class TestCluster:
    @pytest.mark.parametrize(
        ("endpoint_type", "code", "broker_count"),
        [
            (BROKER_ENDPOINTS, ErrorCode.NONE, BROKER_COUNT),
            (CONTROLLER_ENDPOINTS, ErrorCode.MISMATCHED_ENDPOINT_TYPE, 0),
            (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, 0),
            (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, 0),
        ],
    )
    def test_broker_has_the_endpoints_of_brokers(
        self, client: RawClient, endpoint_type: int, code: ErrorCode, broker_count: int
    ) -> None:
        values = {
            "include_cluster_authorized_operations": False,
            "endpoint_type": endpoint_type,
            "include_fenced_brokers": False,
        }
        described = client.request(ApiKey.DESCRIBE_CLUSTER, 2, values)
        assert (described.error_code, len(described.brokers)) == (code, broker_count)

    @pytest.mark.parametrize(
        ("partitions", "found"), [((0, 1), [0, 1]), ((0, 9), [0]), ((9,), []), ((), [])]
    )
    def test_log_directories_list_the_partitions_asked_for(
        self, client: RawClient, topic: Topic, partitions: tuple[int, ...], found: list[int]
    ) -> None:
        values = {"topics": [{"topic": topic.name, "partitions": partitions}]}
        (log_dir,) = client.request(ApiKey.DESCRIBE_LOG_DIRS, 4, values).results
        assert log_dir.error_code == ErrorCode.NONE
        listed = [part.partition_index for one in log_dir.topics for part in one.partitions]
        assert sorted(listed) == found


def _new_topic(name: str) -> Values:
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }


def _create(
    client: RawClient,
    *wanted: Values,
    timeout_ms: int = 10_000,
    validate_only: bool = False,
    version: int = 7,
) -> list[int]:
    """The codes, sorted."""
    values = {
        "topics": list(wanted),
        "timeout": milliseconds(timeout_ms),
        "validate_only": validate_only,
    }
    answers = client.request(ApiKey.CREATE_TOPICS, version, values).topics
    return sorted(int(answer.error_code) for answer in answers)


def _delete(
    client: RawClient, *wanted: tuple[str | None, uuid.UUID | None], version: int = 6
) -> set[int]:
    values = {
        "topics": [{"name": name, "topic_id": topic_id} for name, topic_id in wanted],
        "topic_names": tuple(name for name, _topic_id in wanted),
        "timeout": milliseconds(10_000),
    }
    answers = client.request(ApiKey.DELETE_TOPICS, version, values).responses
    return {int(answer.error_code) for answer in answers}


def _deleted(
    client: RawClient, *topics: tuple[str | None, uuid.UUID | None]
) -> list[tuple[str | None, uuid.UUID | None, int]]:
    """Names, ids and codes of the answers, sorted: Kafka shuffles them."""
    values = {
        "topics": [{"name": name, "topic_id": topic_id} for name, topic_id in topics],
        "timeout": milliseconds(10_000),
    }
    responses = client.request(ApiKey.DELETE_TOPICS, 6, values).responses
    answers = [(one.name, one.topic_id, int(one.error_code)) for one in responses]
    return sorted(answers, key=str)


def _grow(client: RawClient, *wanted: tuple[str, int, Sequence[Sequence[int]] | None]) -> list[int]:
    values = {
        "topics": [
            {
                "name": name,
                "count": count,
                "assignments": None
                if assignment is None
                else [{"broker_ids": tuple(brokers)} for brokers in assignment],
            }
            for name, count, assignment in wanted
        ],
        "timeout": milliseconds(10_000),
        "validate_only": False,
    }
    answers = client.request(ApiKey.CREATE_PARTITIONS, 3, values).results
    return [int(answer.error_code) for answer in answers]


def _describe(
    client: RawClient, kind: int, name: str, settings: Sequence[str] | None = None
) -> Any:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": None if settings is None else tuple(settings),
    }
    values = {
        "resources": [resource],
        "include_synonyms": True,
        "include_documentation": False,
    }
    (described,) = client.request(ApiKey.DESCRIBE_CONFIGS, 4, values).results
    return described


def _alter(
    client: RawClient, kind: int, name: str, changes: Sequence[tuple[str, int, str | None]]
) -> set[int]:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": setting, "config_operation": operation, "value": value}
            for setting, operation, value in changes
        ],
    }
    values = {"resources": [resource], "validate_only": False}
    answers = client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values).responses
    return {int(answer.error_code) for answer in answers}


def _delete_records(client: RawClient, topic: str, partition: int, offset: int) -> tuple[int, int]:
    """Code and low watermark."""
    wanted = {"partition_index": partition, "offset": offset}
    values = {
        "topics": [{"name": topic, "partitions": [wanted]}],
        "timeout": milliseconds(10_000),
    }
    (answered,) = client.request(ApiKey.DELETE_RECORDS, 2, values).topics
    (result,) = answered.partitions
    return int(result.error_code), result.low_watermark


def _page(
    client: RawClient,
    topics: Sequence[str],
    *,
    limit: int = 2_000,
    cursor: tuple[str, int] | None = None,
) -> tuple[list[tuple[int, list[int]]], tuple[str, int] | None]:
    """Code and partitions of each topic, and where the next page starts."""
    values = {
        "topics": [{"name": name} for name in topics],
        "response_partition_limit": limit,
        "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    answer = client.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, values)
    following = answer.next_cursor
    return (
        [
            (int(topic.error_code), [part.partition_index for part in topic.partitions])
            for topic in answer.topics
        ],
        None if following is None else (following.topic_name, following.partition_index),
    )
