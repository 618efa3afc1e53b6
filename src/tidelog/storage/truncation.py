"""Take batches off the end of a log.

    1  snapshots of later offsets        they would describe records that are gone
    2  younger segments, youngest first  a hole in the middle would look like a log
    3  index entries, then the log       an entry must not point past the end
    4  flush                             what was cut off must not come back after a power cut,
                                         behind records that were appended since

After a crash between any two of these the log ends later than asked for, and is truncated again.
"""

from collections.abc import Iterable
from pathlib import Path

from tidelog.base.ids import Offset
from tidelog.base.ports import Disk
from tidelog.storage import layout
from tidelog.storage.file_cache import Access, FileCache
from tidelog.storage.offset_index import OFFSET_ENTRY
from tidelog.storage.segment import Segment
from tidelog.storage.time_index import TIME_ENTRY
from tidelog.storage.transaction_index import cut_aborted


def remove_snapshots_after(disk: Disk, folder: Path, offset: Offset) -> None:
    """Remove every snapshot of an offset greater than `offset`."""
    contents = layout.sort_folder(disk.list_folder(folder))
    for snapshot_offset in contents.offsets(layout.SNAPSHOT):
        if snapshot_offset > offset:
            disk.remove(folder / layout.file_name(snapshot_offset, layout.SNAPSHOT))


def remove_segments(disk: Disk, files: FileCache, segments: Iterable[Segment]) -> None:
    """Remove all files of `segments`, in the order given."""
    for segment in segments:
        for suffix in layout.SEGMENT_SUFFIXES:
            path = segment.path(suffix)
            files.forget(path)
            disk.remove(path)
        segment.file = None


def cut_segment(
    disk: Disk,
    files: FileCache,
    segment: Segment,
    *,
    position: int,
    end_offset: Offset,
    access: Access,
) -> None:
    """Cut the log of `segment` at `position`, where the first batch not below `end_offset` starts,
    and its indexes before it. Nobody may have it open for appending afterwards."""
    if segment.indexer is not None:
        segment.indexer.spill()
    end = end_offset - segment.base_offset
    offsets = segment.offset_index(access).entries(access)
    times = segment.time_index(access).entries(access)
    kept_offsets = sum(relative_offset < end for relative_offset, _ in offsets)
    kept_times = sum(relative_offset < end for _, relative_offset in times)
    if segment.has_aborted:
        path = segment.path(layout.TRANSACTION_INDEX)
        files.forget(path)
        cut_aborted(disk, path, end_offset=end_offset)
    segment.file = None
    _cut_file(disk, files, segment.path(layout.OFFSET_INDEX), kept_offsets * OFFSET_ENTRY.size)
    _cut_file(disk, files, segment.path(layout.TIME_INDEX), kept_times * TIME_ENTRY.size)
    _cut_file(disk, files, segment.log_path, position)


def _cut_file(disk: Disk, files: FileCache, path: Path, size_bytes: int) -> None:
    files.forget(path)
    file = disk.open_existing(path)
    try:
        file.truncate(size_bytes)
        file.flush()
    finally:
        file.close()
