"""Aborted transactions are found again from the log, as they were written (D3, S6)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch, log_config
from tidelog.base.ids import Offset, ProducerId
from tidelog.core.transactions.producers import ProducerStates
from tidelog.records.batch import Codec, read_header
from tidelog.records.control import ControlType, TransactionEnd, encode_transaction_end
from tidelog.records.record import Record, encode_batch
from tidelog.storage.aborted import OpenTransactions
from tidelog.storage.log import Log
from tidelog.storage.memory_disk import MemoryDisk
from tidelog.storage.transaction_index import AbortedTransaction, cut_aborted

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
# A segment takes three batches, so that transactions span segments.
CONFIG = log_config(segment_bytes=250, index_interval_bytes=1)


@dataclass
class Writer:
    """Appends like a broker that serves transactions, `.txnindex` and snapshots included."""

    log: Log
    producers: ProducerStates = field(
        default_factory=lambda: ProducerStates(producer_id_expiration_ms=1, producers_max=100)
    )
    open: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def write(self, producer: int) -> None:
        """One batch of the producer's transaction, which begins with it if none is open."""
        self.open.setdefault(producer, self.log.log_end_offset)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        self._append(producer, Record(self.log.log_end_offset, NOW_MS, b"k", b"v", ()), sequence)

    def end(self, producer: int, how: ControlType) -> None:
        offset = self.log.log_end_offset
        key, value = encode_transaction_end(TransactionEnd(how, 3))
        self._append(producer, Record(offset, NOW_MS, key, value, ()), None)
        first_offset = self.open.pop(producer, None)
        if first_offset is None or how is COMMIT:
            return
        stable = min(self.open.values(), default=offset + 1)
        self.log.append_aborted(
            AbortedTransaction(
                ProducerId(producer), Offset(first_offset), Offset(offset), Offset(stable)
            )
        )

    def _append(self, producer: int, record: Record, sequence: int | None) -> None:
        batch = encode_batch(
            [record],
            leader_epoch=0,
            codec=Codec.NONE,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=-1 if sequence is None else sequence,
            is_transactional=True,
            is_control=sequence is None,
        )
        append_batch(self.log, batch, producers=self.producers.entries())
        self.producers.on_replayed(read_header(batch, 0))


@pytest.fixture
def partition(partition: LogFolder) -> LogFolder:
    partition.config = CONFIG
    return partition


def indexes(partition: LogFolder) -> dict[str, bytes]:
    return {name: data for name, data in partition.files().items() if name.endswith(".txnindex")}


def lose_indexes(partition: LogFolder) -> None:
    for name in indexes(partition):
        partition.disk.remove(partition.folder / name)


