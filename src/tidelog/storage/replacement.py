"""Put one new segment in the place of some old ones, so that a crash leaves the old or the new.

    1  write       <base>.log.cleaned and its indexes, and flush them
    2  decide      .cleaned becomes .swap, one file after the other; flush the folder
    3  take out    the old files become .deleted, the youngest segment first
    4  put in      .swap becomes what it stands for; flush the folder

What a crash leaves is told apart by names, by Kafka's rules, so that Kafka finishes what we began
and the other way round:

    .cleaned left      not decided: it goes, and so does every .swap at or behind its offset
    .swap left         decided: old segments within its range go, and it takes their place
    .deleted left      it goes

An old segment behind the last batch of the new one is not in its range and may stay. That is no
harm: what compaction took from it is still shadowed by what shadowed it before, and the compaction
that was interrupted begins again from the same offset.

Steps 1 and 2 happen beside the log (`CleanedSegment`), where nobody looks; 3 and 4 are
`Log.replace`, when nobody reads.
"""

from collections.abc import Sequence
from pathlib import Path

from tidelog.base.ids import Offset
from tidelog.base.ports import BytesLike, Disk
from tidelog.records.batch import BatchHeader
from tidelog.storage import layout
from tidelog.storage.file_cache import FileCache
from tidelog.storage.indexer import Indexer
from tidelog.storage.scan import batch_headers
from tidelog.storage.segment import Segment, flush_file
from tidelog.storage.transaction_index import AbortedTransaction, write_aborted

# Small batches are gathered: a write for each would cost more than compacting it.
_GATHERED_BYTES = 256 * 1024


