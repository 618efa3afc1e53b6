"""Reading a log by offset, at a cost that does not grow with it (S4).

A read is a binary search over segments, one over the sparse index, and a short walk over headers.
Most reads need none of that: whoever reads on continues where an earlier read or append ended, and
the last few such places are remembered (`_recent`). A place says where the first batch starts
whose last offset is at least its key, so it holds for every reader, and a stale one is never
wrong: bytes of a log do not move. Only a truncation and compaction make them invalid; both drop
them all.

While compaction puts a segment in the place of others, a name may stand for the old file or the
new. Then nobody reads on the loop (`is_replacing`): a read goes to a thread, and waits there.

Threads: see `log.py`. Remembering a place is one assignment to a list element.
"""

import struct
from bisect import bisect_right
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset
from tidelog.base.ports import BytesLike, LogFile
from tidelog.records.batch import BATCH_LENGTH_MIN, LOG_OVERHEAD_BYTES, MAGIC
from tidelog.storage import layout
from tidelog.storage.file_cache import (
    Access,
    BlockingAccess,
    CachedAccess,
    FileCache,
    WouldBlock,
)
from tidelog.storage.index_file import IndexUnusable
from tidelog.storage.segment import WALK, Segment, not_a_batch
from tidelog.storage.transaction_index import AbortedTransaction, find_aborted

# A prime, so that batches of any usual number of records spread over all places.
RECENT_PLACES = 31
# Stepping over more batches than this costs more than a search in the index.
_STEPS_MAX = 32

_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8


class LogRead(NamedTuple):
    """Whole batches as stored, and where the next read goes on.

    The first batch may begin before the offset asked for. `data` is empty when nothing may be
    read yet, or when the first batch exceeds `max_bytes` and was not asked for regardless.
    """

    data: BytesLike
    end_offset: Offset


Place = tuple[int, Segment, int]


