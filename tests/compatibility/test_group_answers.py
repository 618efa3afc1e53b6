"""Members of classic groups are told the same by tidelog as by Kafka (G1, P3).

Stories in the protocol's own words, in old versions and new ones, told to a broker of either kind
with the same settings. Where the two differ on purpose, `docs/divergences.md` says so.
"""

from collections.abc import Iterator

import pytest

from tests.compatibility.group_pair import TOPIC, TOPIC_ID, GroupPair
from tests.compatibility.kafka_peer import new_broker
from tests.support.kafka_process import KafkaProcess
from tests.support.kio_codec import Values, milliseconds
from tests.unit.core.groups.hosted import subscription
from tidelog.wire.api import SUPPORTED, ApiKey

pytestmark = pytest.mark.one_broker

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offset.metadata.max.bytes": "16",
}
SUBSCRIPTION = subscription(TOPIC)


@pytest.fixture(scope="module")
def pair(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupPair]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        new_broker(folder / "ours", SETTINGS) as ours,
        KafkaProcess(folder / "theirs", SETTINGS, heap_mib=256) as theirs,
    ):
        pair = GroupPair([ours.port, theirs.port])
        pair.prepare()
        yield pair
        pair.close()


def versions(api_key: ApiKey) -> range:
    return range(SUPPORTED[api_key].lowest, SUPPORTED[api_key].highest + 1)


def joining(group_id: str, member_id: str = "", instance: str | None = None) -> dict[str, object]:
    return {
        "group_id": group_id,
        "session_timeout": milliseconds(10_000),
        "rebalance_timeout": milliseconds(20_000),
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": ({"name": "range", "metadata": SUBSCRIPTION},),
        "reason": None,
    }


def syncing(
    group_id: str,
    generation: object,
    member_id: str,
    *assigned: tuple[str, bytes],
    instance: str | None = None,
) -> dict[str, object]:
    return {
        "group_id": group_id,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": tuple({"member_id": one, "assignment": data} for one, data in assigned),
    }


def beating(
    group_id: str, generation: object, member_id: str, instance: str | None = None
) -> Values:
    return {
        "group_id": group_id,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance,
    }


def leaving(group_id: str, *members: tuple[str, str | None]) -> Values:
    return {
        "group_id": group_id,
        "member_id": members[0][0],
        "members": tuple(
            {"member_id": member_id, "group_instance_id": instance, "reason": None}
            for member_id, instance in members
        ),
    }


def committing(
    group_id: str,
    generation: object = -1,
    member_id: str = "",
    *,
    instance: str | None = None,
    offset: int = 5,
    metadata: str | None = "note",
    partition: int = 0,
    topic: str = TOPIC,
    topic_id: object = TOPIC_ID,
) -> Values:
    one = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": 3,
        "committed_metadata": metadata,
    }
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "retention_time": milliseconds(-1),
        "topics": ({"name": topic, "topic_id": topic_id, "partitions": (one,)},),
    }


def fetching(group_id: str, *, all_topics: bool = False, stable: bool = False) -> Values:
    topics = ({"name": TOPIC, "topic_id": TOPIC_ID, "partition_indexes": (0, 1, 7)},)
    wanted = None if all_topics else topics
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": wanted}
    return {**group, "groups": (group,), "require_stable": stable}


def describing(*group_ids: str) -> Values:
    return {"groups": group_ids, "include_authorized_operations": True}


