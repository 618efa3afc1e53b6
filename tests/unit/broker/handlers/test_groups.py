"""Handlers of classic groups on one broker in memory (P3).

What groups decide is tested where they do (`tests/unit/core/groups`), and what clients are told is
compared with Kafka (`tests/compatibility/test_group_answers.py`); here is what lies between.
"""

import asyncio
import uuid
from typing import Any

import pytest

from tests.support.kio_codec import Values, milliseconds
from tests.unit.broker.handlers.grouped import Grouped, grouped, joining, syncing
from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.broker.group_settings import GroupSettings
from tidelog.broker.group_shards import GroupShards
from tidelog.broker.group_topics import GroupTopics
from tidelog.broker.large_requests import LARGE_BYTES
from tidelog.core.controller.names import CONSUMER_OFFSETS
from tidelog.core.controller.requests import TopicReference
from tidelog.records.groups import GroupMetadataRecord, OffsetCommitRecord
from tidelog.wire.api import ApiKey
from tidelog.wire.group_records import decode_group_record

LONG = "x" * 40_000


def committing(*offsets: tuple[int, int], version: int = 9, topic: Any = "t") -> Values:
    partitions = tuple(
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": 3,
            "committed_metadata": "note",
        }
        for partition, offset in offsets
    )
    key = "topic_id" if version >= 10 else "name"
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": milliseconds(1_000),
        "topics": ({key: topic, "partitions": partitions},),
    }


def fetching(*partitions: int, topic: str = "t") -> Values:
    group = {
        "group_id": "g",
        "member_id": None,
        "member_epoch": -1,
        "topics": ({"name": topic, "partition_indexes": partitions},),
    }
    return {"groups": (group,), "require_stable": False}


async def commit(one: Grouped, values: Values, version: int = 9) -> list[tuple[int, int]]:
    answer = await one.direct(ApiKey.OFFSET_COMMIT, values, version=version)
    return [
        (result.partition_index, int(result.error_code))
        for topic in answer.topics
        for result in topic.partitions
    ]


async def committed(one: Grouped, *partitions: int) -> list[int]:
    answer = await one.direct(ApiKey.OFFSET_FETCH, fetching(*partitions), version=9)
    (group,) = answer.groups
    assert not group.error_code
    return [result.committed_offset for result in group.topics[0].partitions]


def stored(one: Grouped) -> list[object]:
    """All records of the coordinator's topic."""
    records: list[object] = []
    for partition in range(2):
        for record in one.controlled.world.stored(CONSUMER_OFFSETS, partition):
            assert record.key is not None
            records.append(decode_group_record(record.key, record.value))
    return records


@in_virtual_time
async def test_a_member_lives_and_is_described_as_its_client_said() -> None:
    async with grouped() as one:
        member_id, generation = await one.stable()
        assert member_id.startswith("me-")
        assert uuid.UUID(member_id.removeprefix("me-")).version == 4
        beat = {**syncing(member_id, generation)}
        answer = await one.direct(ApiKey.HEARTBEAT, beat)
        assert not answer.error_code
        described = await one.ask(
            ApiKey.DESCRIBE_GROUPS, {"groups": ("g",), "include_authorized_operations": False}
        )
        (member,) = described.groups[0].members
        assert (member.member_id, member.client_id) == (member_id, "me")
        assert (member.client_host, member.member_assignment) == ("/10.0.0.7", b"all")


@in_virtual_time
async def test_a_commit_is_stored_as_kafka_stores_it() -> None:
    async with grouped() as one:
        assert await commit(one, committing((1, 42))) == [(1, 0)]
        (record,) = stored(one)
        assert isinstance(record, OffsetCommitRecord)
        assert record.partition == TopicPartition("t", 1)
        assert record.value is not None
        assert record.value[:3] == (42, 3, "note")
        assert record.value.topic_id == one.controlled.world.image.topics["t"].topic_id
        assert record.value.expire_timestamp_ms == -1
        assert await committed(one, 0, 1) == [-1, 42]


