"""`tidelog groups` and `tidelog transactions`, as typed, on three real brokers (O1, P1)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as KafkaProducer
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from tests.support.command_line import Cluster, objects
from tests.support.confluent import read
from tests.support.message_client import MessageClient
from tests.support.server_process import wait_until
from tidelog.client import Producer
from tidelog.client.admin import Admin
from tidelog.client.application_producer import Stored
from tidelog.client.groups import Groups

RECORD_COUNT = 30
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(
        tmp_path_factory.mktemp("cluster"), "--set", "group.initial.rebalance.delay.ms=0"
    )
    yield started
    started.down()


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """Two partitions with fifteen records each, a second apart."""
    name = re.sub(r"[^\w.-]+", ".", request.node.name)[:200]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, partitions=2, configs={})
    with Producer(cluster.bootstrap, producer_type="async", queue_buffering_max_ms=5) as producer:
        for number in range(RECORD_COUNT):
            producer.send(
                name,
                str(number).encode(),
                partition=number % 2,
                timestamp_ms=START_MS + number // 2 * 1_000,
            )
    return name


@contextmanager
def member(
    cluster: Cluster, topic: str, group: str, protocol: str = "classic"
) -> Iterator[Consumer]:
    """A member that has read everything and committed it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        read(consumer, RECORD_COUNT)
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def group(cluster: Cluster, topic: str) -> str:
    """A group that has read all of the topic and has no members."""
    with member(cluster, topic, f"{topic}-group"):
        pass
    return f"{topic}-group"


def committed(cluster: Cluster, group: str) -> dict[int, int]:
    with Groups(cluster.bootstrap) as groups:
        return {key.partition: offset for key, offset in groups.committed(group).items()}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_is_listed_and_described_with_its_lag_and_members(
    cluster: Cluster, topic: str, protocol: str
) -> None:
    group = f"{topic}-group"
    with member(cluster, topic, group, protocol):
        with Producer(cluster.bootstrap) as producer:
            assert isinstance(producer.send(topic, b"one more", partition=1), Stored)
        listed = objects(cluster.ok("groups", "list", "--json"))
        assert {"group": group, "type": protocol, "state": "stable"} in listed
        others = "consumer" if protocol == "classic" else "classic"
        assert group in cluster.ok("groups", "list", "--type", protocol).decode()
        assert group not in cluster.ok("groups", "list", "--type", others).decode()
        assert group in cluster.ok("groups", "list", "--state", "Stable").decode()
        assert group not in cluster.ok("groups", "list", "--state", "empty").decode()
        (described,) = objects(cluster.ok("groups", "describe", group, "--json"))
        assert (described["state"], described["lag"]) == ("stable", 1)
        (reader,) = described["members"]
        assert (reader["client"], reader["partitions"]) == ("reader", [[topic, 0], [topic, 1]])
        assert [
            (each["partition"], each["committed"], each["end_offset"], each["lag"])
            for each in described["offsets"]
        ] == [(0, 15, 15, 0), (1, 15, 16, 1)]
        shown = cluster.ok("groups", "describe", group).decode()
        assert "1 member, lag 1" in shown
        assert re.search(rf"{re.escape(topic)} +1 +15 +16 +1 +reader +127\.0\.0\.1", shown)
        assert "reader" in cluster.ok("groups", "describe", group, "--members").decode()


def test_group_is_shown_in_the_states_of_the_consumer_protocol(
    cluster: Cluster, topic: str
) -> None:
    """A member that says nothing has yet to give back what the other one shall have."""
    group = f"{topic}-group"
    with Groups(cluster.bootstrap) as groups:
        coordinator_id = groups.describe([group])[0].coordinator_id
    (status,) = objects(cluster.local("status", "--json").stdout)
    (port,) = [each["port"] for each in status["brokers"] if each["id"] == coordinator_id]
    with MessageClient("127.0.0.1", port) as client:
        for name in ("first", "second"):
            client.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=GroupId(group),
                    member_id=name,
                    member_epoch=i32(0),
                    rebalance_timeout=i32Timedelta.parse(timedelta(seconds=60)),
                    subscribed_topic_names=(TopicName(topic),),
                    topic_partitions=(),
                )
            )
        wait_until(
            lambda: group in cluster.ok("groups", "list", "--state", "reconciling").decode(),
            within_s=30,
            what="the group is listed as reconciling",
        )
        (described,) = objects(cluster.ok("groups", "describe", group, "--json"))
        assert described["state"] == "reconciling"


