"""Which of several replicas of a partition to read.

Replicas are equal as far as they are committed, so one is read, and no record twice: the one that
can be read furthest, of those one that lacks no segment, of those the one that begins first, of
those the one that was given first. One that lacks a segment and reaches further than all others is
chosen nevertheless: what it lacks is said, and what they lack would not be. Who wants to compare
replicas reads each of them.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from tidelog.base.ids import NO_OFFSET
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.segments.errors import SegmentError
from tidelog.pipeline.segments.folders import PATH_OPTION, PartitionFolder, holds_segments
from tidelog.pipeline.segments.log_end import find_end
from tidelog.pipeline.segments.missing import find_missing
from tidelog.pipeline.segments.partition_log import list_segments


class ReadableRange(NamedTuple):
    """Offsets `[start_offset, end_offset)`."""

    start_offset: int
    end_offset: int


def readable_range(folder: PartitionFolder, *, is_beyond_high_watermark: bool) -> ReadableRange:
    """What a replica has, as far as it is whole and, unless told otherwise, committed."""
    log = list_segments(folder.path)
    end_offset = find_end(log).offset
    if folder.high_watermark is not None and not is_beyond_high_watermark:
        end_offset = min(end_offset, folder.high_watermark)
    start_offset = max(folder.log_start_offset, log.segments[0].base_offset)
    return ReadableRange(min(start_offset, end_offset), end_offset)


def choose_replicas(folders: Iterable[PartitionFolder]) -> list[PartitionFolder]:
    """One folder for each partition, in order. Raises OptionError if they are not of one topic."""
    ordered = sorted(folders, key=lambda folder: folder.partition)
    return [_chosen(list(each)) for _, each in groupby(ordered, lambda one: one.partition)]


def _chosen(replicas: list[PartitionFolder]) -> PartitionFolder:
    if len(replicas) == 1:
        return replicas[0]
    topic_ids = {each.topic_id: each.path for each in replicas if each.topic_id is not None}
    if len(topic_ids) > 1:
        first, second, *_ = topic_ids.values()
        raise OptionError(
            f"{PATH_OPTION} has {first} and {second}, which are not replicas of one partition: "
            "their topics have the same name and different ids"
        )
    return max(replicas, key=_reach)  # The first of those that are equal.


def _reach(folder: PartitionFolder) -> tuple[int, bool, int]:
    if not holds_segments(folder.path):
        return NO_OFFSET - 1, False, 0  # Even what cannot be read is said to be there.
    try:
        found = readable_range(folder, is_beyond_high_watermark=False)
        log = list_segments(folder.path)
        missing = find_missing(
            folder,
            log,
            find_end(log),
            start_offset=found.start_offset,
            end_offset=found.end_offset,
        )
    except SegmentError:
        return NO_OFFSET, False, 0  # What is wrong is said if there is no other.
    return found.end_offset, not missing, -found.start_offset
