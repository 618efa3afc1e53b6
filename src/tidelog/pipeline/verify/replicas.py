"""Replica against replica, byte by byte and offset by offset, from their folders (X5, R2).

    log dirs ──▶ partitions and their replicas ──▶ ranges of offsets, by size          driver
                                                        │
                                                        ▼ compare_range                executors

What is committed is compared: up to the highest high watermark that any replica's broker has
written down; if none has, everything. Replicas may begin at different offsets, because each deletes
old segments in its own time; what all have is compared. A replica that ends before is *behind*,
which is right for one that is not in sync and wrong for any other; one that holds no segments has
nothing and is behind with everything.

Replicas of a compacted topic are compacted by each broker in its own time. They differ, and this
says so; the ledger is what to judge them by.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.segments import (
    DamagedSegment,
    PartitionFolder,
    find_partitions,
    holds_segments,
)
from tidelog.pipeline.segments.indexed_segment import IndexedSegment
from tidelog.pipeline.segments.partition_log import PartitionLog, list_segments
from tidelog.pipeline.verify.replica_ranges import (
    Difference,
    MissingRange,
    RangeComparison,
    ReplicaEnd,
    ReplicaRange,
    add_missing,
    compare_range,
    replica_end,
)
from tidelog.storage import layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES: Final = 256 * 1024 * 1024
_NOTHING: Final = ReplicaEnd(position=0, offset=0, excess_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """One replica: what it has, and how much of what is committed it has not yet."""

    folder: Path
    start_offset: int
    end_offset: int
    high_watermark: int | None
    behind: int
    excess_bytes: int
    """Behind its end, which are no batch."""

    def to_json(self) -> dict[str, object]:
        return {
            "folder": str(self.folder),
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "high_watermark": self.high_watermark,
            "behind": self.behind,
            "excess_bytes": self.excess_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionComparison:
    """All replicas of one partition, and where they part."""

    partition: TopicPartition
    replicas: tuple[ReplicaState, ...]
    start_offset: int
    end_offset: int
    """What was compared."""
    compared_bytes: int
    differing_batches: int
    missing_offsets: int
    first_difference: Difference | None
    missing: tuple[MissingRange, ...]

    @property
    def is_equal(self) -> bool:
        return self.first_difference is None

    @property
    def behind(self) -> int:
        return max(each.behind for each in self.replicas)

    def to_json(self) -> dict[str, object]:
        difference = self.first_difference
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "equal": self.is_equal,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "compared_bytes": self.compared_bytes,
            "differing_batches": self.differing_batches,
            "missing_offsets": self.missing_offsets,
            "replicas": [each.to_json() for each in self.replicas],
            "first_difference": None if difference is None else _difference_json(difference),
            "missing": [
                {
                    "folder": str(each.folder),
                    "start_offset": each.start_offset,
                    "end_offset": each.end_offset,
                }
                for each in self.missing
            ],
        }


def _difference_json(difference: Difference) -> dict[str, object]:
    return {
        "offset": difference.offset,
        "places": [
            {
                "folder": str(place.folder),
                "file": None if place.file is None else str(place.file),
                "position": place.position,
                "what": place.what,
            }
            for place in difference.places
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasReport:
    """The verdict on all partitions that have more than one replica."""

    partitions: tuple[PartitionComparison, ...]
    alone: tuple[TopicPartition, ...]
    """Partitions of which only one replica was found."""
    is_behind_allowed: bool

    @property
    def is_clean(self) -> bool:
        return all(
            each.is_equal and (self.is_behind_allowed or not each.behind)
            for each in self.partitions
        )

    def to_json(self) -> dict[str, object]:
        return {
            "clean": self.is_clean,
            "partitions": [each.to_json() for each in self.partitions],
            "alone": [{"topic": each.topic, "partition": each.partition} for each in self.alone],
        }


def compare_replicas(
    spark: "SparkSession",
    paths: Sequence[str],
    *,
    topics: Collection[str] | None = None,
    is_behind_allowed: bool = False,
) -> ReplicasReport:
    """Compare all replicas in `paths`: log dirs of several brokers, or folders that have them.

    Every executor has to see the paths. Raises OptionError if there is nothing to compare.
    """
    plans, alone = plan_replicas(find_partitions(paths, topics=topics))
    if not plans:
        raise OptionError(
            f"there is nothing to compare in {', '.join(paths)}: no partition is there twice"
        )
    tasks = [task for plan in plans for task in plan.tasks()]
    results = _compared(spark, tasks)
    return ReplicasReport(
        partitions=tuple(plan.merged(results) for plan in plans),
        alone=alone,
        is_behind_allowed=is_behind_allowed,
    )


def plan_replicas(
    folders: Iterable[PartitionFolder],
) -> tuple[list["ReplicaPlan"], tuple[TopicPartition, ...]]:
    """What to compare, and which partitions have one replica alone. `folders` are in order."""
    plans, alone = [], []
    for partition, found in groupby(folders, _partition_of):
        replicas = list(found)
        if len(replicas) == 1:
            alone.append(partition)
        else:
            plans.append(ReplicaPlan(partition, replicas))
    return plans, tuple(alone)


def _partition_of(folder: PartitionFolder) -> TopicPartition:
    return folder.partition


def _compared(spark: "SparkSession", tasks: Sequence[ReplicaRange]) -> list[RangeComparison]:
    if not tasks:
        return []
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(compare_range).collect()


class ReplicaPlan:
    """Which replicas of a partition are compared where."""

    def __init__(self, partition: TopicPartition, folders: Sequence[PartitionFolder]) -> None:
        _require_same_topic(folders)
        self._partition = partition
        # If none of them has anything, it is said why the first cannot be read.
        held = [each for each in folders if holds_segments(each.path)] or folders
        self._logs = [list_segments(each.path) for each in held]
        ends = {log.folder: replica_end(log) for log in self._logs}
        last_end = max(end.offset for end in ends.values())
        starts = {
            each.path: max(each.log_start_offset, log.segments[0].base_offset)
            for each, log in zip(held, self._logs, strict=True)
        }
        known = [each.high_watermark for each in folders if each.high_watermark is not None]
        # More may be committed than is left of any of them.
        committed = max(known) if known else last_end
        self._end_offset = min(committed, last_end)
        self._start_offset = min(max(starts.values()), self._end_offset)
        self._replicas = tuple(
            _state(
                each,
                start_offset=starts.get(each.path, 0),
                end=ends.get(each.path, _NOTHING),
                committed_offset=committed,
            )
            for each in folders
        )

    def tasks(self) -> Iterator[ReplicaRange]:
        """Ranges that the same replicas have, none of them much longer than TASK_BYTES."""
        for start, end in pairwise(sorted(self._cuts())):
            folders = tuple(each.folder for each in self._replicas if each.end_offset >= end)
            if len(folders) > 1:
                yield ReplicaRange(self._partition, folders, start, end)

    def _cuts(self) -> set[int]:
        start, end = self._aligned_start(), self._end_offset
        offsets = {each.end_offset for each in self._replicas} | set(_segments_apart(self._logs[0]))
        return {start, end} | {offset for offset in offsets if start < offset < end}

    def _aligned_start(self) -> int:
        """Where the batch begins that the start is in: deleting records stops amid a batch."""
        start = self._start_offset
        begins = [_batch_start(log, start) for log in self._logs]
        return min([start, *(each for each in begins if each is not None)])

    def merged(self, results: Iterable[RangeComparison]) -> PartitionComparison:
        own = [each for each in results if each.partition == self._partition]
        differences = [each.first_difference for each in own if each.first_difference is not None]
        missing: list[MissingRange] = []
        for each in sorted(one for result in own for one in result.missing):
            add_missing(missing, each)
        return PartitionComparison(
            partition=self._partition,
            replicas=self._replicas,
            start_offset=self._start_offset,
            end_offset=self._end_offset,
            compared_bytes=sum(each.compared_bytes for each in own),
            differing_batches=sum(each.differing_batches for each in own),
            missing_offsets=sum(each.missing_offsets for each in own),
            first_difference=min(differences, key=lambda each: each.offset, default=None),
            missing=tuple(missing),
        )


def _state(
    folder: PartitionFolder, *, start_offset: int, end: ReplicaEnd, committed_offset: int
) -> ReplicaState:
    return ReplicaState(
        folder=folder.path,
        start_offset=start_offset,
        end_offset=end.offset,
        high_watermark=folder.high_watermark,
        behind=max(0, committed_offset - end.offset),
        excess_bytes=end.excess_bytes,
    )


def _require_same_topic(folders: Sequence[PartitionFolder]) -> None:
    topic_ids = {each.topic_id: each.path for each in folders if each.topic_id is not None}
    if len(topic_ids) > 1:
        first, second, *_ = topic_ids.values()
        raise OptionError(
            f"{first} and {second} are not replicas of one partition: their topics have the same "
            "name and different ids"
        )


def _segments_apart(log: PartitionLog) -> Iterator[int]:
    """Where segments begin, about TASK_BYTES apart."""
    size_bytes = 0
    for segment in log.segments:
        if size_bytes >= TASK_BYTES:
            yield segment.base_offset
            size_bytes = 0
        size_bytes += segment.path(layout.LOG).stat().st_size


def _batch_start(log: PartitionLog, offset: int) -> int | None:
    for segment in log.between(offset, offset + 1):
        with IndexedSegment(segment, end_position=None) as opened:
            try:
                place = opened.first_reaching(offset)
            except DamagedSegment:
                return None  # Whoever compares it says where.
            if place.base_offset is not None and place.base_offset <= offset:
                return place.base_offset
    return None
