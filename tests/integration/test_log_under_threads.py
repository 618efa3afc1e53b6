"""A log is appended to on one thread while others read, roll, flush and delete (`storage/log.py`).

What each may do when is stated there; here it is done all at once, on a real disk.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.support.hash_keys import HASH_KEY
from tests.unit.storage.compacted_folder import AMPLE, cleanable_of, keyed_batch
from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    batch_at,
    log_config,
    offsets_of,
    read_all,
    records_in,
)
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.storage.compaction import Compaction, Replace
from tidelog.storage.disk import RealDisk
from tidelog.storage.log import Log, LogRead

REPLACEMENTS_MIN = 10
READS_MIN = 100
APPENDS = 4_000
READERS = 2


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Threads take turns every 10 microseconds rather than every 5 milliseconds."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(0.00001)
    yield
    sys.setswitchinterval(usual_s)


class Reader:
    """Reads the log from start to end, again and again, up to what was committed."""

    def __init__(self, log: Log, committed: Callable[[], Offset], seed: int) -> None:
        self._log = log
        self._committed = committed
        self._random = Random(seed)
        self.read_count = 0

    def run(self, stop: threading.Event) -> None:
        offset = Offset(0)
        while not stop.is_set():
            end_offset = self._committed()
            if offset >= end_offset:
                offset = self._log.log_start_offset
            try:
                part = self._read(offset, end_offset)
            except RequestRefused as refusal:
                if refusal.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                offset = self._log.log_start_offset
                continue
            self._check(part, offset, end_offset)
            offset = part.end_offset

    def _read(self, offset: Offset, end_offset: Offset) -> LogRead:
        max_bytes = self._random.choice([100, 1_000, 20_000])
        return self._log.read(offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=True)

    def _check(self, part: LogRead, offset: Offset, end_offset: Offset) -> None:
        if part.data:
            offsets = [record.offset for record in records_in(part.data)]
            assert offsets == list(range(offsets[0], offsets[-1] + 1))
            assert offsets[0] <= offset <= offsets[-1]
            assert offsets[-1] < end_offset
            assert part.end_offset == offsets[-1] + 1
            self.read_count += 1


def append_and_look_after(log: Log, commit: Callable[[Offset], None]) -> None:
    """What a partition's owner does, with the same two threads behind it."""
    random = Random(1)
    flushing: Future[Offset] | None = None
    with ThreadPoolExecutor(1) as urgent, ThreadPoolExecutor(1) as background:
        for number in range(APPENDS):
            batch = batch_at(log.log_end_offset, random.randint(1, 3), value=b"x" * (number % 90))
            base_offset = log.log_end_offset
            last_offset = Offset(base_offset + batch[26])  # The last offset delta, a small one.
            if log.roll_needed(
                size_bytes=len(batch),
                max_timestamp_ms=NOW_MS,
                now_ms=NOW_MS,
                last_offset=last_offset,
            ):
                urgent.submit(log.roll, producers=(), now_ms=NOW_MS).result()
            log.append(
                batch, base_offset=base_offset, last_offset=last_offset, max_timestamp_ms=NOW_MS
            )
            if random.random() < 0.7:
                commit(log.log_end_offset)
            part = log.read_cached(
                base_offset, end_offset=log.log_end_offset, max_bytes=10_000, at_least_one=True
            )
            assert part is None or part.end_offset == log.log_end_offset
            if flushing is None or flushing.done():
                if flushing is not None:
                    flushing.result()
                flushing = background.submit(log.flush, up_to=log.log_end_offset)
            if number % 500 == 499:
                log.advance_log_start(log.segments[len(log.segments) // 2].base_offset)
                expired = background.submit(
                    log.expired_segments, high_watermark=log.log_end_offset, now_ms=NOW_MS
                ).result()
                log.detach(expired)
                for path in background.submit(log.remove_detached, expired).result():
                    path.unlink()


def test_readers_see_whole_batches_in_order_and_nothing_uncommitted(tmp_path: Path) -> None:
    config = log_config(segment_bytes=9_000, index_interval_bytes=300)
    partition = LogFolder(RealDisk(), tmp_path / "orders-3", config)
    log = partition.open_log()
    committed = [Offset(0)]
    stop = threading.Event()
    readers = [Reader(log, lambda: committed[0], seed) for seed in range(READERS)]
    with ThreadPoolExecutor(READERS) as threads:
        running = [threads.submit(reader.run, stop) for reader in readers]
        try:
            append_and_look_after(log, lambda offset: committed.__setitem__(0, offset))
        finally:
            stop.set()
        for future in running:
            future.result()
    assert all(reader.read_count > 100 for reader in readers)
    end_offset = log.log_end_offset
    partition.crash(log)
    log = partition.open(log_start_offset=log.log_start_offset).log
    assert offsets_of(log) == list(range(log.log_start_offset, end_offset))
    assert partition.warnings == []


class CompactedReader(Reader):
    """Finds gaps, but nothing out of order and nothing that was not written."""

    def _check(self, part: LogRead, offset: Offset, end_offset: Offset) -> None:
        records = records_in(part.data) if part.data else []
        offsets = [record.offset for record in records]
        assert offsets == sorted(offsets)
        assert all(record.value == b"%d" % record.offset for record in records)
        assert all(number < end_offset for number in offsets)
        assert part.end_offset > offset or offset >= end_offset
        self.read_count += 1


def compact_all_the_time(
    log: Log, urgent: ThreadPoolExecutor, stop: threading.Event
) -> Iterator[int]:
    """On a thread beside those who read; only the replacement is for the owner's other thread."""
    cleaned_offset = Offset(0)
    while not stop.is_set():
        cleanable = cleanable_of(log, cleaned_offset=cleaned_offset)
        if not cleanable.cleanable_bytes:
            continue
        compaction = Compaction(
            log,
            cleanable,
            producers=(),
            limits=AMPLE,
            hash_key=HASH_KEY,
            now_ms=NOW_MS + cleaned_offset,
        )
        for step in compaction.steps():
            if isinstance(step, Replace):
                log.begin_replacing()
                renamed = urgent.submit(
                    log.replace, step.cleaned, truncation_count=compaction.truncation_count
                ).result()
                assert renamed is not None
                for path in renamed:
                    path.unlink()
                yield 1
        cleaned_offset = compaction.end_offset


class Replacements:
    """How often a segment was replaced."""

    def __init__(self, replacing: Iterator[int]) -> None:
        self._replacing = replacing
        self.count = 0

    def run(self) -> None:
        for one in self._replacing:
            self.count += one


def test_readers_see_every_key_while_segments_are_replaced(tmp_path: Path) -> None:
    config = log_config(segment_bytes=3_000, index_interval_bytes=300, cleanup_policy=("compact",))
    partition = LogFolder(RealDisk(), tmp_path / "orders-3", config)
    log = partition.open_log()
    committed = [Offset(0)]
    stop = threading.Event()
    readers = [CompactedReader(log, lambda: committed[0], seed) for seed in range(READERS)]
    with ThreadPoolExecutor(READERS + 1) as threads, ThreadPoolExecutor(1) as urgent:
        running = [threads.submit(reader.run, stop) for reader in readers]
        replaced = Replacements(compact_all_the_time(log, urgent, stop))
        compacting = threads.submit(replaced.run)
        try:
            number = -1
            # On a busy machine for longer: as long as it takes the others to have done much.
            while (
                number < APPENDS
                or replaced.count <= REPLACEMENTS_MIN
                or any(reader.read_count <= READS_MIN for reader in readers)
            ):
                assert not compacting.done()
                number += 1
                offset = log.log_end_offset
                pairs = [(b"%d" % (number % 17), b"%d" % offset)]
                if log.roll_needed(
                    size_bytes=200,
                    max_timestamp_ms=NOW_MS,
                    now_ms=NOW_MS,
                    last_offset=offset,
                ):
                    urgent.submit(log.roll, producers=(), now_ms=NOW_MS).result()
                append_batch(log, keyed_batch(offset, pairs))
                committed[0] = log.log_end_offset
        finally:
            stop.set()
        for future in running:
            future.result()
        compacting.result()
    newest_offsets = {record.key: record.offset for record in read_all(log)}
    assert newest_offsets == {b"%d" % (each % 17): each for each in range(number - 16, number + 1)}