def test_group_with_members_is_neither_reset_nor_deleted(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-group"
    with member(cluster, topic, group):
        refused = cluster.no(
            *("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute"),
            exit_code=1,
        )
        assert "1 member" in refused
        assert "has members" in cluster.no("groups", "delete", group, exit_code=1)
        cluster.no("groups", "delete-offsets", group, "--topic", topic, exit_code=1)
        assert committed(cluster, group) == {0: 15, 1: 15}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-offset", "4"], {0: 4, 1: 4}),
        (["--shift-by", "-5"], {0: 10, 1: 10}),
        (["--to-datetime", "2023-11-14T22:13:23Z"], {0: 3, 1: 3}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_reset_leads_where_it_says(
    cluster: Cluster, topic: str, group: str, arguments: list[str], expected: dict[int, int]
) -> None:
    cluster.ok("groups", "reset", group, "--topic", topic, *arguments, "--execute")
    assert committed(cluster, group) == expected


def test_nothing_is_changed_unless_it_is_said(cluster: Cluster, topic: str, group: str) -> None:
    shown = cluster.ok("groups", "reset", group, "--topic", topic, "--to-earliest")
    assert b"--execute does it" in shown
    assert committed(cluster, group) == {0: 15, 1: 15}


def test_reset_of_one_partition_leaves_the_other_alone(
    cluster: Cluster, topic: str, group: str
) -> None:
    cluster.ok("groups", "reset", group, "--topic", f"{topic}:1", "--to-earliest", "--execute")
    assert committed(cluster, group) == {0: 15, 1: 0}


def test_reset_from_a_file(cluster: Cluster, topic: str, group: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,7\n{topic},1,8\n", encoding="utf-8")
    planned = objects(
        cluster.ok("groups", "reset", group, "--from-file", str(file), "--execute", "--json")
    )
    assert [(each["before"], each["after"], each["done"]) for each in planned] == [
        (15, 7, True),
        (15, 8, True),
    ]
    assert committed(cluster, group) == {0: 7, 1: 8}


def test_member_goes_on_where_the_group_was_reset_to(
    cluster: Cluster, topic: str, group: str
) -> None:
    cluster.ok("groups", "reset", group, "--all-topics", "--shift-by", "-15", "--execute")
    with member(cluster, topic, group):
        assert committed(cluster, group) == {0: 15, 1: 15}


def test_group_is_made_by_setting_its_offsets(cluster: Cluster, topic: str) -> None:
    group = f"{topic}-new"
    cluster.ok("groups", "reset", group, "--topic", topic, "--to-latest", "--execute")
    assert committed(cluster, group) == {0: 15, 1: 15}


def test_offsets_and_groups_are_deleted(cluster: Cluster, topic: str, group: str) -> None:
    cluster.ok("groups", "delete-offsets", group, "--topic", f"{topic}:0")
    assert committed(cluster, group) == {1: 15}
    assert objects(cluster.ok("groups", "delete", group, "--json")) == [
        {"group": group, "deleted": True}
    ]
    assert group not in cluster.ok("groups", "list").decode()
    assert "there is no group" in cluster.no("groups", "describe", group, exit_code=1)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "word"),
    [
        (["list", "--state", "rebalancing"], 2, "--state is 'rebalancing'"),
        (["list", "--type", "share"], 2, "--type is 'share'"),
        (["describe", "nobody"], 1, "there is no group nobody"),
        (["delete", "nobody"], 1, "there is no group nobody"),
        (["reset", "nobody", "--all-topics", "--to-latest"], 1, "nobody has no offsets"),
        (["reset", "g", "--to-latest"], 2, "--topic TOPIC, or --all-topics"),
        (["reset", "g", "--topic", "t"], 2, "say where to go"),
        (["reset", "g", "--topic", "nowhere", "--to-latest"], 1, "nowhere"),
        (["reset", "g", "--topic", "t:x", "--to-latest"], 2, "t:x"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    cluster: Cluster, arguments: list[str], exit_code: int, word: str
) -> None:
    assert word in cluster.no("groups", *arguments, exit_code=exit_code)


@contextmanager
def open_transaction(cluster: Cluster, topic: str, name: str) -> Iterator[KafkaProducer]:
    """One record in the first partition, of a transaction that has not ended."""
    producer = KafkaProducer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    yield producer
    producer.abort_transaction()


def test_open_transaction_is_listed_and_described(cluster: Cluster, topic: str) -> None:
    name = f"{topic}-id"
    with open_transaction(cluster, topic, name):
        (listed,) = [
            each
            for each in objects(cluster.ok("transactions", "list", "--state", "Ongoing", "--json"))
            if each["transactional_id"] == name
        ]
        (described,) = objects(cluster.ok("transactions", "describe", name, "--json"))
        assert described["state"] == listed["state"] == "Ongoing"
        assert described["producer_id"] == listed["producer_id"]
        assert described["partitions"] == [[topic, 0]]
        assert described["timeout_ms"] == 60_000
        (producer,) = [
            each
            for each in objects(cluster.ok("transactions", "producers", topic, "--json"))
            if each["producer_id"] == described["producer_id"]
        ]
        assert producer["open_since"] == 15
        # It is open, and has a coordinator that will end it: it does not hang.
        found = cluster.ok("transactions", "find-hanging", "--minutes", "0", "--topic", topic)
        assert found == b"No transaction hangs.\n"
    (ended,) = objects(cluster.ok("transactions", "describe", name, "--json"))
    assert (ended["state"], ended["partitions"]) in [("CompleteAbort", []), ("PrepareAbort", [])]
    assert ended["started_ms"] is None


def test_hanging_transaction_is_aborted_in_its_partition(cluster: Cluster, topic: str) -> None:
    with open_transaction(cluster, topic, f"{topic}-id"):
        aborted = cluster.ok("transactions", "abort", topic, "-p", "0", "--start-offset", "15")
        assert b"Aborted the transaction" in aborted
        with Admin(cluster.bootstrap) as admin:
            bounds = admin.offset_bounds(topic, [0])[0]
            assert admin.last_stable_offsets(topic, [0])[0] == bounds.end_offset
        (producer,) = [
            each
            for each in objects(cluster.ok("transactions", "producers", topic, "--json"))
            if each["last_sequence"] == 0
        ]
        assert producer["open_since"] is None


@pytest.mark.parametrize(
    ("arguments", "exit_code", "word"),
    [
        (["describe", "nobody"], 1, "there is no transactional id nobody"),
        (["producers", "nowhere"], 1, "there is no topic nowhere"),
        (["find-hanging", "--topic", "nowhere"], 1, "there is no topic nowhere"),
        (["list", "--state", "open"], 2, "--state is 'open'"),
    ],
)
def test_transaction_that_is_not_there_is_named(
    cluster: Cluster, arguments: list[str], exit_code: int, word: str
) -> None:
    assert word in cluster.no("transactions", *arguments, exit_code=exit_code)