class ReadableLog:
    """The segments of a log and the offsets between which it may be read."""

    __slots__ = (
        "_blocking",
        "_cached",
        "_recent",
        "files",
        "has_aborted",
        "is_replacing",
        "log_end_offset",
        "log_start_offset",
        "segments",
    )

    def __init__(
        self,
        files: FileCache,
        segments: tuple[Segment, ...],
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> None:
        assert segments
        assert log_start_offset <= log_end_offset
        self.files = files
        self._blocking = BlockingAccess(files)
        self._cached = CachedAccess(files)
        self._recent: list[Place | None] = [None] * RECENT_PLACES
        self.segments = segments
        self.is_replacing = False
        # Once there are some, every reader at read_committed looks for those that it must skip.
        self.has_aborted = any(segment.has_aborted for segment in segments)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def read_cached(
        self, offset: Offset, *, end_offset: Offset, max_bytes: int, at_least_one: bool
    ) -> LogRead | None:
        """Like `read`, but None rather than wait for the disk: then `read` on a thread."""
        if self.is_replacing:
            return None
        try:
            return self._read(self._cached, offset, end_offset, max_bytes, at_least_one)
        except (WouldBlock, IndexUnusable):
            return None

    def aborted_cached(
        self, offset: Offset, *, end_offset: Offset
    ) -> tuple[AbortedTransaction, ...] | None:
        """Like `Log.aborted_transactions`, but None rather than wait for the disk."""
        if self.is_replacing:
            return None
        try:
            return self._aborted(self._cached, offset, end_offset)
        except WouldBlock:
            return None

    def _aborted(
        self, access: Access, offset: Offset, end_offset: Offset
    ) -> tuple[AbortedTransaction, ...]:
        found: list[AbortedTransaction] = []
        segments = self.segments
        # Retention may have been faster than a reader on a thread.
        number = segment_number(segments, max(offset, segments[0].base_offset))
        for segment in segments[number:]:
            if segment.has_aborted:
                file = access.open(segment.path(layout.TRANSACTION_INDEX))
                here, is_complete = find_aborted(
                    file.path,
                    access.read(file, 0, file.size_bytes),
                    offset=offset,
                    end_offset=end_offset,
                )
                found += here
                if is_complete:
                    break
        return tuple(found)

    def _read(
        self, access: Access, offset: Offset, end_offset: Offset, max_bytes: int, at_least_one: bool
    ) -> LogRead:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise RequestRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self._read_stored(access, offset, end_offset, max_bytes, at_least_one)

    def _read_stored(
        self, access: Access, offset: Offset, end_offset: Offset, max_bytes: int, at_least_one: bool
    ) -> LogRead:
        if offset >= end_offset:
            return LogRead(b"", offset)
        segments = self.segments
        place = self._recent[offset % RECENT_PLACES]
        if (
            place is not None
            and place[0] == offset
            # A reader on another thread may remember a place in a segment just detached.
            and place[1].base_offset >= segments[0].base_offset
        ):
            segment, position = place[1], place[2]
        else:
            if offset < segments[0].base_offset:  # Retention was faster than this thread.
                raise RequestRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
            segment = segments[segment_number(segments, offset)]
            position = segment.position_of(offset, access)
        while True:
            file = segment.file or segment.open(access)
            limit, limit_offset = self._limit(segments, segment, end_offset, access)
            if position < limit:
                break
            if limit_offset >= end_offset:
                return LogRead(b"", end_offset)
            # The end of a closed segment, or records that compaction removed from it.
            segment = segments[segment_number(segments, segment.base_offset) + 1]
            position = 0

        if limit - position > max_bytes:
            return self._read_some(
                access, segment, file, position, limit, offset, max_bytes, at_least_one
            )
        data = access.read(file, position, limit - position)
        if len(data) != limit - position:
            raise StorageError(f"{file.path} is shorter than the {limit} bytes written to it")
        if not _begins_with_batch(data):
            # A client would take it for the first part of a batch and ask again for ever.
            raise not_a_batch(file.path, position)
        self._recent[limit_offset % RECENT_PLACES] = (limit_offset, segment, limit)
        return LogRead(data, limit_offset)

    def _limit(
        self,
        segments: tuple[Segment, ...],
        segment: Segment,
        end_offset: Offset,
        access: Access,
    ) -> tuple[int, Offset]:
        """How far `segment` may be read: the position, and the offset found there."""
        limit = segment.known_size_bytes  # I3: before `log_end_offset`.
        assert limit is not None
        if segment is segments[-1]:
            limit_offset = self.log_end_offset
        else:
            number = segment_number(segments, segment.base_offset)
            limit_offset = segments[number + 1].base_offset
        if end_offset < limit_offset:
            return self._place_of(end_offset, segment, access), end_offset
        return limit, limit_offset

    def _place_of(self, offset: Offset, segment: Segment, access: Access) -> int:
        place = self._recent[offset % RECENT_PLACES]
        if place is not None and place[0] == offset and place[1] is segment:
            return place[2]
        position = segment.position_of(offset, access)
        self._recent[offset % RECENT_PLACES] = (offset, segment, position)
        return position

    def _read_some(
        self,
        access: Access,
        segment: Segment,
        file: LogFile,
        position: int,
        limit: int,
        offset: Offset,
        max_bytes: int,
        at_least_one: bool,
    ) -> LogRead:
        """As many whole batches as `max_bytes` allow; more batches follow."""
        data = access.read(file, position, max(max_bytes, WALK.size))
        if len(data) < WALK.size:
            raise not_a_batch(file.path, position)
        size_bytes = _LENGTH.unpack_from(data, _LENGTH_POSITION)[0] + LOG_OVERHEAD_BYTES
        if not _is_batch_start(data, 0) or size_bytes > limit - position:
            raise not_a_batch(file.path, position)
        if size_bytes > max_bytes:
            if not at_least_one:
                return LogRead(b"", offset)
            data = access.read(file, position, size_bytes)
        end, end_offset = self._whole_batches(data, segment, position, access)
        self._recent[end_offset % RECENT_PLACES] = (end_offset, segment, position + end)
        return LogRead(data if end == len(data) else memoryview(data)[:end], end_offset)

    def _whole_batches(
        self, data: BytesLike, segment: Segment, position: int, access: Access
    ) -> tuple[int, Offset]:
        """Where the last whole batch of `data`, read from `position`, ends, and what follows it.

        At least the first batch is whole.
        """
        last, at = _step_over(data, 0, _STEPS_MAX)
        if _holds_batch(data, at):
            near_end = position + len(data) - WALK.size
            start = segment.offset_index(access).position_at_or_below(near_end, access) - position
            if start > at:
                at = start
                if not _is_batch_start(data, at):
                    raise IndexUnusable(segment.path(layout.OFFSET_INDEX))
            last, at = _step_over(data, at, len(data))
        if len(data) - at >= WALK.size:
            if not _is_batch_start(data, at):
                raise not_a_batch(segment.log_path, position + at)
            return at, Offset(WALK.unpack_from(data, at)[0])
        base_offset, _, _, last_offset_delta = WALK.unpack_from(data, last)
        return at, Offset(base_offset + last_offset_delta + 1)


def _step_over(data: BytesLike, at: int, steps_max: int) -> tuple[int, int]:
    """Go from batch to batch while they are whole; the start of the last one and its end."""
    last = at
    size_bytes = len(data)
    for _ in range(steps_max):
        if size_bytes - at < WALK.size:
            break
        length = _LENGTH.unpack_from(data, at + _LENGTH_POSITION)[0]
        following = at + length + LOG_OVERHEAD_BYTES
        if length < BATCH_LENGTH_MIN or following > size_bytes:
            break
        last = at
        at = following
    return last, at


def _holds_batch(data: BytesLike, at: int) -> bool:
    if len(data) - at < WALK.size:
        return False
    length: int = _LENGTH.unpack_from(data, at + _LENGTH_POSITION)[0]
    return at + length + LOG_OVERHEAD_BYTES <= len(data)


def _begins_with_batch(data: BytesLike) -> bool:
    if len(data) < WALK.size:
        return False
    _, length, magic, _ = WALK.unpack_from(data, 0)
    return bool(magic == MAGIC and BATCH_LENGTH_MIN <= length <= len(data) - LOG_OVERHEAD_BYTES)


def _is_batch_start(data: BytesLike, at: int) -> bool:
    _, length, magic, _ = WALK.unpack_from(data, at)
    return bool(magic == MAGIC and length >= BATCH_LENGTH_MIN)


def segment_number(segments: tuple[Segment, ...], offset: int) -> int:
    """Which of `segments` holds `offset`: the last that does not begin after it."""
    number = bisect_right(segments, offset, key=_base_offset) - 1
    assert number >= 0
    return number


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
