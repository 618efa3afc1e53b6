"""Handlers of groups of the consumer protocol, on one broker in memory (P3)."""

from typing import Any

import pytest

from tests.support.kio_codec import Values, milliseconds
from tests.unit.broker.handlers.grouped import Grouped, grouped, joining
from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ErrorCode
from tidelog.broker import group_shards
from tidelog.core.controller.requests import NewTopic
from tidelog.wire.api import ApiKey

LONG = "x" * 40_000


def beating(epoch: int = 0, **changes: Any) -> Values:
    values: Values = {
        "group_id": "g",
        "member_id": "anna",
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": milliseconds(60_000),
        "subscribed_topic_names": ("t",),
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": (),
    }
    return {**values, **changes}


async def beat(one: Grouped, values: Values, version: int = 1) -> Any:
    return await one.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, values, version=version)


async def describe(one: Grouped, *group_ids: str) -> Any:
    values = {"group_ids": group_ids, "include_authorized_operations": True}
    return (await one.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, values)).groups


def _numbers(answer: Any) -> dict[object, tuple[int, ...]]:
    return {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}


@in_virtual_time
async def test_a_member_joins_and_is_told_what_it_has() -> None:
    async with grouped() as one:
        topic_id = one.controlled.world.image.topics["t"].topic_id
        answer = await beat(one, beating())
        assert not answer.error_code
        assert (answer.member_id, answer.member_epoch) == ("anna", 2)
        assert answer.heartbeat_interval == milliseconds(5_000)
        assert _numbers(answer) == {topic_id: (0, 1)}
        quiet = beating(2, rebalance_timeout=milliseconds(-1), subscribed_topic_names=None)
        assert (await beat(one, {**quiet, "topic_partitions": None})).assignment is None
        left = await beat(one, beating(-1))
        assert (left.error_code, left.member_epoch) == (0, -1)


@in_virtual_time
async def test_partitions_that_are_new_are_assigned() -> None:
    async with grouped() as one:
        new = NewTopic(name="u", partition_count=3, replication_factor=1)
        await beat(one, beating(subscribed_topic_names=("t", "u")))
        await one.controlled.requests.create_topics([new], validate_only=False)
        await one.controlled.settle()
        later = beating(2, topic_partitions=None, subscribed_topic_names=None)
        answer = await beat(one, later)
        assert sorted(map(len, _numbers(answer).values())) == [2, 3]


@in_virtual_time
async def test_a_large_group_is_assigned_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """H6"""
    monkeypatch.setattr(group_shards, "ASSIGNED_AT_ONCE_MAX", 0)
    async with grouped() as one:
        answer = await beat(one, beating())
        assert (answer.error_code, _numbers(answer)) == (0, {})
        await one.controlled.settle()
        later = beating(answer.member_epoch, topic_partitions=None, subscribed_topic_names=None)
        assert sorted(map(len, _numbers(await beat(one, later)).values())) == [2]


@in_virtual_time
async def test_a_member_whose_assignment_fits_into_no_record_is_told_and_so_is_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """H7"""
    async with grouped({"message.max.bytes": "200"}) as one:
        answer = await beat(one, beating())
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "max.message.bytes" in answer.error_message
        await beat(one, beating())
        (logged,) = [line for line in caplog.records if line.message == "group has no assignment"]
        assert "Member anna should have 2 partitions" in logged.__dict__["reason"]


@in_virtual_time
async def test_who_has_no_id_gets_one_in_version_0_alone() -> None:
    async with grouped() as one:
        answer = await beat(one, beating(member_id=""), version=0)
        assert not answer.error_code
        assert answer.member_id.startswith("consumer-")
        refused = await beat(one, beating(member_id=""))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == "MemberId can't be empty."


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (beating(group_id=""), ErrorCode.INVALID_REQUEST),
        (beating(instance_id=""), ErrorCode.INVALID_REQUEST),
        (beating(rack_id=""), ErrorCode.INVALID_REQUEST),
        (beating(rebalance_timeout=milliseconds(-1)), ErrorCode.INVALID_REQUEST),
        (beating(topic_partitions=None), ErrorCode.INVALID_REQUEST),
        (beating(subscribed_topic_names=None), ErrorCode.INVALID_REQUEST),
        (beating(-2), ErrorCode.INVALID_REQUEST),
        (beating(-3), ErrorCode.INVALID_REQUEST),
        (beating(server_assignor="mine"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (beating(member_id=LONG), ErrorCode.INVALID_REQUEST),
        (beating(subscribed_topic_regex=LONG), ErrorCode.INVALID_REQUEST),
        (beating(group_id=LONG), ErrorCode.INVALID_GROUP_ID),
        (beating(subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (beating(7), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
@in_virtual_time
async def test_what_is_not_sound_is_refused(values: Values, code: ErrorCode) -> None:
    async with grouped() as one:
        answer = await beat(one, values)
        assert answer.error_code == code
        assert (answer.member_epoch, answer.assignment) == (0, None)


@pytest.mark.parametrize("values", [beating(), beating(3, group_id="", member_id="")])
@in_virtual_time
async def test_nobody_joins_where_the_protocol_is_switched_off(values: Values) -> None:
    async with grouped({"group.coordinator.rebalance.protocols": "classic"}) as one:
        answer = await beat(one, values)
        assert (answer.error_code, answer.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
        described = await describe(one, "g", "")
        assert [group.error_code for group in described] == [ErrorCode.UNSUPPORTED_VERSION] * 2
        assert not (await one.join("")).members


@in_virtual_time
async def test_groups_are_described_by_their_protocol() -> None:
    async with grouped() as one:
        await beat(one, beating(instance_id="i", rack_id="r"))
        await one.ask(ApiKey.JOIN_GROUP, {**joining(""), "group_id": "classic"})
        found, missing, unnamed = await describe(one, "g", "classic", "")
        assert (found.error_code, found.group_state) == (0, "Stable")
        assert (found.group_epoch, found.assignment_epoch) == (2, 2)
        assert found.assignor_name == "uniform"
        assert found.authorized_operations != -(2**31)
        (member,) = found.members
        assert (member.member_id, member.instance_id, member.rack_id) == ("anna", "i", "r")
        assert (member.client_id, member.client_host) == ("me", "/10.0.0.7")
        assert member.member_type == 1
        for assignment in (member.assignment, member.target_assignment):
            (topic,) = assignment.topic_partitions
            assert (topic.topic_name, topic.partitions) == ("t", (0, 1))
        assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID
        listed = await one.ask(
            ApiKey.LIST_GROUPS, {"states_filter": (), "types_filter": ("Consumer",)}
        )
        assert [group.group_id for group in listed.groups] == ["g"]


@in_virtual_time
async def test_a_group_that_is_named_twice_is_described_once() -> None:
    async with grouped() as one:
        await beat(one, beating())
        described = await describe(one, "g", "h", "g")
        assert [group.group_id for group in described] == ["g", "h"]
