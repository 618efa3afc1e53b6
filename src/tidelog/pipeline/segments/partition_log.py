"""The segments of one partition's folder, as they are now."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tidelog.pipeline.segments.errors import SegmentError, SegmentsChanged
from tidelog.storage import layout
from tidelog.storage.disk import RealDisk

_DISK: Final = RealDisk()
_REPLACING: Final = layout.LOG + layout.SWAP


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files that begin with the same offset."""

    folder: Path
    base_offset: int
    next_base_offset: int | None
    """Where the next segment begins; None for the last, which may be growing."""
    suffixes: frozenset[str]

    def path(self, suffix: str) -> Path:
        return self.folder / layout.file_name(self.base_offset, suffix)

    @property
    def is_indexed(self) -> bool:
        """Whether anything but batches is there: then everything is."""
        return layout.OFFSET_INDEX in self.suffixes or layout.TIME_INDEX in self.suffixes


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """All segments of a folder, in order; there is at least one."""

    folder: Path
    segments: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    """Offsets at which somebody wrote down what the producers were doing."""
    orphans: tuple[SegmentFiles, ...]
    """Of which there are indexes and no batches, in order."""

    def between(self, start_offset: int, end_offset: int) -> tuple[SegmentFiles, ...]:
        """Those that may have any of these offsets."""
        return tuple(
            segment
            for segment in self.segments
            if segment.base_offset < end_offset
            and (segment.next_base_offset is None or segment.next_base_offset > start_offset)
        )


def list_segments(folder: Path) -> PartitionLog:
    """What is in `folder`. Raises SegmentError where compaction is not done with it."""
    log = _listed(folder)
    if not log.orphans:
        return log
    # Whoever removes a segment renames one file after the other.
    again = _listed(folder)
    still = {each.base_offset for each in log.orphans}
    return replace(
        again, orphans=tuple(each for each in again.orphans if each.base_offset in still)
    )


def _listed(folder: Path) -> PartitionLog:
    names = _DISK.list_folder(folder)
    for name in names:
        if name.endswith(_REPLACING):
            raise SegmentError(
                f"{folder / name} is about to take the place of other segments: try again, or if "
                "the broker died meanwhile, let it start once"
            )
    contents = layout.sort_folder(names)
    bases = contents.offsets(layout.LOG)
    if not bases:
        raise SegmentsChanged(f"{folder} has no segments any more")
    having = {suffix: frozenset(contents.offsets(suffix)) for suffix in layout.SEGMENT_SUFFIXES}

    def files(base_offset: int, next_base_offset: int | None) -> SegmentFiles:
        suffixes = frozenset(suffix for suffix in having if base_offset in having[suffix])
        return SegmentFiles(folder, base_offset, next_base_offset, suffixes)

    indexed = having[layout.OFFSET_INDEX] | having[layout.TIME_INDEX]
    return PartitionLog(
        folder,
        tuple(map(files, bases, [*bases[1:], None])),
        tuple(contents.offsets(layout.SNAPSHOT)),
        tuple(files(each, None) for each in sorted(indexed - having[layout.LOG])),
    )
