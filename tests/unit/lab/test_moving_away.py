"""Who gets the replicas of a broker that is to go."""

import pytest

from tidelog.client.values import PartitionDescription
from tidelog.lab.errors import LabError
from tidelog.lab.moving_away import plan_moves


def partition(*replicas: int) -> PartitionDescription:
    return PartitionDescription(partition=0, leader=replicas[0], replicas=replicas, isr=replicas)


def test_partitions_of_others_stay_where_they_are() -> None:
    partitions = {("a", 0): partition(1, 2), ("a", 1): partition(2, 3)}
    assert plan_moves(partitions, leaving=4, staying={1, 2, 3}) == {}


def test_heir_takes_the_place_of_the_one_that_leaves() -> None:
    partitions = {("a", 0): partition(3, 1), ("a", 1): partition(1, 3)}
    moves = plan_moves(partitions, leaving=3, staying={1, 2})
    assert moves == {("a", 0): (2, 1), ("a", 1): (1, 2)}


def test_replicas_are_spread_over_those_that_stay() -> None:
    partitions = {("a", number): partition(4) for number in range(6)}
    heirs = [heir for (heir,) in plan_moves(partitions, leaving=4, staying={1, 2, 3}).values()]
    assert sorted(heirs) == [1, 1, 2, 2, 3, 3]


def test_whoever_holds_few_gets_more() -> None:
    partitions = {("a", 0): partition(1), ("a", 1): partition(1), ("b", 0): partition(3)}
    assert plan_moves(partitions, leaving=3, staying={1, 2}) == {("b", 0): (2,)}


def test_too_few_brokers_for_as_many_replicas_are_named() -> None:
    partitions = {("a", 0): partition(1, 2, 3)}
    with pytest.raises(LabError, match="a-0 has 3 replicas, and only 2 other brokers"):
        plan_moves(partitions, leaving=3, staying={1, 2})
