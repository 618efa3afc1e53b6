"""Partitions are counted by how they are and by who holds them."""

import pytest

from tidelog.cli.partitions import count_partitions
from tidelog.client.values import PartitionDescription, PartitionState, TopicDescription


def partition(
    number: int, leader: int | None, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> PartitionDescription:
    return PartitionDescription(partition=number, leader=leader, replicas=replicas, isr=isr)


def topic(*partitions: PartitionDescription) -> TopicDescription:
    return TopicDescription(name="t", topic_id=None, is_internal=False, partitions=partitions)


IN_SYNC = partition(0, 1, (1, 2, 3), (3, 2, 1))
UNDER_REPLICATED = partition(1, 2, (1, 2, 3), (2, 3))
OFFLINE = partition(2, None, (1,), (1,))


@pytest.mark.parametrize(
    ("described", "state"),
    [
        (IN_SYNC, PartitionState.IN_SYNC),
        (UNDER_REPLICATED, PartitionState.UNDER_REPLICATED),
        (OFFLINE, PartitionState.OFFLINE),
    ],
)
def test_state_of_a_partition_is_one_of_three(
    described: PartitionDescription, state: PartitionState
) -> None:
    assert described.state is state


def test_brokers_lead_and_hold() -> None:
    counts = count_partitions([topic(IN_SYNC, UNDER_REPLICATED), topic(OFFLINE)])
    assert counts.as_json() == {
        "topics": 2,
        "partitions": 3,
        "under_replicated": 1,
        "offline": 1,
    }
    assert [counts.leads[broker] for broker in (1, 2, 3)] == [1, 1, 0]
    assert [counts.replicas[broker] for broker in (1, 2, 3)] == [3, 2, 2]


@pytest.mark.parametrize(
    ("topics", "sentence"),
    [
        ([], "none"),
        ([topic(IN_SYNC)], "1 with 1 partition, in sync"),
        ([topic(IN_SYNC, IN_SYNC)], "1 with 2 partitions, all in sync"),
        ([topic(IN_SYNC, OFFLINE)], "1 with 2 partitions, 1 offline"),
        (
            [topic(UNDER_REPLICATED, OFFLINE), topic(IN_SYNC)],
            "2 with 3 partitions, 1 under-replicated, 1 offline",
        ),
    ],
)
def test_counts_are_said_in_words(topics: list[TopicDescription], sentence: str) -> None:
    assert count_partitions(topics).sentence == sentence
