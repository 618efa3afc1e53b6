"""AlterReplicaLogDirs (34): have replicas of this broker lie in other log directories (KIP-113).

Answered when a restart would know of the move; how far it is, DescribeLogDirs tells. A partition
that is named twice goes where it was named last. A refusal is that partition's answer alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
)
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import TopicPartition
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.large_requests import in_turns


class MovedReplicas(Protocol):
    """The replicas of this broker, as far as they can be moved."""

    async def alter(self, one: TopicPartition, path: str) -> None:
        """Raises RequestRefused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReplicaLogDirsHandler:
    """Begins moves."""

    moves: MovedReplicas

    async def handle(
        self, request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        by_topic: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        async for one, path in in_turns(_wanted(request.dirs).items()):
            code = ErrorCode.NONE
            try:
                await self.moves.alter(one, path)
            except RequestRefused as refusal:
                code = refusal.code
            by_topic.setdefault(one.topic, []).append(
                AlterReplicaLogDirPartitionResult(
                    partition_index=i32(one.partition), error_code=message_error(code)
                )
            )
        return AlterReplicaLogDirsResponse(
            throttle_time=NO_THROTTLE,
            results=tuple(
                AlterReplicaLogDirTopicResult(
                    topic_name=TopicName(topic), partitions=tuple(partitions)
                )
                for topic, partitions in by_topic.items()
            ),
        )


def _wanted(dirs: Iterable[AlterReplicaLogDir]) -> Mapping[TopicPartition, str]:
    return {
        TopicPartition(topic.name, partition): log_dir.path
        for log_dir in dirs
        for topic in log_dir.topics
        for partition in topic.partitions
    }
