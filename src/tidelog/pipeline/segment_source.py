"""`format("tidelog").option("path", ...)`: a batch that reads segment files, without a broker (X6).

The driver looks at names, indexes and ends of files; the executors read. So they all have to see
the same files: a shared disk, a copy on each machine, or one machine.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError, in_a_sentence
from tidelog.pipeline.offsets import text_of
from tidelog.pipeline.segment_bounds import (
    AskedRange,
    asked_ranges,
    require_sensible,
    require_there,
)
from tidelog.pipeline.segment_options import SegmentOptions, segment_options
from tidelog.pipeline.segments import (
    PartitionFolder,
    PartitionPlan,
    SegmentSlice,
    Wanted,
    choose_replicas,
    find_partitions,
    holds_segments,
    pack_slices,
    plan_partition,
    read_slice,
)
from tidelog.pipeline.source_options import Assigned, Matching, Subscribed

__all__ = ["SegmentReader", "SlicePartition", "segment_options"]

TASK_BYTES: Final = 128 * 1024 * 1024
_TASK_BYTES_MIN: Final = 64 * 1024


class SlicePartition(InputPartition):
    """A task: pieces of files, one after the other."""

    def __init__(self, slices: tuple[SegmentSlice, ...]) -> None:
        super().__init__(slices)
        self.slices = slices


class SegmentReader(DataSourceReader):
    """`spark.read` of files."""

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options

    @in_a_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        folders = _folders(self._options)
        asked = asked_ranges(self._options, folders)
        plans = [plan_partition(each, self._wanted(asked, TASK_BYTES)) for each in folders]
        require_sensible(self._options, asked, plans)
        task_bytes = self._task_bytes(plans)
        if task_bytes < TASK_BYTES:
            plans = [plan_partition(each, self._wanted(asked, task_bytes)) for each in folders]
        slices = [slice_ for plan in plans for slice_ in plan.slices]
        return [SlicePartition(pack) for pack in pack_slices(slices, max_bytes=task_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicePartition):
            for slice_ in partition.slices:
                yield from read_slice(slice_, has_headers=self._options.has_headers)

    def _wanted(self, asked: Mapping[TopicPartition, AskedRange], slice_bytes: int) -> Wanted:
        options = self._options
        last_ms = options.max_timestamp_ms
        return Wanted(
            offsets={partition: each.wanted for partition, each in asked.items()},
            start_ms=options.min_timestamp_ms,
            end_ms=None if last_ms is None else last_ms + 1,
            is_committed_only=options.is_committed_only,
            is_beyond_high_watermark=options.is_beyond_high_watermark,
            is_torn_tail_ignored=options.is_torn_tail_ignored,
            slice_bytes=slice_bytes,
            slice_offsets=options.max_records_per_partition,
        )

    def _task_bytes(self, plans: Sequence[PartitionPlan]) -> int:
        if self._options.min_partitions is None:
            return TASK_BYTES
        total_bytes = sum(slice_.size_bytes for plan in plans for slice_ in plan.slices)
        share_bytes = total_bytes // self._options.min_partitions
        return min(TASK_BYTES, max(_TASK_BYTES_MIN, share_bytes))


def _folders(options: SegmentOptions) -> list[PartitionFolder]:
    """One replica of each partition that is wanted. Raises OptionError if there is none."""
    strategy = options.strategy
    topics: set[str] | None = None
    match strategy:
        case Subscribed(names):
            topics = set(names)
        case Assigned(assigned):
            topics = {each.topic for each in assigned}
        case _:
            pass
    found = choose_replicas(find_partitions(options.paths, topics=topics))
    if isinstance(strategy, Subscribed):
        missing_topics = set(strategy.topics) - {each.partition.topic for each in found}
        if missing_topics:
            raise OptionError(f"subscribe has {min(missing_topics)}, which path does not hold")
    if isinstance(strategy, Assigned):
        missing = strategy.partitions - {each.partition for each in found}
        if missing:
            raise OptionError(f"assign has {text_of(missing)}, which path does not hold")
        found = [each for each in found if each.partition in strategy.partitions]
    if isinstance(strategy, Matching):
        matches = re.compile(strategy.pattern).fullmatch
        found = [each for each in found if matches(each.partition.topic)]
    if not found:
        raise OptionError("path holds no partition of the topics that are asked for")
    left = [each for each in found if holds_segments(each.path)]
    require_there(
        options,
        (
            f"{each.path} holds no segments: they were removed or not copied"
            for each in found
            if each not in left
        ),
    )
    return left
