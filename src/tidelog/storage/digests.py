"""The digests of a log's batches, in order, from wherever they are quickest to be had.

    closed segment   from its `.ids` file, as far as that can be believed, else from the log; what
                     had to be read from the log, from start to end, is then written to the file
    active segment   from the log

Read in slices, on a thread, so that whoever waits for that thread does not wait for a gigabyte.
Between two slices the log may go on, and may lose segments at its start; when it is cut, the owner
starts over. Meanwhile another thread may put a compacted segment in the place of the one that is
read, and the loop may take that out: then what was read of it is right, but no file is made of it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch, DamagedLog, RequestRefused, StorageError
from tidelog.base.ids import NO_TIMESTAMP, Offset
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.digest import BatchDigest, BatchKind, data_kind, digest_of, summed_up
from tidelog.records.ids import ENTRY, IdSource
from tidelog.storage import layout
from tidelog.storage.file_cache import BlockingAccess
from tidelog.storage.ids_file import IdsFile, open_ids_file, write_digests
from tidelog.storage.index_file import IndexUnusable
from tidelog.storage.log import Log
from tidelog.storage.readable_log import segment_number
from tidelog.storage.scan import batch_headers, header_at
from tidelog.storage.segment import Segment

SLICE_BYTES = 1024 * 1024

# In memory, without its entries.
_DIGEST_BYTES = 200

GATHERED_BYTES_MAX = 64 * 1024 * 1024
"""Of one segment's ids, until they are written to its file. More are not gathered by those who read
in slices: whoever closed the segment writes the file, and that needs no memory."""


def first_needed(
    log: Log, *, remembered_ms: int, end_offset: Offset | None = None
) -> tuple[Offset, int]:
    """Where to begin, so that no id is missed that may still matter; and a time.

    Everything before is older than `remembered_ms`, by the log's own time. The time indexes know;
    but they count markers, which the log's time does not. So what they say is taken for the time
    before a segment at the most, and from there on the log's time is what records say at the least.
    The time is not before the log's, and what is seen at it is forgotten at the end of the log.

    With `end_offset`, segments that do not end below it move no time: what is in them may go.
    """
    access = BlockingAccess(log.files)
    segments = log.segments
    try:
        newest_ms = (segment.max_timestamp(access)[0] for segment in segments)
        before_ms = [*accumulate(newest_ms, max, initial=NO_TIMESTAMP)]
        log_time_ms = NO_TIMESTAMP
        for number in reversed(range(len(segments))):
            if end_offset is None or _end_of(log, segments[number]) <= end_offset:
                log_time_ms = max(log_time_ms, _time_of_records(segments[number], access))
            if before_ms[number] <= log_time_ms - remembered_ms:
                return segments[number].base_offset, before_ms[number]
    except (IndexUnusable, StorageError):
        pass  # Whoever reads all of the log learns what is wrong with it.
    return segments[0].base_offset, NO_TIMESTAMP


def _time_of_records(segment: Segment, access: BlockingAccess) -> int:
    """The largest timestamp of a segment, or another one if that is of a marker."""
    largest_ms, relative_offset = segment.max_timestamp(access)
    if largest_ms == NO_TIMESTAMP:
        return NO_TIMESTAMP
    file = segment.open(access)
    position = segment.position_of(segment.base_offset + relative_offset, access)
    if not header_at(file, position).is_control:
        return largest_ms
    headers = batch_headers(
        file, base_offset=segment.base_offset, position=0, end_position=segment.size_bytes
    )
    of_records = (header.max_timestamp_ms for _, header in headers if not header.is_control)
    return next(of_records, NO_TIMESTAMP)


class _Read(NamedTuple):
    """What a file is made of."""

    segment: Segment
    truncation_count: int


class _Gathered:
    """The digests of a closed segment that is being read from the log, all from its start on."""

    def __init__(self, read: _Read) -> None:
        self.read = read
        self.digests: list[BatchDigest] = []
        self.size_bytes = 0

    def add(self, digests: list[BatchDigest]) -> None:
        self.digests += digests
        self.size_bytes += _size_of(digests)


class DigestReader:
    """Reads on where it stopped. `offset` is where that is."""

    def __init__(self, log: Log, source: IdSource, offset: Offset) -> None:
        self._log = log
        self._source = source
        self.offset = offset
        self._gathered: _Gathered | None = None
        # What is left of the file of the segment that `offset` is in.
        self._filed: Iterator[BatchDigest] = iter(())

    def read(self, end_offset: Offset) -> list[BatchDigest]:
        """The next slice below `end_offset`, which must be a batch's end; `offset` moves on."""
        log = self._log
        segments = log.segments
        if self.offset < segments[0].base_offset:
            self.offset = segments[0].base_offset
            self._filed = iter(())
        if self.offset >= end_offset:
            return []
        found = self._read_file()
        if found:
            return found
        segment = segments[segment_number(segments, self.offset)]
        is_closed = segment is not segments[-1]
        if is_closed and self.offset == segment.base_offset:
            truncation_count = log.truncation_count
            self._filed = believed(log, segment, self._source)
            found = self._read_file()
            if found:
                return found
            self._gathered = _Gathered(_Read(segment, truncation_count))
        return self._gather(segment, self.read_log(end_offset))

    def _read_file(self) -> list[BatchDigest]:
        """The next slice of it; nothing if there is no more."""
        found: list[BatchDigest] = []
        size_bytes = 0
        for digest in self._filed:
            found.append(digest)
            size_bytes += _size_of([digest])
            if size_bytes >= SLICE_BYTES:
                break
        if found:
            self.offset = Offset(found[-1].last_offset + 1)
        return found

    def read_log(self, end_offset: Offset) -> list[BatchDigest]:
        """The next slice, from the log whatever files there are."""
        try:
            data, read_to = _read(self._log, self.offset, end_offset)
        except DamagedLog:
            # Nobody can read what follows in this segment.
            self._gathered = None
            data, read_to = b"", min(_end_of_segment_at(self._log, self.offset), end_offset)
        found = [
            _digest(header, memoryview(data)[position : position + header.size_bytes], self._source)
            for position, header in iter_headers(data)
        ]
        found = [digest for digest in found if digest.last_offset >= self.offset]
        self.offset = max(self.offset, read_to)
        return found

    def _gather(self, segment: Segment, found: list[BatchDigest]) -> list[BatchDigest]:
        gathered = self._gathered
        if gathered is None:
            return found
        gathered.add(found)
        if gathered.read.segment is not segment or gathered.size_bytes > GATHERED_BYTES_MAX:
            self._gathered = None
        elif self.offset >= _end_of(self._log, segment):
            _keep(self._log, gathered.read, gathered.digests, self._source)
            self._gathered = None
        return found


