"""Read partitions from their segment files, without a broker (X6).

    paths ──▶ find_partitions ──▶ choose_replicas ──▶ plan_partition ──▶ pack_slices      driver
                                                            │ SegmentSlice, by pickle
                                                            ▼
                                                        read_slice ──▶ Arrow batches      executor

Nothing here writes, locks or repairs anything: the files may be a running broker's, Apache Kafka's,
a copy, or what a crash has left.
"""

from tidelog.pipeline.segments.errors import (
    DamagedSegment,
    MissingOffsets,
    SegmentError,
    SegmentsChanged,
    TornTail,
)
from tidelog.pipeline.segments.folders import PartitionFolder, find_partitions, holds_segments
from tidelog.pipeline.segments.missing import Missing
from tidelog.pipeline.segments.planning import PartitionPlan, Wanted, plan_partition
from tidelog.pipeline.segments.reading import read_slice
from tidelog.pipeline.segments.replicas import ReadableRange, choose_replicas, readable_range
from tidelog.pipeline.segments.slices import SegmentSlice, pack_slices
from tidelog.pipeline.segments.times import first_offset_from

__all__ = [
    "DamagedSegment",
    "Missing",
    "MissingOffsets",
    "PartitionFolder",
    "PartitionPlan",
    "ReadableRange",
    "SegmentError",
    "SegmentSlice",
    "SegmentsChanged",
    "TornTail",
    "Wanted",
    "choose_replicas",
    "find_partitions",
    "first_offset_from",
    "holds_segments",
    "pack_slices",
    "plan_partition",
    "read_slice",
    "readable_range",
]
