"""Requests about groups that are not left to confluent-kafka.

OffsetDelete, for which it has no call; OffsetFetch, because librdkafka (2.16) does not survive an
administrator's being told that a coordinator has moved; and the state of a group of the consumer
protocol, of which librdkafka knows only those that classic groups have as well.
"""

from collections.abc import Mapping, Sequence

from kio.schema.consumer_group_describe.v0.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v0.response import ConsumerGroupDescribeResponse
from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from tidelog.client.asking import ask, require_success
from tidelog.client.bootstrap import Address
from tidelog.client.group_values import PartitionKey


def committed_offsets(
    address: Address, group_id: str, *, timeout_s: float
) -> dict[PartitionKey, int]:
    """Every offset that the group has committed, as its coordinator knows them."""
    group = OffsetFetchRequestGroup(group_id=GroupId(group_id), topics=None)
    request = OffsetFetchRequest(groups=(group,), require_stable=False)
    (answer,) = ask(address, request, OffsetFetchResponse, timeout_s=timeout_s).groups
    require_success(answer.error_code, None)
    found = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            require_success(partition.error_code, None)
            if partition.committed_offset >= 0:
                key = PartitionKey(topic.name, partition.partition_index)
                found[key] = int(partition.committed_offset)
    return found


def consumer_state(address: Address, group_id: str, *, timeout_s: float) -> str:
    """The state of a group of the consumer protocol: Assigning, Reconciling and so on."""
    request = ConsumerGroupDescribeRequest(
        group_ids=(GroupId(group_id),), include_authorized_operations=False
    )
    (answer,) = ask(address, request, ConsumerGroupDescribeResponse, timeout_s=timeout_s).groups
    require_success(answer.error_code, answer.error_message)
    return answer.group_state


def delete_offsets(
    address: Address, group_id: str, topics: Mapping[str, Sequence[int]], *, timeout_s: float
) -> None:
    """Ask the group's coordinator; RequestFailed with the first refusal."""
    request = OffsetDeleteRequest(
        group_id=GroupId(group_id),
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=TopicName(name),
                partitions=tuple(
                    OffsetDeleteRequestPartition(partition_index=i32(number))
                    for number in partitions
                ),
            )
            for name, partitions in topics.items()
        ),
    )
    answer = ask(address, request, OffsetDeleteResponse, timeout_s=timeout_s)
    require_success(answer.error_code, None)
    for topic in answer.topics:
        for partition in topic.partitions:
            require_success(partition.error_code, None)
