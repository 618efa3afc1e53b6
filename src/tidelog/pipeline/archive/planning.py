"""Which offsets to archive next, and which chunks to make one: so that files are worth opening.

Offsets wait in the topic, not in memory, until they fill a file or have waited for long enough. A
run that may not wait (`--once`) takes what there is, and leaves small chunks behind. Those are
merged like coins: as soon as there are `MERGED_COUNT` of about the same size next to each other
they become one of the next size, up to the target. So a record is written again a few times at
most, each time into a file that is many times larger, and there are never many small files.

Nothing here asks anybody, reads a clock or touches a file.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.pipeline.archive.manifest import Chunk, Manifest

MERGED_COUNT: Final = 8
RECORD_BYTES_ASSUMED: Final = 200
"""What a record takes in Parquet, as long as nobody knows. Too little does no harm: a task closes
files that have reached the target."""
CHUNK_RECORDS_MAX: Final = 50_000_000
# Below that a file is mostly what Parquet says about itself.
_SMALLEST_BYTES: Final = 16 * 1024
_RECENT_CHUNKS: Final = 20


@dataclass(frozen=True, slots=True)
class Backlog:
    """Offsets of a partition that are not archived yet."""

    start_offset: int
    end_offset: int
    has_waited: bool
    """Whether it is to be taken however little it is."""

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset


def chunk_offsets(manifest: Manifest, *, target_bytes: int) -> int:
    """How many offsets fill a file, going by the chunks that came last."""
    recent = [
        chunk
        for partition in manifest.chunks.values()
        for chunk in partition[-_RECENT_CHUNKS:]
        if chunk.files
    ]
    offset_count = sum(each.offset_count for each in recent)
    size_bytes = sum(each.size_bytes for each in recent)
    per_offset = size_bytes / offset_count if offset_count else RECORD_BYTES_ASSUMED
    return max(1, min(CHUNK_RECORDS_MAX, math.ceil(target_bytes / max(per_offset, 1e-3))))


def taken(
    backlogs: Mapping[int, Backlog], *, chunk_offsets: int, chunk_count_max: int
) -> dict[int, int]:
    """Where to end in each partition of which something is taken now.

    Whole chunks first, of those partitions that have most to archive; then what has waited. At
    most `chunk_count_max` tasks come of it, so that a crash costs little.
    """
    ends: dict[int, int] = {}
    room = chunk_count_max
    for partition, backlog in sorted(backlogs.items(), key=lambda each: -each[1].size):
        if room == 0 or backlog.size == 0:
            continue
        whole = min(room, backlog.size // chunk_offsets)
        room -= whole
        end = backlog.start_offset + whole * chunk_offsets
        if backlog.has_waited and room and end < backlog.end_offset:
            room -= 1
            end = min(backlog.end_offset, end + chunk_offsets)
        if end > backlog.start_offset:
            ends[partition] = end
    return ends


def due_merges(manifest: Manifest, *, target_bytes: int) -> list[tuple[Chunk, ...]]:
    """Chunks to make one of each: enough of about the same size next to each other."""
    return [
        run[:MERGED_COUNT]
        for chunks in manifest.chunks.values()
        for run in _neighbours(chunks, target_bytes=target_bytes)
        if len(run) >= MERGED_COUNT
    ]


def all_merges(manifest: Manifest, *, target_bytes: int) -> list[tuple[Chunk, ...]]:
    """Chunks to make one of each, so that as few small ones are left as can be."""
    found = []
    for chunks in manifest.chunks.values():
        group: list[Chunk] = []
        for chunk in chunks:
            is_next = not group or group[-1].end_offset == chunk.start_offset
            size_bytes = sum(each.size_bytes for each in group)
            if not is_next or size_bytes + chunk.size_bytes > target_bytes:
                found.append(tuple(group))
                group = []
            group.append(chunk)
        found.append(tuple(group))
    return [group for group in found if len(group) > 1]


def _neighbours(chunks: Sequence[Chunk], *, target_bytes: int) -> Iterator[tuple[Chunk, ...]]:
    """Runs of chunks of the same class without a hole in between; those of full size are none."""
    run: list[Chunk] = []
    for chunk in chunks:
        follows = bool(run) and run[-1].end_offset == chunk.start_offset
        if not follows or _size_class(chunk) != _size_class(run[-1]):
            yield tuple(run)
            run = []
        if chunk.size_bytes < target_bytes / 2:
            run.append(chunk)
    yield tuple(run)


def _size_class(chunk: Chunk) -> int:
    return max(0, int(math.log(max(chunk.size_bytes, 1) / _SMALLEST_BYTES, MERGED_COUNT)))