def listing(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Values:
    return {"states_filter": states, "types_filter": types}


def deleting(group_id: str, topic: str = TOPIC) -> Values:
    partitions = ({"partition_index": 0}, {"partition_index": 9})
    return {"group_id": group_id, "topics": ({"name": topic, "partitions": partitions},)}


def stable_group(pair: GroupPair, group_id: str, instance: str | None = None) -> object:
    """One member, ann, who has everything. Returns the generation."""
    joined = pair.ask(ApiKey.JOIN_GROUP, 9, joining(group_id, instance=instance), who="ann")
    if joined["error_code"] == "member_id_required":
        joined = pair.ask(ApiKey.JOIN_GROUP, 9, joining(group_id, "{ann}"), who="ann")
    generation = joined["generation_id"]
    assigned = syncing(group_id, generation, "{ann}", ("{ann}", b"all"), instance=instance)
    pair.ask(ApiKey.SYNC_GROUP, 5, assigned, who="ann")
    return generation


@pytest.mark.parametrize("group_id", ["", "unknown"])
def test_groups_that_are_not_there(pair: GroupPair, group_id: str) -> None:
    for version in versions(ApiKey.HEARTBEAT):
        pair.ask(ApiKey.HEARTBEAT, version, beating(group_id, 1, "ann"))
    for version in versions(ApiKey.LEAVE_GROUP):
        pair.ask(ApiKey.LEAVE_GROUP, version, leaving(group_id, ("ann", None)))
    for version in versions(ApiKey.SYNC_GROUP):
        pair.ask(ApiKey.SYNC_GROUP, version, syncing(group_id, 1, "ann"))
    for version in versions(ApiKey.JOIN_GROUP):
        pair.ask(ApiKey.JOIN_GROUP, version, joining(group_id, "somebody"), who="nobody")
    for version in versions(ApiKey.OFFSET_COMMIT):
        pair.ask(ApiKey.OFFSET_COMMIT, version, committing(group_id, 3, "ann"))
    for version in versions(ApiKey.OFFSET_FETCH):
        pair.ask(ApiKey.OFFSET_FETCH, version, fetching(group_id))
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        pair.ask(ApiKey.DESCRIBE_GROUPS, version, describing(group_id))
    for version in versions(ApiKey.DELETE_GROUPS):
        pair.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": (group_id,)})
    pair.ask(ApiKey.OFFSET_DELETE, 0, deleting(group_id))


def test_requests_that_make_no_sense(pair: GroupPair) -> None:
    pair.ask(ApiKey.OFFSET_COMMIT, 9, committing("odd"))
    odd: list[Values] = [
        {**joining("odd"), "protocol_type": ""},
        {**joining("odd"), "protocols": ()},
        {**joining("odd"), "session_timeout": milliseconds(999)},
        {**joining("odd"), "session_timeout": milliseconds(1_800_001)},
        joining("odd", "unknown"),
        joining("odd", "unknown", "instance"),
    ]
    for values in odd:
        for version in (5, 6, 9):
            pair.ask(ApiKey.JOIN_GROUP, version, values, who="nobody")
    no_name = {**syncing("odd", 1, "ann"), "protocol_name": None}
    pair.ask(ApiKey.SYNC_GROUP, 5, no_name)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 5, 6, 9])
def test_the_life_of_a_member_in_every_shape_of_joining(pair: GroupPair, version: int) -> None:
    group_id = f"life-{version}"
    joined = pair.ask(ApiKey.JOIN_GROUP, version, joining(group_id), who="ann")
    if version >= 4:
        assert joined["error_code"] == "member_id_required"
        joined = pair.ask(ApiKey.JOIN_GROUP, version, joining(group_id, "{ann}"), who="ann")
    generation = joined["generation_id"]
    pair.ask(ApiKey.DESCRIBE_GROUPS, 6, describing(group_id))
    values = syncing(group_id, generation, "{ann}", ("{ann}", b"everything"))
    pair.ask(ApiKey.SYNC_GROUP, min(version, 5), values, who="ann")
    pair.ask(ApiKey.HEARTBEAT, min(version, 4), beating(group_id, generation, "{ann}"))
    pair.ask(ApiKey.DESCRIBE_GROUPS, min(version, 6), describing(group_id))
    pair.ask(ApiKey.JOIN_GROUP, version, joining(group_id, "{ann}"), who="ann")
    pair.ask(ApiKey.LEAVE_GROUP, min(version, 5), leaving(group_id, ("{ann}", None)))
    pair.ask(ApiKey.DESCRIBE_GROUPS, min(version, 6), describing(group_id))
    pair.ask(ApiKey.LIST_GROUPS, 5, listing())


