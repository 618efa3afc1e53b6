"""OffsetDelete (47): forget how far a group has come in topics that it does not subscribe to."""

from collections.abc import Iterator, Mapping, Sequence
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
    """Partitions that nobody knows are refused here, the others are the shard's to decide."""

    groups: GroupCoordinator
    partitions: Partitions

    async def handle(self, request: OffsetDeleteRequest, _context: RequestContext) -> object:
        async def wait() -> OffsetDeleteResponse:
            named = [
                TopicPartition(topic.name, partition.partition_index)
                for topic in request.topics
                for partition in topic.partitions
            ]
            image = self.partitions.image
            known = [one for one in named if image.partition(*one) is not None]
            try:
                codes = dict(zip(known, await self._ask(request.group_id, known), strict=True))
            except RequestRefused as refused:
                return _response(refused.code, ())
            return _response(ErrorCode.NONE, tuple(_topics(request, codes)))

        return Postponed(wait)

    async def _ask(self, group_id: str, known: Sequence[TopicPartition]) -> Sequence[ErrorCode]:
        if not group_id:
            raise RequestRefused(ErrorCode.INVALID_GROUP_ID)
        codes = await self.groups.ask(
            group_id,
            lambda shard, token, now_ms: shard.on_delete_offsets(group_id, known, token, now_ms),
        )
        return cast(Sequence[ErrorCode], codes)


def _topics(
    request: OffsetDeleteRequest, codes: Mapping[TopicPartition, ErrorCode]
) -> Iterator[OffsetDeleteResponseTopic]:
    for topic in request.topics:
        yield OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=message_error(
                        codes.get(
                            TopicPartition(topic.name, partition.partition_index),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        )
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
