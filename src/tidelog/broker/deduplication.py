"""Drops records that one partition's log has seen before (D5): where the rules meet a log.

    Produce ──▶ is the index at the end of the log? ──no──▶ catch up on a thread, go on when it is
                     │ yes                                   (requests wait in the append queue)
                     ▼
                ids of the batch ──▶ judge ──▶ nothing seen: append as ever
                     │                   └───▶ some: append the rest        all: append no record
                     └─ compressed and large, or of very many records: on a thread, all of this

The rules are in `core/deduplication/index.py`. The index belongs to the loop while it is current,
and to a thread while that catches up, judges a batch, or tells it of one with very many ids.

A megabyte may hold a million records. Nothing that grows with them is done on the loop: it is left
to the thread that rolls segments, while requests wait in the append queue as they do for a roll.

Invariants:

    I1  An index is asked only if it has been told every batch of the log as it is now. Whatever
        else was appended (by a leader before, by a coordinator) or cut off is noticed, because the
        index knows where it stands, and of which log.
    I2  One slice is read at a time, on the thread that reads for followers whose log is cut; and
        none while that is about to happen (I4 of `follower_runner.py`).
    I3  Only one thread has to do with an index at a time; the loop leaves it alone while it is
        busy. What a thread has judged counts only if the index has been told nothing since, and
        the log begins where it did.
"""

import asyncio
import logging
from functools import partial
from typing import NamedTuple, Protocol

from tidelog.base.errors import RequestRefused
from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import BytesLike
from tidelog.broker.append_queue import Preparation
from tidelog.broker.partition_ports import LogDirectory, succeeded_in
from tidelog.broker.sent_ids import (
    Question,
    Rest,
    SentIds,
    entries_of,
    judge,
    judged,
    leaves_nothing,
    prepared,
    without_duplicates,
)
from tidelog.config.topic import TopicConfig, remembered_ms
from tidelog.core.deduplication.index import Duplicates, IdIndex
from tidelog.records.batch import CODEC_MASK, BatchHeader, read_header
from tidelog.records.compiled import compiled
from tidelog.records.control import ControlType, TransactionEnd
from tidelog.records.digest import BatchDigest, BatchKind, data_kind, summed_up
from tidelog.records.ids import IdSource, fingerprint
from tidelog.records.producer import ProducedBatch
from tidelog.records.validation import BatchLimits
from tidelog.storage.digests import DigestReader, IdSearch, first_needed, write_ids_file
from tidelog.storage.log import Log

logger = logging.getLogger(__name__)

AT_ONCE_BYTES = 16 * 1024
"""A larger batch that is compressed, or that Python has to read, is left to a thread."""

AT_ONCE_UNCOMPRESSED_BYTES = 1024 * 1024
"""So is one that turns out to be larger than this: kilobytes can be made of a hundred megabytes."""

AT_ONCE_RECORDS = 8_192 if compiled is not None else 512
"""And whatever has to do with more ids: a millisecond or two, with each of a few searches."""

REPORT_EVERY_MS = 60_000


class DedupSettings(NamedTuple):
    """What a topic's settings say about duplicates."""

    source: IdSource
    window_ms: int
    ids_max: int


def dedup_settings(config: TopicConfig) -> DedupSettings | None:
    """None: the topic does not look for duplicates."""
    if not config.is_deduplicated:
        return None
    header = config.dedup_header
    source = IdSource(None if header is None else header.encode())
    return DedupSettings(source, config.tidelog_dedup_window_ms, config.tidelog_dedup_ids_max)


def warn_of_short_retention(topic_partition: TopicPartition, config: TopicConfig) -> None:
    """What is not in the log any more is not known. Said once for a topic."""
    is_short = config.is_deleted and 0 <= config.retention_ms < config.tidelog_dedup_window_ms
    if is_short and topic_partition.partition == 0:
        logger.warning(
            "ids are forgotten before their window has passed: retention.ms is shorter",
            extra={
                "topic": topic_partition.topic,
                "retention_ms": config.retention_ms,
                "window_ms": config.tidelog_dedup_window_ms,
            },
        )


class Unseen(NamedTuple):
    """What is left to append of a batch. `records` None: nothing."""

    records: memoryview | bytearray | None
    header: BatchHeader
    entries: bytes
    seen: Duplicates | None

    @property
    def first_copy_offset(self) -> Offset | None:
        """What a client is told whose whole batch was seen: where the first of it is."""
        if self.seen is None or (self.records is not None and self.header.record_count):
            return None
        return self.seen.first_copy_offset


