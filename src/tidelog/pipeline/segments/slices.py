"""What a task reads: whole batches of one segment, found by position, and which of their records.

A slice can be read without those before it: it says which aborted transactions reach into it, and
its first byte is that of a batch. It also says which base offsets its batches have. If they have
others, the files are not those that it was planned for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.ranges import OffsetRange
from tidelog.storage.transaction_index import AbortedTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSlice:
    """Bytes `[start_position, end_position)` of a `.log` file. Travels to an executor by pickle."""

    partition: TopicPartition
    path: Path
    start_position: int
    end_position: int
    first_base_offset: int
    """No batch begins before it ..."""
    end_base_offset: int
    """... or here, or later."""
    start_offset: int
    end_offset: int
    """Records in `[start_offset, end_offset)` are wanted, ..."""
    start_ms: int | None
    end_ms: int | None
    """... and of those the ones with a timestamp in `[start_ms, end_ms)`."""
    is_committed_only: bool
    aborted: tuple[AbortedTransaction, ...]

    @property
    def range(self) -> OffsetRange:
        return OffsetRange(self.partition, self.start_offset, self.end_offset)

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position


def pack_slices(
    slices: Iterable[SegmentSlice], *, max_bytes: int
) -> list[tuple[SegmentSlice, ...]]:
    """Consecutive slices of a range together, as long as they have no more than `max_bytes`.

    For logs of many small segments: a task for each would take longer to start than to run.
    """
    packs: list[tuple[SegmentSlice, ...]] = []
    pack: list[SegmentSlice] = []
    pack_bytes = 0
    for each in slices:
        is_other = bool(pack) and pack[-1].range != each.range
        if pack and (is_other or pack_bytes + each.size_bytes > max_bytes):
            packs.append(tuple(pack))
            pack, pack_bytes = [], 0
        pack.append(each)
        pack_bytes += each.size_bytes
    return [*packs, tuple(pack)] if pack else packs
