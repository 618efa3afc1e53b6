"""Open one partition's folder: after a clean stop at once, after a crash by way of recovery (S6).

    1  sweep what an interrupted deletion or replacement left
    2  find the end of the log                  clean: from the last index entry
                                                else:  recovery, from the recovery point
    3  aborted transactions: made again where recovery saw some, or where the file is damaged
    4  leader epochs: the checkpoint, and what recovery saw behind it
    5  producers: the newest snapshot that is not beyond the end, and the batches after it

A clean stop is believed only as far as the files bear it out. If the last segment does not end
with a whole batch, or its index does not fit, the log is recovered as if it had crashed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.base.errors import StorageError
from tidelog.base.ids import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from tidelog.base.ports import Disk
from tidelog.records.batch import BatchHeader
from tidelog.records.control import TransactionEnd, read_transaction_end
from tidelog.records.producer import ProducerEntry
from tidelog.storage import layout
from tidelog.storage.aborted import rebuild_aborted
from tidelog.storage.checkpoints import (
    CorruptCheckpoint,
    LeaderEpochs,
    read_leader_epochs,
    read_topic_id,
    write_topic_id,
)
from tidelog.storage.file_cache import FileCache
from tidelog.storage.index_file import IndexUnusable
from tidelog.storage.log import Log, LogConfig
from tidelog.storage.producer_snapshot import CorruptSnapshot, read_snapshot
from tidelog.storage.recovery import Recovery
from tidelog.storage.reindex import rebuild_indexes
from tidelog.storage.replacement import finish_replacements
from tidelog.storage.segment import Segment
from tidelog.storage.tail import find_tail
from tidelog.storage.transaction_index import is_usable
from tidelog.storage.truncation import remove_segments


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log ready for use, and what its files say about leader epochs.

    `scanned_bytes` and `cut_bytes` are 0 unless recovery had to run.
    """

    log: Log
    leader_epochs: LeaderEpochs
    scanned_bytes: int
    cut_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Who rebuilds the producer state (D2): `restore` once, then `observe` in offset order."""

    restore: Callable[[Sequence[ProducerEntry], Offset], None]
    """With what a snapshot held, and the offset it was taken at."""

    observe: Callable[[BatchHeader, TransactionEnd | None], object]
    """With what a control batch says about the end of a transaction."""


def open_log(
    *,
    disk: Disk,
    files: FileCache,
    folder: Path,
    topic_partition: TopicPartition,
    topic_id: TopicId | None,
    config: LogConfig,
    clean: bool,
    recovery_point: Offset | None,
    log_start_offset: Offset,
    has_been_compacted: bool,
    replay: Replay,
    warn: Callable[[str], None],
    now_ms: int,
) -> OpenedLog:
    """Open `folder`, or create it; afterwards every file in it can be vouched for.

    `topic_id` is written to `partition.metadata` where there is none; a different one there is a
    StorageError. `recovery_point` is ignored after a `clean` stop; None means that it was lost
    and everything is scanned. `has_been_compacted`: there may be gaps, whatever `config` says by
    now. `warn` gets a sentence about everything that had to be repaired.

    What recovery found is not durable yet: `Log.flush` makes it so.
    """
    opening = _Opening(disk, files, folder, config, warn, now_ms)
    opening.has_gaps = has_been_compacted or config.is_compacted
    topic_id = opening.agree_on_topic_id(topic_id)
    opening.find_segments()
    if not opening.segments:
        opening.start_at(log_start_offset)
    elif not (clean and opening.continue_tail()):
        opening.recover(None if clean else recovery_point)
    opening.repair_aborted()
    if opening.end_offset < log_start_offset:
        warn(
            f"{folder} ends at offset {opening.end_offset}, before the log start offset "
            f"{log_start_offset}: removed what is left of it"
        )
        opening.start_at(log_start_offset)
    end_offset = opening.end_offset
    log = Log(
        disk=disk,
        files=files,
        folder=folder,
        topic_partition=topic_partition,
        topic_id=topic_id,
        config=config,
        segments=opening.segments,
        log_start_offset=max(log_start_offset, opening.segments[0].base_offset),
        log_end_offset=end_offset,
        recovery_point=min(
            end_offset if opening.is_clean else recovery_point or Offset(0), end_offset
        ),
        complete_end_offset=end_offset if opening.is_clean or opening.is_new else NO_OFFSET,
        is_folder_flushed=opening.is_clean,
    )
    if opening.is_clean:
        _replay(log, opening.snapshots, disk, replay, warn)
    else:
        replay_producers(log, disk, replay, warn)  # Some are gone since the folder was listed.
    return OpenedLog(log, opening.leader_epochs(log), opening.scanned_bytes, opening.cut_bytes)


class _Opening:
    """What is known about the folder so far."""

    def __init__(
        self,
        disk: Disk,
        files: FileCache,
        folder: Path,
        config: LogConfig,
        warn: Callable[[str], None],
        now_ms: int,
    ) -> None:
        self.disk = disk
        self.files = files
        self.folder = folder
        self.config = config
        self.warn = warn
        self.now_ms = now_ms
        self.is_clean = False
        self.has_gaps = False
        self.is_new = not disk.exists(folder)
        self.segments: tuple[Segment, ...] = ()
        self.end_offset = Offset(0)
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self._seen_epochs: list[tuple[LeaderEpoch, Offset]] = []
        self._scanned_from: Offset | None = None
        self._has_seen_markers = False
        if self.is_new:
            disk.make_folder(folder)
        self._names = disk.list_folder(folder)
        self._contents = layout.sort_folder(self._names)

    @property
    def snapshots(self) -> list[Offset]:
        return self._contents.offsets(layout.SNAPSHOT)

    def agree_on_topic_id(self, expected: TopicId | None) -> TopicId | None:
        path = self.folder / layout.PARTITION_METADATA
        found = None
        if layout.PARTITION_METADATA in self._contents.others:
            try:
                found = read_topic_id(self.disk, path)
            except CorruptCheckpoint as error:
                if expected is None:
                    raise
                # It was not durable before the first flush of the log.
                self.warn(f"{error}: writing {expected} to it")
        if found is None and expected is not None:
            write_topic_id(self.disk, path, expected)
        elif found != expected and expected is not None:
            raise StorageError(f"{path} says topic id {found}, expected {expected}")
        return expected or found

    def find_segments(self) -> None:
        if finish_replacements(self.disk, self.folder, self._names):
            self._contents = layout.sort_folder(self.disk.list_folder(self.folder))
        contents = self._contents
        for name in contents.leftovers:
            self.disk.remove(self.folder / name)
        bases = contents.offsets(layout.LOG)
        self.segments = tuple(Segment(self.disk, self.folder, base) for base in bases)
        known = set(bases)
        for suffix in layout.SEGMENT_SUFFIXES:
            for orphan in set(contents.offsets(suffix)) - known:
                self.disk.remove(self.folder / layout.file_name(orphan, suffix))
        with_aborted = set(contents.offsets(layout.TRANSACTION_INDEX))
        for segment in self.segments:
            segment.has_aborted = segment.base_offset in with_aborted

    def start_at(self, offset: Offset) -> None:
        """Begin with an empty log."""
        remove_segments(self.disk, self.files, reversed(self.segments))
        segment = Segment(self.disk, self.folder, offset)
        segment.create(self.now_ms)
        self.segments = (segment,)
        self.end_offset = offset
        self.is_clean = False

    def continue_tail(self) -> bool:
        """Go on where a clean stop left off; False if the files do not look like one."""
        active = self.segments[-1]
        self._rebuild_missing_indexes(self.segments)
        try:
            tail = find_tail(
                self.disk, active, index_interval_bytes=self.config.index_interval_bytes
            )
        except (IndexUnusable, StorageError) as error:
            self.warn(f"{active.log_path} was not closed properly ({error}): recovering the log")
            return False
        active.activate(tail.file, tail.indexer, created_ms=self.now_ms)
        self.end_offset = tail.end_offset
        self.is_clean = True
        return True

    def recover(self, recovery_point: Offset | None) -> None:
        recovery = Recovery(
            disk=self.disk,
            files=self.files,
            index_interval_bytes=self.config.index_interval_bytes,
            has_gaps=self.has_gaps,
            observe=self._see,
            warn=self.warn,
        )
        self.segments, self.end_offset = recovery.run(
            self.segments, recovery_point=recovery_point, now_ms=self.now_ms
        )
        self.scanned_bytes = recovery.scanned_bytes
        self.cut_bytes = recovery.cut_bytes
        scanned = self.segments[recovery.first_scanned :]
        if self._has_seen_markers or any(segment.has_aborted for segment in scanned):
            rebuild_aborted(self.disk, self.segments, recovery.first_scanned)
        self._rebuild_missing_indexes(
            tuple(segment for segment in self.segments if segment.is_flushed)
        )

    def repair_aborted(self) -> None:
        """Make transaction indexes again that a reader could not use."""
        for number, segment in enumerate(self.segments):
            path = segment.path(layout.TRANSACTION_INDEX)
            if segment.has_aborted and not is_usable(self.disk, path, segment.base_offset):
                self.warn(f"{path} is damaged: rebuilding it")
                rebuild_aborted(self.disk, self.segments, number)

    def _rebuild_missing_indexes(self, segments: Sequence[Segment]) -> None:
        complete = set(self._contents.offsets(layout.OFFSET_INDEX)) & set(
            self._contents.offsets(layout.TIME_INDEX)
        )
        for segment in segments:
            if segment.base_offset not in complete:
                self.warn(f"{segment.log_path} has lost an index: rebuilding it")
                rebuild_indexes(
                    self.disk,
                    self.files,
                    segment,
                    index_interval_bytes=self.config.index_interval_bytes,
                )

    def _see(self, header: BatchHeader) -> None:
        self._has_seen_markers |= header.is_control
        if self._scanned_from is None:
            # Not where a segment begins: its indexes may tell where the recovery point is in it.
            self._scanned_from = Offset(header.base_offset)
        last_epoch = self._seen_epochs[-1][0] if self._seen_epochs else NO_LEADER_EPOCH
        if header.leader_epoch > last_epoch:
            self._seen_epochs.append((LeaderEpoch(header.leader_epoch), Offset(header.base_offset)))

    def leader_epochs(self, log: Log) -> LeaderEpochs:
        """Those of the checkpoint, up to where recovery began to look, and those that it saw.

        The checkpoint is written when the log is flushed. What recovery scans was not, so of that
        the checkpoint may know less, or what was there before the log was cut.
        """
        path = self.folder / layout.LEADER_EPOCH_CHECKPOINT
        epochs: list[tuple[LeaderEpoch, Offset]] | None = None
        if layout.LEADER_EPOCH_CHECKPOINT in self._contents.others:
            try:
                epochs = read_leader_epochs(self.disk, path)
            except CorruptCheckpoint as error:
                self.warn(f"{error}: reading the leader epochs from the log")
        first_offset = log.segments[0].base_offset
        if not epochs and self._scanned_from != first_offset:
            self._seen_epochs = []
            for header in log.headers_from(first_offset):
                self._see(header)
        epochs = epochs or []
        is_scanned_from = self.end_offset if self._scanned_from is None else self._scanned_from
        kept = [entry for entry in epochs if entry[1] < min(self.end_offset, is_scanned_from)]
        last_epoch = kept[-1][0] if kept else NO_LEADER_EPOCH
        kept += [entry for entry in self._seen_epochs if entry[0] > last_epoch]
        found = tuple(kept)
        log.note_leader_epochs(found, are_written=kept == epochs)
        return found


def replay_producers(log: Log, disk: Disk, replay: Replay, warn: Callable[[str], None]) -> None:
    """Rebuild what is known about producers at the end of `log`, after a truncation."""
    contents = layout.sort_folder(disk.list_folder(log.folder))
    _replay(log, contents.offsets(layout.SNAPSHOT), disk, replay, warn)


def _replay(
    log: Log,
    snapshots: Sequence[Offset],
    disk: Disk,
    replay: Replay,
    warn: Callable[[str], None],
) -> None:
    offset, producers = _newest_snapshot(log, disk, snapshots, warn)
    replay.restore(producers, offset)
    _remove_unneeded_snapshots(log, disk, snapshots, offset)
    if offset == log.log_end_offset:
        return
    for file, position, header in log.batches_from(offset):
        end = None
        if header.is_control:
            end = read_transaction_end(file.read(position, header.size_bytes))
        replay.observe(header, end)


def _newest_snapshot(
    log: Log, disk: Disk, snapshots: Sequence[Offset], warn: Callable[[str], None]
) -> tuple[Offset, tuple[ProducerEntry, ...]]:
    for offset in reversed(snapshots):
        if log.segments[0].base_offset <= offset <= log.log_end_offset:
            path = log.folder / layout.file_name(offset, layout.SNAPSHOT)
            try:
                return offset, read_snapshot(disk, path)
            except CorruptSnapshot as error:
                warn(f"{error}: removed it")
                disk.remove(path)
    return log.segments[0].base_offset, ()


def _remove_unneeded_snapshots(
    log: Log, disk: Disk, snapshots: Sequence[Offset], newest: Offset
) -> None:
    """Keep the newest and those that a segment begins with, from which a truncation starts over."""
    needed = {newest, *(segment.base_offset for segment in log.segments)}
    for offset in snapshots:
        if offset not in needed:
            disk.remove(log.folder / layout.file_name(offset, layout.SNAPSHOT))
