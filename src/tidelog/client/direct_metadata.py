"""Metadata without the topic being created, which librdkafka's clients cannot say.

Version 9 is spoken by every broker since Kafka 2.4. Importing this module imports kio.
"""

from collections.abc import Sequence

from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.types import TopicName

from tidelog.client.asking import ask, require_success
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClusterUnreachable


def ask_leader(address: Address, topic: str, partition: int, *, timeout_s: float) -> Address:
    """Who leads the partition, as the broker at `address` knows. Raises ClientError."""
    answer = _ask(address, [topic], timeout_s=timeout_s)
    brokers = _addresses(answer)
    for described in answer.topics:
        require_success(described.error_code, None)
        for each in described.partitions:
            if each.partition_index == partition and each.leader_id in brokers:
                return brokers[each.leader_id]
    raise ClusterUnreachable(f"{topic}-{partition} has no leader at the moment")


def ask_address(address: Address, broker_id: int, *, timeout_s: float) -> Address:
    """Where that broker is, as the one at `address` knows. Raises ClientError."""
    brokers = _addresses(_ask(address, [], timeout_s=timeout_s))
    if broker_id not in brokers:
        raise ClusterUnreachable(f"broker {broker_id} is not there at the moment")
    return brokers[broker_id]


def _ask(address: Address, topics: Sequence[str], *, timeout_s: float) -> MetadataResponse:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=TopicName(each)) for each in topics),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return ask(address, request, MetadataResponse, timeout_s=timeout_s)


def _addresses(answer: MetadataResponse) -> dict[int, Address]:
    return {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