class DeduplicatedPartition(Protocol):
    """What is needed of a partition."""

    topic_partition: TopicPartition
    log: Log
    log_directory: LogDirectory
    is_offline: bool

    @property
    def is_being_cut(self) -> bool: ...
    @property
    def leads(self) -> bool: ...


class Deduplicator:
    """The ids of one partition. All methods are for the loop."""

    def __init__(
        self, partition: DeduplicatedPartition, settings: DedupSettings, hash_key: bytes
    ) -> None:
        """`hash_key`: see `BrokerPorts`."""
        self._partition = partition
        self._settings = settings
        self._hash_key = hash_key
        self._reading: _Reading | None = None
        self._is_busy = False
        self._asked: tuple[Question, bool] | None = None
        """What a thread is to judge next, and whether it is new."""
        self._waiting: list[tuple[asyncio.Future[SentIds | None], SentIds | None]] = []
        self.dropped_records = 0
        """Since this broker has the partition."""
        self._reported_records = 0
        self._reported_ms = 0

    @property
    def settings(self) -> DedupSettings:
        return self._settings

    @property
    def index(self) -> IdIndex | None:
        """None until it was first needed."""
        return None if self._reading is None else self._reading.index

    @property
    def _log_time_ms(self) -> int:
        assert self._reading is not None
        return self._reading.index.log_time_ms

    def reconfigure(self, settings: DedupSettings) -> None:
        """What was seen is judged anew, from the log, if the settings differ."""
        if settings != self._settings:
            self._settings = settings
            self._reading = None

    # -- keeping up with the log -----------------------------------------------------------------

    @property
    def is_current(self) -> bool:
        """Whether the index has been told all of the log. I1"""
        reading, log = self._reading, self._partition.log
        return (
            reading is not None
            and not self._is_busy
            and reading.index.end_offset == log.log_end_offset
            and reading.is_of(log)
        )

    def catch_up(self, sent: SentIds | None) -> "asyncio.Future[SentIds | None]":
        """Done when the index is current, or cannot be: the partition is not led here any more.

        The result is `sent`.
        """
        caught_up: asyncio.Future[SentIds | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((caught_up, sent))
        self.follow()
        return caught_up

    def follow(self) -> None:
        """Read what is new in the log, slice by slice, if nobody does so already."""
        if self._is_busy:
            return
        partition = self._partition
        is_served = not partition.is_offline and not partition.is_being_cut
        if self.is_current or not is_served or (self._waiting and not partition.leads):
            waiting, self._waiting = self._waiting, []
            for caught_up, sent in waiting:
                caught_up.set_result(sent)
            return
        if self._reading is None or not self._reading.is_of(partition.log):
            self._reading = _Reading(partition.log, self._settings, self._hash_key)
        self._is_busy = True  # I2
        directory = partition.log_directory
        read = directory.executor.urgent(self._reading.go_on, partition.log.log_end_offset)
        read.add_done_callback(partial(self._on_read, directory))

    def _on_read(self, directory: LogDirectory, read: "asyncio.Future[object]") -> None:
        self._is_busy = False
        if not succeeded_in(directory, read):
            self._reading = None
        self.follow()

    def on_moved(self, before: Log) -> None:
        """The partition's log is another one, with the same in it."""
        reading = self._reading
        if reading is not None and not self._is_busy and reading.is_of(before):
            reading.go_on_with(self._partition.log)

    def on_rolled(self) -> None:
        """A segment was closed: keep its digests, for whoever needs them after a restart."""
        log = self._partition.log
        closed = log.segments[-2:-1]
        if closed and not self._partition.is_offline:
            directory = self._partition.log_directory
            written = directory.executor.background(
                _write_ids_file, log, closed[0].base_offset, self._settings.source
            )
            written.add_done_callback(partial(succeeded_in, directory))

    # -- a batch ---------------------------------------------------------------------------------

    def look(
        self,
        header: BatchHeader,
        records: memoryview | bytearray,
        sent: SentIds | None,
        *,
        timestamp_ms: int,
        limits: BatchLimits,
    ) -> Preparation | Unseen:
        """What is to be appended of a client's batch, or what a thread has to do first.

        Raises RequestRefused if its ids cannot be read, or whether they were seen is not decided.
        `sent` is what a thread made of it. `timestamp_ms` is that which the batch will have, and
        `limits` are the topic's.
        """
        if not self.is_current:
            return Preparation.CATCH_UP
        entries = None if sent is not None else self._entries_at_once(header, records)
        if entries is None:
            return self._look_at_judged(header, records, sent, timestamp_ms)
        seen = self._judge(header, entries, timestamp_ms)
        if seen is None:
            return Unseen(records, header, entries, None)
        if leaves_nothing(header, seen):
            return Unseen(None, header, b"", seen)
        return _left(
            without_duplicates(
                header, records, entries, seen, log_time_ms=self._log_time_ms, limits=limits
            ),
            seen,
        )

    def _look_at_judged(
        self,
        header: BatchHeader,
        records: memoryview | bytearray,
        sent: SentIds | None,
        timestamp_ms: int,
    ) -> Preparation | Unseen:
        """The same for a batch that is left to a thread."""
        question = self._question(timestamp_ms)
        if sent is None or not self._answers(sent, question):
            return self._ask(question, is_new=True)
        _, seen, refusal = sent.judgement
        if refusal is not None:
            raise RequestRefused(*refusal)
        if seen is None:
            return Unseen(records, header, sent.entries, None)
        if leaves_nothing(header, seen):
            return Unseen(None, header, b"", seen)
        if sent.rest is None:  # It was taken for one that is stored already.
            return self._ask(question, is_new=True)
        return _left(sent.rest, seen)

    def told_offset(
        self,
        copy: ProducedBatch,
        header: BatchHeader,
        records: memoryview | bytearray,
        sent: SentIds | None,
    ) -> Offset | Preparation:
        """The offset to answer a repeated batch with, of which `copy` is stored.

        If all of its records were dropped the first time, nothing of it is there but its sequences,
        and the answer named the first copy of its first record.
        """
        if not self.is_current:
            return Preparation.CATCH_UP
        entries = None if sent is not None else self._entries_at_once(header, records)
        if entries is not None:
            seen = judged(header, entries, self._question(copy.timestamp_ms)).seen
        else:
            question = self._question(copy.timestamp_ms)
            if sent is None or not self._answers(sent, question):
                return self._ask(question, is_new=False)
            seen = sent.judgement.seen
        if seen is None or seen.record_count != header.record_count:
            return copy.base_offset
        first_offset = seen.first_copy_offset
        if first_offset is None or not seen.are_all_below(copy.base_offset):
            return copy.base_offset
        return first_offset

    def _entries_at_once(
        self, header: BatchHeader, records: memoryview | bytearray
    ) -> bytes | None:
        """None if a thread should read them, or find out why they cannot be."""
        if not _is_quick(header, records):
            return None
        try:
            return entries_of(
                header, records, self._settings.source, max_bytes=AT_ONCE_UNCOMPRESSED_BYTES
            )
        except RequestRefused:
            return None

    def _judge(self, header: BatchHeader, entries: bytes, timestamp_ms: int) -> Duplicates | None:
        assert self._reading is not None
        return judge(
            self._reading.index,
            header,
            entries,
            timestamp_ms=timestamp_ms,
            log_start_offset=self._partition.log.log_start_offset,
        )

    def _question(self, timestamp_ms: int) -> Question:
        assert self._reading is not None
        index = self._reading.index
        return Question(index, index.end_offset, self._partition.log.log_start_offset, timestamp_ms)

    def _answers(self, sent: SentIds, question: Question) -> bool:
        """Whether what a thread has judged is what it would judge now. I3"""
        return sent.judgement.question == question and sent.source == self._settings.source

    def _ask(self, question: Question, *, is_new: bool) -> Preparation:
        self._asked = (question, is_new)
        return Preparation.JUDGE

    def prepare(
        self,
        preparation: Preparation,
        records: bytearray,
        sent: SentIds | None,
        *,
        limits: BatchLimits,
    ) -> "asyncio.Future[SentIds | None]":
        """Have a thread do what `look` or `told_offset` has just asked for."""
        asked, self._asked = self._asked, None
        if preparation is not Preparation.JUDGE or asked is None or not self.is_current:
            return self.catch_up(sent)
        question, is_new = asked
        self._is_busy = True  # I3
        ready: asyncio.Future[SentIds | None] = self._partition.log_directory.executor.urgent(
            prepared,
            read_header(records, 0),
            records,
            sent,
            self._settings.source,
            question,
            is_new=is_new,
            limits=limits,
        )
        ready.add_done_callback(self._on_prepared)
        return ready

    def _on_prepared(self, _ready: "asyncio.Future[SentIds | None]") -> None:
        self._is_busy = False
        self.follow()

    def on_appended(
        self, header: BatchHeader, entries: bytes, *, base_offset: Offset, timestamp_ms: int
    ) -> None:
        """A batch that was judged is in the log, without what was dropped."""
        stored = header._replace(base_offset=base_offset, max_timestamp_ms=timestamp_ms)
        self._tell(summed_up(stored, data_kind(stored), entries))

    def on_marker(
        self, header: BatchHeader, end: TransactionEnd, *, offset: Offset, timestamp_ms: int
    ) -> None:
        """A transaction was ended here, and with it its ids."""
        is_commit = end.control_type is ControlType.COMMIT
        stored = header._replace(base_offset=offset, max_timestamp_ms=timestamp_ms)
        self._tell(summed_up(stored, BatchKind.COMMIT if is_commit else BatchKind.ABORT, b""))

    def _tell(self, digest: BatchDigest) -> None:
        reading = self._reading
        if reading is None or self._is_busy or not reading.is_of(self._partition.log):
            return  # The index has to catch up anyhow. I1
        index = reading.index
        if index.end_offset != digest.base_offset:
            return
        if index.entries_touched_by(digest) <= AT_ONCE_RECORDS:
            index.on_batch(digest)
            return
        self._is_busy = True  # I3
        directory = self._partition.log_directory
        told = directory.executor.urgent(index.on_batch, digest)
        told.add_done_callback(partial(self._on_read, directory))

    def on_dropped(self, count: int, now_ms: int) -> None:
        """Count, and say so now and then."""
        self.dropped_records += count
        if now_ms - self._reported_ms < REPORT_EVERY_MS:
            return
        logger.info(
            "duplicates dropped",
            extra={
                "partition": self._partition.topic_partition,
                "records": self.dropped_records - self._reported_records,
                "in_all": self.dropped_records,
            },
        )
        self._reported_records = self.dropped_records
        self._reported_ms = now_ms

    # -- where an id is --------------------------------------------------------------------------

    async def find(self, record_id: bytes) -> list[tuple[int, int]]:
        """(offset, timestamp) of every record with this id that is in the log (D6).

        What waits for the disk, an fsync say, waits for one slice and not for the whole log.
        """
        partition = self._partition
        while True:
            log, truncation_count = partition.log, partition.log.truncation_count
            search = IdSearch(log, self._settings.source, fingerprint(record_id))
            executor = partition.log_directory.executor
            while await executor.background(search.go_on):
                if partition.log is not log:
                    break
            if partition.log is log and log.truncation_count == truncation_count:
                return search.places
            # What was found may be gone: begin again.


class _Reading:
    """An index, and how far it has been told of its log. On a thread, but for `is_of`."""

    def __init__(self, log: Log, settings: DedupSettings, hash_key: bytes) -> None:
        self._log = log
        self._truncation_count = log.truncation_count
        self._settings = settings
        self._hash_key = hash_key
        self._is_started = False
        self.index = IdIndex(
            window_ms=settings.window_ms,
            ids_max=settings.ids_max,
            start_offset=Offset(-1),  # Where no log ends: it is not current.
            log_time_ms=-1,
            hash_key=hash_key,
        )
        self._reader: DigestReader | None = None

    def is_of(self, log: Log) -> bool:
        """Whether what it was told is still so."""
        return self._log is log and self._truncation_count == log.truncation_count

    def go_on_with(self, log: Log) -> None:
        """Read on in `log`, which holds the same."""
        self._log = log
        self._truncation_count = log.truncation_count
        self._reader = None

    def go_on(self, end_offset: Offset) -> bool:
        """Tell the index the next slice below `end_offset`; whether there was one."""
        settings, log = self._settings, self._log
        if not self._is_started:
            start_offset, log_time_ms = first_needed(
                log, remembered_ms=remembered_ms(settings.window_ms)
            )
            self.index = IdIndex(
                window_ms=settings.window_ms,
                ids_max=settings.ids_max,
                start_offset=start_offset,
                log_time_ms=log_time_ms,
                hash_key=self._hash_key,
            )
            self._is_started = True
        if self._reader is None or self._reader.offset != self.index.end_offset:
            self._reader = DigestReader(log, settings.source, self.index.end_offset)
        digests = self._reader.read(end_offset)
        for digest in digests:
            self.index.on_batch(digest)
        # There may be a gap behind the last batch, where compaction left nothing.
        self.index.end_offset = max(self.index.end_offset, self._reader.offset)
        return bool(digests)


def _left(rest: Rest, seen: Duplicates) -> Unseen:
    return Unseen(rest.records, read_header(rest.records, 0), rest.entries, seen)


def _is_quick(header: BatchHeader, records: BytesLike) -> bool:
    is_plain = header.attributes & CODEC_MASK == 0 and compiled is not None
    return header.record_count <= AT_ONCE_RECORDS and (is_plain or len(records) <= AT_ONCE_BYTES)


def _write_ids_file(log: Log, base_offset: Offset, source: IdSource) -> bool:
    for segment in log.segments[:-1]:
        if segment.base_offset == base_offset:
            write_ids_file(log, segment, source)
    return True