@in_virtual_time
async def test_old_clients_say_when_an_offset_expires() -> None:
    async with grouped() as one:
        await commit(one, committing((1, 42)), version=2)
        (record,) = stored(one)
        assert isinstance(record, OffsetCommitRecord)
        assert record.value is not None
        assert record.value.expire_timestamp_ms == record.value.commit_timestamp_ms + 1_000


@in_virtual_time
async def test_partitions_that_nobody_knows_are_refused_beside_those_that_are_known() -> None:
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    async with grouped() as one:
        codes = await commit(one, committing((7, 1), (1, 2), (-1, 3), (0, 4)))
        assert codes == [(7, unknown), (1, 0), (-1, unknown), (0, 0)]
        assert await committed(one, 0, 1) == [4, 2]
        assert await commit(one, committing((0, 1), topic="nothing")) == [(0, unknown)]


@in_virtual_time
async def test_topics_go_by_their_ids() -> None:
    async with grouped() as one:
        topic_id = one.controlled.world.image.topics["t"].topic_id
        values = committing((0, 42), version=10, topic=topic_id)
        assert await commit(one, values, version=10) == [(0, 0)]
        unknown = committing((0, 42), version=10, topic=uuid.UUID(int=5))
        assert await commit(one, unknown, version=10) == [(0, int(ErrorCode.UNKNOWN_TOPIC_ID))]
        group = {
            "group_id": "g",
            "member_id": None,
            "member_epoch": -1,
            "topics": (
                {"topic_id": uuid.UUID(int=5), "partition_indexes": (0,)},
                {"topic_id": topic_id, "partition_indexes": (0,)},
            ),
        }
        values = {"groups": (group, {**group, "topics": None}), "require_stable": False}
        answer = await one.direct(ApiKey.OFFSET_FETCH, values)
        named, everything = answer.groups
        found = [
            (topic.topic_id, result.committed_offset, int(result.error_code))
            for topic in named.topics
            for result in topic.partitions
        ]
        assert found == [
            (uuid.UUID(int=5), -1, int(ErrorCode.UNKNOWN_TOPIC_ID)),
            (topic_id, 42, 0),
        ]
        assert [topic.topic_id for topic in everything.topics] == [topic_id]


@in_virtual_time
async def test_what_is_asked_for_twice_is_fetched_once() -> None:
    """A few bytes must not ask for megabytes: of all that a group has, or of one note."""
    async with grouped() as one:
        await commit(one, committing((0, 5), (1, 6)))
        whole = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}
        topic = {"name": "t", "partition_indexes": (0, 0, 1, 0)}
        named = {**whole, "topics": (topic,)}
        again = {**whole, "topics": (topic, topic)}
        values = {"groups": (whole, again, whole, named), "require_stable": False}
        answer = await one.direct(ApiKey.OFFSET_FETCH, values, version=9)
        found = [
            [result.committed_offset for topic in group.topics for result in topic.partitions]
            for group in answer.groups
        ]
        assert found == [[5, 6], [5, 6], []]


@in_virtual_time
async def test_a_group_that_is_named_twice_is_described_once() -> None:
    async with grouped() as one:
        await one.stable()
        values = {"groups": ("g", "h", "g"), "include_authorized_operations": False}
        answer = await one.ask(ApiKey.DESCRIBE_GROUPS, values)
        assert [group.group_id for group in answer.groups] == ["g", "h"]


@in_virtual_time
async def test_offsets_of_a_deleted_topic_are_gone() -> None:
    async with grouped() as one:
        await commit(one, committing((0, 42)))
        reference = TopicReference(name="t", topic_id=None)
        await one.controlled.requests.delete_topics([reference])
        await one.controlled.settle()
        assert await committed(one, 0) == [-1]
        assert stored(one)[-1] == OffsetCommitRecord("g", TopicPartition("t", 0), None)


