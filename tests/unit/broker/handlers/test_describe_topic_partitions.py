"""DescribeTopicPartitions: topics page by page (KIP-966, P1)."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tests.unit.broker.handlers.samples import cluster, context, partition, topic, topic_id
from tidelog.base.ids import NO_BROKER
from tidelog.broker.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from tidelog.broker.partitions import Partitions

BROKER_LIMIT = 2000
ALL_OPERATIONS = 3576
NO_OPERATIONS = -(2**31)


def describe(
    partitions: Partitions,
    *names: str,
    limit: int = BROKER_LIMIT,
    cursor: tuple[str, int] | None = None,
    broker_limit: int = BROKER_LIMIT,
) -> DescribeTopicPartitionsResponse:
    handler = DescribeTopicPartitionsHandler(partitions=partitions, partition_limit=broker_limit)
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=TopicName(name)) for name in names),
        response_partition_limit=i32(limit),
        cursor=cursor and Cursor(topic_name=TopicName(cursor[0]), partition_index=i32(cursor[1])),
    )
    return asyncio.run(handler.handle(request, context()))


def seen(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def next_cursor(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


THREE_TOPICS = cluster(
    topic("a", partition(), partition(), partition()),
    topic("b", partition(), partition(), partition()),
    topic("c", partition()),
)


def test_topics_come_in_the_order_of_their_names() -> None:
    assert seen(describe(THREE_TOPICS, "c", "a")) == [("a", [0, 1, 2]), ("c", [0])]


def test_a_topic_asked_for_twice_comes_once() -> None:
    assert seen(describe(THREE_TOPICS, "c", "c")) == [("c", [0])]


def test_asking_for_no_topic_is_asking_for_all() -> None:
    assert seen(describe(THREE_TOPICS)) == [("a", [0, 1, 2]), ("b", [0, 1, 2]), ("c", [0])]


def test_a_page_ends_within_a_topic() -> None:
    response = describe(THREE_TOPICS, "a", "b", limit=4)
    assert seen(response) == [("a", [0, 1, 2]), ("b", [0])]
    assert next_cursor(response) == ("b", 1)


def test_a_page_that_ends_with_a_topic_goes_on_with_the_next() -> None:
    response = describe(THREE_TOPICS, "a", "b", limit=3)
    assert seen(response) == [("a", [0, 1, 2])]
    assert next_cursor(response) == ("b", 0)


def test_the_last_page_has_no_cursor() -> None:
    assert next_cursor(describe(THREE_TOPICS, limit=7)) is None


def test_the_cursor_is_where_the_next_page_starts() -> None:
    response = describe(THREE_TOPICS, "a", "b", limit=2, cursor=("a", 2))
    assert seen(response) == [("a", [2]), ("b", [0])]
    assert next_cursor(response) == ("b", 1)


def test_the_broker_may_allow_less_than_the_client() -> None:
    assert seen(describe(THREE_TOPICS, "a", limit=100, broker_limit=2)) == [("a", [0, 1])]


def test_every_page_brings_at_least_one_partition() -> None:
    assert seen(describe(THREE_TOPICS, "a", limit=-1)) == [("a", [0])]


def test_a_cursor_past_the_last_partition_goes_on_with_the_next_topic() -> None:
    assert seen(describe(THREE_TOPICS, "a", "c", cursor=("a", 7))) == [("a", []), ("c", [0])]


def test_a_listing_of_all_goes_on_behind_a_topic_deleted_meanwhile() -> None:
    assert seen(describe(THREE_TOPICS, cursor=("bb", 1))) == [("c", [0])]


def test_a_cursor_to_a_topic_not_asked_for_is_refused() -> None:
    response = describe(THREE_TOPICS, "a", "c", cursor=("b", 0))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.invalid_request] * 2
    assert response.topics[0].topic_authorized_operations == NO_OPERATIONS


def test_a_cursor_to_a_negative_partition_is_refused() -> None:
    response = describe(THREE_TOPICS, "a", cursor=("a", -1))
    assert response.topics[0].error_code is ErrorCode.invalid_request


def test_a_topic_that_does_not_exist_takes_no_room() -> None:
    response = describe(THREE_TOPICS, "aa", "ab", "c", limit=1)
    assert seen(response) == [("aa", []), ("ab", []), ("c", [0])]
    assert response.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    assert response.topics[0].topic_authorized_operations == ALL_OPERATIONS


def test_an_impossible_name_is_called_that() -> None:
    response = describe(THREE_TOPICS, "not a name", "")
    codes = {topic.error_code for topic in response.topics}
    assert codes == {ErrorCode.invalid_topic_exception}


def test_a_partition_is_described_in_full() -> None:
    partitions = cluster(topic("t", partition(leader=1, replicas=(2, 1), isr=(1,))))
    (described,) = describe(partitions, "t").topics
    assert described.topic_id == topic_id("t")
    assert described.topic_authorized_operations == ALL_OPERATIONS
    (only,) = described.partitions
    assert (only.leader_id, only.leader_epoch) == (1, 3)
    assert (only.replica_nodes, only.isr_nodes, only.offline_replicas) == ((2, 1), (1,), (2,))
    assert (only.eligible_leader_replicas, only.last_known_elr) == ((), ())


def test_a_partition_whose_leader_is_gone_has_none() -> None:
    partitions = cluster(topic("t", partition(leader=2, replicas=(2,), isr=(2,))))
    (only,) = describe(partitions, "t").topics[0].partitions
    assert int(only.leader_id) == NO_BROKER
    assert only.error_code is ErrorCode.none
    assert only.offline_replicas == (2,)


def test_internal_topics_are_marked() -> None:
    partitions = cluster(topic("__consumer_offsets", partition()), topic("t", partition()))
    assert [topic.is_internal for topic in describe(partitions).topics] == [True, False]


@given(
    partition_counts=st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.integers(1, 5), min_size=1, max_size=6
    ),
    limit=st.integers(1, 7),
)
def test_page_after_page_every_partition_is_seen_once(
    partition_counts: dict[str, int], limit: int
) -> None:
    partitions = cluster(
        *(topic(name, *[partition()] * count) for name, count in partition_counts.items())
    )
    found: list[tuple[str | None, int]] = []
    cursor = None
    while True:
        response = describe(partitions, limit=limit, cursor=cursor)
        page = [(name, index) for name, indexes in seen(response) for index in indexes]
        assert 1 <= len(page) <= limit
        found += page
        cursor = next_cursor(response)
        if cursor is None:
            break
    assert found == [
        (name, index)
        for name in sorted(partition_counts)
        for index in range(partition_counts[name])
    ]
