"""Requests that arrive late, twice, or from somebody else: both brokers tell them the same (P3)."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.compatibility.group_pair import GroupPair
from tests.compatibility.kafka_peer import new_broker
from tests.compatibility.test_consumer_group_answers import beat, describe, heartbeat, owning
from tests.compatibility.test_group_answers import (
    SETTINGS,
    beating,
    committing,
    deleting,
    describing,
    fetching,
    joining,
    leaving,
    listing,
    stable_group,
    syncing,
)
from tests.support.kafka_process import KafkaProcess
from tests.support.kio_codec import Values
from tidelog.wire.api import ApiKey

pytestmark = pytest.mark.one_broker

_JOIN: Final = 9
_SYNC: Final = 5
_HEARTBEAT: Final = 4
_LEAVE: Final = 5
_COMMIT: Final = 9
_FETCH: Final = 9


@pytest.fixture(scope="module")
def pair(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupPair]:
    folder = tmp_path_factory.mktemp("pair")
    settings = {**SETTINGS, "group.consumer.assignment.interval.ms": "0"}
    with (
        new_broker(folder / "ours", settings) as ours,
        KafkaProcess(folder / "theirs", settings, heap_mib=256) as theirs,
    ):
        pair = GroupPair([ours.port, theirs.port])
        pair.prepare()
        yield pair
        pair.close()


def _leave(pair: GroupPair, group_id: str, *members: tuple[str, str | None]) -> None:
    pair.ask(ApiKey.LEAVE_GROUP, _LEAVE, leaving(group_id, *members))


def _commit(pair: GroupPair, values: Values, version: int = _COMMIT) -> None:
    pair.ask(ApiKey.OFFSET_COMMIT, version, values)


def _show(pair: GroupPair, group_id: str) -> None:
    pair.ask(ApiKey.DESCRIBE_GROUPS, 6, describing(group_id))


def test_who_leaves_twice_or_under_a_wrong_name(pair: GroupPair) -> None:
    group = "leaving"
    generation = stable_group(pair, group)
    nobody: Values = {"group_id": group, "member_id": "", "members": ()}
    pair.ask(ApiKey.LEAVE_GROUP, _LEAVE, nobody)
    pair.ask(ApiKey.HEARTBEAT, _HEARTBEAT, beating(group, generation, "{ann}"))
    _leave(pair, group, ("{ann}", "wrong"))
    _leave(pair, group, ("", "wrong"))
    _leave(pair, group, ("{ann}", None), ("{ann}", None))
    _show(pair, group)
    pair.ask(ApiKey.SYNC_GROUP, _SYNC, syncing(group, generation, "{ann}"))
    pair.ask(ApiKey.HEARTBEAT, _HEARTBEAT, beating(group, generation, "{ann}"))
    pair.ask(ApiKey.JOIN_GROUP, _JOIN, joining(group, "{ann}"), who="nobody")
    pair.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": (group,)})


def test_static_members_are_removed_by_instance_alone(pair: GroupPair) -> None:
    group = "instances"
    generation = stable_group(pair, group, "i")
    _leave(pair, group, ("other", "i"))
    _commit(pair, committing(group, generation, "{ann}", instance="i"))
    _commit(pair, committing(group, generation, "{ann}", instance="j"))
    _commit(pair, committing(group, generation, "other", instance="i"))
    _commit(pair, committing(group, -1, "", instance="i"))
    _commit(pair, committing(group, -1, "{ann}"))
    _leave(pair, group, ("", "i"), ("", "i"))
    _commit(pair, committing(group, generation, "{ann}", instance="i"))
    _commit(pair, committing(group, 0, ""))
    _commit(pair, committing(group, -1, "who"))
    _show(pair, group)


def test_who_was_only_given_an_id(pair: GroupPair) -> None:
    group = "pending"
    pair.ask(ApiKey.JOIN_GROUP, _JOIN, joining(group), who="pat")
    pair.ask(ApiKey.HEARTBEAT, _HEARTBEAT, beating(group, 0, "{pat}"))
    pair.ask(ApiKey.SYNC_GROUP, _SYNC, syncing(group, 0, "{pat}"))
    _commit(pair, committing(group, 0, "{pat}"))
    _commit(pair, committing(group, -1, "{pat}"))
    _show(pair, group)
    _leave(pair, group, ("{pat}", "i"))
    _leave(pair, group, ("{pat}", None))
    pair.ask(ApiKey.JOIN_GROUP, _JOIN, joining(group), who="pat")
    pair.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": (group,)})
    pair.ask(ApiKey.JOIN_GROUP, _JOIN, joining(group, "{pat}"), who="nobody")


def test_odd_offsets(pair: GroupPair) -> None:
    group = "odd-offsets"
    for values in (
        committing(group, offset=-1),
        committing(group, metadata=None),
        committing(group, metadata="ü" * 16),
        committing(group, metadata="\N{GRINNING FACE}" * 8),
        committing(group, metadata="\N{GRINNING FACE}" * 9),
        committing(group, metadata="x" * 17),
        committing(group, partition=-1),
        committing(group, topic=""),
        {**committing("never"), "topics": ()},
    ):
        _commit(pair, values)
        pair.ask(ApiKey.OFFSET_FETCH, _FETCH, fetching(group))
        pair.ask(ApiKey.OFFSET_FETCH, _FETCH, fetching(group, all_topics=True))
    _show(pair, "never")
    pair.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": ()})
    pair.ask(ApiKey.OFFSET_DELETE, 0, deleting(group))
    pair.ask(ApiKey.OFFSET_FETCH, _FETCH, fetching(group))
    _show(pair, group)
    pair.ask(ApiKey.LIST_GROUPS, 5, listing(states=("nonsense",), types=("classic",)))


def test_the_other_protocols_requests_to_a_group(pair: GroupPair) -> None:
    group = "other-protocol"
    joined = beat(pair, heartbeat(group, "ann"))
    epoch = joined["member_epoch"]
    pair.ask(ApiKey.HEARTBEAT, _HEARTBEAT, beating(group, epoch, "ann"))
    pair.ask(ApiKey.SYNC_GROUP, _SYNC, syncing(group, epoch, "ann"))
    _show(pair, group)
    for version in (8, 9, 10):
        _commit(pair, committing(group, epoch, "ann"), version)
        _commit(pair, committing(group, -1, ""), version)
    pair.ask(ApiKey.OFFSET_DELETE, 0, deleting(group))
    pair.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": (group,)})
    _leave(pair, group, ("bob", None), ("ann", "i"), ("", "i"))
    _leave(pair, group, ("ann", None))
    pair.ask(ApiKey.HEARTBEAT, _HEARTBEAT, beating(group, epoch, "ann"))
    _leave(pair, group, ("ann", None))
    _commit(pair, committing(group, epoch, "ann"))
    _commit(pair, committing(group, 0, "ann"))
    _commit(pair, committing(group, -1, "ann"))


def test_static_consumers_that_are_late(pair: GroupPair) -> None:
    group = "late"
    joined = beat(pair, heartbeat(group, "ann", instance_id="i"))
    epoch = joined["member_epoch"]
    for values in (
        heartbeat(group, "ann", instance_id="i"),
        heartbeat(group, "ann", epoch, instance_id="j"),
        heartbeat(group, "bob", epoch, instance_id="i"),
        heartbeat(group, "bob", -2, instance_id="i"),
        heartbeat(group, "bob", -1, instance_id="i"),
        heartbeat(group, "ann", -2, instance_id="i"),
        heartbeat(group, "ann", -2, instance_id="i"),
        heartbeat(group, "ann", epoch, instance_id="i"),
    ):
        beat(pair, values)
        describe(pair, group)
    _commit(pair, committing(group, epoch, "ann"))
    _commit(pair, committing(group, -1, ""))
    beat(pair, heartbeat(group, "bob", instance_id="i"))
    _leave(pair, group, ("ann", "i"))
    _leave(pair, group, ("", "i"))
    describe(pair, group)


def test_who_gives_back_and_commits_meanwhile(pair: GroupPair) -> None:
    group = "giving-back"
    epoch = beat(pair, heartbeat(group, "ann"))["member_epoch"]
    beat(pair, heartbeat(group, "ann", epoch, topic_partitions=owning(0, 1)))
    later = beat(pair, heartbeat(group, "bob"))["member_epoch"]
    beat(pair, heartbeat(group, "ann", epoch))
    beat(pair, heartbeat(group, "ann", epoch, topic_partitions=owning(0, 1)))
    for partition in (0, 1):
        _commit(pair, committing(group, epoch, "ann", partition=partition))
        _commit(pair, committing(group, later, "bob", partition=partition))
    beat(pair, heartbeat(group, "ann", epoch, subscribed_topic_names=()))
    describe(pair, group)
    beat(pair, heartbeat(group, "ann", epoch, topic_partitions=()))
    beat(pair, heartbeat(group, "bob", later))
    describe(pair, group)