def test_members_that_are_unknown_late_or_in_another_generation(pair: GroupPair) -> None:
    generation = stable_group(pair, "checks")
    for version in versions(ApiKey.HEARTBEAT):
        for number in (generation, -1, 0, 9):
            pair.ask(ApiKey.HEARTBEAT, version, beating("checks", number, "{ann}"))
            pair.ask(ApiKey.HEARTBEAT, version, beating("checks", number, "bob"))
            pair.ask(ApiKey.HEARTBEAT, version, beating("checks", number, "{ann}", "instance"))
    for number in (generation, 9):
        pair.ask(ApiKey.SYNC_GROUP, 5, syncing("checks", number, "{ann}"))
        pair.ask(ApiKey.SYNC_GROUP, 5, syncing("checks", number, "bob"))
    other = {**syncing("checks", generation, "{ann}"), "protocol_name": "other"}
    pair.ask(ApiKey.SYNC_GROUP, 5, other)
    odd = {**joining("checks"), "protocols": ({"name": "other", "metadata": b""},)}
    pair.ask(ApiKey.JOIN_GROUP, 9, odd, who="bob")
    pair.ask(ApiKey.JOIN_GROUP, 9, {**joining("checks"), "protocol_type": "x"}, who="bob")
    many = leaving("checks", ("bob", None), ("", "instance"), ("", None), ("{ann}", "instance"))
    pair.ask(ApiKey.LEAVE_GROUP, 5, many)


def test_offsets_of_members_and_of_anybody(pair: GroupPair) -> None:
    generation = stable_group(pair, "offsets")
    for version in versions(ApiKey.OFFSET_COMMIT):
        for number, member in ((generation, "{ann}"), (9, "{ann}"), (generation, "bob"), (-1, "")):
            pair.ask(ApiKey.OFFSET_COMMIT, version, committing("offsets", number, member))
        pair.ask(ApiKey.OFFSET_COMMIT, version, committing("nobody's", offset=version))
        unknown = committing("nobody's", topic="no-such-topic", topic_id=None)
        pair.ask(ApiKey.OFFSET_COMMIT, version, unknown)
        pair.ask(ApiKey.OFFSET_COMMIT, version, committing("nobody's", partition=7))
        pair.ask(ApiKey.OFFSET_COMMIT, version, committing("nobody's", metadata="x" * 17))
        pair.ask(ApiKey.OFFSET_COMMIT, version, committing("nobody's", metadata=None, partition=1))
        pair.ask(ApiKey.OFFSET_COMMIT, version, committing("", offset=version))
    for group_id in ("offsets", "nobody's", ""):
        for version in versions(ApiKey.OFFSET_FETCH):
            pair.ask(ApiKey.OFFSET_FETCH, version, fetching(group_id))
            pair.ask(ApiKey.OFFSET_FETCH, version, fetching(group_id, stable=True))
            if version >= 2:
                pair.ask(ApiKey.OFFSET_FETCH, version, fetching(group_id, all_topics=True))


def test_what_is_shown_of_groups(pair: GroupPair) -> None:
    stable_group(pair, "shown")
    pair.ask(ApiKey.OFFSET_COMMIT, 9, committing("shown-simple"))
    for version in versions(ApiKey.LIST_GROUPS):
        pair.ask(ApiKey.LIST_GROUPS, version, listing())
    for states in (("Stable",), ("stable", "EMPTY"), ("Nonsense",)):
        pair.ask(ApiKey.LIST_GROUPS, 5, listing(states))
    for types in (("classic",), ("Consumer",), ("nonsense",)):
        pair.ask(ApiKey.LIST_GROUPS, 5, listing(types=types))
    for version in versions(ApiKey.DESCRIBE_GROUPS):
        pair.ask(ApiKey.DESCRIBE_GROUPS, version, describing("shown", "shown-simple"))