def write_ids_file(log: Log, segment: Segment, source: IdSource) -> None:
    """Write the `.ids` file of a closed segment, unless it is there. On a thread."""
    end_offset = _end_of(log, segment)
    _file, last = _last_believed(log, segment, source)
    if last is not None and last.last_offset + 1 == end_offset:
        return
    reader = DigestReader(log, source, segment.base_offset)

    def read() -> Iterator[BatchDigest]:
        while reader.offset < end_offset:
            yield from reader.read_log(end_offset)

    _keep(log, _Read(segment, log.truncation_count), read(), source)


def _keep(log: Log, read: _Read, digests: Iterable[BatchDigest], source: IdSource) -> None:
    """Write the file of a segment, unless the log has changed there since it was read (F3)."""
    path = read.segment.path(layout.IDS)
    temporary = write_digests(log.disk, path, source, digests)
    if temporary is None:
        return

    def name() -> bool:
        if log.truncation_count != read.truncation_count:
            return False
        log.disk.rename(temporary, path)
        return True

    if not log.while_in_place(read.segment, name):
        log.disk.remove(temporary)


def believed(log: Log, segment: Segment, source: IdSource) -> Iterator[BatchDigest]:
    """The digests of a segment that its file has and its log bears out (F1-F3)."""
    file, last = _last_believed(log, segment, source)
    if file is None or last is None:
        return iter(())
    return file.digests(segment.base_offset, Offset(last.last_offset + 1))


def _last_believed(
    log: Log, segment: Segment, source: IdSource
) -> tuple[IdsFile | None, BatchDigest | None]:
    """The file of a segment, and up to where it can be believed."""
    file = open_ids_file(log.disk, segment.path(layout.IDS), source)
    last = None if file is None else file.last(segment.base_offset, _end_of(log, segment))
    if last is None or not log.while_in_place(segment, lambda: _is_in_log(log, segment, last)):
        return None, None
    return file, last


