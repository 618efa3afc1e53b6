"""What is waited for before the next broker goes down."""

from tidelog.client.values import PartitionDescription
from tidelog.lab.in_sync import Lacking, Partitions, lacking


def partition(*isr: int, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionDescription:
    return PartitionDescription(partition=0, leader=None, replicas=replicas, isr=isr)


def of(**topics: PartitionDescription) -> Partitions:
    return {(name, 0): state for name, state in topics.items()}


def test_whoever_was_in_sync_has_to_be_again() -> None:
    before = of(a=partition(1, 2, 3), b=partition(1, 2, 3))
    now = of(a=partition(3, 2), b=partition(3, 1, 2))
    assert lacking(before, now, []) == [Lacking("a", 0, (1,))]
    assert lacking(before, before, []) == []


def test_whoever_was_not_in_sync_is_not_waited_for() -> None:
    before = of(a=partition(1, 2))
    assert lacking(before, of(a=partition(2)), []) == [Lacking("a", 0, (1,))]
    assert lacking(before, of(a=partition(2, 1)), []) == []


def test_whoever_was_down_and_was_started_is_waited_for() -> None:
    before = of(a=partition(1, 2), b=partition(1, 2, replicas=(1, 2)))
    assert lacking(before, before, [3]) == [Lacking("a", 0, (3,))]
    assert lacking(before, of(a=partition(1, 2, 3)), [3]) == []


def test_replicas_that_were_moved_and_topics_that_were_deleted_are_not_missed() -> None:
    before = of(a=partition(1, 2, 3), b=partition(1, 2, 3))
    assert lacking(before, of(a=partition(2, 4, replicas=(2, 4))), []) == []


def test_of_a_new_topic_only_those_that_were_down_are_missed() -> None:
    """Nobody knows whether the others have ever been in sync."""
    now = of(new=partition(1))
    assert lacking({}, now, []) == []
    assert lacking({}, now, [2]) == [Lacking("new", 0, (2,))]
