"""DescribeLogDirs (35): what each log directory of this broker holds, and how full its disk is.

A directory that is offline has an error code of its own and is not looked into; the others answer
as ever (S9). A topic or partition that is not here is left out, as Kafka does.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, ParamSpec, Protocol, TypeVar

from kio.schema.describe_log_dirs.v5.request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from tidelog.base.errors import ErrorCode, StorageError
from tidelog.base.ids import TopicPartition
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.large_requests import in_turns

UNKNOWN_BYTES: Final = -1

P = ParamSpec("P")
T = TypeVar("T")


class DiskLane(Protocol):
    """Where blocking calls are made."""

    def urgent(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]": ...


class SizedLog(Protocol):
    """The log of a partition, as far as its size goes."""

    @property
    def size_bytes(self) -> int: ...


class DescribedPartition(Protocol):
    """A partition in a log directory."""

    @property
    def log(self) -> SizedLog: ...


class DescribedFuture(Protocol):
    """A replica that is being copied to a log directory."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def offset_lag(self) -> int: ...


class DescribedLogDir(Protocol):
    """A log directory as this API shows it. The sizes of its disk are blocking calls."""

    @property
    def path(self) -> Path: ...

    @property
    def is_online(self) -> bool: ...

    @property
    def executor(self) -> DiskLane: ...

    @property
    def runners(self) -> Mapping[TopicPartition, DescribedPartition]: ...

    @property
    def futures(self) -> Mapping[TopicPartition, DescribedFuture]: ...

    def total_bytes(self) -> int: ...

    def usable_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsHandler:
    """`log_dirs` are all of the broker's, in the order of `log.dirs`."""

    log_dirs: Sequence[DescribedLogDir]

    async def handle(
        self, request: DescribeLogDirsRequest, context: RequestContext
    ) -> DescribeLogDirsResponse:
        wanted = None if request.topics is None else _wanted(request.topics)
        # At once, because each directory has threads of its own and one may be slow.
        results = await asyncio.gather(*(_describe(one, wanted) for one in self.log_dirs))
        return DescribeLogDirsResponse(
            throttle_time=NO_THROTTLE,
            error_code=message_error(ErrorCode.NONE),
            results=tuple(results),
        )


def _wanted(topics: Iterable[DescribableLogDirTopic]) -> set[tuple[str, int]]:
    return {(topic.topic, partition) for topic in topics for partition in topic.partitions}


async def _describe(
    log_dir: DescribedLogDir, wanted: Collection[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if not log_dir.is_online:
        return _offline(log_dir)
    try:
        # Ended by the disk, which answers or fails.
        total_bytes, usable_bytes = await log_dir.executor.urgent(_disk_sizes, log_dir)
        topics = await _topics(log_dir, wanted)
    except StorageError:
        return _offline(log_dir)
    return DescribeLogDirsResult(
        error_code=message_error(ErrorCode.NONE),
        log_dir=str(log_dir.path),
        topics=topics,
        total_bytes=i64(total_bytes),
        usable_bytes=i64(usable_bytes),
        is_cordoned=False,
    )


def _disk_sizes(log_dir: DescribedLogDir) -> tuple[int, int]:
    """On a thread."""
    return log_dir.total_bytes(), log_dir.usable_bytes()


def _offline(log_dir: DescribedLogDir) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=message_error(ErrorCode.KAFKA_STORAGE_ERROR),
        log_dir=str(log_dir.path),
        topics=(),
        total_bytes=i64(UNKNOWN_BYTES),
        usable_bytes=i64(UNKNOWN_BYTES),
        is_cordoned=False,
    )


async def _topics(
    log_dir: DescribedLogDir, wanted: Collection[tuple[str, int]] | None
) -> tuple[DescribeLogDirsTopic, ...]:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    runners = sorted(log_dir.runners.items(), key=lambda item: item[0])
    async for topic_partition, runner in in_turns(runners):
        if log_dir.runners.get(topic_partition) is not runner:
            continue  # Deleted meanwhile, and with it the files whose sizes are asked for.
        if wanted is None or topic_partition in wanted:
            described = _partition(topic_partition.partition, runner.log.size_bytes)
            by_topic.setdefault(topic_partition.topic, []).append(described)
    for topic_partition, future in sorted(log_dir.futures.items(), key=lambda item: item[0]):
        if wanted is None or topic_partition in wanted:
            described = _future(topic_partition.partition, future)
            by_topic.setdefault(topic_partition.topic, []).append(described)
    return tuple(
        [
            DescribeLogDirsTopic(name=TopicName(name), partitions=tuple(partitions))
            async for name, partitions in in_turns(by_topic.items())
        ]
    )


def _partition(index: int, size_bytes: int) -> DescribeLogDirsPartition:
    """A replica that this directory holds."""
    return DescribeLogDirsPartition(
        partition_index=i32(index),
        partition_size=i64(size_bytes),
        offset_lag=i64(0),
        is_future_key=False,
    )


def _future(index: int, future: DescribedFuture) -> DescribeLogDirsPartition:
    """A replica that another directory holds, and this one is to hold."""
    return DescribeLogDirsPartition(
        partition_index=i32(index),
        partition_size=i64(future.size_bytes),
        offset_lag=i64(future.offset_lag),
        is_future_key=True,
    )
