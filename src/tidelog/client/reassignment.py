"""Replicas of partitions, given to other brokers: a request for which librdkafka has no call.

Any broker may be asked. Its answer says that a move has begun; the partition has the old replicas
and the new ones until those are in sync.
"""

from collections.abc import Mapping, Sequence

from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v0.response import (
    AlterPartitionReassignmentsResponse,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from tidelog.client.asking import ask, require_success
from tidelog.client.bootstrap import Address


def alter_reassignments(
    address: Address, targets: Mapping[tuple[str, int], Sequence[int]], *, timeout_s: float
) -> None:
    """Begin to move partitions to these replicas, in this order. ClientError if one is refused."""
    by_topic: dict[str, list[ReassignablePartition]] = {}
    for (topic, partition), replicas in targets.items():
        by_topic.setdefault(topic, []).append(
            ReassignablePartition(
                partition_index=i32(partition), replicas=tuple(map(BrokerId, replicas))
            )
        )
    request = AlterPartitionReassignmentsRequest(
        topics=tuple(
            ReassignableTopic(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in by_topic.items()
        )
    )
    answer = ask(address, request, AlterPartitionReassignmentsResponse, timeout_s=timeout_s)
    require_success(answer.error_code, answer.error_message)
    for response in answer.responses:
        for each in response.partitions:
            require_success(each.error_code, each.error_message)
