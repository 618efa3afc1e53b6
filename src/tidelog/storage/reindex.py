"""Make the indexes of a closed segment again, from the log (recovery rule R3).

Readers may be at work: the new files are written beside the old ones and renamed over them. They
are not flushed; if a crash takes them, they are made again.

Of a log that is damaged, what is before the damage is indexed. Whoever reads on comes upon it.
"""

from contextlib import suppress
from itertools import count

from tidelog.base.errors import DamagedLog
from tidelog.base.ports import Disk, LogFile
from tidelog.storage import layout
from tidelog.storage.file_cache import FileCache
from tidelog.storage.indexer import Indexer
from tidelog.storage.scan import batch_headers
from tidelog.storage.segment import Segment

# Two threads may come upon the same damage; neither may write into the other's file.
_attempts = count()


def rebuild_indexes(
    disk: Disk, files: FileCache, segment: Segment, *, index_interval_bytes: int
) -> None:
    """Replace `.index` and `.timeindex` of a closed segment."""
    attempt = f".{next(_attempts)}{layout.TEMPORARY}"
    paths = (segment.path(layout.OFFSET_INDEX), segment.path(layout.TIME_INDEX))
    temporary = [path.with_name(path.name + attempt) for path in paths]
    indexer = Indexer.fresh(disk, *temporary)
    for path in temporary:
        disk.remove(path)  # What an earlier process may have left under this number.
        disk.open(path).close()
    file = disk.open_existing(segment.log_path)
    try:
        with suppress(DamagedLog):
            _index(indexer, segment, file, index_interval_bytes)
    finally:
        file.close()
    indexer.close()
    for source, target in zip(temporary, paths, strict=True):
        disk.rename(source, target)
        files.forget(target)
    segment.forget_indexes()


def _index(indexer: Indexer, segment: Segment, file: LogFile, index_interval_bytes: int) -> None:
    batches = batch_headers(
        file, base_offset=segment.base_offset, position=0, end_position=file.size_bytes
    )
    for position, header in batches:
        indexer.add(
            header.last_offset - segment.base_offset,
            position,
            header.size_bytes,
            header.max_timestamp_ms,
            index_interval_bytes,
        )
        indexer.make_room()