def test_what_is_deleted(pair: GroupPair) -> None:
    generation = stable_group(pair, "deleted")
    pair.ask(ApiKey.OFFSET_COMMIT, 9, committing("deleted", generation, "{ann}"))
    pair.ask(ApiKey.OFFSET_DELETE, 0, deleting("deleted"))
    pair.ask(ApiKey.OFFSET_DELETE, 0, deleting("deleted", "no-such-topic"))
    names = {"groups_names": ("deleted", "not there", "deleted")}
    for version in versions(ApiKey.DELETE_GROUPS):
        pair.ask(ApiKey.DELETE_GROUPS, version, names)
    pair.ask(ApiKey.LEAVE_GROUP, 5, leaving("deleted", ("{ann}", None)))
    pair.ask(ApiKey.OFFSET_DELETE, 0, deleting("deleted"))
    pair.ask(ApiKey.OFFSET_FETCH, 9, fetching("deleted"))
    pair.ask(ApiKey.DELETE_GROUPS, 2, names)
    pair.ask(ApiKey.OFFSET_FETCH, 9, fetching("deleted"))
    pair.ask(ApiKey.DESCRIBE_GROUPS, 6, describing("deleted"))


@pytest.mark.parametrize("version", [5, 8, 9])
def test_static_members_that_come_back(pair: GroupPair, version: int) -> None:
    group_id = f"static-{version}"
    generation = stable_group(pair, group_id, "left")
    pair.ask(ApiKey.JOIN_GROUP, version, joining(group_id, "", "left"), who="bob")
    for member in ("{ann}", "{bob}"):
        pair.ask(ApiKey.HEARTBEAT, 4, beating(group_id, generation, member, "left"))
        pair.ask(ApiKey.HEARTBEAT, 4, beating(group_id, generation, member))
        values = syncing(group_id, generation, member, instance="left")
        pair.ask(ApiKey.SYNC_GROUP, 5, values)
        commit = committing(group_id, generation, member, instance="left")
        pair.ask(ApiKey.OFFSET_COMMIT, 9, commit)
    pair.ask(ApiKey.JOIN_GROUP, 9, joining(group_id, "{ann}", "left"), who="cyd")
    pair.ask(ApiKey.DESCRIBE_GROUPS, 6, describing(group_id))
    pair.ask(ApiKey.LEAVE_GROUP, 5, leaving(group_id, ("{ann}", "left"), ("", "left")))
    pair.ask(ApiKey.DESCRIBE_GROUPS, 6, describing(group_id))


def test_two_members_rebalance(pair: GroupPair) -> None:
    group_id = "two"
    generation = stable_group(pair, group_id)
    pair.ask(ApiKey.JOIN_GROUP, 9, joining(group_id), who="bob")
    pair.send(ApiKey.JOIN_GROUP, 9, joining(group_id, "{bob}"), who="bob")
    # The answer to bob waits for ann, who hears of it by her heartbeat.
    heartbeat = beating(group_id, generation, "{ann}")
    pair.until("rebalance_in_progress", ApiKey.HEARTBEAT, 4, heartbeat)
    pair.ask(ApiKey.SYNC_GROUP, 5, syncing(group_id, generation, "{ann}"))
    pair.ask(ApiKey.OFFSET_COMMIT, 9, committing(group_id, generation, "{ann}"))
    joined = pair.ask(ApiKey.JOIN_GROUP, 9, joining(group_id, "{ann}"), who="ann")
    pair.receive("bob")
    generation = joined["generation_id"]
    pair.send(ApiKey.SYNC_GROUP, 5, syncing(group_id, generation, "{bob}"), who="bob")
    pair.ask(ApiKey.OFFSET_COMMIT, 9, committing(group_id, generation, "{ann}"))
    pair.ask(ApiKey.DESCRIBE_GROUPS, 6, describing(group_id))
    assigned = (("{ann}", b"a"), ("{bob}", b"b"))
    pair.ask(ApiKey.SYNC_GROUP, 5, syncing(group_id, generation, "{ann}", *assigned), who="ann")
    pair.receive("bob")
    pair.ask(ApiKey.DESCRIBE_GROUPS, 6, describing(group_id))
    pair.ask(ApiKey.LEAVE_GROUP, 5, leaving(group_id, ("{ann}", None), ("{bob}", None)))
    pair.ask(ApiKey.DESCRIBE_GROUPS, 6, describing(group_id))
