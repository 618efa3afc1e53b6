"""Whatever is written and compacted, readers find what a dictionary would hold (S5, D2, D3).

The model keeps every record that was ever written. Of it, after each compaction:

    what is in the log is as it was written, at its offset, in its order
    who reads committed records comes to the same value of every key
    a record is gone only for one of the reasons that `batch_filter.py` gives
    what should be gone is gone, up to where the compaction came
    the last sequence of every living producer is there
"""

from pathlib import Path
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.storage.compacted_folder import (
    Transactions,
    committed,
    compact,
    headers,
    keyed_batch,
    newest,
)
from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch, log_config, read_all
from tidelog.base.ids import Offset
from tidelog.records.batch import BatchHeader, Codec, iter_headers
from tidelog.records.record import Record
from tidelog.storage.compaction import CompactionLimits
from tidelog.storage.log import Log
from tidelog.storage.memory_disk import MemoryDisk

FOLDER = Path("/logs/orders-3")
RETENTION_MS = 86_400_000

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"", None])
VALUES = st.one_of(st.none(), st.binary(max_size=30))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
CODECS = st.sampled_from(Codec)
PRODUCERS = st.sampled_from([7, 8])
LIMITS = st.builds(
    CompactionLimits,
    memory_bytes=st.sampled_from([24 * 5, 24 * 7, 1_000_000]),
    load_factor=st.sampled_from([0.3, 0.9]),
    read_bytes=st.sampled_from([70, 300, 100_000]),
)


