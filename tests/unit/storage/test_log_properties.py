"""Whatever happens to a log, it holds what a list of records would hold (S6, G4).

The disk loses power at random points: what was flushed survives, of the rest a prefix may.
"""

from pathlib import Path
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    batch_at,
    log_config,
    read_all,
)
from tidelog.base.ids import Offset
from tidelog.storage.log import Log
from tidelog.storage.memory_disk import MemoryDisk

FOLDER = Path("/logs/orders-3")


class LogAgainstList(RuleBasedStateMachine):
    """The model: a list of (offset, timestamp), and how much of it was flushed."""

    log: Log
    partition: LogFolder
    disk: MemoryDisk

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[int, int]] = []
        self.batches: list[tuple[int, int]] = []  # First offset and end offset.
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = Offset(0)

    @initialize(
        segment_bytes=st.integers(150, 2_000),
        index_interval_bytes=st.sampled_from([0, 100, 300, 1_000]),
    )
    def create(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
        self.disk.make_folder(FOLDER.parent)
        self.disk.flush_folder(FOLDER.parent.parent)
        self.partition = LogFolder(
            self.disk,
            FOLDER,
            log_config(segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes),
        )
        self.log = self.partition.open_log()

    @rule(
        timestamps_ms=st.lists(st.integers(NOW_MS - 50, NOW_MS + 50), min_size=1, max_size=4),
        padding=st.integers(0, 120),
    )
    def append(self, timestamps_ms: list[int], padding: int) -> None:
        base_offset = self.end_offset
        batch = batch_at(
            base_offset, len(timestamps_ms), timestamps_ms=timestamps_ms, value=b"x" * padding
        )
        append_batch(self.log, batch)
        self.records += [
            (base_offset + number, time_ms) for number, time_ms in enumerate(timestamps_ms)
        ]
        self.end_offset += len(timestamps_ms)
        self.batches.append((base_offset, self.end_offset))

    @rule()
    def roll(self) -> None:
        self.log.roll(producers=(), now_ms=NOW_MS)

    @rule(share=st.floats(0, 1))
    def flush(self, share: float) -> None:
        behind = self.end_offset - self.log.recovery_point
        up_to = Offset(self.log.recovery_point + int(share * behind))
        self.recovery_point = self.log.flush(up_to=up_to)

    @precondition(lambda self: self.end_offset > self.start_offset)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset), label="offset")
        self.log.truncate_to(Offset(offset))
        self.recovery_point = min(self.recovery_point, self.log.recovery_point)
        if offset < self.end_offset:
            cut = next((base for base, end in self.batches if end > offset), offset)
            self._keep_below(max(min(cut, offset), self.start_offset))

    @precondition(lambda self: self.end_offset > self.start_offset)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset), label="offset")
        self.log.advance_log_start(Offset(offset))
        expired = self.log.expired_segments(high_watermark=self.log.log_end_offset, now_ms=NOW_MS)
        self.log.detach(expired)
        for path in self.log.remove_detached(expired):
            self.disk.remove(path)
        self.start_offset = offset
        self._drop_below(offset)

    @rule()
    def stop_and_start(self) -> None:
        self.partition.stop(self.log)
        self._open(clean=True)
        assert self.log.recovery_point == self.end_offset
        self.recovery_point = self.log.recovery_point

    @rule()
    def kill_and_start(self) -> None:
        """The process dies, the machine does not: nothing is lost."""
        self.partition.crash(self.log)
        self._open(clean=False)

    @rule(seed=st.integers(0, 2**32))
    def lose_power_and_start(self, seed: int) -> None:
        """The machine dies: what was flushed is there, of the rest whole batches in order."""
        self.disk.crash(Random(seed))
        self._open(clean=False)
        end_offset = self.log.log_end_offset
        assert end_offset >= self.recovery_point
        assert end_offset <= self.end_offset
        assert end_offset in (self.start_offset, *(end for _, end in self.batches))
        self._keep_below(end_offset)

    def _open(self, *, clean: bool) -> None:
        opened = self.partition.open(
            clean=clean, recovery_point=self.recovery_point, log_start_offset=self.start_offset
        )
        self.log = opened.log

    def _keep_below(self, end_offset: int) -> None:
        self.records = [record for record in self.records if record[0] < end_offset]
        self.batches = [batch for batch in self.batches if batch[1] <= end_offset]
        self.end_offset = end_offset

    def _drop_below(self, start_offset: int) -> None:
        self.records = [record for record in self.records if record[0] >= start_offset]

    @invariant()
    def log_holds_what_the_list_holds(self) -> None:
        assert self.log.log_start_offset == self.start_offset
        assert self.log.log_end_offset == self.end_offset
        assert [(record.offset, record.timestamp_ms) for record in read_all(self.log)] == (
            self.records
        )

    @rule(timestamp_ms=st.integers(NOW_MS - 60, NOW_MS + 60))
    def look_up_by_time(self, timestamp_ms: int) -> None:
        found = self.log.offset_by_timestamp(timestamp_ms)
        expected = next((record for record in self.records if record[1] >= timestamp_ms), None)
        assert (found and (found.offset, found.timestamp_ms)) == expected

    @precondition(lambda self: self.end_offset > self.start_offset)
    @rule(data=st.data(), max_bytes=st.integers(0, 500))
    def read_part(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end_offset), label="offset")
        limits = [offset, *(end for _, end in self.batches if end >= offset)]
        end_offset = data.draw(st.sampled_from(limits), label="end offset")
        part = self.log.read(
            Offset(offset), end_offset=Offset(end_offset), max_bytes=max_bytes, at_least_one=True
        )
        assert part.end_offset <= max(end_offset, offset)
        if offset < end_offset:
            assert part.end_offset > offset


LogAgainstList.TestCase.settings = settings(stateful_step_count=30)
TestLogAgainstList = LogAgainstList.TestCase
