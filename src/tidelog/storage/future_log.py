"""A copy of one log in another log dir, made while the log is written and read (KIP-113).

    1  create      <topic>-<n>.<unique>-future with a `partition.metadata`: from here on, a restart
                   knows of the move, and begins the copy anew
    2  write       the bytes of `.log` files, in slices, and what was rolled with its other files;
       finish      a segment is flushed when it is whole
    3  complete    nobody appends any more: the rest of the active segment, its indexes, the
                   producers, the leader epochs; what is in `.log` files is flushed
    4  decide      `tidelog-moved` in the folder of the log, durably: it says which copy has taken
                   its place. This one write decides; before it the copy counts for nothing, after
                   it the log does.
    5  promote     the copy gets the name `<topic>-<n>`
    6  the folder of the log is deleted, like any other

What a crash finds:

    before 4       a log and an unfinished copy: the log is served, the copy is made anew
    after 4        a log that is marked: it is nobody's. Step 5, if it was not done, and then 6
                   follow before anything is opened (`broker/decided_moves.py`)

Invariants:

    F1  Nothing is marked before its copy is on stable storage, as far as the log ever was: all of
        it. Only what can be made again is not flushed: indexes of the active segment, the snapshot
        of producers at its end.
    F2  A copy is cut to where it is written on: what lies behind was copied before the log was cut.
        Who is written from the start on has nothing beside it.
    F3  A log dir that cannot be read may hold the copy that a mark speaks of. Then neither is
        opened.

`Source` reads on the threads of the log's dir, `FutureLog` writes on those of the other: a disk
that hangs holds up its own.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, TopicId
from tidelog.base.ports import Disk
from tidelog.records.producer import ProducerEntry
from tidelog.storage import layout
from tidelog.storage.checkpoints import LeaderEpochs, write_leader_epochs, write_topic_id
from tidelog.storage.log import Log
from tidelog.storage.producer_snapshot import write_snapshot
from tidelog.storage.segment import Segment, flush_file

T = TypeVar("T")

BESIDE_LOG = (
    layout.OFFSET_INDEX,
    layout.TIME_INDEX,
    layout.TRANSACTION_INDEX,
    layout.IDS,
    layout.SNAPSHOT,
)
"""What a closed segment has beside its `.log`, each of them only perhaps."""


class Moved(NamedTuple):
    """Which copy has taken the place of a log."""

    directory_id: str
    """Of the log dir that it is in."""
    future_name: str
    """Of its folder, until it is called like a partition."""


class FileSlice(NamedTuple):
    """Some bytes of a file of a closed segment, and whether they are its last."""

    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Rest:
    """What a copy still lacks when nobody appends any more."""

    base_offset: Offset
    """Of the active segment."""
    position: int
    data: bytes
    beside: Mapping[str, bytes]
    """Files beside its log, by suffix."""
    end_offset: Offset
    epochs: LeaderEpochs
    producers: Sequence[ProducerEntry]


class Source:
    """The log that is copied, as seen by a thread of its dir. All methods block."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def know_sizes(self) -> None:
        """Ask the disk once for what would otherwise be asked for on the loop."""
        for segment in self.log.segments:
            self._guarded(segment, partial(_size_bytes, segment))

    def read_log(self, base_offset: Offset, position: int, size_bytes: int) -> bytes | None:
        """Bytes of a `.log` file. None if they are not there any more: the log was cut, or
        retention has taken the segment."""
        segment = self._segment(base_offset)
        if segment is None:
            return None
        data = self._guarded(
            segment, lambda: segment.open(self.log.access).read(position, size_bytes)
        )
        return data if data is not None and len(data) == size_bytes else None

    def read_beside(
        self, base_offset: Offset, suffix: str, position: int, size_bytes: int
    ) -> FileSlice | None:
        """The same of another file of a closed segment, as far as there are so many; None also if
        there is no such file."""
        segment = self._segment(base_offset)
        if segment is None:
            return None
        return self._guarded(segment, lambda: self._slice(segment, suffix, position, size_bytes))

    def _slice(
        self, segment: Segment, suffix: str, position: int, size_bytes: int
    ) -> FileSlice | None:
        path = segment.path(suffix)
        if not self.log.disk.exists(path):
            return None
        file = self.log.disk.open_existing(path)
        try:
            data = file.read(position, size_bytes)
            return FileSlice(data, position + len(data) >= file.size_bytes)
        finally:
            file.close()

    def rest(self, position: int, producers: Sequence[ProducerEntry]) -> Rest:
        """All that comes behind `position` of the active segment. Nobody appends meanwhile."""
        log = self.log
        active = log.segments[-1]
        log.complete_indexes()
        assert active.known_size_bytes is not None
        size_bytes = active.known_size_bytes - position
        data = active.open(log.access).read(position, size_bytes)
        if len(data) != size_bytes:
            raise StorageError(f"{active.log_path} is shorter than what was written to it")
        return Rest(
            active.base_offset,
            position,
            data,
            {
                suffix: log.disk.read_file(active.path(suffix))
                for suffix in BESIDE_LOG
                if log.disk.exists(active.path(suffix))
            },
            log.log_end_offset,
            log.noted_leader_epochs,
            producers,
        )

    def mark(self, moved: Moved) -> None:
        """Step 4: from here on this log is nobody's."""
        write_moved(self.log.disk, self.log.folder, moved)

    def _segment(self, base_offset: Offset) -> Segment | None:
        for segment in self.log.segments:
            if segment.base_offset == base_offset:
                return segment
        return None

    def _guarded(self, segment: Segment, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except StorageError:
            if self.log.is_closed or segment not in self.log.segments:
                return None  # Its files went while we looked at them.
            raise


class FutureLog:
    """The copy, as seen by a thread of its dir. All methods but the constructor block."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.folder = folder

    @property
    def name(self) -> str:
        return self.folder.name

    def create(self, topic_id: TopicId) -> None:
        """Step 1. Whatever is there was left by an attempt that a restart ended."""
        self._disk.remove_folder(self.folder)
        self._disk.make_folder(self.folder)
        write_topic_id(self._disk, self.folder / layout.PARTITION_METADATA, topic_id)
        flush_file(self._disk, self.folder / layout.PARTITION_METADATA)
        self._disk.flush_folder(self.folder)
        self._disk.flush_folder(self.folder.parent)

    def write(self, base_offset: Offset, position: int, data: bytes) -> None:
        """Add to the `.log` of a segment, at `position`. F2"""
        if position == 0:
            for suffix in BESIDE_LOG:  # Of what it held before the log began afresh there.
                self._disk.remove(self._path(base_offset, suffix))
        self._write(base_offset, layout.LOG, position, data)

    def write_beside(self, base_offset: Offset, suffix: str, position: int, data: bytes) -> None:
        """The same for another file."""
        self._write(base_offset, suffix, position, data)

    def _write(self, base_offset: Offset, suffix: str, position: int, data: bytes) -> None:
        file = self._disk.open(self._path(base_offset, suffix))
        try:
            if file.size_bytes > position:
                file.truncate(position)  # F2
            if file.size_bytes < position:
                raise StorageError(f"{file.path} has lost what was written to it")
            if data:
                file.append(data)
                file.start_writing(position, len(data))
        finally:
            file.close()

    def finish(self, base_offset: Offset, size_bytes: int) -> None:
        """A segment is whole, and has all its files: flush them."""
        self._write(base_offset, layout.LOG, size_bytes, b"")
        for suffix in (layout.LOG, *BESIDE_LOG):
            path = self._path(base_offset, suffix)
            if self._disk.exists(path):
                flush_file(self._disk, path)
        self._disk.flush_folder(self.folder)

    def flush(self, base_offset: Offset) -> None:
        """So that little is left for `complete`, for which others wait."""
        path = self._path(base_offset, layout.LOG)
        if self._disk.exists(path):
            flush_file(self._disk, path)

    def drop(self, base_offsets: Sequence[Offset]) -> None:
        """These segments are not in the log any more."""
        for base_offset in base_offsets:
            for suffix in (layout.LOG, *BESIDE_LOG):
                self._disk.remove(self._path(base_offset, suffix))

    def complete(self, rest: Rest) -> None:
        """Step 3. F1"""
        disk, base_offset = self._disk, rest.base_offset
        self._write(base_offset, layout.LOG, rest.position, rest.data)
        for suffix in BESIDE_LOG:
            data = rest.beside.get(suffix)
            if data is None:
                disk.remove(self._path(base_offset, suffix))
            else:
                self._write(base_offset, suffix, 0, data)
        # Where the log begins with its active segment, that has a snapshot of the same name.
        write_snapshot(disk, self._path(rest.end_offset, layout.SNAPSHOT), rest.producers)
        write_leader_epochs(disk, self.folder / layout.LEADER_EPOCH_CHECKPOINT, rest.epochs)
        for suffix in (layout.LOG, layout.TRANSACTION_INDEX):
            if suffix == layout.LOG or suffix in rest.beside:
                flush_file(disk, self._path(base_offset, suffix))
        disk.flush_folder(self.folder)

    def _path(self, base_offset: Offset, suffix: str) -> Path:
        return self.folder / layout.file_name(base_offset, suffix)


def _size_bytes(segment: Segment) -> int:
    return segment.size_bytes


def write_moved(disk: Disk, folder: Path, moved: Moved) -> None:
    """Say, durably, that the log in `folder` is nobody's any more."""
    fields = {"version": 0, "directory": moved.directory_id, "folder": moved.future_name}
    disk.replace_file(folder / layout.MOVED, json.dumps(fields).encode())


def read_moved(disk: Disk, folder: Path) -> Moved | None:
    """What `write_moved` has said there; None if nothing. Nonsense is a StorageError."""
    path = folder / layout.MOVED
    if not disk.exists(path):
        return None
    try:
        fields = json.loads(disk.read_file(path))
        return Moved(str(fields["directory"]), str(fields["folder"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} does not say where the log is now") from error