class CompactedLog(RuleBasedStateMachine):
    """A log that is written to and compacted, beside a list of all that was written."""

    disk: MemoryDisk
    partition: LogFolder
    log: Log
    writer: Transactions

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.written: dict[int, Record] = {}
        self.owners: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.batch_ends: dict[int, int] = {}
        self.first_kept_ms: dict[int, int] = {}
        self.cleaned_offset = 0

    @initialize(segment_bytes=st.integers(200, 1_500))
    def create(self, segment_bytes: int) -> None:
        self.disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
        self.disk.make_folder(FOLDER.parent)
        self.disk.flush_folder(FOLDER.parent.parent)
        config = log_config(
            segment_bytes=segment_bytes, index_interval_bytes=100, cleanup_policy=("compact",)
        )
        self.partition = LogFolder(self.disk, FOLDER, config)
        self.log = self.partition.open_log()
        self.writer = Transactions(self.log)

    # -- what happens ----------------------------------------------------------------------------

    @rule(pairs=PAIRS, codec=CODECS)
    def write_plainly(self, pairs: list[tuple[bytes | None, bytes | None]], codec: Codec) -> None:
        base_offset = self.log.log_end_offset
        batch = keyed_batch(base_offset, pairs, codec=codec)
        append_batch(self.log, batch, producers=self.writer.entries())
        self._note(base_offset, pairs)

    @rule(producer_id=st.sampled_from([5, 6]), pairs=PAIRS, codec=CODECS)
    def write_idempotently(
        self, producer_id: int, pairs: list[tuple[bytes | None, bytes | None]], codec: Codec
    ) -> None:
        base_offset = self.writer.write(producer_id, pairs, is_transactional=False, codec=codec)
        self._note(base_offset, pairs)

    @rule(producer_id=PRODUCERS, pairs=PAIRS, codec=CODECS)
    def write_in_a_transaction(
        self, producer_id: int, pairs: list[tuple[bytes | None, bytes | None]], codec: Codec
    ) -> None:
        base_offset = self.writer.write(producer_id, pairs, codec=codec)
        for offset in self._note(base_offset, pairs):
            self.owners[offset] = producer_id

    @rule(producer_id=PRODUCERS, is_abort=st.booleans())
    def end_a_transaction(self, producer_id: int, is_abort: bool) -> None:
        self.writer.end(producer_id, is_abort=is_abort)
        ended = [offset for offset, owner in self.owners.items() if owner == producer_id]
        for offset in ended:
            del self.owners[offset]
        if is_abort:
            self.aborted.update(ended)

    @rule()
    def roll(self) -> None:
        self.log.roll(producers=self.writer.entries(), now_ms=NOW_MS)

    @rule(days=st.sampled_from([0.3, 1.0]))
    def pass_time(self, days: float) -> None:
        self.now_ms += int(days * RETENTION_MS)

    @precondition(lambda self: len(self.log.segments) > 1)
    @rule(limits=LIMITS)
    def compact(self, limits: CompactionLimits) -> None:
        compaction = compact(
            self.log,
            cleaned_offset=self.cleaned_offset,
            last_stable_offset=self.writer.last_stable_offset,
            producers=self.writer.entries(),
            limits=limits,
            now_ms=self.now_ms,
        )
        self.cleaned_offset = compaction.end_offset
        self._check_gone()
        self._check_that_every_offset_leads_to_the_next_batch()

    @rule()
    def kill_and_start(self) -> None:
        self._open(None)

    @rule(seed=st.integers(0, 2**32))
    def lose_power_and_start(self, seed: int) -> None:
        self.log.flush(up_to=self.log.log_end_offset)
        recovery_point = self.log.recovery_point
        self.disk.crash(Random(seed))
        self._open(recovery_point)

    def _open(self, recovery_point: Offset | None) -> None:
        self.partition.crash(self.log)
        self.log = self.partition.open_log(recovery_point=recovery_point)
        self.writer.log = self.log

    def _note(self, base_offset: int, pairs: list[tuple[bytes | None, bytes | None]]) -> list[int]:
        for number, (key, value) in enumerate(pairs):
            record = Record(base_offset + number, NOW_MS + number, key, value, ())
            self.written[record.offset] = record
            self.batch_ends[record.offset] = base_offset + len(pairs)
        return [base_offset + number for number in range(len(pairs))]

    # -- what must be true -----------------------------------------------------------------------

    def _is_shadowed(self, record: Record) -> bool:
        return any(
            later.key == record.key
            for offset, later in self.written.items()
            if record.offset < offset < self.cleaned_offset and offset not in self.aborted
        )

    def _check_gone(self) -> None:
        present = {record.offset for record in self._data()}
        for offset, record in self.written.items():
            if offset >= self.cleaned_offset:
                assert offset in present or offset in self.aborted
            elif offset in self.aborted or record.key is None or self._is_shadowed(record):
                assert offset not in present
            elif record.value is not None:
                assert offset in present
            else:
                self._check_tombstone(offset, is_present=offset in present)

    def _check_tombstone(self, offset: int, *, is_present: bool) -> None:
        if self.batch_ends[offset] > self.cleaned_offset:
            assert is_present
            return
        kept_since_ms = self.first_kept_ms.setdefault(offset, self.now_ms)
        assert is_present is (self.now_ms < kept_since_ms + RETENTION_MS)

    def _data(self) -> list[Record]:
        control = {header.base_offset for header in headers(self.log) if header.is_control}
        return [record for record in read_all(self.log) if record.offset not in control]

    @invariant()
    def what_is_there_is_as_it_was_written(self) -> None:
        for record in self._data():
            assert self.written[record.offset] == record

    @invariant()
    def readers_of_committed_records_come_to_the_same_values(self) -> None:
        stable = self.writer.last_stable_offset
        expected = newest(
            record
            for offset, record in sorted(self.written.items())
            if offset < stable and offset not in self.aborted
        )
        assert newest(committed(self.log, end_offset=stable)) == expected

    @invariant()
    def last_sequences_are_there(self) -> None:
        last = {}
        for header in headers(self.log):
            if header.has_producer_id and not header.is_control:
                last[header.producer_id] = (header.last_sequence, header.last_offset)
        assert last == {
            producer_id: (header.last_sequence, header.last_offset)
            for producer_id, header in self.writer.last_batches.items()
        }

    def _check_that_every_offset_leads_to_the_next_batch(self) -> None:
        starts = [(header.base_offset, header.last_offset) for header in headers(self.log)]
        end = self.log.log_end_offset
        for offset in range(end):
            read = self.log.read(Offset(offset), end_offset=end, max_bytes=1, at_least_one=True)
            found = [header.base_offset for header in _headers_in(bytes(read.data))]
            expected = [base for base, last in starts if last >= offset][:1]
            assert found == expected


def _headers_in(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_headers(data)]


CompactedLog.TestCase.settings = settings(stateful_step_count=40)
TestCompactedLog = CompactedLog.TestCase