class CleanedSegment:
    """A segment that is being written to take the place of `replaced`. Blocks."""

    def __init__(
        self, disk: Disk, replaced: tuple[Segment, ...], *, index_interval_bytes: int
    ) -> None:
        """Nothing is written yet."""
        self.replaced = replaced
        self.base_offset = replaced[0].base_offset
        self.size_bytes = 0
        self._disk = disk
        self._index_interval_bytes = index_interval_bytes
        self._indexer = Indexer.fresh(
            disk, self._path(layout.OFFSET_INDEX), self._path(layout.TIME_INDEX)
        )
        self._aborted: list[AbortedTransaction] = []
        self._gathered = bytearray()
        self._is_taking_place = False

    def _path(self, suffix: str) -> Path:
        path = self.replaced[0].path(suffix)
        return path.with_name(path.name + layout.CLEANED)

    def create(self) -> None:
        """Make the files, empty: an earlier attempt may have left some."""
        for suffix in layout.SEGMENT_SUFFIXES:
            self._disk.remove(self._path(suffix))
        for suffix in (layout.LOG, layout.OFFSET_INDEX, layout.TIME_INDEX):
            self._disk.open(self._path(suffix)).close()

    def append(self, batch: BytesLike, header: BatchHeader) -> None:
        """Add a batch that stays, as `header` says it is."""
        self._gathered += batch
        self._indexer.add(
            header.last_offset - self.base_offset,
            self.size_bytes,
            len(batch),
            header.max_timestamp_ms,
            self._index_interval_bytes,
        )
        self.size_bytes += len(batch)
        if len(self._gathered) >= _GATHERED_BYTES:
            self._write()

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Its marker is in this segment."""
        self._aborted.append(aborted)

    def _write(self) -> None:
        self._indexer.make_room()
        if not self._gathered:
            return
        file = self._disk.open(self._path(layout.LOG))
        try:
            position = file.size_bytes
            file.append(self._gathered)
            # So that little is left for the flush, behind which others may have to wait.
            file.start_writing(position, len(self._gathered))
        finally:
            file.close()
        self._gathered = bytearray()

    def decide(self) -> None:
        """All is there: steps 1 and 2. From here on, a crash leads to the new segment."""
        self._write()
        self._indexer.close()
        if self._aborted:
            write_aborted(self._disk, self._path(layout.TRANSACTION_INDEX), self._aborted)
        for suffix in (layout.LOG, layout.OFFSET_INDEX, layout.TIME_INDEX):
            flush_file(self._disk, self._path(suffix))
        folder = self.replaced[0].log_path.parent
        self._disk.flush_folder(folder)
        for suffix in self._suffixes:
            path = self._path(suffix)
            self._disk.rename(path, path.with_name(_swap_name(path.name)))
        self._disk.flush_folder(folder)

    @property
    def _suffixes(self) -> tuple[str, ...]:
        files = (layout.LOG, layout.OFFSET_INDEX, layout.TIME_INDEX)
        return (*files, layout.TRANSACTION_INDEX) if self._aborted else files

    def discard(self) -> None:
        """It is not wanted any more. Does nothing once old files are being taken out."""
        if self._is_taking_place:
            return
        log = self._path(layout.LOG)
        if self._disk.exists(log.with_name(_swap_name(log.name))):
            # Undecided again, before a part of it could be taken for the rest of it.
            self._disk.rename(log.with_name(_swap_name(log.name)), log)
        for suffix in layout.SEGMENT_SUFFIXES:
            path = self._path(suffix)
            self._disk.remove(path.with_name(_swap_name(path.name)))
        for suffix in layout.SEGMENT_SUFFIXES:
            self._disk.remove(self._path(suffix))

    def take_out_old(self, files: FileCache) -> tuple[Path, ...]:
        """Step 3: the names that the old files have now. Nobody may be reading them."""
        self._is_taking_place = True
        renamed = []
        for segment in reversed(self.replaced):
            for path in self._files_of(segment):
                files.forget(path)
                if self._disk.exists(path):
                    deleted = path.with_name(path.name + layout.DELETED)
                    self._disk.rename(path, deleted)
                    renamed.append(deleted)
            segment.file = None
        return tuple(renamed)

    def _files_of(self, segment: Segment) -> list[Path]:
        paths = [segment.path(suffix) for suffix in layout.SEGMENT_SUFFIXES]
        if segment.base_offset != self.base_offset:
            paths.append(segment.path(layout.SNAPSHOT))  # No segment begins there any more.
        return paths

    def put_in_place(self) -> Segment:
        """Step 4, but for the flush: the new segment."""
        folder = self.replaced[0].log_path.parent
        for suffix in self._suffixes:
            path = self.replaced[0].path(suffix)
            self._disk.rename(path.with_name(path.name + layout.SWAP), path)
        segment = Segment(self._disk, folder, self.base_offset)
        segment.known_size_bytes = self.size_bytes
        segment.has_aborted = bool(self._aborted)
        return segment


def _swap_name(cleaned_name: str) -> str:
    return cleaned_name.removesuffix(layout.CLEANED) + layout.SWAP


def finish_replacements(disk: Disk, folder: Path, names: Sequence[str]) -> bool:
    """Do what is left of replacements that a crash interrupted. True if there was something.

    `names` is what lies in `folder`. Doing this twice, or being interrupted, changes nothing.
    """
    names = [name for name in names if layout.is_named_by_offset(name)]
    cleaned = [name for name in names if name.endswith(layout.CLEANED)]
    swapped = [name for name in names if name.endswith(layout.SWAP)]
    if not cleaned and not swapped:
        return False
    undecided = min(map(_base_offset, cleaned), default=None)
    decided = []
    for name in swapped:
        if undecided is not None and _base_offset(name) >= undecided:
            disk.remove(folder / name)
        else:
            decided.append(name)
    for name in cleaned:  # After the swaps that they make void.
        disk.remove(folder / name)
    for name in decided:
        if name.endswith(layout.LOG + layout.SWAP):
            _remove_replaced(disk, folder, names, name)
    # Logs first: an index without its log would look like one of a segment that is to go.
    for name in sorted(decided, key=lambda one: not one.endswith(layout.LOG + layout.SWAP)):
        disk.rename(folder / name, folder / name.removesuffix(layout.SWAP))
    disk.flush_folder(folder)
    return True


def _remove_replaced(disk: Disk, folder: Path, names: Sequence[str], swap_name: str) -> None:
    """Remove the segments in the range of a new one, youngest first."""
    first = _base_offset(swap_name)
    end = max(_end_offset(disk, folder / swap_name, first), first + 1)
    for name in reversed(names):
        if first <= _base_offset(name) < end and name.endswith(layout.SEGMENT_SUFFIXES):
            disk.remove(folder / name)


def _end_offset(disk: Disk, path: Path, base_offset: Offset) -> int:
    file = disk.open_existing(path)
    try:
        end = int(base_offset)
        for _, header in batch_headers(
            file, base_offset=base_offset, position=0, end_position=file.size_bytes
        ):
            end = header.end_offset
        return end
    finally:
        file.close()


def _base_offset(name: str) -> Offset:
    return Offset(int(name.partition(".")[0]))
