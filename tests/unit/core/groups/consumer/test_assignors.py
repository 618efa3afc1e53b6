"""Assignors against what they promise, over groups of every shape."""

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import TopicId, TopicIdPartition
from tidelog.core.groups.consumer.assignors import (
    ASSIGNORS,
    Assignor,
    assign_ranges,
    uniform,
)
from tidelog.records.consumer_groups import Partitions

_TOPICS = [TopicId(UUID(int=number)) for number in range(1, 6)]
_MEMBERS = [f"member-{number}" for number in range(6)]

Group = tuple[dict[str, frozenset[TopicId]], dict[TopicId, int], dict[str, Partitions]]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> Group:
    """Members, topics, and an assignment from another life, in which nobody shared a partition."""
    counts = draw(st.dictionaries(st.sampled_from(_TOPICS), st.integers(1, 9), min_size=1))
    members = draw(st.lists(st.sampled_from(_MEMBERS), min_size=1, unique=True))
    topics = st.frozensets(st.sampled_from(sorted(counts)))
    same = draw(topics)
    subscriptions = {member: same if alike else draw(topics) for member in members}
    owners = st.sampled_from([*_MEMBERS, ""])
    previous: dict[str, set[TopicIdPartition]] = {}
    for topic_id in _TOPICS:
        # Whoever can write the group's log can write that somebody has number -1.
        for number in range(draw(st.integers(-1, 0)), draw(st.integers(0, 9))):
            previous.setdefault(draw(owners), set()).add(TopicIdPartition(topic_id, number))
    previous.pop("", None)
    return subscriptions, counts, {name: frozenset(owned) for name, owned in previous.items()}


def any_groups() -> st.SearchStrategy[Group]:
    """Those whose members all subscribe to the same are assigned in a way of their own."""
    return st.booleans().flatmap(lambda alike: groups(alike=alike))


def _wanted(
    subscriptions: Mapping[str, frozenset[TopicId]], counts: Mapping[TopicId, int]
) -> set[TopicIdPartition]:
    topics = frozenset[TopicId]().union(*subscriptions.values())
    return {TopicIdPartition(topic, number) for topic in topics for number in range(counts[topic])}


def _moved(before: Mapping[str, Partitions], after: Mapping[str, Partitions]) -> int:
    """Partitions that somebody had before and somebody else has now."""
    owners = {partition: name for name, owned in before.items() for partition in owned}
    return sum(
        owners.get(partition, name) != name for name, owned in after.items() for partition in owned
    )


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(group=any_groups())
def test_every_subscribed_partition_has_one_owner_who_subscribes_to_it(
    assignor: Assignor, group: Group
) -> None:
    """A1"""
    subscriptions, counts, previous = group
    assigned = assignor(subscriptions, counts, previous)
    assert assigned.keys() == subscriptions.keys()
    owners = Counter(partition for owned in assigned.values() for partition in owned)
    assert set(owners) == _wanted(subscriptions, counts)
    assert set(owners.values()) <= {1}
    for name, owned in assigned.items():
        assert {partition.topic_id for partition in owned} <= subscriptions[name]


@given(group=any_groups())
def test_no_move_makes_a_uniform_assignment_more_even(group: Group) -> None:
    """A2"""
    subscriptions, counts, previous = group
    assigned = uniform(subscriptions, counts, previous)
    for name, owned in assigned.items():
        for other, others in assigned.items():
            if {partition.topic_id for partition in owned} & subscriptions[other]:
                assert len(owned) - len(others) < 2, f"{name} could give {other} one"


@given(group=groups(alike=True))
def test_members_with_the_same_topics_have_the_same_number_or_one_more(group: Group) -> None:
    """A2"""
    sizes = {len(owned) for owned in uniform(*group).values()}
    assert max(sizes) - min(sizes) < 2


@given(group=groups(alike=True))
def test_a_uniform_assignment_moves_no_more_than_its_balance_takes(group: Group) -> None:
    """A4: what a member had beyond its share, and nothing else."""
    subscriptions, counts, previous = group
    kept = {
        name: previous.get(name, frozenset()) & _wanted(subscriptions, counts)
        for name in subscriptions
    }
    quota, extra = divmod(len(_wanted(subscriptions, counts)), len(subscriptions))
    beyond = sorted((max(0, len(owned) - quota) for owned in kept.values()), reverse=True)
    least = sum(beyond) - sum(1 for excess in beyond[:extra] if excess)
    assert _moved(kept, uniform(subscriptions, counts, kept)) == least


