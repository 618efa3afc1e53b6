"""What one member costs a group that has many: counted in calls, which no machine makes faster."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from tests.unit.core.groups.consumer.consumers import Consumer, ConsumerHosted

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
