"""Compact one log: keep of every key what was written last (S5).

    1  read what is dirty, and note the newest offset of every key         (`key_offsets.py`)
    2  write all segments up to there anew, without what that shadows      (`batch_filter.py`)

Step 1 stops where its memory is full, and then step 2 has that much to do; the rest is for the
next time. Step 2 writes groups of segments into one, each within `segment.bytes`, and puts it in
their place (`replacement.py`) before it begins with the next.

A reader sees a log with gaps, and in it every key with the value that it had at the end.

All of this is one generator of small steps, for whoever drives it to let others have their turn
between two of them, keep to `log.cleaner.io.max.bytes.per.second`, or stop for good. It blocks and
belongs on a thread; but `Log.replace` must run alone, so a step asks for it.

    I1  Bytes that are damaged are not written anew: a checksum of our own would make them good.
    I2  What is compacted was flushed before. Recovery does not look at it again, and need not
        know of gaps (recovery rule R6).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch, DamagedLog
from tidelog.base.ids import Offset
from tidelog.base.ports import LogFile
from tidelog.records.batch import BatchHeader, checksum_matches, iter_headers, read_header
from tidelog.records.control import read_transaction_end
from tidelog.records.producer import ProducerEntry
from tidelog.records.record import uncompressed_payload
from tidelog.storage import layout
from tidelog.storage.batch_filter import BatchFilter
from tidelog.storage.cleanable import Cleanable
from tidelog.storage.cleaned_transactions import CleanedTransactions
from tidelog.storage.key_offsets import KeyOffsets, new_key_offsets
from tidelog.storage.log import Log
from tidelog.storage.offset_index import RELATIVE_OFFSET_MAX
from tidelog.storage.replacement import CleanedSegment
from tidelog.storage.segment import Segment, not_a_batch

# Nobody reads the log while the old ones are taken out, so they must not be too many at a time.
SEGMENTS_PER_GROUP_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """What a compaction may use: Kafka's `log.cleaner.*`."""

    memory_bytes: int
    load_factor: float
    read_bytes: int
    """Of a log at a time; more only if a batch is larger."""


class Worked(NamedTuple):
    """A step that has read and written so many bytes."""

    size_bytes: int


class Replace(NamedTuple):
    """A step that has to be done alone: `Log.replace`."""

    cleaned: CleanedSegment


class CompactionAborted(Exception):
    """The log was closed or cut; what was begun is of no use."""


@dataclass(slots=True)
class CompactionCounts:
    """How much there was, and how much is left of it."""

    bytes_before: int = 0
    bytes_after: int = 0
    keys: int = 0


class _Chunk(NamedTuple):
    """Whole batches that were read at a time."""

    data: bytes
    batches: Sequence[tuple[int, BatchHeader]]

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        return memoryview(self.data)[position : position + header.size_bytes]