@given(group=any_groups())
def test_ranges_are_even_in_each_topic_and_the_same_in_topics_that_are_alike(group: Group) -> None:
    """A3"""
    subscriptions, counts, previous = group
    assigned = assign_ranges(subscriptions, counts, previous)
    shapes: dict[tuple[frozenset[str], int], set[tuple[frozenset[int], ...]]] = {}
    for topic in sorted(frozenset[TopicId]().union(*subscriptions.values())):
        subscribers = sorted(name for name in subscriptions if topic in subscriptions[name])
        numbers = [
            frozenset(number for topic_id, number in assigned[name] if topic_id == topic)
            for name in subscribers
        ]
        sizes = [len(owned) for owned in numbers]
        assert max(sizes) - min(sizes) < 2
        kind = frozenset(subscribers), counts[topic]
        shapes.setdefault(kind, set()).add(tuple(numbers))
    assert all(len(shape) == 1 for shape in shapes.values())


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(group=any_groups())
def test_what_balances_is_left_as_it_is(assignor: Assignor, group: Group) -> None:
    """A4"""
    subscriptions, counts, previous = group
    first = assignor(subscriptions, counts, previous)
    assert assignor(subscriptions, counts, first) == first


@given(group=groups(alike=True), data=st.data())
def test_when_a_member_leaves_only_its_partitions_move(group: Group, data: st.DataObject) -> None:
    """A4"""
    subscriptions, counts, previous = group
    before = uniform(subscriptions, counts, previous)
    gone = data.draw(st.sampled_from(sorted(subscriptions)))
    left = {name: topics for name, topics in subscriptions.items() if name != gone}
    if left:
        after = uniform(left, counts, before)
        assert all(before[name] <= after[name] for name in left)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@given(group=any_groups())
def test_the_order_in_which_a_group_is_described_says_nothing(
    assignor: Assignor, group: Group
) -> None:
    """A5"""
    subscriptions, counts, previous = group
    assert assignor(subscriptions, counts, previous) == assignor(
        dict(reversed(subscriptions.items())),
        dict(reversed(counts.items())),
        dict(reversed(previous.items())),
    )


def test_range_gives_neighbours_to_a_member_that_had_nothing() -> None:
    subscriptions = {name: frozenset(_TOPICS[:2]) for name in ("a", "b")}
    assigned = assign_ranges(subscriptions, {_TOPICS[0]: 5, _TOPICS[1]: 5}, {})
    assert {number for _, number in assigned["a"]} == {0, 1, 2}
    assert {number for _, number in assigned["b"]} == {3, 4}


@given(group=groups(alike=True))
def test_members_with_the_same_topics_get_as_many_as_if_one_more_had_none(group: Group) -> None:
    """Both ways to assign are even: the second is taken as soon as somebody differs."""
    subscriptions, counts, previous = group
    differing = {**subscriptions, "other": frozenset[TopicId]()}
    among_others = uniform(differing, counts, previous)
    assert among_others.pop("other") == frozenset()
    alone = uniform(subscriptions, counts, previous)
    assert sorted(map(len, alone.values())) == sorted(map(len, among_others.values()))


def test_what_two_had_is_kept_by_one_of_them() -> None:
    subscriptions = {name: frozenset(_TOPICS[:1]) for name in ("a", "b")}
    both = frozenset(TopicIdPartition(_TOPICS[0], number) for number in range(4))
    assigned = uniform(subscriptions, {_TOPICS[0]: 4}, {"a": both, "b": both})
    assert {len(owned) for owned in assigned.values()} == {2}
    assert assigned["a"] | assigned["b"] == both


def test_a_large_group_is_assigned_in_one_go() -> None:
    """Fifty members who join a group of 20,000 partitions at once."""
    topics = {TopicId(UUID(int=number)): 20 for number in range(1_000)}
    before = {f"old-{number}": frozenset(topics) for number in range(50)}
    old = uniform(before, topics, {})
    after = {**before, **{f"new-{number}": frozenset(topics) for number in range(50)}}
    assigned = uniform(after, topics, old)
    assert {len(owned) for owned in assigned.values()} == {200}
    assert _moved(old, assigned) == 10_000
