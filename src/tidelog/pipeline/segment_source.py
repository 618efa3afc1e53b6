"""`format("tidelog").option("path", ...)`: a batch that reads segment files, without a broker (X6).

The driver looks at names, indexes and ends of files; the executors read. So they all have to see
the same files: a shared disk, a copy on each machine, or one machine.

    option                             meaning
    path                               log dirs, or folders of partitions; several, patterns
    subscribe, subscribePattern,       which topics of what is there; all but internal ones by
      assign                             default
    starting*, ending*                 as with a broker
    minTimestamp, maxTimestamp         only records of that time, both ends included
    kafka.isolation.level              read_committed leaves out what was aborted
    ignoreTornTail                     read up to what a crash has left half written
    failOnDataLoss                     whether missing segments end the job, or are warned of
    beyondHighWatermark                also what was not committed when the broker last said so
    minPartitions                      at least so many tasks, if there is enough to read
    includeHeaders                     as with a broker
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError, in_a_sentence
from tidelog.pipeline.offsets import EARLIEST, LATEST
from tidelog.pipeline.segments import (
    MissingOffsets,
    PartitionFolder,
    PartitionPlan,
    SegmentSlice,
    Wanted,
    choose_replicas,
    find_partitions,
    first_offset_from,
    pack_slices,
    plan_partition,
    read_slice,
)
from tidelog.pipeline.source_options import (
    Assigned,
    AtOffset,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    GivenOptions,
    Matching,
    Place,
    Strategy,
    Subscribed,
    require_equal_partitions,
)

logger = logging.getLogger(__name__)

TASK_BYTES: Final = 128 * 1024 * 1024
_TASK_BYTES_MIN: Final = 64 * 1024
_OFFSET_END: Final = 2**63 - 1
_ISOLATION_LEVEL: Final = "kafka.isolation.level"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """What a job asks for, checked as far as it can be without a look at the files."""

    paths: tuple[str, ...]
    strategy: Strategy | None
    start: Place
    end: Place
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    fails_on_data_loss: bool
    has_headers: bool
    is_committed_only: bool
    is_torn_tail_ignored: bool
    is_beyond_high_watermark: bool
    min_partitions: int | None


def segment_options(options: Mapping[str, str]) -> SegmentOptions:
    """Raises OptionError."""
    given = GivenOptions(options)
    given.require_no_slips()
    return SegmentOptions(
        paths=(given.text("path") or "",),
        strategy=given.strategy() if given.has_strategy() else None,
        start=given.place("starting", AtOffset(EARLIEST)),
        end=given.place("ending", AtOffset(LATEST)),
        min_timestamp_ms=given.timestamp_ms("minTimestamp"),
        max_timestamp_ms=given.timestamp_ms("maxTimestamp"),
        fails_on_data_loss=given.flag("failOnDataLoss", default=True),
        has_headers=given.flag("includeHeaders", default=False),
        is_committed_only=_is_committed_only(given),
        is_torn_tail_ignored=given.flag("ignoreTornTail", default=False),
        is_beyond_high_watermark=given.flag("beyondHighWatermark", default=False),
        min_partitions=given.count("minPartitions"),
    )


def _is_committed_only(given: GivenOptions) -> bool:
    level = given.text(_ISOLATION_LEVEL) or "read_uncommitted"
    if level not in {"read_committed", "read_uncommitted"}:
        raise OptionError(
            f"{_ISOLATION_LEVEL} is {level!r} but must be read_committed or read_uncommitted"
        )
    return level == "read_committed"


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
        offsets = {each.partition: self._range(each, folders) for each in folders}
        plans = [plan_partition(each, self._wanted(offsets, TASK_BYTES)) for each in folders]
        self._require_all(plans)
        task_bytes = self._task_bytes(plans)
        if task_bytes < TASK_BYTES:
            plans = [plan_partition(each, self._wanted(offsets, task_bytes)) for each in folders]
        slices = [slice_ for plan in plans for slice_ in plan.slices]
        return [SlicePartition(pack) for pack in pack_slices(slices, max_bytes=task_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SlicePartition):
            for slice_ in partition.slices:
                yield from read_slice(slice_, has_headers=self._options.has_headers)

    def _wanted(
        self, offsets: Mapping[TopicPartition, tuple[int, int]], slice_bytes: int
    ) -> Wanted:
        options = self._options
        last_ms = options.max_timestamp_ms
        return Wanted(
            offsets=offsets,
            start_ms=options.min_timestamp_ms,
            end_ms=None if last_ms is None else last_ms + 1,
            is_committed_only=options.is_committed_only,
            is_beyond_high_watermark=options.is_beyond_high_watermark,
            is_torn_tail_ignored=options.is_torn_tail_ignored,
            slice_bytes=slice_bytes,
        )

    def _task_bytes(self, plans: Sequence[PartitionPlan]) -> int:
        if self._options.min_partitions is None:
            return TASK_BYTES
        total_bytes = sum(slice_.size_bytes for plan in plans for slice_ in plan.slices)
        share_bytes = total_bytes // self._options.min_partitions
        return min(TASK_BYTES, max(_TASK_BYTES_MIN, share_bytes))

    # -- where to begin and to end -----------------------------------------------------------------

    def _range(
        self, folder: PartitionFolder, folders: Sequence[PartitionFolder]
    ) -> tuple[int, int]:
        partitions = frozenset(each.partition for each in folders)
        return (
            self._at("starting", self._options.start, folder, partitions),
            self._at("ending", self._options.end, folder, partitions),
        )

    def _at(
        self,
        which: str,
        place: Place,
        folder: PartitionFolder,
        partitions: frozenset[TopicPartition],
    ) -> int:
        match place:
            case AtOffset(offset):
                return _offset(offset)
            case AtOffsets(offsets):
                given = dict(offsets)
                require_equal_partitions(f"{which}Offsets", partitions, given)
                return _offset(given[folder.partition])
            case AtTimestamp(timestamp_ms):
                return self._at_time(folder, timestamp_ms)
            case AtTimestamps(timestamps_ms):
                given = dict(timestamps_ms)
                require_equal_partitions(f"{which}OffsetsByTimestamp", partitions, given)
                return self._at_time(folder, given[folder.partition])
            case _:
                assert_never(place)

    def _at_time(self, folder: PartitionFolder, timestamp_ms: int) -> int:
        found = first_offset_from(
            folder,
            timestamp_ms,
            is_beyond_high_watermark=self._options.is_beyond_high_watermark,
        )
        return _OFFSET_END if found is None else found

    def _require_all(self, plans: Sequence[PartitionPlan]) -> None:
        """What was asked for is there, or may be missing."""
        for plan in plans:
            for problem in (*self._not_there(plan), *map(str, plan.missing)):
                if self._options.fails_on_data_loss:
                    raise MissingOffsets(problem)
                logger.warning("records were missed: %s", problem)

    def _not_there(self, plan: PartitionPlan) -> Iterator[str]:
        """Offsets that were asked for by their numbers, before or behind those that are there."""
        path, partition = plan.folder.path, plan.folder.partition
        start = _given(self._options.start, partition)
        if start is not None and start < plan.start_offset:
            yield f"{path} begins at offset {plan.start_offset}, and {start} was asked for"
        end = _given(self._options.end, partition)
        if end is not None and end > plan.end_offset:
            yield f"{path} can be read up to offset {plan.end_offset}, and {end} was asked for"


def _given(place: Place, partition: TopicPartition) -> int | None:
    """The offset that was given for a partition; None if there is none."""
    if not isinstance(place, AtOffsets):
        return None
    offset = dict(place.offsets)[partition]
    return None if offset in {EARLIEST, LATEST} else offset


def _offset(offset: int) -> int:
    if offset == EARLIEST:
        return 0
    return _OFFSET_END if offset == LATEST else offset


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
    if isinstance(strategy, Assigned):
        missing = strategy.partitions - {each.partition for each in found}
        if missing:
            raise OptionError(f"assign has {min(missing)}, which path does not hold")
        found = [each for each in found if each.partition in strategy.partitions]
    if isinstance(strategy, Matching):
        matches = re.compile(strategy.pattern).fullmatch
        found = [each for each in found if matches(each.partition.topic)]
    if not found:
        raise OptionError("path holds no partition of the topics that are asked for")
    return found
