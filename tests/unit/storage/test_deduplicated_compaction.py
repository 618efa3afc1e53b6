"""Compaction takes no id that still counts: whoever reads the log again decides alike (D5, S5).

Time is the log's own. A topic whose records tell of things long past is old by any clock, and its
ids count all the same.
"""

from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support.hash_keys import HASH_KEY
from tests.unit.storage.compacted_folder import compact
from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch
from tidelog.base.ids import Offset
from tidelog.config.topic import TopicConfig, remembered_ms
from tidelog.core.deduplication.index import Duplicates, IdIndex
from tidelog.records.batch import Codec
from tidelog.records.ids import ENTRY, IdSource, fingerprint
from tidelog.records.record import Record, encode_batch
from tidelog.storage.digests import DigestReader, first_needed
from tidelog.storage.log import Log
from tidelog.storage.memory_disk import MemoryDisk

SOURCE = IdSource(b"id")
WINDOW_MS = 1_000
REMEMBERED_MS = remembered_ms(WINDOW_MS)
WEEK_MS = 7 * 86_400_000
CONFIG = TopicConfig(
    cleanup_policy=("compact",),
    tidelog_dedup_header="id",
    tidelog_dedup_window_ms=WINDOW_MS,
    min_cleanable_dirty_ratio=0.0,
)


@dataclass(frozen=True)
class Step:
    """A record, and whether the segment ends behind it."""

    key: int
    record_id: int
    time_ms: int
    rolls: bool = True


def batch(offset: int, step: Step) -> bytearray:
    headers = (("id", b"%d" % step.record_id),)
    record = Record(offset, step.time_ms, b"%d" % step.key, b"v", headers)
    return encode_batch(
        [record],
        leader_epoch=0,
        codec=Codec.NONE,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        is_transactional=False,
        is_control=False,
    )


def written(steps: list[Step]) -> Log:
    disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    folder = LogFolder(disk, Path("/folder"), CONFIG)
    log = folder.open_log()
    for offset, step in enumerate(steps):
        append_batch(log, batch(offset, step))
        if step.rolls:
            log.roll(producers=(), now_ms=NOW_MS)
    return log


def index_of(log: Log) -> IdIndex:
    """As a leader makes it that has just got the log."""
    start_offset, log_time_ms = first_needed(log, remembered_ms=REMEMBERED_MS)
    index = IdIndex(
        window_ms=WINDOW_MS,
        ids_max=1_000,
        start_offset=start_offset,
        log_time_ms=log_time_ms,
        hash_key=HASH_KEY,
    )
    reader = DigestReader(log, SOURCE, start_offset)
    while reader.offset < log.log_end_offset:
        for digest in reader.read(log.log_end_offset):
            index.on_batch(digest)
    return index


def decisions(
    index: IdIndex, ids: set[int], times: range
) -> dict[tuple[int, int], Duplicates | None]:
    return {
        (record_id, time_ms): index.judge(
            ENTRY.pack(fingerprint(b"%d" % record_id), 0),
            timestamp_ms=time_ms,
            producer_id=-1,
            log_start_offset=Offset(0),
        )
        for record_id in ids
        for time_ms in times
    }


def test_an_id_that_counts_by_the_logs_time_stays_however_old_it_is() -> None:
    old_ms = NOW_MS - WEEK_MS
    steps = [Step(key=1, record_id=number, time_ms=old_ms + number) for number in range(5)]
    log = written(steps)
    compact(log, now_ms=NOW_MS)
    seen = index_of(log).judge(
        ENTRY.pack(fingerprint(b"0"), 0),
        timestamp_ms=old_ms + 10,
        producer_id=-1,
        log_start_offset=Offset(0),
    )
    assert seen is not None
    assert (seen.record_count, seen.first_copy_offset) == (1, 0)


def test_what_does_not_count_any_more_is_compacted() -> None:
    steps = [Step(key=1, record_id=number, time_ms=NOW_MS) for number in range(3)]
    steps += [Step(key=1, record_id=3, time_ms=NOW_MS + REMEMBERED_MS), Step(2, 4, NOW_MS)]
    log = written(steps)
    compact(log, now_ms=NOW_MS + WEEK_MS)
    assert [header.base_offset for header in log.headers_from(Offset(0))] == [2, 3, 4]


@given(
    steps=st.lists(
        st.builds(
            Step,
            key=st.integers(0, 2),
            record_id=st.integers(0, 8),
            time_ms=st.integers(0, 8).map(lambda number: NOW_MS - WEEK_MS + number * 500),
            rolls=st.booleans(),
        ),
        min_size=1,
        max_size=25,
    ),
    data=st.data(),
)
def test_compaction_changes_no_decision_also_if_the_log_is_cut_later(
    steps: list[Step], data: st.DataObject
) -> None:
    """What is at or above the last stable offset may be taken back, and its time with it."""
    stable = data.draw(st.integers(0, len(steps)))
    end = data.draw(st.integers(stable, len(steps)))
    log, as_it_was = written(steps), written(steps)
    compact(log, last_stable_offset=stable, now_ms=NOW_MS)
    for one in (log, as_it_was):
        one.truncate_to(Offset(end))
    ids = {step.record_id for step in steps}
    first_ms = NOW_MS - WEEK_MS
    times = range(first_ms - 1_000, first_ms + 8_000, 250)
    assert decisions(index_of(log), ids, times) == decisions(index_of(as_it_was), ids, times)