def test_lost_entries_are_found_again_by_recovery(partition: LogFolder) -> None:
    writer = Writer(partition.open_log())
    writer.write(1)
    writer.end(1, ABORT)
    written = indexes(partition)
    partition.crash(writer.log)
    lose_indexes(partition)
    log = partition.open_log(recovery_point=Offset(0))
    assert indexes(partition) == written
    (aborted,) = log.aborted_transactions(Offset(0), end_offset=Offset(2))
    assert (aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (0, 1, 2)


def test_committed_transaction_leaves_no_file(partition: LogFolder) -> None:
    writer = Writer(partition.open_log())
    writer.write(1)
    writer.end(1, COMMIT)
    partition.crash(writer.log)
    partition.open_log(recovery_point=Offset(0))
    assert indexes(partition) == {}


def test_transaction_that_began_before_the_recovery_point_is_found(partition: LogFolder) -> None:
    writer = Writer(partition.open_log())
    for _ in range(7):
        writer.write(1)
    recovery_point = writer.log.flush(up_to=writer.log.log_end_offset)
    writer.end(1, ABORT)
    written = indexes(partition)
    partition.crash(writer.log)
    lose_indexes(partition)
    partition.open_log(recovery_point=recovery_point)
    assert indexes(partition) == written


def test_entry_whose_marker_was_lost_is_dropped(partition: LogFolder) -> None:
    writer = Writer(partition.open_log())
    writer.write(1)
    end_bytes = writer.log.size_bytes
    writer.end(1, ABORT)
    partition.crash(writer.log)
    partition.write(f"{0:020d}.log", partition.log_bytes()[:end_bytes])
    partition.open_log(recovery_point=Offset(0))
    assert indexes(partition) == {}


def test_entries_below_the_recovery_point_survive_a_power_cut(
    memory_disk: MemoryDisk, partition: LogFolder
) -> None:
    writer = Writer(partition.open_log())
    writer.write(1)
    writer.end(1, ABORT)
    written = indexes(partition)
    recovery_point = writer.log.flush(up_to=writer.log.log_end_offset)
    memory_disk.crash(Random(0))
    partition.open_log(recovery_point=recovery_point)
    assert indexes(partition) == written


def _cut_off(data: bytes) -> bytes:
    return data[:-1]


def _of_another_version(data: bytes) -> bytes:
    return b"\xff" + data[1:]


def _twice(data: bytes) -> bytes:
    return data * 2


@pytest.mark.parametrize("damage", [_cut_off, _of_another_version, _twice])
def test_damaged_file_is_made_again_after_a_clean_stop(
    partition: LogFolder, damage: Callable[[bytes], bytes]
) -> None:
    writer = Writer(partition.open_log())
    writer.write(1)
    writer.end(1, ABORT)
    partition.stop(writer.log)
    written = indexes(partition)
    for name, data in written.items():
        partition.write(name, damage(data))
    partition.open_log(clean=True)
    assert indexes(partition) == written
    assert any("damaged" in warning for warning in partition.warnings)


STEPS = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([None, None, COMMIT, ABORT])),
    max_size=30,
)


@given(steps=STEPS, flush_after=st.integers(0, 30), has_snapshots=st.booleans())
def test_files_made_again_are_equal_to_those_lost(
    steps: list[tuple[int, ControlType | None]], flush_after: int, has_snapshots: bool
) -> None:
    disk = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    disk.make_folder(Path("/logs"))
    partition = LogFolder(disk, Path("/logs/orders-3"), CONFIG)
    writer = Writer(partition.open_log())
    recovery_point = Offset(0)
    for number, (producer, how) in enumerate(steps):
        if number == flush_after:
            recovery_point = writer.log.flush(up_to=writer.log.log_end_offset)
        if how is None:
            writer.write(producer)
        else:
            writer.end(producer, how)
    written = indexes(partition)
    partition.crash(writer.log)
    _lose(partition, recovery_point, has_snapshots=has_snapshots)
    for _ in range(2):
        partition.crash(partition.open_log(recovery_point=recovery_point))
        assert indexes(partition) == written


def _lose(partition: LogFolder, recovery_point: Offset, *, has_snapshots: bool) -> None:
    """Take what was not flushed by then."""
    for name in partition.files():
        path = partition.folder / name
        if path.suffix == ".txnindex":
            cut_aborted(partition.disk, path, end_offset=recovery_point)
            if not partition.disk.size_bytes(path):
                partition.disk.remove(path)
        if path.suffix == ".snapshot" and not has_snapshots:
            partition.disk.remove(path)


def test_the_oldest_transaction_that_has_not_ended_is_known() -> None:
    transactions = OpenTransactions(())
    assert transactions.first_offset() is None
    header = read_header(
        encode_batch(
            [Record(4, NOW_MS, b"k", b"v", ())],
            leader_epoch=0,
            codec=Codec.NONE,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
            is_control=False,
        ),
        0,
    )
    transactions.on_batch(header)
    transactions.on_batch(header._replace(producer_id=2, base_offset=9))
    assert transactions.first_offset() == 4
    transactions.on_marker(header._replace(base_offset=10), TransactionEnd(COMMIT, 0))
    assert transactions.first_offset() == 9
