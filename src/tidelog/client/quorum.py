"""Who leads the controllers of an Apache Kafka cluster, which its Metadata answers do not tell.

Metadata of a KRaft cluster names any broker as the controller, for old clients to have one; who it
really is says DescribeQuorum. tidelog's own brokers tell it in Metadata.
"""

from typing import Final

from kio.schema.describe_quorum.v1.request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from kio.schema.describe_quorum.v1.response import DescribeQuorumResponse
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tidelog.client.asking import ask, require_success
from tidelog.client.bootstrap import Address

_METADATA_TOPIC: Final = "__cluster_metadata"


def ask_quorum_leader(address: Address, *, timeout_s: float) -> int | None:
    """The id of the active controller, as the broker at `address` knows it; None if there is none.

    ClientError if the broker does not answer, or is one without a quorum.
    """
    topic = TopicData(
        topic_name=TopicName(_METADATA_TOPIC),
        partitions=(PartitionData(partition_index=i32(0)),),
    )
    answer = ask(
        address, DescribeQuorumRequest(topics=(topic,)), DescribeQuorumResponse, timeout_s=timeout_s
    )
    require_success(answer.error_code, None)
    ((partition,),) = (each.partitions for each in answer.topics)
    require_success(partition.error_code, None)
    return partition.leader_id if partition.leader_id >= 0 else None
