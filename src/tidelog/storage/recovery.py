"""Bring one partition's files back to a state the broker can vouch for.

After a clean shutdown there is nothing to do. After a crash the end of the log may hold half a
batch, or whole batches that were never flushed, and the indexes may lie about either.

    log start              checkpoint            last whole batch       end of file
        ├──── not touched ─────┼─────── scanned ────────┼────── cut off ──────┤

Rules:

    R1  Bytes before the checkpoint were flushed before it was written; they are not read again,
        but for the few since the last index entry before it.
    R2  The first batch that fails its checksum ends the log, even if a good one follows. What
        follows may be left over from before a truncation and belong to another epoch.
    R3  Indexes are rebuilt from the log, never the log from indexes. An index tells where to start
        scanning, and only if the batch it names is there, whole.
    R4  Recovery may itself be interrupted: running it twice leaves the same files as once.
    R5  Segments that follow the end are removed before the end is cut, youngest first. In the
        other order a crash between the two would leave a log with a hole that looks whole.
    R6  Offsets that are missing end the log as well: a segment whose last batches never reached
        the disk while those of the next one did, or a batch whose offset, which no checksum
        covers, is damaged. Not so where gaps are normal (compaction), or below the checkpoint,
        or where the checkpoint is lost and old gaps cannot be told from new ones.
    R7  What is cut stays cut: the file is flushed before anything can be appended to it.

Not here: which transactions were aborted. What was scanned may hold markers whose transactions
begin in earlier segments; `aborted.py` looks for them when the end of the log is known.

Not here: records lost by R2 that other replicas still hold. Fetching them again is the
follower's work and happens after the partition has rejoined (core/partition/follower.py).
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import Offset
from tidelog.base.ports import Disk, LogFile
from tidelog.records.batch import BatchHeader
from tidelog.storage import layout
from tidelog.storage.file_cache import FileCache
from tidelog.storage.indexer import Indexer
from tidelog.storage.offset_index import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, OffsetIndex
from tidelog.storage.readable_log import segment_number
from tidelog.storage.scan import header_at, intact_batches
from tidelog.storage.segment import Segment
from tidelog.storage.time_index import NO_ENTRY, TIME_ENTRY, TimeIndex
from tidelog.storage.truncation import remove_segments, remove_snapshots_after


class _Scanned(NamedTuple):
    """One segment up to its last whole batch."""

    file: LogFile
    indexer: Indexer
    end_position: int
    end_offset: Offset

    @property
    def excess_bytes(self) -> int:
        return self.file.size_bytes - self.end_position


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Recovers one log. `run` once, then look at how much work it was."""

    disk: Disk
    files: FileCache
    index_interval_bytes: int
    has_gaps: bool
    observe: Callable[[BatchHeader], None]
    warn: Callable[[str], None]
    first_scanned: int = 0
    """The number of the first segment that was looked at."""

    scanned_bytes: int = 0
    cut_bytes: int = 0

    def run(
        self, segments: tuple[Segment, ...], *, recovery_point: Offset | None, now_ms: int
    ) -> tuple[tuple[Segment, ...], Offset]:
        """The segments that are left, the last of them active, and where the log ends.

        `recovery_point` None: nobody knows what was flushed, so everything is scanned.
        """
        number = 0
        if recovery_point is not None and recovery_point > segments[0].base_offset:
            number = segment_number(segments, recovery_point - 1)
        self.first_scanned = number
        while True:
            segment = segments[number]
            scanned = self._scan(segment, recovery_point)
            followers = segments[number + 1 :]
            if not followers or self._ends_log(scanned, followers[0], recovery_point):
                break
            scanned.indexer.close()
            segment.forget_indexes()
            segment.is_flushed = False
            number += 1
        self._end_log(segment, scanned, followers)
        segment.activate(scanned.file, scanned.indexer, created_ms=now_ms)
        return segments[: number + 1], scanned.end_offset

    def _ends_log(
        self, scanned: _Scanned, following: Segment, recovery_point: Offset | None
    ) -> bool:
        if scanned.excess_bytes:
            return True  # R2
        if following.base_offset < scanned.end_offset:
            return True  # Two segments claim the same offsets; the first one is in order.
        return self._is_loss(scanned.end_offset, following.base_offset, recovery_point)

    def _is_loss(self, end_offset: int, next_offset: int, recovery_point: Offset | None) -> bool:
        """Whether records between `end_offset` and `next_offset` must have been there (R6)."""
        return (
            next_offset > end_offset
            and not self.has_gaps
            and recovery_point is not None
            and end_offset >= recovery_point
        )

    def _scan(self, segment: Segment, recovery_point: Offset | None) -> _Scanned:
        file = self.disk.open_existing(segment.log_path)
        indexer, start = self._resume(segment, file, recovery_point)
        end_position, end_offset = start, int(segment.base_offset)
        for position, header in intact_batches(file, position=start, next_offset=end_offset):
            relative_offset = header.last_offset - segment.base_offset
            if relative_offset > RELATIVE_OFFSET_MAX or (
                (position > start or not start)
                and self._is_loss(end_offset, header.base_offset, recovery_point)
            ):
                break
            indexer.add(
                relative_offset,
                position,
                header.size_bytes,
                header.max_timestamp_ms,
                self.index_interval_bytes,
            )
            self.observe(header)
            end_position = position + header.size_bytes
            end_offset = header.end_offset
        indexer.spill()
        self.scanned_bytes += end_position - start
        return _Scanned(file, indexer, end_position, Offset(end_offset))

    def _resume(
        self, segment: Segment, file: LogFile, recovery_point: Offset | None
    ) -> tuple[Indexer, int]:
        """Where to start scanning, and the indexes cut back to what is known before it."""
        offset_path = segment.path(layout.OFFSET_INDEX)
        time_path = segment.path(layout.TIME_INDEX)
        offsets: list[tuple[int, int]] = []
        times: list[tuple[int, int]] = []
        if (
            recovery_point is not None
            and self.disk.exists(offset_path)
            and self.disk.exists(time_path)
        ):
            end = recovery_point - segment.base_offset
            offsets = _growing(
                _entries(OFFSET_ENTRY, self.disk.read_file(offset_path)), end, file.size_bytes
            )
            if offsets and _is_batch_of(file, segment, *offsets[-1]):
                last_relative_offset = offsets[-1][0]
                times = _timely(
                    _entries(TIME_ENTRY, self.disk.read_file(time_path)), last_relative_offset
                )
            else:
                offsets = []  # R3
        indexer = Indexer(
            OffsetIndex(self.disk, offset_path, len(offsets) * OFFSET_ENTRY.size),
            TimeIndex(
                self.disk,
                time_path,
                len(times) * TIME_ENTRY.size,
                last=times[-1] if times else NO_ENTRY,
            ),
        )
        self._cut_index(indexer.offset_index)
        self._cut_index(indexer.time_index)
        if not offsets:
            return indexer, 0
        indexer.first_timestamp_ms = header_at(file, 0).max_timestamp_ms
        return indexer, offsets[-1][1]

    def _cut_index(self, index: OffsetIndex | TimeIndex) -> None:
        self.files.forget(index.path)
        index.truncate(index.file_bytes)

    def _end_log(self, segment: Segment, scanned: _Scanned, followers: tuple[Segment, ...]) -> None:
        """Remove what lies behind the last whole batch."""
        remove_snapshots_after(self.disk, segment.log_path.parent, scanned.end_offset)
        if followers:
            self.cut_bytes += sum(follower.size_bytes for follower in followers)
            self.warn(
                f"{segment.log_path} ends at offset {scanned.end_offset}: removed the segments "
                f"{', '.join(str(follower.base_offset) for follower in followers)} behind it"
            )
            remove_segments(self.disk, self.files, reversed(followers))  # R5
            self.disk.flush_folder(segment.log_path.parent)
        if scanned.excess_bytes:
            self.cut_bytes += scanned.excess_bytes
            self.warn(
                f"{segment.log_path} has no whole batch at position {scanned.end_position}: "
                f"cut off {scanned.excess_bytes} bytes, the log ends at offset "
                f"{scanned.end_offset}"
            )
            scanned.file.truncate(scanned.end_position)
            scanned.file.flush()  # R7


