"""DeleteRecords (21): forget what is below an offset, partition by partition.

A partition's answer is its low watermark: the first offset that is left. Offset -1 stands for the
high watermark. One partition's refusal is that partition's answer; it never fails its neighbours.

With one replica the low watermark is there at once, so the request's time-out is never used up.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from kio.schema.delete_records.v2.request import DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.metadata import INTERNAL_TOPICS
from tidelog.broker.large_requests import in_turns
from tidelog.config.topic import TopicConfig

NO_LOW_WATERMARK: Final = Offset(-1)


class DeletablePartition(Protocol):
    """A partition whose oldest records can be deleted."""

    @property
    def config(self) -> TopicConfig: ...

    async def delete_records(self, before_offset: Offset) -> Offset:
        """Return the new log start, durably; raises RequestRefused."""
        ...


class LedPartitions(Protocol):
    """The partitions that this broker leads."""

    def led(self, topic: str, partition: int) -> DeletablePartition:
        """Raises RequestRefused where there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsHandler:
    """Moves log starts forward."""

    partitions: LedPartitions

    async def handle(
        self, request: DeleteRecordsRequest, context: RequestContext
    ) -> DeleteRecordsResponse:
        results: dict[str, list[DeleteRecordsPartitionResult]] = {}
        async for (topic, partition), offset in in_turns(_each_once(request).items()):
            result = await self._result(topic, partition, offset)
            results.setdefault(topic, []).append(result)
        return DeleteRecordsResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple(
                DeleteRecordsTopicResult(name=TopicName(topic), partitions=tuple(partitions))
                for topic, partitions in results.items()
            ),
        )

    async def _result(
        self, topic: str, partition: int, offset: Offset
    ) -> DeleteRecordsPartitionResult:
        code, low_watermark = ErrorCode.NONE, NO_LOW_WATERMARK
        try:
            low_watermark = await self._delete(topic, partition, offset)
        except RequestRefused as refusal:
            code = refusal.code
        return DeleteRecordsPartitionResult(
            partition_index=i32(partition),
            low_watermark=i64(low_watermark),
            error_code=message_error(code),
        )

    async def _delete(self, topic: str, partition: int, offset: Offset) -> Offset:
        if topic in INTERNAL_TOPICS:
            raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        runner = self.partitions.led(topic, partition)
        if runner.config.is_compacted and not runner.config.is_deleted:
            # The newest record of every key is what such a topic promises to keep.
            raise RequestRefused(ErrorCode.POLICY_VIOLATION)
        return await runner.delete_records(offset)


def _each_once(request: DeleteRecordsRequest) -> dict[tuple[str, int], Offset]:
    """Offsets by topic and partition; what is named twice counts as named last, as in Kafka."""
    return {
        (topic.name, partition.partition_index): Offset(partition.offset)
        for topic in request.topics
        for partition in topic.partitions
    }
