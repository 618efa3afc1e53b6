"""Groups of many members: what one of them costs the others, and assignments that take long.

Costs are counted in calls, which no machine makes faster.
"""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from tests.unit.core.groups.consumer.consumers import (
    Consumer,
    ConsumerHosted,
    beat_until_quiet,
)
from tidelog.core.groups.consumer.requests import MakeAssignment
from tidelog.records.consumer_groups import LEAVING_STATIC_EPOCH, NO_PARTITIONS

FEW, MANY = 3, 300


def _settled(member_count: int, *, topic_count: int, has_expressions: bool) -> list[Consumer]:
    """A group that has come to rest. Each member has its own expression, if they have any."""
    world = ConsumerHosted()
    names = [f"topic-{number}" for number in range(topic_count)]
    world.set_topics(dict.fromkeys(names, 3))
    consumers = [
        Consumer(
            world,
            f"member-{number:03}",
            topics=None if has_expressions else frozenset(names),
            expression=f"topic-.*|own-{number}" if has_expressions else None,
        )
        for number in range(member_count)
    ]
    for _ in range(8):
        for consumer in consumers:
            consumer.beat()
        world.advance(1)
    assert world.describe_consumers().state == "Stable"
    return consumers


def _heartbeat_calls(consumer: Consumer) -> int:
    request = consumer.request()
    return _calls(lambda: consumer.world.send(request))


def _calls(act: Callable[[], object]) -> int:
    count = 0

    def on_call(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(on_call)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("has_expressions", [False, True], ids=["topics", "expressions"])
def test_an_ordinary_heartbeat_costs_the_same_however_many_members_there_are(
    has_expressions: bool,
) -> None:
    small = _settled(FEW, topic_count=2, has_expressions=has_expressions)
    large = _settled(MANY, topic_count=2, has_expressions=has_expressions)
    assert _heartbeat_calls(large[0]) <= _heartbeat_calls(small[0])


def test_an_ordinary_heartbeat_costs_the_same_however_many_topics_there_are() -> None:
    small = _settled(FEW, topic_count=2, has_expressions=False)
    large = _settled(FEW, topic_count=MANY, has_expressions=False)
    assert _heartbeat_calls(large[0]) <= _heartbeat_calls(small[0])


def test_who_leaves_costs_the_same_however_many_members_stay() -> None:
    small = _settled(FEW, topic_count=2, has_expressions=False)
    large = _settled(MANY, topic_count=2, has_expressions=False)
    assert _calls(large[0].leave) <= _calls(small[0].leave)


def test_members_with_the_same_topics_share_one_set_of_them() -> None:
    """I4"""
    consumers = _settled(MANY, topic_count=2, has_expressions=False)
    members = consumers[0].world.group().members.by_id.values()
    assert len({id(member.subscription.topics) for member in members}) == 1


def _joined(world: ConsumerHosted, name: str, instance_id: str | None = None) -> Consumer:
    consumer = Consumer(world, name, topics=frozenset(("orders",)), instance_id=instance_id)
    consumer.beat()
    return consumer


def _large(partition_count: int = 4) -> ConsumerHosted:
    """No group is small here."""
    world = ConsumerHosted(assigned_at_once_max=0)
    world.set_topics({"orders": partition_count})
    return world


def test_a_large_group_is_assigned_elsewhere_while_its_members_go_on() -> None:
    """H6"""
    world = _large()
    anna = _joined(world, "anna")
    assert (len(world.deeds), anna.owned) == (1, NO_PARTITIONS)
    anna.beat()
    assert len(world.deeds) == 1, "one at a time"
    world.make_assignments()
    assert world.describe_consumers().state == "Assigning"
    anna.beat()
    assert anna.owned == world.partitions("orders")
    assert world.describe_consumers().state == "Stable"


def test_who_comes_while_an_assignment_is_made_waits_for_the_next() -> None:
    """H6"""
    world = _large()
    anna = _joined(world, "anna")
    bert = _joined(world, "bert")
    world.make_assignments()
    bert.beat()
    assert bert.owned == NO_PARTITIONS
    anna.beat()
    assert anna.owned == world.partitions("orders")
    beat_until_quiet(anna, bert)
    assert (len(anna.owned), len(bert.owned)) == (2, 2)


def test_who_leaves_while_an_assignment_is_made_gets_nothing() -> None:
    """H6"""
    world = _large()
    anna, bert = _joined(world, "anna"), _joined(world, "bert")
    beat_until_quiet(anna, bert)
    chris = _joined(world, "chris")
    bert.leave()
    world.make_assignments()
    anna.beat()
    assert "bert" not in world.group().members.targets
    beat_until_quiet(anna, chris)
    assert anna.owned | chris.owned == world.partitions("orders")


def test_a_static_member_that_comes_back_has_what_is_made_for_it_meanwhile() -> None:
    """H6, H2; also if it comes back twice."""
    world = _large()
    anna, bert = _joined(world, "anna"), _joined(world, "bert", "instance")
    beat_until_quiet(anna, bert)
    _joined(world, "chris")
    for name in ("berta", "bertram"):
        bert.leave(epoch=LEAVING_STATIC_EPOCH)
        bert = _joined(world, name, "instance")
    world.make_assignments()
    anna.beat()
    targets = world.group().members.targets
    assert sorted(targets) == ["anna", "bertram", "chris"]
    assert sum(map(len, targets.values())) == len(NO_PARTITIONS.union(*targets.values())) == 4


def test_an_assignment_that_could_not_be_made_is_asked_for_again() -> None:
    world = _large()
    anna = _joined(world, "anna")
    (asked,) = world.deeds
    assert isinstance(asked, MakeAssignment)
    world.perform(world.shard.on_assigned(asked, None))
    anna.beat()
    assert len(world.deeds) == 2
    world.make_assignments()
    anna.beat()
    assert anna.owned == world.partitions("orders")


def test_what_was_made_for_another_coordinator_counts_for_nothing() -> None:
    world = _large()
    anna = _joined(world, "anna")
    world.restart()
    world.make_assignments()
    anna.beat()
    assert anna.owned == NO_PARTITIONS
    world.make_assignments()
    anna.beat()
    assert anna.owned == world.partitions("orders")
