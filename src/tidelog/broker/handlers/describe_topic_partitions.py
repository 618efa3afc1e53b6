"""DescribeTopicPartitions (75): topics and their partitions, page by page (KIP-966).

Topics come in the order of their names. An answer holds at most as many partitions as the client
and `max.request.partition.size.limit` allow; what is left is told by a cursor, which the client
sends back to go on:

    topics:   a b c d e       cursor (c, 2): a and b have been seen, of c the partitions 0 and 1

A cursor of a listing of all topics may name a topic that was deleted meanwhile: the listing goes on
behind it. A cursor that does not belong to the topics asked for is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from kio.schema.describe_topic_partitions.v0.response import Cursor as NextCursor
from kio.schema.describe_topic_partitions.v0.response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.types import BrokerId as MessageBrokerId
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_BROKER, BrokerId
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.metadata import ALL_TOPIC_OPERATIONS
from tidelog.broker.large_requests import in_turns
from tidelog.broker.partitions import Partitions
from tidelog.core.controller.image import ClusterImage, PartitionImage, TopicImage
from tidelog.core.controller.names import INTERNAL_TOPICS, require_legal
from tidelog.wire.metadata import NO_OPERATIONS

REPLICA_SETS_MAX: Final = 1024

Topic = DescribeTopicPartitionsResponseTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopicPartitionsHandler:
    """`partition_limit` is `max.request.partition.size.limit`, which never changes."""

    partitions: Partitions
    partition_limit: int

    async def handle(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        image = self.partitions.image
        asked = sorted({topic.name for topic in request.topics})
        if not _is_cursor_of(request.cursor, asked):
            return _response([_refused(topic.name) for topic in request.topics], None)
        limit = max(1, min(request.response_partition_limit, self.partition_limit))
        return await _page(image, asked or sorted(image.topics), request.cursor, limit)


def _is_cursor_of(cursor: Cursor | None, asked: Sequence[str]) -> bool:
    if cursor is None:
        return True
    return cursor.partition_index >= 0 and (not asked or cursor.topic_name in asked)


async def _page(
    image: ClusterImage, names: Sequence[str], cursor: Cursor | None, limit: int
) -> DescribeTopicPartitionsResponse:
    topics: list[Topic] = []
    remaining = limit
    async for name in in_turns(names):
        if cursor is not None and name < cursor.topic_name:
            continue
        if remaining == 0:
            return _response(topics, _cursor(name, 0))
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_unknown(name))
            continue
        is_resumed = cursor is not None and cursor.topic_name == name
        first = cursor.partition_index if cursor is not None and is_resumed else 0
        described = _partitions(image, topic, first, first + remaining)
        topics.append(_known(topic, described))
        remaining -= len(described)
        if first + len(described) < len(topic.partitions):
            return _response(topics, _cursor(name, first + len(described)))
    return _response(topics, None)


def _cursor(name: str, partition: int) -> NextCursor:
    return NextCursor(topic_name=TopicName(name), partition_index=i32(partition))


def _response(
    topics: Sequence[Topic], next_cursor: NextCursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=next_cursor
    )


def _known(
    topic: TopicImage, partitions: Sequence[DescribeTopicPartitionsResponsePartition]
) -> Topic:
    return Topic(
        error_code=message_error(ErrorCode.NONE),
        name=TopicName(topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(partitions),
        topic_authorized_operations=i32(ALL_TOPIC_OPERATIONS),
    )


def _unknown(name: str) -> Topic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        require_legal(name)
    except RequestRefused as refusal:
        code = refusal.code
    return _without_partitions(name, code, ALL_TOPIC_OPERATIONS)


def _refused(name: str) -> Topic:
    return _without_partitions(name, ErrorCode.INVALID_REQUEST, NO_OPERATIONS)


def _without_partitions(name: str, code: ErrorCode, operations: int) -> Topic:
    return Topic(
        error_code=message_error(code),
        name=TopicName(name),
        topic_id=None,
        is_internal=False,
        partitions=(),
        topic_authorized_operations=i32(operations),
    )


def _partitions(
    image: ClusterImage, topic: TopicImage, first: int, end: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    return [
        _partition(image, topic.name, index, partition)
        for index, partition in enumerate(topic.partitions[first:end], start=first)
    ]


def _partition(
    image: ClusterImage, topic: str, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    has_leader = partition.leader in image.brokers
    return DescribeTopicPartitionsResponsePartition(
        # Unlike Metadata, this API has no error for a partition without a leader.
        error_code=message_error(ErrorCode.NONE),
        partition_index=i32(index),
        leader_id=MessageBrokerId(partition.leader if has_leader else NO_BROKER),
        leader_epoch=i32(partition.leader_epoch),
        replica_nodes=_brokers(partition.replicas),
        isr_nodes=_brokers(partition.isr),
        # There are no eligible leaders beside the isr here; a Kafka broker without any says so.
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=_brokers(image.offline_replicas(topic, index)),
    )


@lru_cache(maxsize=REPLICA_SETS_MAX)
def _brokers(broker_ids: tuple[BrokerId, ...]) -> tuple[MessageBrokerId, ...]:
    """Kept, because thousands of partitions have few sets of replicas between them."""
    return tuple(MessageBrokerId(broker_id) for broker_id in broker_ids)