class Compaction:
    """One compaction of one log. Iterate over `steps` once, each step on a thread."""

    def __init__(
        self,
        log: Log,
        cleanable: Cleanable,
        *,
        producers: Sequence[ProducerEntry],
        limits: CompactionLimits,
        hash_key: bytes,
        now_ms: int,
    ) -> None:
        """`producers` are the living ones, at a time when all of `cleanable` was in the log;
        `hash_key` is for `new_key_offsets`."""
        self.end_offset = cleanable.first_dirty_offset
        """Below it the log is clean, once all steps are done."""

        self.counts = CompactionCounts()
        self.truncation_count = log.truncation_count
        self._log = log
        self._config = log.config
        self._first_dirty_offset = cleanable.first_dirty_offset
        self._first_uncleanable_offset = cleanable.first_uncleanable_offset
        self._producers = producers
        self._limits = limits
        self._hash_key = hash_key
        self._now_ms = now_ms
        self._cleaned: CleanedSegment | None = None
        self._reading = ""

    def steps(self) -> Iterator[Worked | Replace]:
        """Every step to be done, in order.

        Raises CompactionAborted; DamagedLog if the log cannot be compacted; StorageError.
        """
        try:
            yield from self._steps()
        except CorruptBatch as error:
            raise DamagedLog(f"{self._reading}: {error}") from error

    def _steps(self) -> Iterator[Worked | Replace]:
        log = self._log
        self._require_same_log()
        log.flush(up_to=self._first_uncleanable_offset)  # I2
        keys = new_key_offsets(
            memory_bytes=self._limits.memory_bytes,
            load_factor=self._limits.load_factor,
            keys_expected=self._first_uncleanable_offset - self._first_dirty_offset,
            hash_key=self._hash_key,
        )
        yield from self._note_keys(keys)
        self.counts.keys = keys.count
        self.end_offset = Offset(keys.latest_offset + 1)
        batch_filter = BatchFilter(
            keys,
            self._transactions_from(log.segments[0].base_offset),
            producers=self._producers,
            first_uncleanable_offset=self._first_uncleanable_offset,
            delete_retention_ms=self._config.delete_retention_ms,
            now_ms=self._now_ms,
        )
        for group in self._groups():
            yield from self._clean(group, batch_filter)

    def discard(self) -> None:
        """Remove what was begun and is not in the log. Blocks."""
        if self._cleaned is not None and not self._log.is_closed:
            self._cleaned.discard()
            self._cleaned = None

    def _require_same_log(self) -> None:
        if self._log.is_closed or self._log.truncation_count != self.truncation_count:
            raise CompactionAborted

    def _transactions_from(self, offset: Offset) -> CleanedTransactions:
        end_offset = self._first_uncleanable_offset
        return CleanedTransactions(self._log.aborted_transactions(offset, end_offset=end_offset))

    # -- noting keys -----------------------------------------------------------------------------

    def _note_keys(self, keys: KeyOffsets) -> Iterator[Worked]:
        segments = self._log.segments
        transactions = self._transactions_from(self._first_dirty_offset)
        keys.latest_offset = Offset(self._first_dirty_offset - 1)
        for segment, following in pairwise(segments):
            if following.base_offset <= self._first_dirty_offset:
                continue
            if segment.base_offset >= self._first_uncleanable_offset:
                return
            for chunk in self._chunks(segment):
                for position, header in chunk.batches:
                    if header.last_offset >= self._first_dirty_offset:
                        batch = chunk.batch(position, header)
                        if not self._note_batch(keys, transactions, header, batch):
                            return
                yield Worked(len(chunk.data))
            # Offsets that are missing before the next segment are taken into account as well.
            keys.latest_offset = Offset(following.base_offset - 1)

    def _note_batch(
        self,
        keys: KeyOffsets,
        transactions: CleanedTransactions,
        header: BatchHeader,
        batch: memoryview,
    ) -> bool:
        """False if there is no room for all of its keys."""
        if header.is_control:
            end = read_transaction_end(batch)
            if end is not None:
                transactions.on_marker(header, end)
        elif not transactions.on_batch(header):
            payload = uncompressed_payload(header, batch)
            if not keys.note(
                payload, header.record_count, header.base_offset, self._first_dirty_offset
            ):
                return False
        keys.latest_offset = Offset(header.last_offset)
        return True

    # -- writing anew ----------------------------------------------------------------------------

    def _groups(self) -> Iterator[tuple[Segment, ...]]:
        """Segments to be made into one, together within the limits of one."""
        segments = [one for one in self._log.segments if one.base_offset < self.end_offset]
        ends = [*(one.base_offset for one in segments[1:]), self._first_uncleanable_offset]
        group: list[Segment] = []
        sizes = (0, 0, 0)
        for segment, end in zip(segments, ends, strict=False):
            more = self._sizes(segment)
            together = (sizes[0] + more[0], sizes[1] + more[1], sizes[2] + more[2])
            if group and not self._fits(group, together, is_empty=not more[0], end=end):
                yield tuple(group)
                group, together = [], more
            group.append(segment)
            sizes = together
        if group:
            yield tuple(group)

    def _sizes(self, segment: Segment) -> tuple[int, int, int]:
        disk = self._log.disk
        return (
            segment.size_bytes,
            disk.size_bytes(segment.path(layout.OFFSET_INDEX)),
            disk.size_bytes(segment.path(layout.TIME_INDEX)),
        )

    def _fits(
        self, group: list[Segment], sizes: tuple[int, int, int], *, is_empty: bool, end: Offset
    ) -> bool:
        log_bytes, offset_index_bytes, time_index_bytes = sizes
        return (
            log_bytes <= self._config.segment_bytes
            and offset_index_bytes <= self._config.segment_index_bytes
            and time_index_bytes <= self._config.segment_index_bytes
            and (is_empty or end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX)
            and len(group) < SEGMENTS_PER_GROUP_MAX
        )

    def _clean(
        self, group: tuple[Segment, ...], batch_filter: BatchFilter
    ) -> Iterator[Worked | Replace]:
        cleaned = self._cleaned = CleanedSegment(
            self._log.disk, group, index_interval_bytes=self._config.index_interval_bytes
        )
        cleaned.create()
        for segment in group:
            for chunk in self._chunks(segment):
                written_before = cleaned.size_bytes
                for position, header in chunk.batches:
                    retained = batch_filter.retained(header, chunk.batch(position, header))
                    if retained.batch is not None:
                        cleaned.append(retained.batch, retained.header)
                    if retained.aborted is not None:
                        cleaned.note_aborted(retained.aborted)
                yield Worked(len(chunk.data) + cleaned.size_bytes - written_before)
        self._require_same_log()
        cleaned.decide()
        self.counts.bytes_before += sum(segment.size_bytes for segment in group)
        self.counts.bytes_after += cleaned.size_bytes
        yield Replace(cleaned)
        self._cleaned = None
        self._log.flush_replaced()

    # -- reading ---------------------------------------------------------------------------------

    def _chunks(self, segment: Segment) -> Iterator[_Chunk]:
        """All batches of `segment`, a few at a time."""
        file = segment.open(self._log.access)
        position = 0
        while position < segment.size_bytes:
            self._require_same_log()
            self._reading = f"{segment.log_path} from position {position} on"
            chunk = self._read(segment, file, position)
            self._require_good(chunk)
            yield chunk
            position += len(chunk.data)

    def _read(self, segment: Segment, file: LogFile, position: int) -> _Chunk:
        size_bytes = min(self._limits.read_bytes, segment.size_bytes - position)
        data = file.read(position, size_bytes)
        batches = list(iter_headers(data))
        if not batches:
            size_bytes = read_header(data, 0).size_bytes
            if size_bytes > segment.size_bytes - position:
                raise not_a_batch(segment.log_path, position)
            data = file.read(position, size_bytes)
            batches = list(iter_headers(data))
            if not batches:
                raise not_a_batch(segment.log_path, position)
        last, header = batches[-1]
        return _Chunk(data[: last + header.size_bytes], batches)

    def _require_good(self, chunk: _Chunk) -> None:
        for position, header in chunk.batches:
            if not checksum_matches(chunk.data, position, header.size_bytes):  # I1
                raise CorruptBatch(f"checksum of the batch at offset {header.base_offset}")
