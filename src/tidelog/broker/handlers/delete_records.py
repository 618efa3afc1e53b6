"""DeleteRecords (21): forget what is below an offset, partition by partition.

A partition's answer is its low watermark: the first offset that is left on any live replica. Offset
-1 stands for the high watermark. One partition's refusal is that partition's answer; it never fails
its neighbours.

Records are deleted here first, in all partitions. Then all of them are waited for together, until
the followers that are alive have deleted theirs or the client's time is up. Who is out of time is
told REQUEST_TIMED_OUT and how far it came; the deletion goes on. With no time at all that is what
everybody is told who has a follower, as in Kafka.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.large_requests import in_turns
from tidelog.config.topic import TopicConfig
from tidelog.core.controller.names import INTERNAL_TOPICS

NO_LOW_WATERMARK: Final = Offset(-1)
# Their log starts are written down in one go; it takes some milliseconds to begin so many.
TOGETHER: Final = 256


class DeletablePartition(Protocol):
    """A partition whose oldest records can be deleted."""

    @property
    def config(self) -> TopicConfig: ...

    async def delete_records(self, before_offset: Offset) -> Offset:
        """Delete here, durably, and return the offset that was meant; raises RequestRefused."""
        ...

    @property
    def low_watermark(self) -> Offset:
        """The first offset that a live replica may have; raises RequestRefused."""
        ...

    def until_deleted(self, before_offset: Offset) -> "asyncio.Future[None]":
        """Done once the low watermark is worth another look. May be cancelled."""
        ...


class LedPartitions(Protocol):
    """The partitions that this broker leads."""

    def led(self, topic: str, partition: int) -> DeletablePartition:
        """Raises RequestRefused where there is none."""
        ...


@dataclass(slots=True, kw_only=True)
class _Deletion:
    """What is known of one partition's answer."""

    topic: str
    partition: int
    code: ErrorCode
    low_watermark: Offset
    runner: DeletablePartition | None
    """None once it is settled."""
    before_offset: Offset

    def look(self) -> None:
        """Settle it if the low watermark is there, or will not be."""
        assert self.runner is not None
        try:
            self.low_watermark = self.runner.low_watermark
        except RequestRefused as refusal:
            self._settle(refusal.code, NO_LOW_WATERMARK)
        else:
            if self.low_watermark >= self.before_offset:
                self._settle(ErrorCode.NONE, self.low_watermark)

    def _settle(self, code: ErrorCode, low_watermark: Offset) -> None:
        self.code, self.low_watermark, self.runner = code, low_watermark, None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsHandler:
    """Moves log starts forward."""

    partitions: LedPartitions

    async def handle(
        self, request: DeleteRecordsRequest, context: RequestContext
    ) -> DeleteRecordsResponse | Postponed:
        deletions: list[_Deletion] = []
        asked = list(_each_once(request).items())
        for start in range(0, len(asked), TOGETHER):
            deletions += await asyncio.gather(
                *(self._begin(*one, offset) for one, offset in asked[start : start + TOGETHER])
            )
        if all(one.runner is None for one in deletions):
            return _response(deletions)
        return Postponed(partial(_finish, deletions, request.timeout.total_seconds()))

    async def _begin(self, topic: str, partition: int, offset: Offset) -> _Deletion:
        deletion = _Deletion(
            topic=topic,
            partition=partition,
            code=ErrorCode.REQUEST_TIMED_OUT,
            low_watermark=NO_LOW_WATERMARK,
            runner=None,
            before_offset=offset,
        )
        try:
            runner = self._deletable(topic, partition)
            deletion.before_offset = await runner.delete_records(offset)
            deletion.runner = runner
            deletion.look()
        except RequestRefused as refusal:
            deletion.code = refusal.code
        return deletion

    def _deletable(self, topic: str, partition: int) -> DeletablePartition:
        if topic in INTERNAL_TOPICS:
            raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        runner = self.partitions.led(topic, partition)
        if runner.config.is_compacted and not runner.config.is_deleted:
            # The newest record of every key is what such a topic promises to keep.
            raise RequestRefused(ErrorCode.POLICY_VIOLATION)
        return runner


async def _finish(deletions: Sequence[_Deletion], timeout_s: float) -> DeleteRecordsResponse:
    """Wait for the followers, for all partitions together."""
    unsettled = {
        one.runner.until_deleted(one.before_offset): one
        for one in deletions
        if one.runner is not None
    }
    try:
        await asyncio.wait(unsettled, timeout=max(0.0, timeout_s))
    finally:
        for future in unsettled:
            future.cancel()
    async for one in in_turns(unsettled.values()):
        one.look()
    return _response(deletions)


def _response(deletions: Sequence[_Deletion]) -> DeleteRecordsResponse:
    results: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for one in deletions:
        result = DeleteRecordsPartitionResult(
            partition_index=i32(one.partition),
            low_watermark=i64(one.low_watermark),
            error_code=message_error(one.code),
        )
        results.setdefault(one.topic, []).append(result)
    return DeleteRecordsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            DeleteRecordsTopicResult(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in results.items()
        ),
    )


def _each_once(request: DeleteRecordsRequest) -> dict[tuple[str, int], Offset]:
    """Offsets by topic and partition; what is named twice counts as named last, as in Kafka."""
    return {
        (topic.name, partition.partition_index): Offset(partition.offset)
        for topic in request.topics
        for partition in topic.partitions
    }
