"""Wherever a compaction is interrupted, the log holds what it held, or what is left of it (S6).

The process dies at each of its writes in turn, and the machine too: then what was not flushed may
be gone, in part or as a whole.
"""

from pathlib import Path
from random import Random

import pytest

from tests.support.hash_keys import HASH_KEY
from tests.unit.storage.compacted_folder import (
    AMPLE,
    Transactions,
    append_pairs,
    cleanable_of,
    committed,
    compact,
    headers,
    keyed_batch,
    newest,
)
from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    log_config,
    offsets_of,
    read_all,
)
from tests.unit.storage.stopping_disk import Died, StoppingDisk
from tidelog.base.ids import Offset
from tidelog.storage.compaction import Compaction, Replace
from tidelog.storage.log import Log
from tidelog.storage.memory_disk import MemoryDisk

FOLDER = Path("/logs/orders-3")


class Scene:
    """A log in four segments and an active one, on a disk that may stop."""

    def __init__(self) -> None:
        self.memory = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
        self.memory.make_folder(FOLDER.parent)
        self.memory.flush_folder(FOLDER.parent.parent)
        self.memory.flush_folder(FOLDER.parent)
        self.disk = StoppingDisk(self.memory)
        self.partition = LogFolder(self.disk, FOLDER, log_config(cleanup_policy=("compact",)))
        self.log = self.partition.open_log()
        writer = self.writer = Transactions(self.log)
        append_pairs(self.log, [(b"a", b"1"), (b"b", b"1")])
        writer.write(7, [(b"a", b"2"), (b"c", b"1")])
        append_pairs(self.log, [(b"d", b"1"), (b"b", None)])
        writer.end(7, is_abort=True)
        writer.write(8, [(b"a", b"3")])
        writer.end(8, is_abort=False)
        append_pairs(self.log, [(b"e", b"1")], [(b"a", b"4"), (b"d", b"2")])
        size_bytes = max(segment.size_bytes for segment in self.log.segments)
        # Two groups, so that there is something between two replacements.
        self.log.reconfigure(log_config(segment_bytes=2 * size_bytes, cleanup_policy=("compact",)))
        append_batch(self.log, keyed_batch(self.log.log_end_offset, [(b"f", b"1")]))
        self.log.flush(up_to=self.log.log_end_offset)
        self.end_offset = self.log.log_end_offset
        self.records = {record.offset: record for record in read_all(self.log)}
        self.values = newest(committed(self.log))

    def compact(self, log: Log) -> None:
        compact(log, producers=self.writer.entries())

    def open(self) -> Log:
        log = self.partition.open_log(recovery_point=Offset(self.end_offset))
        self.check(log)
        return log

    def check(self, log: Log) -> None:
        assert log.log_end_offset == self.end_offset
        assert newest(committed(log)) == self.values
        for record in read_all(log):
            assert self.records[record.offset] == record
        last_sequences = {
            header.producer_id: header.last_sequence
            for header in headers(log)
            if header.has_producer_id and not header.is_control
        }
        assert last_sequences == {7: 1, 8: 0}


def writes_of_a_compaction() -> tuple[int, int]:
    scene = Scene()
    before = scene.disk.writes
    scene.compact(scene.log)
    return before, scene.disk.writes


FIRST_WRITE, END = writes_of_a_compaction()


def test_compaction_is_many_writes() -> None:
    assert END - FIRST_WRITE > 60


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("stop_at", range(FIRST_WRITE, END))
def test_log_is_whole_wherever_a_compaction_stops(stop_at: int, loses_power: bool) -> None:
    scene = Scene()
    scene.disk.stop_at = stop_at
    with pytest.raises(Died):
        scene.compact(scene.log)
    scene.disk.stop_at = None
    chance = Random(stop_at)
    for _ in range(3):
        if loses_power:
            scene.memory.crash(chance)
        scene.open()
        assert not [name for name in scene.partition.files() if name.count(".") > 1]
    log = scene.open()
    scene.compact(log)
    scene.check(log)
    assert offsets_of(log) == compacted_offsets()


@pytest.mark.parametrize("stop_at", range(FIRST_WRITE, END, 5))
def test_opening_may_be_interrupted_as_well(stop_at: int) -> None:
    scene = Scene()
    scene.disk.stop_at = stop_at
    with pytest.raises(Died):
        scene.compact(scene.log)
    for further in range(12):
        scene.disk.stop_at = scene.disk.writes + further
        try:
            scene.partition.open_log(recovery_point=Offset(scene.end_offset))
        except Died:
            scene.memory.crash(Random(further))
    scene.disk.stop_at = None
    log = scene.open()
    scene.compact(log)
    assert offsets_of(log) == compacted_offsets()


def compacted_offsets() -> list[int]:
    scene = Scene()
    scene.compact(scene.log)
    return offsets_of(scene.log)


@pytest.mark.parametrize("seed", range(10))
def test_value_goes_only_when_what_replaces_it_is_on_the_device(seed: int) -> None:
    """Power fails between the two groups of a log of which nothing was flushed."""
    memory = MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    memory.make_folder(FOLDER.parent)
    memory.flush_folder(FOLDER.parent.parent)
    memory.flush_folder(FOLDER.parent)
    partition = LogFolder(memory, FOLDER, log_config(cleanup_policy=("compact",)))
    log = partition.open_log()
    append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
    log.reconfigure(log_config(segment_bytes=log.segments[0].size_bytes))
    compaction = Compaction(
        log, cleanable_of(log), producers=(), limits=AMPLE, hash_key=HASH_KEY, now_ms=NOW_MS
    )
    cleaned = next(step.cleaned for step in compaction.steps() if isinstance(step, Replace))
    log.begin_replacing()
    assert log.replace(cleaned, truncation_count=compaction.truncation_count) is not None
    log.flush_replaced()
    memory.crash(Random(seed))
    assert newest(read_all(partition.open_log())) == {b"a": b"2"}


class TestKafkasRules:
    """What Kafka would do about the same names."""

    def test_swap_that_is_complete_takes_its_place(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
        log.close(clean=True, producers=())
        new = keyed_batch(1, [(b"a", b"2")])
        partition.write(f"{0:020d}.log.swap", bytes(new))
        partition.write(f"{0:020d}.index.swap", b"")
        partition.write(f"{0:020d}.timeindex.swap", b"")
        log = partition.open_log(clean=True)
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        assert offsets_of(log) == [1]

    def test_swap_beside_something_cleaned_is_void(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
        log.close(clean=True, producers=())
        partition.write(f"{0:020d}.log.swap", b"")
        partition.write(f"{0:020d}.index.cleaned", b"")
        assert offsets_of(partition.open_log(clean=True)) == [0, 1]

    def test_swap_before_something_cleaned_counts(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
        log.close(clean=True, producers=())
        partition.write(f"{0:020d}.log.swap", b"")
        partition.write(f"{1:020d}.log.cleaned", b"")
        assert offsets_of(partition.open_log(clean=True)) == [1]

    def test_index_that_was_not_renamed_in_time_is(self, partition: LogFolder) -> None:
        log = partition.open_log()
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
        log.close(clean=True, producers=())
        partition.disk.rename(
            partition.folder / f"{0:020d}.index", partition.folder / f"{0:020d}.index.swap"
        )
        assert offsets_of(partition.open_log(clean=True)) == [0, 1]
        assert partition.warnings == []
