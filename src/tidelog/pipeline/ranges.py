"""Cut what is to be read into tasks.

A range is some consecutive offsets of a partition; a task reads one. There is a task for each
partition with anything to read, more if `minPartitions` asks for more or if
`maxRecordsPerPartition` is exceeded: larger ranges are cut into more pieces. The same offsets are
always cut in the same way, which a sink relies upon when a micro-batch is run again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.offsets import Offsets


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets `[start_offset, end_offset)` of a partition."""

    partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.partition} from {self.start_offset} to {self.end_offset}"


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """What there is to read, in order; `start` has every partition of `end`."""
    return sorted(
        OffsetRange(partition, start[partition], offset)
        for partition, offset in end.items()
        if offset > start[partition]
    )


def cut(
    ranges: Sequence[OffsetRange], *, min_count: int | None, max_size: int | None
) -> list[OffsetRange]:
    """The same offsets as `ranges`, in at least `min_count` pieces if there are as many offsets."""
    pieces = list(ranges) if max_size is None else _cut_by_size(ranges, max_size)
    if min_count is not None and len(pieces) < min_count:
        pieces = _cut_by_count(pieces, min_count)
    return pieces


def _cut_by_size(ranges: Iterable[OffsetRange], max_size: int) -> list[OffsetRange]:
    return [
        piece
        for each in ranges
        for piece in _in_pieces(each, (each.size + max_size - 1) // max_size)
    ]


def _cut_by_count(ranges: Sequence[OffsetRange], min_count: int) -> list[OffsetRange]:
    """The largest are cut, each into as many pieces as its share is; then what is still missing."""
    total = sum(each.size for each in ranges)
    wanted = min(min_count, total)
    counts = [max(1, each.size * wanted // total) for each in ranges]
    # Whose pieces are the largest comes first, and is given one more; there is always one with more
    # than one offset, or there would be enough.
    largest = [(-each.size / counts[at], at) for at, each in enumerate(ranges)]
    heapify(largest)
    for _ in range(wanted - sum(counts)):
        at = largest[0][1]
        counts[at] += 1
        heapreplace(largest, (-ranges[at].size / counts[at], at))
    return [
        piece
        for each, count in zip(ranges, counts, strict=True)
        for piece in _in_pieces(each, count)
    ]


def _in_pieces(whole: OffsetRange, count: int) -> list[OffsetRange]:
    ends = [whole.start_offset + whole.size * number // count for number in range(count + 1)]
    return [
        OffsetRange(whole.partition, start, end) for start, end in pairwise(ends) if end > start
    ]
