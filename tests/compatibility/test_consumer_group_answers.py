"""Members of the consumer protocol are told the same by tidelog as by Kafka (G1, P3).

As `test_group_answers.py` does for classic groups: stories in the protocol's own words, told to a
broker of either kind.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compatibility.group_pair import TOPIC, TOPIC_ID, GroupPair
from tests.compatibility.kafka_peer import new_broker
from tests.compatibility.test_group_answers import (
    SETTINGS,
    beating,
    committing,
    joining,
    leaving,
    listing,
    syncing,
    versions,
)
from tests.support.kafka_process import KafkaProcess
from tests.support.kio_codec import Values, milliseconds
from tests.support.raw_client import RawClient
from tidelog.wire.api import ApiKey

pytestmark = pytest.mark.one_broker


@contextmanager
def both(folder: Path, settings: Mapping[str, str]) -> Iterator[list[int]]:
    """The ports of a broker of ours and of a Kafka, each alone."""
    with (
        new_broker(folder / "ours", settings) as ours,
        KafkaProcess(folder / "theirs", settings, heap_mib=256) as theirs,
    ):
        yield [ours.port, theirs.port]


@pytest.fixture(scope="module")
def pair(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupPair]:
    settings = {
        **SETTINGS,
        "group.consumer.assignment.interval.ms": "0",
        "group.consumer.max.size": "3",
    }
    with both(tmp_path_factory.mktemp("pair"), settings) as ports:
        pair = GroupPair(ports)
        pair.prepare()
        yield pair
        pair.close()


def heartbeat(group_id: str, member_id: str, epoch: object = 0, **changes: object) -> Values:
    """Everything if it joins, and nothing but the epoch otherwise, unless said."""
    is_joining = epoch == 0
    values: Values = {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": milliseconds(60_000 if is_joining else -1),
        "subscribed_topic_names": (TOPIC,) if is_joining else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": () if is_joining else None,
    }
    return {**values, **changes}


def owning(*partitions: int) -> tuple[Values, ...]:
    return ({"topic_id": TOPIC_ID, "partitions": partitions},) if partitions else ()


def beat(pair: GroupPair, values: Values, version: int = 1) -> dict[str, object]:
    return pair.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, values)


def describe(pair: GroupPair, *group_ids: str) -> None:
    values = {"group_ids": group_ids, "include_authorized_operations": True}
    for version in versions(ApiKey.CONSUMER_GROUP_DESCRIBE):
        pair.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, values)


def advertised(port: int) -> set[int]:
    software = {"client_software_name": "story", "client_software_version": "1"}
    with RawClient(port) as client:
        answer = client.request(ApiKey.API_VERSIONS, 3, software)
    return {int(one.api_key) for one in answer.api_keys}


def test_a_protocol_that_is_switched_off_is_advertised_and_refused(
    kafka_jars: None, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "group.coordinator.rebalance.protocols": "classic"}
    with both(tmp_path, settings) as ports:
        for port in ports:
            assert advertised(port) >= {
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                ApiKey.CONSUMER_GROUP_DESCRIBE,
            }
        pair = GroupPair(ports)
        pair.prepare()
        refused = beat(pair, heartbeat("g", "ann"))
        assert refused["error_code"] == "unsupported_version"
        beat(pair, heartbeat("", "", 7))
        describe(pair, "g", "")
        pair.ask(ApiKey.JOIN_GROUP, 9, joining("g"), who="ann")
        pair.close()


def test_requests_that_make_no_sense(pair: GroupPair) -> None:
    for version in versions(ApiKey.CONSUMER_GROUP_HEARTBEAT):
        for wrong in (
            heartbeat("", "ann"),
            heartbeat("g", "ann", instance_id=""),
            heartbeat("g", "ann", rack_id=""),
            heartbeat("g", "ann", rebalance_timeout=milliseconds(-1)),
            heartbeat("g", "ann", topic_partitions=None),
            heartbeat("g", "ann", topic_partitions=owning(0)),
            heartbeat("g", "ann", subscribed_topic_names=None),
            heartbeat("g", "", 1),
            heartbeat("g", "", -1),
            heartbeat("g", "ann", -2),
            heartbeat("g", "ann", -3),
            heartbeat("g", "ann", server_assignor="mine"),
            heartbeat("g", "ann", 1),
            heartbeat("g", "ann", -1),
        ):
            assert beat(pair, wrong, version)["error_code"] != "none"


@pytest.mark.parametrize("expression", ["(", "a**", r"(a)\1", "(?=a)", "a{1001}", "[b-a]", r"\k"])
def test_expressions_that_are_none(pair: GroupPair, expression: str) -> None:
    values = heartbeat("bad", "ann", subscribed_topic_names=None, subscribed_topic_regex=expression)
    assert beat(pair, values)["error_code"] == "invalid_regular_expression"


def test_two_members_share_and_one_leaves(pair: GroupPair) -> None:
    joined = beat(pair, heartbeat("share", "ann"))
    assert joined["assignment"]
    beat(pair, heartbeat("share", "ann", joined["member_epoch"]))
    second = beat(pair, heartbeat("share", "bob"))
    describe(pair, "share")
    asked = beat(pair, heartbeat("share", "ann", joined["member_epoch"]))
    assert asked["member_epoch"] == joined["member_epoch"]
    describe(pair, "share")
    beat(pair, heartbeat("share", "bob", second["member_epoch"]))
    beat(pair, heartbeat("share", "ann", asked["member_epoch"], topic_partitions=owning(0, 1)))
    moved = beat(pair, heartbeat("share", "ann", asked["member_epoch"], topic_partitions=owning(0)))
    assert moved["member_epoch"] == second["member_epoch"]
    got = beat(pair, heartbeat("share", "bob", second["member_epoch"]))
    assert got["assignment"]
    describe(pair, "share")
    pair.ask(ApiKey.LIST_GROUPS, 5, listing(types=("consumer",)))
    beat(pair, heartbeat("share", "bob", -1))
    beat(pair, heartbeat("share", "ann", moved["member_epoch"]))
    describe(pair, "share")
    beat(pair, heartbeat("share", "ann", -1))
    describe(pair, "share")
    pair.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ("share",)})
    describe(pair, "share")


def test_members_of_other_epochs_are_fenced(pair: GroupPair) -> None:
    first = beat(pair, heartbeat("fence", "ann"))["member_epoch"]
    assert isinstance(first, int)
    second = beat(pair, heartbeat("fence", "bob"))["member_epoch"]
    for wrong in (
        heartbeat("fence", "ann", first + 5),
        heartbeat("fence", "ann", first - 1),
        heartbeat("fence", "stranger", first),
        heartbeat("fence", "stranger", -1),
    ):
        assert beat(pair, wrong)["error_code"] != "none"
    beat(pair, heartbeat("fence", "ann", first))
    beat(pair, heartbeat("fence", "ann", first, topic_partitions=owning(0)))
    behind = heartbeat("fence", "ann", first, topic_partitions=owning(0, 1))
    assert beat(pair, behind)["error_code"] == "fenced_member_epoch"
    again = heartbeat("fence", "ann", first, topic_partitions=owning(0))
    assert beat(pair, again)["member_epoch"] == second
    anew = beat(pair, heartbeat("fence", "ann"))
    assert anew["assignment"]


def test_a_group_has_room_for_three(pair: GroupPair) -> None:
    for name in ("ann", "bob", "cat"):
        beat(pair, heartbeat("room", name))
    assert beat(pair, heartbeat("room", "dan"))["error_code"] == "group_max_size_reached"
    assert beat(pair, heartbeat("room", "dan", 3))["error_code"] == "group_max_size_reached"


def test_static_members_leave_and_return(pair: GroupPair) -> None:
    joined = beat(pair, heartbeat("static", "ann", instance_id="i"))
    early = beat(pair, heartbeat("static", "ann2", instance_id="i"))
    assert early["error_code"] == "unreleased_instance_id"
    beat(pair, heartbeat("static", "other", -2, instance_id="i"))
    beat(pair, heartbeat("static", "ann", -2, instance_id="i"))
    describe(pair, "static")
    back = beat(pair, heartbeat("static", "ann2", instance_id="i"))
    assert back["assignment"] == joined["assignment"]
    fenced = heartbeat("static", "ann", joined["member_epoch"], instance_id="i")
    assert beat(pair, fenced)["error_code"] == "fenced_instance_id"
    unknown = heartbeat("static", "ann", joined["member_epoch"], instance_id="j")
    assert beat(pair, unknown)["error_code"] == "unknown_member_id"
    beat(pair, heartbeat("static", "ann2", -1, instance_id="i"))
    describe(pair, "static")


def test_commits_by_epoch(pair: GroupPair) -> None:
    epoch = beat(pair, heartbeat("commit", "ann"))["member_epoch"]
    assert isinstance(epoch, int)
    for version in versions(ApiKey.OFFSET_COMMIT):
        for said in (epoch, epoch + 1, epoch - 1, -1):
            pair.ask(ApiKey.OFFSET_COMMIT, version, committing("commit", said, "ann"))
        pair.ask(ApiKey.OFFSET_COMMIT, version, committing("commit", epoch, "stranger"))
        pair.ask(ApiKey.OFFSET_COMMIT, version, committing("commit"))
    for said in (epoch, epoch + 1):
        group = {"group_id": "commit", "member_id": "ann", "member_epoch": said}
        topics = ({"name": TOPIC, "partition_indexes": (0, 1)},)
        asked = {"groups": ({**group, "topics": topics},), "require_stable": False}
        pair.ask(ApiKey.OFFSET_FETCH, 9, asked)
    deleted = {
        "group_id": "commit",
        "topics": ({"name": TOPIC, "partitions": ({"partition_index": 0},)},),
    }
    pair.ask(ApiKey.OFFSET_DELETE, 0, deleted)
    pair.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": ("commit",)})


def test_who_subscribes_to_nothing_has_nothing(pair: GroupPair) -> None:
    joined = beat(pair, heartbeat("nothing", "ann", subscribed_topic_names=()))
    missing = heartbeat(
        "nothing", "ann", joined["member_epoch"], subscribed_topic_names=("missing",)
    )
    beat(pair, missing)
    describe(pair, "nothing")


def test_a_classic_member_stays_in_an_upgraded_group(pair: GroupPair) -> None:
    """Its assignment in the embedded protocol is told by both in the same bytes."""
    group = "mixed"
    pair.ask(ApiKey.JOIN_GROUP, 9, joining(group), who="ann")
    joined = pair.ask(ApiKey.JOIN_GROUP, 9, joining(group, "{ann}"), who="ann")
    all_of_it = (
        b"\x00\x00\x00\x00\x00\x01\x00\x07grouped\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01"
        b"\xff\xff\xff\xff"
    )
    generation = joined["generation_id"]
    assigned = syncing(group, generation, "{ann}", ("{ann}", all_of_it))
    pair.ask(ApiKey.SYNC_GROUP, 5, assigned, who="ann")
    new = beat(pair, heartbeat(group, "new"))
    assert new["error_code"] == "none"
    told = pair.ask(ApiKey.HEARTBEAT, 4, beating(group, generation, "{ann}"), who="ann")
    assert told["error_code"] == "rebalance_in_progress"
    rejoined = pair.ask(ApiKey.JOIN_GROUP, 9, joining(group, "{ann}"), who="ann")
    again = syncing(group, rejoined["generation_id"], "{ann}")
    synced = pair.ask(ApiKey.SYNC_GROUP, 5, again, who="ann")
    assert synced["assignment"]
    pair.ask(ApiKey.HEARTBEAT, 4, beating(group, rejoined["generation_id"], "{ann}"), who="ann")
    beat(pair, heartbeat(group, "new", new["member_epoch"]))
    pair.ask(ApiKey.LIST_GROUPS, 5, listing(types=("consumer",)))
    beat(pair, heartbeat(group, "new", -1))
    pair.ask(ApiKey.LEAVE_GROUP, 5, leaving(group, ("{ann}", None)), who="ann")


def test_a_classic_member_that_is_left_alone_joins_again_in_its_generation(
    pair: GroupPair,
) -> None:
    """It still has its partitions, and commits before it gives them up."""
    group = "left-alone"
    pair.ask(ApiKey.JOIN_GROUP, 9, joining(group), who="ann")
    joined = pair.ask(ApiKey.JOIN_GROUP, 9, joining(group, "{ann}"), who="ann")
    all_of_it = (
        b"\x00\x00\x00\x00\x00\x01\x00\x07grouped\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01"
        b"\xff\xff\xff\xff"
    )
    first = syncing(group, joined["generation_id"], "{ann}", ("{ann}", all_of_it))
    pair.ask(ApiKey.SYNC_GROUP, 5, first, who="ann")
    new = beat(pair, heartbeat(group, "new"))
    rejoined = pair.ask(ApiKey.JOIN_GROUP, 9, joining(group, "{ann}"), who="ann")
    generation = rejoined["generation_id"]
    pair.ask(ApiKey.SYNC_GROUP, 5, syncing(group, generation, "{ann}"), who="ann")
    beat(pair, heartbeat(group, "new", new["member_epoch"]))
    beat(pair, heartbeat(group, "new", -1))
    told = pair.ask(ApiKey.HEARTBEAT, 4, beating(group, generation, "{ann}"), who="ann")
    assert told["error_code"] == "rebalance_in_progress"
    pair.ask(ApiKey.OFFSET_COMMIT, 9, committing(group, generation, "{ann}"), who="ann")
    pair.ask(ApiKey.JOIN_GROUP, 9, joining(group, "{ann}"), who="ann")
    pair.ask(ApiKey.LEAVE_GROUP, 5, leaving(group, ("{ann}", None)), who="ann")
