"""Which of the oldest segments go (S5).

A segment goes when one of these holds for it and for every older one:

    age     its newest record is older than `retention.ms`       if cleanup.policy has delete
    size    without it the log still has `retention.bytes`       if cleanup.policy has delete
    start   all of its records lie below the log start offset    always

Only what is committed goes: nothing at or above the high watermark. An empty active segment stays,
so that the log always has one.
"""

from collections.abc import Iterator
from typing import Protocol

from tidelog.base.ids import NO_TIMESTAMP, Offset
from tidelog.base.ports import Disk
from tidelog.storage.file_cache import Access
from tidelog.storage.segment import Segment

NO_LIMIT = -1


class RetentionConfig(Protocol):
    """What retention asks of a topic's settings."""

    @property
    def retention_bytes(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def is_deleted(self) -> bool: ...


def expired_segments(
    segments: tuple[Segment, ...],
    config: RetentionConfig,
    *,
    log_start_offset: Offset,
    log_end_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
    disk: Disk,
    access: Access,
) -> tuple[Segment, ...]:
    """The longest run of oldest segments that may all go."""
    excess_bytes = _excess_bytes(segments, config)
    expired: list[Segment] = []
    for segment, end_offset in _with_ends(segments, log_end_offset):
        if end_offset > high_watermark or end_offset == segment.base_offset:
            break
        below_start = end_offset <= log_start_offset and segment is not segments[-1]
        if not (
            below_start
            or excess_bytes >= segment.size_bytes
            or (config.is_deleted and _is_old(segment, config.retention_ms, now_ms, disk, access))
        ):
            break
        excess_bytes -= segment.size_bytes
        expired.append(segment)
    return tuple(expired)


def _excess_bytes(segments: tuple[Segment, ...], config: RetentionConfig) -> int:
    if not config.is_deleted or config.retention_bytes < 0:
        return NO_LIMIT
    return sum(segment.size_bytes for segment in segments) - config.retention_bytes


def _with_ends(
    segments: tuple[Segment, ...], log_end_offset: Offset
) -> Iterator[tuple[Segment, Offset]]:
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    return zip(segments, ends, strict=True)


def _is_old(segment: Segment, retention_ms: int, now_ms: int, disk: Disk, access: Access) -> bool:
    if retention_ms < 0:
        return False
    newest_ms, _ = segment.max_timestamp(access)
    if newest_ms <= NO_TIMESTAMP:
        newest_ms = disk.modified_ms(
            segment.log_path
        )  # Records without a timestamp, as Kafka does.
    return now_ms - newest_ms > retention_ms
