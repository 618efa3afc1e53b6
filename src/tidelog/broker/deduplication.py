"""Drops records that one partition's log has seen before (D5): where the rules meet a log.

    Produce ──▶ is the index at the end of the log? ──no──▶ catch up on a thread, go on when it is
                     │ yes                                   (requests wait in the append queue)
                     ▼
                ids of the batch ──▶ judge ──▶ nothing seen: append as ever
                     │                   └───▶ some: append the rest        all: append no record
                     └─ compressed and large: on a thread

The rules are in `core/deduplication/index.py`. The index belongs to the loop while it is current,
and to the thread that catches up while it is not.

Invariants:

    I1  An index is asked only if it has been told every batch of the log as it is now. Whatever
        else was appended (by a leader before, by a coordinator) or cut off is noticed, because the
        index knows where it stands, and of which log.
    I2  One slice is read at a time, on the thread that reads for followers whose log is cut; and
        none while that is about to happen (I4 of `follower_runner.py`).
"""

import asyncio
import logging
from functools import partial
from typing import NamedTuple, Protocol

from tidelog.base.errors import RequestRefused
from tidelog.base.ids import NO_PRODUCER_ID, Offset, TopicPartition
from tidelog.base.ports import BytesLike
from tidelog.broker.append_queue import Preparation
from tidelog.broker.partition_ports import LogDirectory, succeeded_in
from tidelog.broker.sent_ids import SentIds, ids_of, without_duplicates
from tidelog.config.topic import TopicConfig, remembered_ms
from tidelog.core.deduplication.index import Duplicates, IdIndex
from tidelog.records.batch import CODEC_MASK, BatchHeader, read_header
from tidelog.records.compiled import compiled
from tidelog.records.control import ControlType, TransactionEnd
from tidelog.records.digest import BatchDigest, BatchKind, data_kind, summed_up
from tidelog.records.ids import IdSource, fingerprint
from tidelog.records.producer import ProducedBatch
from tidelog.storage.digests import DigestReader, IdSearch, first_needed, write_ids_file
from tidelog.storage.log import Log

logger = logging.getLogger(__name__)

AT_ONCE_BYTES = 16 * 1024
"""A larger batch that is compressed, or that Python has to read, is left to a thread."""

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
        return self.seen.offsets[0]


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

    def _on_read(self, directory: LogDirectory, read: "asyncio.Future[bool]") -> None:
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

    def _ids(self, header: BatchHeader, records: BytesLike, sent: SentIds | None) -> SentIds | None:
        """What was read already, unless the topic's ids are somewhere else by now."""
        if sent is not None and sent.source == self._settings.source:
            return sent
        return self.ids_at_once(header, records)

    def ids_at_once(self, header: BatchHeader, records: BytesLike) -> SentIds | None:
        """The ids of a client's batch; None if a thread should read them (`ids_of`)."""
        if _is_quick(header, records):
            return ids_of(header, records, self._settings.source)
        return None

    def look(
        self,
        header: BatchHeader,
        records: memoryview | bytearray,
        sent: SentIds | None,
        *,
        timestamp_ms: int,
    ) -> Preparation | Unseen:
        """What is to be appended of a client's batch, or what a thread has to do first.

        Raises RequestRefused if its ids cannot be read, or whether they were seen is not decided.
        `timestamp_ms` is that which the batch will have.
        """
        if not self.is_current:
            return Preparation.CATCH_UP
        sent = self._ids(header, records, sent)
        if sent is None:
            return Preparation.READ_IDS
        seen = self.judge(header, sent.entries, timestamp_ms=timestamp_ms)
        if seen is None:
            return Unseen(records, header, sent.entries, None)
        is_all = len(seen.deltas) == header.record_count
        if is_all and header.producer_id < 0:
            return Unseen(None, header, b"", seen)
        if sent.dropped != seen.deltas:
            if not is_all and not _is_quick(header, records):
                return Preparation.LEAVE_OUT
            sent = without_duplicates(header, records, sent, seen.deltas, self._log_time_ms)
        assert sent.rest is not None
        return Unseen(sent.rest, read_header(sent.rest, 0), sent.kept_entries, seen)

    def prepare(
        self,
        preparation: Preparation,
        records: bytearray,
        sent: SentIds | None,
        *,
        timestamp_ms: int | None,
    ) -> "asyncio.Future[SentIds | None]":
        """Have a thread do what `look` asked for."""
        executor = self._partition.log_directory.executor
        header = read_header(records, 0)
        if preparation is Preparation.READ_IDS:
            return executor.urgent(ids_of, header, records, self._settings.source)
        if preparation is Preparation.LEAVE_OUT and self.is_current:
            assert sent is not None
            if timestamp_ms is None:
                timestamp_ms = header.max_timestamp_ms
            try:
                seen = self.judge(header, sent.entries, timestamp_ms=timestamp_ms)
            except RequestRefused:
                seen = None
            if seen is not None:
                return executor.urgent(
                    without_duplicates,
                    header,
                    records,
                    sent,
                    seen.deltas,
                    self._log_time_ms,
                )
        return self.catch_up(sent)

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
        sent = self._ids(header, records, sent)
        if sent is None:
            return Preparation.READ_IDS
        try:
            seen = self.judge(header, sent.entries, timestamp_ms=copy.timestamp_ms)
        except RequestRefused:
            return copy.base_offset
        if seen is None or len(seen.deltas) != header.record_count:
            return copy.base_offset
        offsets = [copy.base_offset if offset is None else offset for offset in seen.offsets]
        return offsets[0] if max(offsets) < copy.base_offset else copy.base_offset

    def judge(self, header: BatchHeader, entries: bytes, *, timestamp_ms: int) -> Duplicates | None:
        """Which of its records were seen. Raises RequestRefused if that is not decided yet."""
        assert self._reading is not None
        return self._reading.index.judge(
            entries,
            timestamp_ms=timestamp_ms,
            producer_id=header.producer_id if header.is_transactional else NO_PRODUCER_ID,
            log_start_offset=self._partition.log.log_start_offset,
        )

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
        if reading.index.end_offset == digest.base_offset:
            reading.index.on_batch(digest)

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


def _is_quick(header: BatchHeader, records: BytesLike) -> bool:
    is_plain = header.attributes & CODEC_MASK == 0 and compiled is not None
    return is_plain or len(records) <= AT_ONCE_BYTES


def _write_ids_file(log: Log, base_offset: Offset, source: IdSource) -> bool:
    for segment in log.segments[:-1]:
        if segment.base_offset == base_offset:
            write_ids_file(log, segment, source)
    return True
