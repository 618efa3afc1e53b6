"""OffsetDelete (47): forget how far a group has come in topics that it does not subscribe to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicPartition
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.group_shards import GroupCoordinator
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.partitions import Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteHandler:
    """Topics that nobody knows are refused here, the others decided upon by the group's shard."""

    groups: GroupCoordinator
    partitions: Partitions

    async def handle(self, request: OffsetDeleteRequest, _context: RequestContext) -> object:
        async def wait() -> OffsetDeleteResponse:
            topics = self.partitions.image.topics
            known: set[str] = {topic.name for topic in request.topics if topic.name in topics}
            try:
                codes = await self._ask(request, known)
            except RequestRefused as refused:
                return _response(refused.code, ())
            return _response(ErrorCode.NONE, tuple(_topics(request, known, iter(codes))))

        return Postponed(wait)

    async def _ask(self, request: OffsetDeleteRequest, known: set[str]) -> Sequence[ErrorCode]:
        group_id = request.group_id
        if not group_id:
            raise RequestRefused(ErrorCode.INVALID_GROUP_ID)
        wanted = [
            TopicPartition(topic.name, partition.partition_index)
            for topic in request.topics
            if topic.name in known
            for partition in topic.partitions
        ]
        codes = await self.groups.ask(
            group_id,
            lambda shard, token, now_ms: shard.on_delete_offsets(group_id, wanted, token, now_ms),
        )
        return cast(Sequence[ErrorCode], codes)


def _topics(
    request: OffsetDeleteRequest, known: set[str], codes: Iterator[ErrorCode]
) -> Iterator[OffsetDeleteResponseTopic]:
    for topic in request.topics:
        yield OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=message_error(
                        next(codes) if topic.name in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    ),
                )
                for partition in topic.partitions
            ),
        )


def _response(
    code: ErrorCode, topics: tuple[OffsetDeleteResponseTopic, ...]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        error_code=message_error(code), throttle_time=NO_THROTTLE, topics=topics
    )
