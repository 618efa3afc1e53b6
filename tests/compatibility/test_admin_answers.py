"""The same administrative requests get the same answers from tidelog as from Kafka (G1, P1).

Each scenario sends requests, in the protocol's own words, to a broker of either kind with the same
settings. Where the two differ on purpose, `docs/divergences.md` says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from uuid import UUID

import pytest

from tests.compatibility.admin_pair import (
    Pair,
    alter,
    configs_of,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    elect_leaders,
    new,
    pages,
    reassign,
    reassignments,
    replace,
)
from tests.compatibility.kafka_peer import new_broker
from tests.support.kafka_process import KafkaProcess
from tests.support.kio_codec import Values
from tests.support.message_client import MessageClient
from tidelog.wire.api import ApiKey

pytestmark = pytest.mark.one_broker

SETTINGS = {"log.retention.hours": "100", "broker.rack": "r1", "num.partitions": "2"}
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NO_TIME = timedelta(0)
NEGATIVE_TIME = timedelta(milliseconds=-1)


@pytest.fixture(scope="module")
def pair(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        new_broker(folder / "ours", SETTINGS) as ours,
        KafkaProcess(folder / "theirs", SETTINGS, heap_mib=256) as theirs,
        MessageClient("127.0.0.1", ours.port) as to_ours,
        MessageClient("127.0.0.1", theirs.port) as to_theirs,
    ):
        yield Pair([to_ours, to_theirs], [ours.port, theirs.port])


NEW_TOPICS: Mapping[str, Sequence[Values]] = {
    "several": [new("c-one", 3), new("c-two", -1, -1), new("c-three", 1, -1)],
    "twice": [new("c-twice"), new("c-twice"), new("c-neighbour")],
    "names": [new(name) for name in ("", ".", "..", "a b", "\u00e9", "x" * 249, "x" * 250)],
    "reserved": [new("__cluster_metadata"), new("__not_reserved")],
    "partition counts": [new("c-p0", 0), new("c-p2", -2)],
    "replica counts": [new("c-r0", 1, 0), new("c-r2", 1, 2), new("c-r-2", 1, -2)],
    "assigned": [
        new("c-m1", -1, -1, [(0, [1]), (1, [1])]),
        new("c-m2", 1, 1, [(0, [1])]),
        new("c-m3", -1, 1, [(0, [1])]),
        new("c-m4", 1, -1, [(0, [1])]),
    ],
    "assigned wrongly": [
        new("c-m5", -1, -1, [(1, [1])]),
        new("c-m6", -1, -1, [(0, [1]), (0, [1])]),
        new("c-m7", -1, -1, [(0, [])]),
        new("c-m8", -1, -1, [(0, [1, 1])]),
        new("c-m9", -1, -1, [(0, [7])]),
        new("c-m10", -1, -1, [(-1, [1])]),
    ],
    "configs": [
        new("c-k1", configs=[("retention.ms", "1"), ("retention.ms", "2")]),
        new("c-k2", configs=[("cleanup.policy", "")]),
        new("c-k3", configs=[("cleanup.policy", "compact,delete")]),
        new("c-k4", configs=[("internal.segment.bytes", "100")]),
        new("c-k5", configs=[("retention.ms", "-1"), ("min.cleanable.dirty.ratio", "0.1")]),
    ],
    "wrong configs": [
        new("c-w1", configs=[("no.such", "1")]),
        new("c-w2", configs=[("retention.ms", "x")]),
        new("c-w3", configs=[("retention.ms", None)]),
        new("c-w4", configs=[("cleanup.policy", "foo")]),
        new("c-w5", configs=[("segment.bytes", "10")]),
        new("c-w6", configs=[("min.compaction.lag.ms", "2"), ("max.compaction.lag.ms", "1")]),
        new("c-w7", configs=[("remote.storage.enable", "true")]),
        new("c-w8", configs=[("", "1")]),
    ],
    "too many partitions": [new("c-big", 9_999), new("c-bigger", 2)],
}


@pytest.mark.parametrize("topics", NEW_TOPICS.values(), ids=NEW_TOPICS)
def test_topics_are_created_alike(pair: Pair, topics: Sequence[Values]) -> None:
    pair.assert_same(*create_topics(*topics, validate_only=True))
    pair.assert_same(*create_topics(*topics))
    pair.assert_same(*create_topics(*topics))
    names = {str(topic["name"]) for topic in topics} - {""}
    pair.assert_same(*pages(*names))


@pytest.mark.parametrize("timeout", [NO_TIME, NEGATIVE_TIME])
def test_without_time_nothing_is_done(pair: Pair, timeout: timedelta) -> None:
    name = f"timeless-{-timeout.total_seconds():g}"
    pair.assert_same(*create_topics(new(name), timeout=timeout))
    pair.assert_same(*pages(name))
    pair.create(new(name))
    pair.assert_same(*create_partitions((name, 3, None), timeout=timeout))
    pair.assert_same(*delete_topics((name, None), timeout=timeout))
    pair.assert_same(*pages(name))


def test_names_that_metrics_cannot_tell_apart_are_refused_alike(pair: Pair) -> None:
    pair.create(new("c_collides"))
    pair.assert_same(*create_topics(new("c.collides")))


def test_topics_are_deleted_by_name_alike(pair: Pair) -> None:
    pair.create(new("d-one"), new("d-two"), new("d-three"))
    pair.assert_same(*delete_topics(("d-one", None), ("d-one", None), ("d-gone", None)))
    pair.assert_same(*delete_topics(("d-one", None), ("d-two", None), ("", None)))
    pair.assert_same(*pages("d-one", "d-two", "d-three"))


@pytest.mark.parametrize(
    "rest",
    [(), ((None, UUID(int=7)),), ((None, None),), (("d-other", UUID(int=7)),)],
    ids=["alone", "unknown id", "neither", "name and id"],
)
def test_topics_are_deleted_by_id_alike(
    pair: Pair, rest: Sequence[tuple[str | None, UUID | None]]
) -> None:
    pair.create(new("d-id"))
    pair.assert_same_by_id(lambda topic_id: delete_topics((None, topic_id), *rest), "d-id")
    pair.assert_same(*delete_topics(("d-id", None)))


NEW_PARTITIONS: Mapping[str, Sequence[tuple[str, int, Sequence[Sequence[int]] | None]]] = {
    "more": [("p-one", 3, None), ("p-gone", 3, None)],
    "twice": [("p-two", 3, None), ("p-two", 4, None), ("p-three", 3, None)],
    "not more": [("p-four", 2, None), ("p-five", 1, None), ("p-six", -1, None), ("", 3, None)],
    "assigned": [("p-seven", 3, [[1]]), ("p-eight", 4, [[1]])],
    "assigned to too many": [("p-four", 3, [[1], [1]])],
    "assigned to nobody": [("p-four", 3, [[]]), ("p-five", 3, [])],
    "assigned to strangers": [("p-four", 3, [[7]]), ("p-five", 3, [[1, 1]])],
}


@cache
def _make_topics_to_grow(pair: Pair) -> None:
    names = ("one", "two", "three", "four", "five", "six", "seven", "eight")
    pair.create(*(new(f"p-{name}", 2) for name in names))


@pytest.mark.parametrize("topics", NEW_PARTITIONS.values(), ids=NEW_PARTITIONS)
def test_partitions_are_created_alike(
    pair: Pair, topics: Sequence[tuple[str, int, Sequence[Sequence[int]] | None]]
) -> None:
    _make_topics_to_grow(pair)
    pair.assert_same(*create_partitions(*topics, validate_only=True))
    pair.assert_same(*create_partitions(*topics))
    pair.assert_same(*pages(*({name for name, _, _ in topics} - {""})))


def test_pages_of_partitions_are_alike(pair: Pair) -> None:
    pair.create(new("g-a", 3), new("g-b", 3), new("g-c"))
    for limit in (-1, 1, 3, 4, 6, 7):
        pair.assert_same(*pages("g-c", "g-b", "g-a", limit=limit))
    for cursor in (("g-a", 2), ("g-b", 0), ("g-b", 7), ("g-b", -1), ("g-x", 0), ("g-bb", 1)):
        pair.assert_same(*pages("g-b", "g-a", "g-x", "g-c", limit=3, cursor=cursor))
    pair.assert_same(*pages("g-a", "g-a", "no such", "g-gone"))


TOPIC_ALTERATIONS: Mapping[str, Sequence[tuple[str, int, str | None]]] = {
    "set": [("retention.ms", SET, "77"), ("compression.type", SET, " gzip ")],
    "set a list": [("cleanup.policy", SET, "compact, delete")],
    "delete the list": [("cleanup.policy", DELETE, None)],
    "set wrongly": [("retention.ms", SET, "x")],
    "set one of two wrongly": [("retention.ms", SET, "5"), ("flush.ms", SET, "x")],
    "set unknown": [("no.such", SET, "1")],
    "set null": [("retention.ms", SET, None)],
    "set without name": [("", SET, "1")],
    "set twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    "nothing": [],
    "delete": [("retention.ms", DELETE, None)],
    "delete unset": [("flush.ms", DELETE, None)],
    "delete unknown": [("no.such", DELETE, None)],
    "append": [("cleanup.policy", APPEND, "compact")],
    "append again": [("cleanup.policy", APPEND, "compact,delete")],
    "append wrongly": [("cleanup.policy", APPEND, "foo")],
    "append null": [("cleanup.policy", APPEND, None)],
    "append to a number": [("retention.ms", APPEND, "5")],
    "subtract": [("cleanup.policy", SUBTRACT, "delete")],
    "subtract what is not there": [("cleanup.policy", SUBTRACT, "nothing")],
    "subtract the last": [("cleanup.policy", SUBTRACT, "compact")],
    "subtract from a number": [("retention.ms", SUBTRACT, "5")],
}


def test_settings_of_a_topic_are_altered_alike(pair: Pair) -> None:
    pair.create(new("a-topic", configs=[("retention.ms", "1000")]))
    for alterations in TOPIC_ALTERATIONS.values():
        pair.assert_same(*alter(TOPIC, "a-topic", *alterations, validate_only=True))
        pair.assert_same(*alter(TOPIC, "a-topic", *alterations))
        pair.assert_same(*configs_of((TOPIC, "a-topic", None)))


@pytest.mark.parametrize("name", ["a-gone", "", "no such"])
def test_settings_of_no_topic_are_altered_alike(pair: Pair, name: str) -> None:
    pair.assert_same(*alter(TOPIC, name, ("retention.ms", SET, "1")))
    pair.assert_same(*replace((TOPIC, name, {"retention.ms": "1"})))
    pair.assert_same(*configs_of((TOPIC, name, None)))


def test_settings_of_a_topic_are_replaced_alike(pair: Pair) -> None:
    pair.create(new("r-topic", configs=[("retention.ms", "1000")]))
    replacements: Sequence[Mapping[str, str | None]] = [
        {"flush.ms": "7", "retention.ms": "5"},
        {"flush.ms": "8"},
        {"no.such": "1"},
        {"flush.ms": "x"},
        {"flush.ms": None},
        {},
    ]
    for replacement in replacements:
        pair.assert_same(*replace((TOPIC, "r-topic", replacement), validate_only=True))
        pair.assert_same(*replace((TOPIC, "r-topic", replacement)))
        pair.assert_same(*configs_of((TOPIC, "r-topic", None)))


BROKER_ALTERATIONS: Mapping[str, tuple[str, Sequence[tuple[str, int, str | None]]]] = {
    "set for all": ("", [("log.retention.ms", SET, "5000"), ("num.io.threads", SET, "9")]),
    "set for one": ("1", [("log.retention.ms", SET, "6000"), ("num.io.threads", SET, "10")]),
    "set wrongly": ("1", [("num.io.threads", SET, "x")]),
    "set too small": ("", [("log.segment.bytes", SET, "5")]),
    "set null": ("1", [("num.io.threads", SET, None)]),
    "set what is read only": ("1", [("node.id", SET, "5")]),
    "set what is static": ("1", [("log.retention.hours", SET, "5")]),
    "append": ("", [("log.cleanup.policy", APPEND, "compact")]),
    "append to a number": ("", [("background.threads", APPEND, "5")]),
    "delete for one": ("1", [("log.retention.ms", DELETE, None), ("num.io.threads", DELETE, None)]),
    "delete for all": (
        "",
        [(name, DELETE, None) for name in ("log.retention.ms", "num.io.threads")],
    ),
    "delete the list": ("", [("log.cleanup.policy", DELETE, None)]),
    "no number": ("abc", [("num.io.threads", SET, "9")]),
    "no such broker": ("2", [("num.io.threads", SET, "9")]),
    "a negative broker": ("-1", [("num.io.threads", SET, "9")]),
}
BROKER_SETTINGS = ("num.io.threads", "log.segment.bytes", "broker.rack", "log.cleanup.policy")


def test_settings_of_brokers_are_altered_alike(pair: Pair) -> None:
    pair.create(new("b-topic"))
    for name, alterations in BROKER_ALTERATIONS.values():
        pair.assert_same(*alter(BROKER, name, *alterations, validate_only=True))
        pair.assert_same(*alter(BROKER, name, *alterations))
        pair.assert_same(*configs_of((BROKER, "1", BROKER_SETTINGS), (BROKER, "", None)))
        pair.assert_same(*configs_of((TOPIC, "b-topic", None)))
    for resource in ("2", "abc", "-1", "01"):
        pair.assert_same(*configs_of((BROKER, resource, ("broker.rack",))))


SESSION, HEARTBEAT, ASSIGNMENT = GROUP_SETTINGS = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
GROUP_ALTERATIONS: Mapping[str, tuple[str, Sequence[tuple[str, int, str | None]]]] = {
    "set": ("g", [(SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")]),
    "set what is another kind's": ("g", [("retention.ms", SET, "5")]),
    "set too small": ("g", [(SESSION, SET, "44999")]),
    "set too large": ("g", [(SESSION, SET, "60001")]),
    "set wrongly": ("g", [(SESSION, SET, "x")]),
    "set null": ("g", [(SESSION, SET, None)]),
    "append": ("g", [(SESSION, APPEND, "1")]),
    "set one more": ("g", [(ASSIGNMENT, SET, "2000")]),
    "interval too large": ("g", [(ASSIGNMENT, SET, "15001")]),
    "delete": ("g", [(HEARTBEAT, DELETE, None)]),
    "delete what is not set": ("g", [("no.such", DELETE, None)]),
    "for all": ("", [(SESSION, SET, "50000")]),
    "of an odd name": ("a/b .", [(SESSION, SET, "50000")]),
}


def test_settings_of_groups_are_altered_alike(pair: Pair) -> None:
    for name, alterations in GROUP_ALTERATIONS.values():
        pair.assert_same(*alter(GROUP, name, *alterations, validate_only=True))
        pair.assert_same(*alter(GROUP, name, *alterations))
        pair.assert_same(*configs_of((GROUP, name, GROUP_SETTINGS)))
        pair.assert_same(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": (GROUP,)})
    for replacement in ({SESSION: "46000"}, {"no.such": "1"}, {}):
        pair.assert_same(*replace((GROUP, "r", replacement)))
        pair.assert_same(*configs_of((GROUP, "r", GROUP_SETTINGS)))


LOGGER_ALTERATIONS: Sequence[tuple[str, Sequence[tuple[str, int, str | None]]]] = [
    ("1", [("root", SET, "WARN")]),
    ("1", [("root", SET, "warn")]),
    ("1", [("root", SET, None)]),
    ("1", [("root", DELETE, None)]),
    ("1", [("root", APPEND, "INFO")]),
    ("1", [("no.such", SET, "INFO")]),
    ("1", [("no.such", DELETE, None)]),
    ("1", [("root", SET, "DEBUG"), ("no.such", SET, "INFO")]),
    ("2", [("root", SET, "WARN")]),
    ("", [("root", SET, "WARN")]),
    ("abc", [("root", SET, "WARN")]),
    ("1", [("root", SET, "ERROR")]),
]


def test_levels_of_loggers_are_altered_alike(pair: Pair) -> None:
    for name, alterations in LOGGER_ALTERATIONS:
        pair.assert_same(*alter(LOGGER, name, *alterations, validate_only=True))
        pair.assert_same(*alter(LOGGER, name, *alterations))
        pair.assert_same(*configs_of((LOGGER, name, ("root", "no.such"))))
    pair.assert_same(*replace((LOGGER, "1", {"root": "INFO"})))
    pair.assert_same(ApiKey.LIST_CONFIG_RESOURCES, {"resource_types": (LOGGER, BROKER)})


@pytest.mark.parametrize("kind", [0, 1, 3, 99, -3])
def test_resources_that_nobody_knows_are_refused_alike(pair: Pair, kind: int) -> None:
    pair.assert_same(*alter(kind, "x", ("a", SET, "1")))
    pair.assert_same(*replace((kind, "x", {"a": "1"})))
    pair.assert_same(*configs_of((kind, "x", None)))


def test_filters_of_settings_are_alike(pair: Pair) -> None:
    pair.create(new("f-topic"))
    for keys in (None, (), ("flush.messages", "no.such"), ("flush.messages", "flush.messages")):
        pair.assert_same(*configs_of((TOPIC, "f-topic", keys), synonyms=False))


def test_the_cluster_is_described_alike(pair: Pair) -> None:
    for endpoint_type in (0, 1, 2, 3):
        for with_operations in (True, False):
            pair.assert_same(
                ApiKey.DESCRIBE_CLUSTER,
                {
                    "include_cluster_authorized_operations": with_operations,
                    "endpoint_type": endpoint_type,
                    "include_fenced_brokers": True,
                },
            )


def test_records_are_deleted_alike(pair: Pair) -> None:
    policies = {"plain": "delete", "compact": "compact", "both": "compact,delete", "none": ""}
    for name, policy in policies.items():
        pair.create(new(f"t-{name}", 2, configs=[("cleanup.policy", policy)]))
        pair.produce(f"t-{name}", 10)
        pair.assert_same(*delete_records((f"t-{name}", [(0, 1)])))
    for offset in (3, 2, 11, -2, 10, -1):
        pair.assert_same(*delete_records(("t-plain", [(0, offset)])))
    pair.assert_same(
        *delete_records(
            ("t-plain", [(0, 1), (1, 0), (1, -1), (7, 0), (-1, 0)]), ("t-gone", [(0, 1)])
        )
    )
    pair.assert_same(*delete_records(("t-both", [(0, 4)]), ("t-both", [(1, 0)]), ("", [(0, 0)])))


def test_log_dirs_are_described_alike(pair: Pair) -> None:
    pair.create(new("l-one", 2), new("l-two"))
    filters: Sequence[Sequence[tuple[str, tuple[int, ...]]]] = [
        [],
        [("l-one", (0, 1, 7)), ("l-gone", (0,))],
        [("l-one", ())],
        [("l-one", (0,)), ("l-one", (0, 1)), ("l-two", (0,))],
    ]
    for topics in filters:
        named = [{"topic": name, "partitions": partitions} for name, partitions in topics]
        pair.assert_same(ApiKey.DESCRIBE_LOG_DIRS, {"topics": named})


@pytest.mark.parametrize("election_type", [0, 1, 2, -1])
def test_elections_of_leaders_are_answered_alike(pair: Pair, election_type: int) -> None:
    topic = f"elected-{election_type}".replace("--", "-minus-")
    pair.create(new(topic, 2))
    pair.assert_same(*elect_leaders(election_type, []))
    pair.assert_same(*elect_leaders(election_type, [(topic, [0, 1, 2, -1]), ("no-such", [0])]))
    pair.assert_same(*elect_leaders(election_type, [(topic, [0, 0]), (topic, [0])]))
    pair.assert_same(*elect_leaders(election_type, [(topic, [0])], timeout=NO_TIME))


@pytest.mark.parametrize("may_change", [True, False])
def test_moves_of_partitions_are_answered_alike(pair: Pair, may_change: bool) -> None:
    topic = f"moved-{may_change}"
    pair.create(new(topic, 2))
    targets: Sequence[Sequence[int] | None] = [(1,), (), (1, 1), (7,), (1, 7), (-1,), None]
    for target in targets:
        pair.assert_same(
            *reassign((topic, [(0, target)]), allow_replication_factor_change=may_change)
        )
    pair.assert_same(*reassign((topic, [(0, (1,)), (5, (1,)), (-1, None)]), ("no-such", [(0, ())])))
    pair.assert_same(*reassign((topic, [(0, (1,)), (0, (1,))]), (topic, [(1, (1,))])))
    pair.assert_same(*reassign())
    pair.assert_same(*reassign((topic, [(0, (1,))]), timeout=NO_TIME))
    pair.assert_same(*pages(topic))


def test_moves_are_listed_alike(pair: Pair) -> None:
    pair.create(new("listed", 2))
    pair.assert_same(*reassignments(None))
    pair.assert_same(*reassignments([]))
    pair.assert_same(*reassignments([("listed", [0, 1, 7]), ("no-such", [0])]))
