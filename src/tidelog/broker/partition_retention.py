"""Removes the oldest segments of one partition (S5): decided on a thread, done on the loop.

Appends go on while the thread decides. So what it says of the segment that was active, or of any
later one, counts only if nothing was appended since: a record that arrived meanwhile is not old,
and must not go with those that are. If a follower's log was cut meanwhile, or is about to be, it
counts for nothing; there is a next round.

Nor does it meet compaction, which puts other segments in the place of those that it looked at:
either of the two leaves a log alone that the other is at work on (`is_rearranged`).
"""

import asyncio
import logging
from typing import Protocol

from tidelog.base.ids import Offset, TopicPartition
from tidelog.broker.append_queue import AppendQueue
from tidelog.broker.partition_ports import LogDirectory
from tidelog.config.topic import TopicConfig
from tidelog.storage.log import Log

logger = logging.getLogger(__name__)


class RetainedPartition(Protocol):
    """What retention needs of a partition."""

    topic_partition: TopicPartition
    config: TopicConfig
    log: Log
    log_directory: LogDirectory
    is_offline: bool
    is_rearranged: bool

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def is_being_cut(self) -> bool: ...

    def on_log_start_advanced(self) -> None: ...


async def enforce_retention(
    partition: RetainedPartition, queue: AppendQueue, *, now_ms: int
) -> int:
    """Remove the segments that `retention.ms` and `retention.bytes` no longer want; how many."""
    if partition.is_offline or queue.is_busy or partition.is_being_cut or partition.is_rearranged:
        return 0
    partition.is_rearranged = True
    try:
        return await _remove_expired(partition, queue, now_ms=now_ms)
    finally:
        partition.is_rearranged = False


async def _remove_expired(partition: RetainedPartition, queue: AppendQueue, *, now_ms: int) -> int:
    log, executor = partition.log, partition.log_directory.executor
    active, end_offset = log.segments[-1], log.log_end_offset
    truncation_count = log.truncation_count
    expired = await executor.background(
        log.expired_segments, high_watermark=partition.high_watermark, now_ms=now_ms
    )
    if log.truncation_count != truncation_count:
        return 0
    if log.log_end_offset != end_offset or queue.is_busy:
        expired = tuple(one for one in expired if one.base_offset < active.base_offset)
    elif expired and expired[-1] is active and _is_serving(partition, log):
        await asyncio.wait([queue.roll(now_ms)])  # Ended by the disk.
    if not expired or not _is_serving(partition, log):
        return 0
    log.detach(expired)
    partition.on_log_start_advanced()
    renamed = await executor.background(log.remove_detached, expired)
    partition.log_directory.delete_later(renamed, delay_ms=partition.config.file_delete_delay_ms)
    logger.info(
        "segments expired",
        extra={
            "partition": partition.topic_partition,
            "segments": len(expired),
            "log_start_offset": log.log_start_offset,
        },
    )
    return len(expired)


def _is_serving(partition: RetainedPartition, log: Log) -> bool:
    """Whether `log` is still in use, after some waiting."""
    return log is partition.log and not partition.is_offline and not partition.is_being_cut
