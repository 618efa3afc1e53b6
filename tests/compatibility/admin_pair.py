"""Asks tidelog and Kafka the same administrative questions and compares what they say.

Answers are compared field by field. Left out are texts meant for people, ids and addresses, and
the order of things that have no order. A Kafka broker learns of a change shortly after its
controller has made it, so what only describes is asked until both agree.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from difflib import unified_diff
from enum import Enum
from pprint import pformat
from typing import cast
from uuid import UUID

from confluent_kafka import Producer
from kio.index import load_request_schema
from kio.static.protocol import Payload

from tests.support.kio_codec import Values, build
from tests.support.message_client import MessageClient
from tests.support.server_process import wait_until
from tidelog.wire.api import SUPPORTED, ApiKey

TIME = timedelta(seconds=10)

DESCRIBING = {
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_CONFIG_RESOURCES,
}
NOT_COMPARED = {
    "cluster_id",
    "documentation",
    "error_message",
    "host",
    "log_dir",
    "port",
    "throttle_time",
    "total_bytes",
    "usable_bytes",
}
# Kafka keeps it among the cluster's dynamic settings since it knows eligible leader replicas.
DYNAMIC_IN_KAFKA = "min.insync.replicas"
OURS = "tidelog."
# Set in other units at the broker, for which DescribeConfigs of Kafka names no source.
WITHOUT_SOURCE_IN_KAFKA = {"flush.ms", "retention.ms", "segment.jitter.ms", "segment.ms"}

Step = tuple[ApiKey, Values]


class Pair:
    """One connection to tidelog and one to Kafka."""

    def __init__(self, clients: Sequence[MessageClient], ports: Sequence[int]) -> None:
        self._clients = clients
        self._ports = ports

    def assert_same(self, api_key: ApiKey, values: Values) -> None:
        ours, theirs = self._ask(api_key, values)
        if api_key in DESCRIBING and ours != theirs:
            with suppress(TimeoutError):  # What is compared below says more.
                wait_until(lambda: self._agree(api_key, values), within_s=3.0, what="both agree")
            ours, theirs = self._ask(api_key, values)
        _require_equal(ours, theirs)

    def create(self, *topics: Values) -> None:
        """Create topics on both, and wait until both know them."""
        request = create_topics(*topics)
        for client in self._clients:
            answer = ask(client, *request)
            assert "'error_code': 'none'" in repr(answer), answer
        names = [str(topic["name"]) for topic in topics]
        self.assert_same(*pages(*names))

    def topic_ids(self, name: str) -> list[UUID]:
        answers = [client.ask(message(*pages(name))) for client in self._clients]
        return [dataclasses.asdict(answer)["topics"][0]["topic_id"] for answer in answers]

    def assert_same_by_id(self, request: Callable[[UUID], Step], name: str) -> None:
        """For requests that name a topic by its id, which is another one on either side."""
        answers = [
            ask(client, *request(topic_id))
            for client, topic_id in zip(self._clients, self.topic_ids(name), strict=True)
        ]
        _require_equal(*answers)

    def produce(self, topic: str, record_count: int) -> None:
        for port in self._ports:
            producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
            for number in range(record_count):
                producer.produce(topic, b"value", key=str(number).encode(), partition=0)
            assert producer.flush(30.0) == 0

    def _ask(self, api_key: ApiKey, values: Values) -> tuple[object, object]:
        ours, theirs = (ask(client, api_key, values) for client in self._clients)
        return ours, theirs

    def _agree(self, api_key: ApiKey, values: Values) -> bool:
        ours, theirs = self._ask(api_key, values)
        return ours == theirs


def _require_equal(ours: object, theirs: object) -> None:
    before, after = (pformat(answer, width=160).splitlines() for answer in (theirs, ours))
    difference = unified_diff(before, after, "kafka", "tidelog", n=0, lineterm="")
    assert ours == theirs, "\n".join(difference)


def ask(client: MessageClient, api_key: ApiKey, values: Values) -> object:
    return _plain(dataclasses.asdict(client.ask(message(api_key, values))))


def message(api_key: ApiKey, values: Values) -> Payload:
    message_class = load_request_schema(api_key, SUPPORTED[api_key].highest)
    return cast(Payload, build(message_class, values))


def _plain(value: object) -> object:
    """An answer with everything that may differ taken out of it."""
    match value:
        case dict():
            return {
                name: part is None if name == "topic_id" else _plain(part)
                for name, part in _without_source(value).items()
                if name not in NOT_COMPARED
            }
        case tuple():
            parts = [_plain(part) for part in value if not _is_of_one_alone(part)]
            return (
                parts if all(isinstance(part, int) for part in parts) else sorted(parts, key=repr)
            )
        case Enum():
            return value.name
        case _:
            return value


def _is_of_one_alone(value: object) -> bool:
    """Settings that one of the two lists, and not the other."""
    if not isinstance(value, dict):
        return False
    name = value.get("name")
    return name == DYNAMIC_IN_KAFKA or (isinstance(name, str) and name.startswith(OURS))


def _without_source(value: dict[str, object]) -> dict[str, object]:
    if value.get("name") in WITHOUT_SOURCE_IN_KAFKA and "synonyms" in value:
        return {**value, "config_source": None, "synonyms": ()}
    return value


# -- requests, in few words ---------------------------------------------------------------------


def new(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> Values:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [
            {"partition_index": index, "broker_ids": tuple(brokers)}
            for index, brokers in assignments
        ],
        "configs": [{"name": key, "value": value} for key, value in configs],
    }


def create_topics(*topics: Values, timeout: timedelta = TIME, validate_only: bool = False) -> Step:
    values = {"topics": topics, "timeout": timeout, "validate_only": validate_only}
    return ApiKey.CREATE_TOPICS, values


def delete_topics(*topics: tuple[str | None, UUID | None], timeout: timedelta = TIME) -> Step:
    named = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    return ApiKey.DELETE_TOPICS, {"topics": named, "timeout": timeout}


def create_partitions(
    *topics: tuple[str, int, Sequence[Sequence[int]] | None],
    timeout: timedelta = TIME,
    validate_only: bool = False,
) -> Step:
    grown = [
        {
            "name": name,
            "count": count,
            "assignments": None
            if assignments is None
            else [{"broker_ids": tuple(brokers)} for brokers in assignments],
        }
        for name, count, assignments in topics
    ]
    values = {"topics": grown, "timeout": timeout, "validate_only": validate_only}
    return ApiKey.CREATE_PARTITIONS, values


def pages(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Step:
    return ApiKey.DESCRIBE_TOPIC_PARTITIONS, {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    }


def configs_of(*resources: tuple[int, str, tuple[str, ...] | None], synonyms: bool = True) -> Step:
    return ApiKey.DESCRIBE_CONFIGS, {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for kind, name, keys in resources
        ],
        "include_synonyms": synonyms,
        "include_documentation": False,
    }


def replace(
    *resources: tuple[int, str, Mapping[str, str | None]], validate_only: bool = False
) -> Step:
    replaced = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        for kind, name, configs in resources
    ]
    return ApiKey.ALTER_CONFIGS, {"resources": replaced, "validate_only": validate_only}


def alter(
    kind: int,
    name: str,
    *alterations: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Step:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in alterations
        ],
    }
    values = {"resources": [resource], "validate_only": validate_only}
    return ApiKey.INCREMENTAL_ALTER_CONFIGS, values


def delete_records(*topics: tuple[str, Sequence[tuple[int, int]]]) -> Step:
    return ApiKey.DELETE_RECORDS, {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "offset": offset} for index, offset in offsets
                ],
            }
            for name, offsets in topics
        ],
        "timeout": TIME,
    }


def elect_leaders(
    election_type: int,
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    timeout: timedelta = TIME,
) -> Step:
    named = (
        None
        if topics is None
        else [{"topic": topic, "partitions": tuple(partitions)} for topic, partitions in topics]
    )
    return ApiKey.ELECT_LEADERS, {
        "election_type": election_type,
        "topic_partitions": named,
        "timeout": timeout,
    }


def reassign(
    *topics: tuple[str, Sequence[tuple[int, Sequence[int] | None]]],
    allow_replication_factor_change: bool = True,
    timeout: timedelta = TIME,
) -> Step:
    return ApiKey.ALTER_PARTITION_REASSIGNMENTS, {
        "timeout": timeout,
        "allow_replication_factor_change": allow_replication_factor_change,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": index,
                        "replicas": None if replicas is None else tuple(replicas),
                    }
                    for index, replicas in partitions
                ],
            }
            for topic, partitions in topics
        ],
    }


def reassignments(topics: Sequence[tuple[str, Sequence[int]]] | None) -> Step:
    named = (
        None
        if topics is None
        else [
            {"name": topic, "partition_indexes": tuple(partitions)} for topic, partitions in topics
        ]
    )
    return ApiKey.LIST_PARTITION_REASSIGNMENTS, {"timeout": TIME, "topics": named}