def test_many_partitions_are_committed_and_fetched_in_one_request() -> None:
    """On a real loop: large requests are read by a thread."""

    async def scenario() -> None:
        async with grouped() as one:
            offsets = [(0, number) for number in range(600)]
            assert await commit(one, committing(*offsets)) == [(0, 0)] * 600
            assert await committed(one, *range(3_000)) == [599, *[-1] * 2_999]
            assert LARGE_BYTES < 3_000 * 4

    asyncio.run(scenario())


@in_virtual_time
async def test_without_the_topic_nobody_coordinates() -> None:
    async with grouped(with_topics=False) as one:
        joined = await one.join()
        assert joined.error_code == ErrorCode.NOT_COORDINATOR
        listed = await one.ask(ApiKey.LIST_GROUPS, {"states_filter": (), "types_filter": ()})
        assert (int(listed.error_code), listed.groups) == (0, ())
        refused = await one.direct(ApiKey.OFFSET_FETCH, fetching(0), version=9)
        assert refused.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_while_a_shard_is_loading_there_is_no_list() -> None:
    async with grouped() as one:
        await commit(one, committing((0, 1)))
        partition = one.controlled.world.runner(CONSUMER_OFFSETS, 0)
        one.controlled.groups.shards.on_role(partition)
        listed = await one.ask(ApiKey.LIST_GROUPS, {"states_filter": (), "types_filter": ()})
        assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await one.controlled.settle()
        listed = await one.ask(ApiKey.LIST_GROUPS, {"states_filter": (), "types_filter": ()})
        assert [group.group_id for group in listed.groups] == ["g"]


@in_virtual_time
async def test_who_waits_is_sent_elsewhere_when_the_broker_stops() -> None:
    async with grouped() as one:
        await one.stable()
        waiting = asyncio.create_task(one.join((await one.join()).member_id))
        await one.controlled.settle()
        assert not waiting.done()
        one.controlled.groups.shards.end()
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_an_answer_to_who_has_gone_is_not_made() -> None:
    async with grouped() as one:
        client = one.controlled.served.client()
        client.send(ApiKey.OFFSET_COMMIT, 9, committing((0, 1)))
        client.disconnect()
        await one.controlled.settle()
        assert await committed(one, 0) == [1]


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ({"group_id": LONG}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": LONG}, ErrorCode.INVALID_REQUEST),
        ({"protocols": ({"name": LONG, "metadata": b""},)}, ErrorCode.INVALID_REQUEST),
    ],
)
@in_virtual_time
async def test_what_no_record_has_room_for_is_refused(odd: Values, code: ErrorCode) -> None:
    async with grouped() as one:
        joined = await one.ask(ApiKey.JOIN_GROUP, {**joining(""), **odd})
        assert joined.error_code == code
        joined = await one.ask(ApiKey.JOIN_GROUP, joining(""), client_id=LONG)
        assert joined.error_code == ErrorCode.INVALID_REQUEST


@in_virtual_time
async def test_a_client_without_a_rebalance_time_out_has_that_of_its_session() -> None:
    async with grouped() as one:
        values = {**joining(""), "rebalance_timeout": milliseconds(-1)}
        joined = await one.ask(ApiKey.JOIN_GROUP, values, version=0)
        await one.ask(ApiKey.SYNC_GROUP, syncing(joined.member_id, joined.generation_id))
        record = stored(one)[-1]
        assert isinstance(record, GroupMetadataRecord)
        assert record.value is not None
        (member,) = record.value.members
        assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (10_000, 10_000)


@in_virtual_time
async def test_a_damaged_record_leaves_the_others() -> None:
    async with grouped() as one:
        config = one.controlled.world.config
        settings = GroupSettings(config.consumer_groups)
        kind = GroupShards(config.groups, GroupTopics(), settings, asyncio.TaskGroup())
        assert kind.decode(b"\x00\x01\x00", b"") is None
        assert kind.decode(b"\x00\x02\x00\x01g", None) is not None
