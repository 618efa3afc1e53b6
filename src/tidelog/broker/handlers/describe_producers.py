"""DescribeProducers (61): who writes to a partition, and what transactions are open (KIP-664).

For whoever looks for transactions that hang: their coordinator has forgotten them, and here they
are still open. Any replica answers for itself.
"""

from dataclasses import dataclass

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.types import ProducerId
from kio.static.primitive import i32, i64

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_OFFSET, NO_SEQUENCE
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.partitions import Partitions
from tidelog.records.producer import ProducerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeProducersHandler:
    """One partition's failure is that partition's error code."""

    partitions: Partitions

    async def handle(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple(
                TopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        self._describe(topic.name, partition)
                        for partition in topic.partition_indexes
                    ),
                )
                for topic in request.topics
            ),
        )

    def _describe(self, topic: str, partition: int) -> PartitionResponse:
        runner = self.partitions.find(topic, partition)
        if runner is None:
            return _refused(partition, self.partitions.absence(topic, partition))
        if runner.is_offline:
            return _refused(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        return PartitionResponse(
            partition_index=i32(partition),
            error_code=message_error(ErrorCode.NONE),
            error_message=None,
            active_producers=tuple(map(_state, runner.producers.entries())),
        )


def _refused(partition: int, code: ErrorCode) -> PartitionResponse:
    return PartitionResponse(
        partition_index=i32(partition),
        error_code=message_error(code),
        error_message=None,
        active_producers=(),
    )


def _state(entry: ProducerEntry) -> ProducerState:
    first_offset = entry.current_txn_first_offset
    return ProducerState(
        producer_id=ProducerId(entry.producer_id),
        producer_epoch=i32(entry.producer_epoch),
        last_sequence=i32(entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE),
        last_timestamp=i64(entry.last_timestamp_ms),
        coordinator_epoch=i32(entry.coordinator_epoch),
        current_txn_start_offset=i64(NO_OFFSET if first_offset is None else first_offset),
    )