def _entries(entry: struct.Struct, data: bytes) -> Iterable[tuple[int, int]]:
    whole_bytes = len(data) - len(data) % entry.size
    return entry.iter_unpack(memoryview(data)[:whole_bytes])


def _growing(
    entries: Iterable[tuple[int, int]], end: int, size_bytes: int
) -> list[tuple[int, int]]:
    """The offset index entries, from the first on, that may be true and lie before `end`."""
    kept: list[tuple[int, int]] = []
    last = (-1, 0)
    for entry in entries:
        if not (last[0] < entry[0] < end and last[1] < entry[1] < size_bytes):
            break
        kept.append(entry)
        last = entry
    return kept


def _timely(entries: Iterable[tuple[int, int]], last_offset: int) -> list[tuple[int, int]]:
    """The time index entries, from the first on, that may be true and were made by then."""
    kept: list[tuple[int, int]] = []
    last = NO_ENTRY
    for entry in entries:
        if not (last[0] < entry[0] and last[1] <= entry[1] <= last_offset):
            break
        kept.append(entry)
        last = entry
    return kept


def _is_batch_of(file: LogFile, segment: Segment, relative_offset: int, position: int) -> bool:
    """Whether a whole batch is where the index says."""
    batches = intact_batches(file, position=position, next_offset=segment.base_offset)
    _, header = next(batches, (0, None))
    return header is not None and header.base_offset <= segment.base_offset + relative_offset