class IdSearch:
    """Where the records with one id are, from the log start on (D6). On a thread, in slices.

    In a transaction, only if that was committed. Of a log that is cut between two slices, nothing
    that was found counts; the owner starts over.
    """

    def __init__(self, log: Log, source: IdSource, fingerprint: bytes) -> None:
        self._log = log
        self._fingerprint = fingerprint
        self._reader = DigestReader(log, source, log.segments[0].base_offset)
        self._truncation_count = log.truncation_count
        self._end_offset = log.log_end_offset
        self._found: dict[int, tuple[int, int]] = {}
        self._undecided: dict[int, list[int]] = {}

    @property
    def places(self) -> list[tuple[int, int]]:
        """(offset, timestamp of its batch) of each."""
        still_open = {offset for offsets in self._undecided.values() for offset in offsets}
        return [
            place
            for offset, place in self._found.items()
            if offset not in still_open and offset >= self._log.log_start_offset
        ]

    def go_on(self) -> bool:
        """Look through the next slice; whether there is another. Raises StorageError."""
        if self._log.is_closed:
            raise StorageError(f"{self._log.folder} was closed while it was read")
        if self._log.truncation_count != self._truncation_count:
            return False
        for digest in self._reader.read(self._end_offset):
            self._look_into(digest)
        return self._reader.offset < self._end_offset

    def _look_into(self, digest: BatchDigest) -> None:
        if digest.kind in (BatchKind.COMMIT, BatchKind.ABORT):
            for offset in self._undecided.pop(digest.producer_id, ()):
                if digest.kind is BatchKind.ABORT:
                    del self._found[offset]
        elif self._fingerprint in digest.entries:
            offsets = [*_offsets_in(digest, self._fingerprint)]
            self._found |= {offset: (offset, digest.max_timestamp_ms) for offset in offsets}
            if digest.kind is BatchKind.TRANSACTIONAL:
                self._undecided.setdefault(digest.producer_id, []).extend(offsets)


def _offsets_in(digest: BatchDigest, fingerprint: bytes) -> Iterator[int]:
    for known, delta in ENTRY.iter_unpack(digest.entries):
        if known == fingerprint:
            yield digest.base_offset + delta


def _size_of(digests: Iterable[BatchDigest]) -> int:
    """About, in memory."""
    return sum(_DIGEST_BYTES + len(digest.entries) for digest in digests)


def _end_of(log: Log, segment: Segment) -> Offset:
    """If retention was faster, where the log begins."""
    return _end_of_segment_at(log, segment.base_offset)


def _end_of_segment_at(log: Log, offset: Offset) -> Offset:
    segments = log.segments
    following = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
    return segments[following].base_offset if following < len(segments) else log.log_end_offset


def _is_in_log(log: Log, segment: Segment, digest: BatchDigest) -> bool:
    try:
        access = BlockingAccess(log.files)
        position = segment.position_of(digest.base_offset, access)
        if position >= segment.size_bytes:
            return False
        header = header_at(segment.open(access), position)
    except (IndexUnusable, StorageError):
        return False
    return (header.base_offset, header.leader_epoch, header.crc) == (
        digest.base_offset,
        digest.leader_epoch,
        digest.crc,
    )


def _read(log: Log, offset: Offset, end_offset: Offset) -> tuple[bytes, Offset]:
    """Of all that is stored: what the log's time is does not depend on where readers may begin."""
    while True:
        try:
            read = log.read_stored(offset, end_offset=end_offset, max_bytes=SLICE_BYTES)
            return bytes(read.data), read.end_offset
        except RequestRefused:
            first_offset = log.segments[0].base_offset
            if first_offset <= offset:
                raise StorageError(f"{log.folder} cannot be read at {offset}") from None
            offset = first_offset  # Retention was faster.
            if offset >= end_offset:
                return b"", end_offset


def _digest(header: BatchHeader, batch: memoryview, source: IdSource) -> BatchDigest:
    try:
        return digest_of(header, batch, source)
    except CorruptBatch:
        # Nobody looked inside when it was stored; no consumer can read it either.
        return summed_up(header, data_kind(header), b"")
