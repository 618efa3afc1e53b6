"""One partition's log: a tuple of segments of which only the last is written.

Calls come from two places. *On the loop* are the cheap ones that must never meet each other:
`append`, `roll_needed`, `detach`, `advance_log_start`, `reconfigure`. *On a thread* run the ones
that wait for the disk: `read`, `roll`, `flush`, `expired_segments`, `remove_detached`, the
truncations, the timestamp lookups, `close`. The owner keeps these apart:

    roll, truncate, close     alone: no append and no other of the three meanwhile; and while
                              truncating, no read of what is being cut off
    flush                     one at a time; appends, reads and a roll may go on
    remove_detached           not during a flush
    replace                   no roll, truncation, detaching or flush of what it replaces
                              meanwhile; reads on threads wait for it, and `begin_replacing`, on
                              the loop, makes `read_cached` leave reads to them
    start_writing             on the loop; what it returns on a thread, at any time
    read, read_cached         any number, at any time

What was handed to a thread before `close` and runs after it does nothing: its files may belong to
somebody else by then, or be gone.

Invariants:

    I1  log_start_offset <= log_end_offset, recovery_point <= log_end_offset
    I2  `segments` is replaced whole and never mutated, so a reader may keep the tuple it saw
    I3  an append publishes `log_end_offset` before the segment's size; a reader takes the size
        first. So bytes a reader can see never belong to an offset it has not yet compared.
    I4  the log is written before its indexes: a missing entry costs a longer scan, one that
        points past the end would be a lie that survives a restart
    I5  everything below `recovery_point` is on stable storage, but for the indexes of the segment
        that holds the last record below it; recovery looks at that segment again

What a crash finds, in the order in which things are written:

    append     the batch, all of it, part of it, or not at all
    roll       indexes of the old segment, snapshot, new segment: each may be missing and is made
               again from the log
    flush      logs, then indexes and snapshots, then folders, then `recovery_point` moves
    truncate   snapshots, younger segments (youngest first), indexes, the log: at every step what
               is left is a log that ends somewhere
    delete     oldest first: what is left is a log that starts somewhere
    replace    see `replacement.py`: the old segments or the new one
"""

import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_OFFSET, Offset, TopicId, TopicPartition
from tidelog.base.ports import BytesLike, Disk, LogFile
from tidelog.records.batch import BatchHeader
from tidelog.records.producer import ProducerEntry
from tidelog.storage import layout, timestamps
from tidelog.storage.checkpoints import LeaderEpochs, write_leader_epochs
from tidelog.storage.file_cache import Access, FileCache
from tidelog.storage.index_file import IndexUnusable
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX
from tidelog.storage.producer_snapshot import write_snapshot
from tidelog.storage.readable_log import RECENT_PLACES, LogRead, ReadableLog, segment_number
from tidelog.storage.reindex import rebuild_indexes
from tidelog.storage.replacement import CleanedSegment
from tidelog.storage.retention import RetentionConfig, expired_segments
from tidelog.storage.scan import batch_headers
from tidelog.storage.segment import WALK, Segment, flush_file
from tidelog.storage.tail import find_tail
from tidelog.storage.timestamps import LargestTimestamps, TimestampOffset
from tidelog.storage.transaction_index import AbortedTransaction, append_aborted
from tidelog.storage.truncation import cut_segment, remove_segments, remove_snapshots_after

__all__ = ["Log", "LogConfig", "LogRead", "TimestampOffset"]

T = TypeVar("T")

WRITING_BYTES = 8 * 1024 * 1024
"""After so many the system is asked to begin writing. Left alone, it gathers gigabytes and then
writes them at once, and on ext4 an append to a file that is being written waits for up to a tenth
of a second. docs/decisions/0011-latency-beside-bulk.md"""


