"""OffsetDelete, for which confluent-kafka has no call."""

from collections.abc import Mapping, Sequence

from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from tidelog.client.asking import ask, require_success
from tidelog.client.bootstrap import Address


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