class LogConfig(RetentionConfig, Protocol):
    """The settings of a topic that its files depend on; `config.topic.TopicConfig` has them all."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def segment_jitter_ms(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def max_segment_ms(self) -> int: ...
    @property
    def is_compacted(self) -> bool: ...
    @property
    def delete_retention_ms(self) -> int: ...
    @property
    def min_cleanable_dirty_ratio(self) -> float: ...
    @property
    def min_compaction_lag_ms(self) -> int: ...
    @property
    def ids_remembered_ms(self) -> int | None: ...
    @property
    def max_compaction_lag_ms(self) -> int: ...


class Log(ReadableLog):
    """See the module docstring for who may call what when."""

    __slots__ = (
        "_active",
        "_complete_end_offset",
        "_disk",
        "_flushed_folder_changes",
        "_folder_changes",
        "_index_interval_bytes",
        "_is_closed",
        "_largest_timestamps",
        "_leader_epochs",
        "_naming",
        "_roll_after_ms",
        "_segment_bytes",
        "_segment_index_bytes",
        "_written_bytes",
        "_written_leader_epochs",
        "config",
        "folder",
        "is_writing_due",
        "recovery_point",
        "topic_id",
        "topic_partition",
        "truncation_count",
        "writing_due_at",
    )

    def __init__(
        self,
        *,
        disk: Disk,
        files: FileCache,
        folder: Path,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        segments: tuple[Segment, ...],
        log_start_offset: Offset,
        log_end_offset: Offset,
        recovery_point: Offset,
        complete_end_offset: Offset,
        is_folder_flushed: bool,
    ) -> None:
        """Only for `opening.open_log`. The last of `segments` is active."""
        super().__init__(
            files, segments, log_start_offset=log_start_offset, log_end_offset=log_end_offset
        )
        assert recovery_point <= log_end_offset  # I1
        self._disk = disk
        self.folder = folder
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.recovery_point = recovery_point
        self._active = segments[-1]
        # Where the log ended when every file was complete and durable; else NO_OFFSET.
        self._complete_end_offset = complete_end_offset
        # Counted by whoever creates files and compared by `flush`, which may run meanwhile.
        self._folder_changes = 0 if is_folder_flushed else 1
        self._flushed_folder_changes = 0
        self._largest_timestamps: LargestTimestamps | None = None
        self._leader_epochs: LeaderEpochs = ()
        self._written_leader_epochs: LeaderEpochs = ()
        self._is_closed = False
        # Held while names are looked up or change: `replace` gives an old name to a new file.
        self._naming = threading.RLock()
        self.truncation_count = 0
        """How often the end was taken off: what was decided about segments before is void then."""
        self._expect_writing(self._active)
        self.reconfigure(config)

    @property
    def disk(self) -> Disk:
        """Where its files are."""
        return self._disk

    @property
    def size_bytes(self) -> int:
        """Bytes in all `.log` files. The first call after opening asks the disk for each."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_closed(self) -> bool:
        """Whether its files may belong to somebody else by now."""
        return self._is_closed

    @property
    def access(self) -> Access:
        """How a thread comes by the bytes of its segments."""
        return self._blocking

    @property
    def active_base_offset(self) -> Offset:
        """Where the segment that is being written begins."""
        return self._active.base_offset

    def reconfigure(self, config: LogConfig) -> None:
        """Use `config` from the next append or roll on."""
        self.config = config
        self._segment_bytes = config.segment_bytes
        self._segment_index_bytes = config.segment_index_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._roll_after_ms = config.max_segment_ms - self._jitter_ms()

    def _jitter_ms(self) -> int:
        """By chance, but the same after a restart: drawn from the segment's name."""
        jitter_ms = min(self.config.segment_jitter_ms, self.config.max_segment_ms)
        if jitter_ms <= 0:
            return 0
        return zlib.crc32(str(self._active.log_path).encode()) % jitter_ms

    # -- appending -------------------------------------------------------------------------------

    def roll_needed(
        self, *, size_bytes: int, max_timestamp_ms: int, now_ms: int, last_offset: Offset
    ) -> bool:
        """Whether `roll` must come before a batch like this may be appended. Constant time."""
        segment = self._active
        indexer = segment.indexer
        used_bytes = segment.known_size_bytes
        assert indexer is not None
        assert used_bytes is not None
        if used_bytes == 0:
            return False  # Rolling an empty segment would lead to the same segment.
        if used_bytes + size_bytes > self._segment_bytes:
            return True
        if indexer.first_timestamp_ms >= 0:
            age_ms = max_timestamp_ms - indexer.first_timestamp_ms
        else:
            age_ms = now_ms - segment.created_ms
        if age_ms > self._roll_after_ms:
            return True
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True  # An index entry has four bytes for the offset.
        # Only a batch that gets an index entry can find the index full.
        return indexer.unindexed_bytes > self._index_interval_bytes and indexer.is_full(
            self._segment_index_bytes
        )

    def append(
        self, batch: BytesLike, *, base_offset: Offset, last_offset: Offset, max_timestamp_ms: int
    ) -> None:
        """Write one stamped batch at the end: one write, nothing durable until `flush`.

        All or nothing: after DiskFull the log is as it was and may be appended to again. Any
        other StorageError means the log dir has to go offline.
        """
        segment = self._active
        position = segment.known_size_bytes
        assert position is not None
        # Compaction leaves gaps, so offsets may jump forward but never back.
        assert self.log_end_offset <= base_offset
        assert base_offset <= last_offset
        assert last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX
        size_bytes = segment.append(
            batch,
            last_offset=last_offset,
            max_timestamp_ms=max_timestamp_ms,
            index_interval_bytes=self._index_interval_bytes,
        )
        self._recent[base_offset % RECENT_PLACES] = (base_offset, segment, position)
        self.log_end_offset = Offset(last_offset + 1)  # I3: before the size.
        segment.known_size_bytes = size_bytes
        if size_bytes >= self.writing_due_at:
            self.is_writing_due = True

    def start_writing(self) -> Callable[[], None]:
        """What to call on a thread, so that the device gets what was appended since the last time.

        For when `is_writing_due`. Nobody waits for it and nothing depends on it; it keeps appends
        from waiting (WRITING_BYTES).
        """
        segment, position = self._active, self._written_bytes
        file = segment.file
        assert file is not None
        self._expect_writing(segment)
        return partial(file.start_writing, position, self._written_bytes - position)

    def postpone_writing(self) -> None:
        """The last one is not over yet: more at once, then."""
        self.writing_due_at += WRITING_BYTES
        self.is_writing_due = False

    def _expect_writing(self, segment: Segment) -> None:
        """From the end of `segment` on."""
        self._written_bytes = segment.known_size_bytes or 0
        self.writing_due_at = self._written_bytes + WRITING_BYTES
        self.is_writing_due = False

    def roll(self, *, producers: Sequence[ProducerEntry], now_ms: int) -> None:
        """Close the active segment and start one at `log_end_offset`.

        `producers` is the state at `log_end_offset` and goes to the snapshot of that offset.
        Nothing is made durable: call `flush` afterwards, without holding up appends. After
        DiskFull nothing has changed and the roll may be tried again.
        """
        old = self._active
        assert old.indexer is not None
        if self._is_closed or old.base_offset == self.log_end_offset:
            return
        old.indexer.close()
        self._write_snapshot(producers)
        new = Segment(self._disk, self.folder, self.log_end_offset)
        new.create(now_ms)
        old.deactivate()
        self._folder_changes += 1
        self._active = new
        self._expect_writing(new)
        self.segments = (*self.segments, new)  # I2
        self._roll_after_ms = self.config.max_segment_ms - self._jitter_ms()

    def _write_snapshot(self, producers: Sequence[ProducerEntry]) -> None:
        write_snapshot(self._disk, self._snapshot_path(self.log_end_offset), producers)

    def _snapshot_path(self, offset: Offset) -> Path:
        return self.folder / layout.file_name(offset, layout.SNAPSHOT)

    # -- reading ---------------------------------------------------------------------------------

    def read(
        self, offset: Offset, *, end_offset: Offset, max_bytes: int, at_least_one: bool
    ) -> LogRead:
        """Whole batches from the one that holds `offset`, all below `end_offset`.

        Up to `max_bytes` and from one segment only; with `at_least_one` the first batch is
        returned even if it is larger. `end_offset` must not exceed `log_end_offset`. Raises
        RequestRefused(OFFSET_OUT_OF_RANGE) unless log start <= offset <= log end.
        """
        return self.with_indexes(
            lambda: self._read(self._blocking, offset, end_offset, max_bytes, at_least_one),
            offset,
        )

    def read_stored(self, offset: Offset, *, end_offset: Offset, max_bytes: int) -> LogRead:
        """As `read`, of all that is in the files: also what lies below the log start.

        Raises RequestRefused(OFFSET_OUT_OF_RANGE) if that is removed meanwhile.
        """
        return self.with_indexes(
            lambda: self._read_stored(self._blocking, offset, end_offset, max_bytes, True), offset
        )

    def offset_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record from log start on with a timestamp of at least `timestamp_ms`."""
        return self.with_indexes(
            lambda: self._offset_by_timestamp(timestamp_ms), self.log_start_offset
        )

    def _offset_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        segments = self.segments
        from_offset = self.log_start_offset
        largest = self._largest_timestamps
        if largest is None or largest.segments != segments[:-1]:
            largest = LargestTimestamps(segments[:-1], self._blocking)
            self._largest_timestamps = largest
        for segment in segments[largest.first_reaching(timestamp_ms) :]:
            found = timestamps.find_at_or_after(
                segment, timestamp_ms, from_offset=from_offset, access=self._blocking
            )
            if found is not None:
                return found
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that carries the largest timestamp of the log; None if it is empty."""
        return self.with_indexes(
            lambda: timestamps.find_largest(self.segments, self._blocking), self.log_start_offset
        )

    def headers_from(self, offset: Offset) -> Iterator[BatchHeader]:
        """The header of every batch from the one that holds `offset` on."""
        return (header for _file, _position, header in self.batches_from(offset))

    def batches_from(self, offset: Offset) -> Iterator[tuple[LogFile, int, BatchHeader]]:
        """Where every batch lies, from the one that holds `offset` on."""
        number = segment_number(self.segments, offset)
        first = self.segments[number]
        position = self.with_indexes(lambda: first.position_of(offset, self._blocking), offset)
        for segment in self.segments[number:]:
            file = segment.open(self._blocking)
            for batch_position, header in batch_headers(
                file,
                base_offset=segment.base_offset,
                position=position,
                end_position=segment.size_bytes,
            ):
                yield file, batch_position, header
            position = 0

    def append_aborted(self, aborted: AbortedTransaction) -> None:
        """Note a transaction whose abort marker was just appended, before a flush covers that."""
        path = self._active.path(layout.TRANSACTION_INDEX)
        append_aborted(self._disk, path, aborted)
        self.files.forget(path)
        self.has_aborted = True
        if not self._active.has_aborted:
            self._active.has_aborted = True
            self._folder_changes += 1

    def aborted_transactions(
        self, offset: Offset, *, end_offset: Offset
    ) -> tuple[AbortedTransaction, ...]:
        """Those with records from `offset` up to `end_offset`, oldest marker first."""
        return self.with_indexes(lambda: self._aborted(self._blocking, offset, end_offset), offset)

    def with_indexes(self, work: Callable[[], T], offset: Offset) -> T:
        """Do `work` on files of `segments`, with indexes made again where it finds them wrong.

        It is about records from `offset` on: if those are gone by then, RequestRefused says so.
        """
        with self._naming:
            return self._with_good_indexes(work, offset)

    def while_in_place(self, segment: Segment, work: Callable[[], bool]) -> bool:
        """Do `work`, which is quick, while the files of `segment` keep their names.

        False if it is not in the log any more: another may have them by now.
        """
        with self._naming:
            return not self._is_closed and segment in self.segments and work()

    def _with_good_indexes(self, work: Callable[[], T], offset: Offset) -> T:
        for _ in range(len(self.segments) + 1):
            try:
                return work()
            except IndexUnusable as unusable:
                self._repair(unusable.path)
            except StorageError:
                # A file may vanish under a reader when its segment expires or its topic goes.
                if self._is_closed:
                    raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None
                if offset < self.log_start_offset:
                    raise RequestRefused(ErrorCode.OFFSET_OUT_OF_RANGE) from None
                raise
        raise StorageError(f"{self.folder}: an index is wrong again as soon as it is rebuilt")

    def _repair(self, path: Path) -> None:
        for segment in self.segments:
            if path in (segment.path(layout.OFFSET_INDEX), segment.path(layout.TIME_INDEX)):
                if segment.indexer is not None:
                    # Its index is being written; do without until the segment is closed.
                    segment.has_usable_index = False
                else:
                    rebuild_indexes(
                        self._disk,
                        self.files,
                        segment,
                        index_interval_bytes=self._index_interval_bytes,
                    )

    # -- making durable --------------------------------------------------------------------------

    def flush(self, *, up_to: Offset) -> Offset:
        """Make everything below `up_to` durable, oldest first; return the new recovery point.

        A failed flush is never tried again: the kernel may have dropped the pages it could not
        write. The log dir goes offline and stays so (FlushFailed).
        """
        if self._is_closed:
            return self.recovery_point
        up_to = min(up_to, self.log_end_offset)  # A truncation may have come before us.
        segments = self.segments
        first = len(segments)
        while first > 0 and not segments[first - 1].is_flushed:
            first -= 1
        for number in range(first, len(segments)):
            if segments[number].base_offset < up_to:
                self._flush_segment(segments[number])
        self._flush_folder()
        # Recovery finds the epochs of what it scans, and will not scan this any more.
        self.write_leader_epochs()
        self.recovery_point = max(self.recovery_point, up_to)
        return self.recovery_point

    def _flush_segment(self, segment: Segment) -> None:
        segment.flush_log()
        segments = self.segments
        if segment is segments[-1]:
            return  # Active. If it is closed right now, the next flush sees to its indexes (I5).
        segment.flush_indexes()
        for following in segments:
            if following.base_offset > segment.base_offset:
                self._flush_snapshot(following.base_offset)
                break
        segment.is_flushed = True
        file, segment.file = segment.file, None
        if file is not None:
            self.files.adopt(file)

    def _flush_folder(self) -> None:
        folder_changes = self._folder_changes
        if folder_changes == self._flushed_folder_changes:
            return
        if self._flushed_folder_changes == 0:
            # The folder itself may be new, and so may be the topic id in it.
            self._disk.flush_folder(self.folder.parent)
            metadata = self.folder / layout.PARTITION_METADATA
            if self._disk.exists(metadata):
                flush_file(self._disk, metadata)
        self._disk.flush_folder(self.folder)
        self._flushed_folder_changes = folder_changes

    def _flush_snapshot(self, offset: Offset) -> None:
        path = self._snapshot_path(offset)
        if self._disk.exists(path):
            flush_file(self._disk, path)

    def note_leader_epochs(self, epochs: LeaderEpochs, *, are_written: bool) -> None:
        """What `leader-epoch-checkpoint` should hold. It is written with the next flush: until
        then recovery scans these batches and finds their epochs in them."""
        self._leader_epochs = epochs
        if are_written:
            self._written_leader_epochs = epochs

    def write_leader_epochs(self) -> None:
        """Replace `leader-epoch-checkpoint` durably, if it should hold something else."""
        epochs = self._leader_epochs  # Others may be noted meanwhile.
        if self._is_closed or epochs is self._written_leader_epochs:
            return
        write_leader_epochs(self._disk, self.folder / layout.LEADER_EPOCH_CHECKPOINT, epochs)
        self._written_leader_epochs = epochs

    @property
    def noted_leader_epochs(self) -> LeaderEpochs:
        """What `leader-epoch-checkpoint` holds, or will with the next flush."""
        return self._leader_epochs

    def complete_indexes(self) -> None:
        """Bring the index files of the active segment up to date. Alone, as `roll` is."""
        assert self._active.indexer is not None
        self._active.indexer.close()

    def on_promoted(self) -> None:
        """This was just copied and opened as after a clean stop; but not all of it is flushed."""
        self._complete_end_offset = NO_OFFSET
        self._folder_changes += 1

    def close(self, *, clean: bool, producers: Sequence[ProducerEntry]) -> None:
        """Release files. `clean`: also flush everything and snapshot `producers`, so that the
        next opening needs no scan."""
        if clean and self._complete_end_offset != self.log_end_offset:
            self._complete(producers)
        if clean:
            self.write_leader_epochs()
        self._is_closed = True
        for segment in self.segments:
            segment.file = None  # Closed with its last reader (D2 in `disk.py`).

    def _complete(self, producers: Sequence[ProducerEntry]) -> None:
        active = self._active
        assert active.indexer is not None
        active.indexer.close()
        self._write_snapshot(producers)
        self._folder_changes += 1
        active.flush_indexes()
        self._flush_snapshot(self.log_end_offset)
        self.flush(up_to=self.log_end_offset)
        self._complete_end_offset = self.log_end_offset

    # -- taking off the end ----------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Drop every batch that holds `offset` or more. Below the first segment: start afresh.

        Before it, the owner writes a recovery point of at most `offset` to the dir's checkpoint;
        otherwise what is appended afterwards would pass for flushed after a crash. After it,
        producer state comes from `replay_producers`.
        """
        if self._is_closed or offset >= self.log_end_offset:
            return
        number = segment_number(self.segments, max(offset, self.segments[0].base_offset))
        segment = self.segments[number]
        position = self.with_indexes(lambda: segment.position_of(offset, self._blocking), offset)
        end_offset = min(offset, self._base_offset_at(segment, position))
        if end_offset < max(min(offset, self.log_start_offset), self.segments[0].base_offset):
            # The batch that goes holds the log start, or nothing is left at all.
            self.truncate_fully_and_start_at(min(offset, self.log_start_offset))
            return
        self._drop_after(number, end_offset)
        self._with_new_indexes(
            segment,
            lambda: cut_segment(
                self._disk,
                self.files,
                segment,
                position=position,
                end_offset=end_offset,
                access=self._blocking,
            ),
        )
        tail = self._with_new_indexes(
            segment,
            lambda: find_tail(self._disk, segment, index_interval_bytes=self._index_interval_bytes),
        )
        segment.activate(tail.file, tail.indexer, created_ms=segment.created_ms)
        self._restart(self.segments[: number + 1], tail.end_offset)

    def _with_new_indexes(self, segment: Segment, work: Callable[[], T]) -> T:
        """Do `work` on a segment that nobody writes, with indexes made again if they are wrong."""
        try:
            return work()
        except IndexUnusable:
            segment.indexer = None
            self._repair(segment.path(layout.OFFSET_INDEX))
            return work()

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything; the log is empty and begins and ends at `offset`."""
        self._drop_after(-1, NO_OFFSET)
        segment = Segment(self._disk, self.folder, offset)
        segment.create(self._active.created_ms)
        self._folder_changes += 1
        self.log_start_offset = offset
        self._restart((segment,), offset)
        self.recovery_point = offset

    def _base_offset_at(self, segment: Segment, position: int) -> Offset:
        if position >= segment.size_bytes:
            return self.log_end_offset
        header = segment.open(self._blocking).read(position, WALK.size)
        return Offset(WALK.unpack(header)[0])

    def _drop_after(self, number: int, end_offset: Offset) -> None:
        """Remove all segments after the one with `number`, and snapshots after `end_offset`."""
        remove_snapshots_after(self._disk, self.folder, end_offset)
        remove_segments(self._disk, self.files, reversed(self.segments[number + 1 :]))
        self._disk.flush_folder(self.folder)

    def _restart(self, segments: tuple[Segment, ...], end_offset: Offset) -> None:
        self.truncation_count += 1
        self._recent = [None] * RECENT_PLACES
        self._largest_timestamps = None
        self._complete_end_offset = NO_OFFSET
        self._active = segments[-1]
        self._expect_writing(self._active)
        self.segments = segments
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)

    # -- taking off the start --------------------------------------------------------------------

    def advance_log_start(self, offset: Offset) -> None:
        """Hide everything below `offset` (DeleteRecords, retention). Never moves back."""
        assert offset <= self.log_end_offset  # I1
        self.log_start_offset = max(self.log_start_offset, offset)

    def expired_segments(self, *, high_watermark: Offset, now_ms: int) -> tuple[Segment, ...]:
        """The oldest segments that retention no longer wants; see `retention.py`.

        If the last of them is the active segment, `roll` first and then `detach` them.
        """
        if self._is_closed:
            return ()
        return self.with_indexes(
            lambda: expired_segments(
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=high_watermark,
                now_ms=now_ms,
                disk=self._disk,
                access=self._blocking,
            ),
            self.log_start_offset,
        )

    def detach(self, segments: tuple[Segment, ...]) -> None:
        """Take the oldest `segments` out of the log and advance log start past them. No I/O."""
        count = len(segments)
        assert count < len(self.segments)
        assert self.segments[:count] == segments
        self.advance_log_start(self.segments[count].base_offset)
        self.segments = self.segments[count:]
        self._recent = [None] * RECENT_PLACES

    def remove_detached(self, segments: tuple[Segment, ...]) -> tuple[Path, ...]:
        """Rename files of detached segments to `.deleted` and return the new names.

        The owner removes them `file.delete.delay.ms` later with `Disk.remove`; opening the log
        removes what a crash left.
        """
        renamed: list[Path] = []
        for segment in () if self._is_closed else segments:
            with self._naming:  # A file of ids may just be getting its name.
                renamed += self._rename_detached(segment)
            segment.file = None
        return tuple(renamed)

    def _rename_detached(self, segment: Segment) -> list[Path]:
        renamed = []
        for suffix in (*layout.SEGMENT_SUFFIXES, layout.SNAPSHOT):
            path = segment.path(suffix)
            self.files.forget(path)
            if not self._disk.exists(path):
                continue
            deleted = path.with_name(path.name + layout.DELETED)
            self._disk.rename(path, deleted)
            renamed.append(deleted)
        return renamed

    # -- compaction ------------------------------------------------------------------------------

    def begin_replacing(self) -> None:
        """Nobody reads on the loop from here until `replace` is over."""
        self.is_replacing = True

    def replace(self, cleaned: CleanedSegment, *, truncation_count: int) -> tuple[Path, ...] | None:
        """Put `cleaned` in the place of the segments that it was made from.

        Returns the names that the old files have now, for the owner to remove as after
        `remove_detached`. None if the log was closed, or cut since `truncation_count` was taken:
        then nothing has changed.
        """
        try:
            with self._naming:
                return self._replace(cleaned, truncation_count)
        finally:
            self.is_replacing = False

    def _replace(self, cleaned: CleanedSegment, truncation_count: int) -> tuple[Path, ...] | None:
        first = self._number_of(cleaned.replaced)
        if self._is_closed or truncation_count != self.truncation_count or first is None:
            return None
        renamed = cleaned.take_out_old(self.files)
        segment = cleaned.put_in_place()
        following = first + len(cleaned.replaced)
        self.segments = (*self.segments[:first], segment, *self.segments[following:])  # I2
        self._recent = [None] * RECENT_PLACES
        self._largest_timestamps = None
        return renamed

    def _number_of(self, segments: tuple[Segment, ...]) -> int | None:
        """Where in the log `segments` are; None if they are not all there, one behind another."""
        base_offset = segments[0].base_offset
        if base_offset < self.segments[0].base_offset:
            return None
        number = segment_number(self.segments, base_offset)
        return number if self.segments[number : number + len(segments)] == segments else None

    def flush_replaced(self) -> None:
        """Make the names that `replace` gave durable."""
        if not self._is_closed:
            self._disk.flush_folder(self.folder)
