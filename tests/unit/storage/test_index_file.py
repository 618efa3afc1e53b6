"""Sparse indexes: what is found, in the file and in memory, and what is written when."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import DiskFull
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.file_cache import BlockingAccess, FileCache
from tidelog.storage.index_file import SPILL_BYTES, IndexUnusable
from tidelog.storage.memory_disk import MemoryDisk
from tidelog.storage.offset_index import OFFSET_ENTRY, OffsetIndex
from tidelog.storage.time_index import NO_ENTRY, TimeIndex

PATH = Path("/00000000000000000000.index")


def empty_index(disk: MemoryDisk) -> tuple[OffsetIndex, BlockingAccess]:
    disk.open(PATH)
    return OffsetIndex(disk, PATH, 0), BlockingAccess(FileCache(disk, open_files_max=4))


@given(
    steps=st.integers(0, 6_000).flatmap(
        lambda count: st.lists(st.integers(1, 5), min_size=count % 7, max_size=7).map(
            lambda steps: (steps * count)[:count]
        )
    ),
    spilled=st.floats(0, 1),
    key=st.integers(-1, 30_000),
)
def test_newest_entry_at_or_below_is_found(steps: list[int], spilled: float, key: int) -> None:
    """With any part of the entries in the file and the rest in memory."""
    index, access = empty_index(MemoryDisk(total_bytes=2**30, now_ms=0))
    entries = []
    offset = 0
    for number, step in enumerate(steps):
        offset += step
        entries.append((offset, 10 * offset))
        index.append(*entries[-1])
        if number == int(spilled * len(steps)):
            index.spill()
    at_or_below = [entry for entry in entries if entry[0] <= key]
    expected = at_or_below[-1] if at_or_below else (-1, 0)
    assert index.at_or_below_offset(key, access) == expected
    assert index.position_at_or_below(10 * key, access) == expected[1]
    assert list(index.entries(access)) == entries


def test_entries_gather_in_memory(memory_disk: MemoryDisk) -> None:
    index, _ = empty_index(memory_disk)
    for number in range(SPILL_BYTES // OFFSET_ENTRY.size):
        assert not index.needs_spill
        index.append(number, number)
    assert index.needs_spill
    assert memory_disk.size_bytes(PATH) == 0
    index.spill()
    assert memory_disk.size_bytes(PATH) == SPILL_BYTES
    assert not index.needs_spill


def test_full_disk_keeps_entries_in_memory(memory_disk: MemoryDisk) -> None:
    disk = FaultyDisk(memory_disk)
    disk.open(PATH)
    index = OffsetIndex(disk, PATH, 0)
    index.append(1, 10)
    disk.arm("append", "*", DiskFull)
    with pytest.raises(DiskFull):
        index.spill()
    access = BlockingAccess(FileCache(disk, open_files_max=4))
    assert index.at_or_below_offset(5, access) == (1, 10)
    disk.heal()
    index.spill()
    assert memory_disk.read_file(PATH) == OFFSET_ENTRY.pack(1, 10)


def test_file_shorter_than_it_was_is_noticed(memory_disk: MemoryDisk) -> None:
    index, access = empty_index(memory_disk)
    for number in range(10):
        index.append(number, number)
    index.spill()
    memory_disk.open(PATH).truncate(8)
    with pytest.raises(IndexUnusable):
        index.at_or_below_offset(9, access)


def test_time_index_keeps_only_later_timestamps(memory_disk: MemoryDisk) -> None:
    memory_disk.open(PATH)
    access = BlockingAccess(FileCache(memory_disk, open_files_max=4))
    index = TimeIndex(memory_disk, PATH, 0, last=NO_ENTRY)
    for entry in ((10, 1), (10, 2), (5, 3), (11, 4)):
        index.append_if_later(entry)
    assert list(index.entries(access)) == [(10, 1), (11, 4)]
    assert index.at_or_before(9, access) is None
    assert index.at_or_before(10, access) == (10, 1)
    assert index.largest(access) == (11, 4)


def test_empty_time_index_has_no_largest(memory_disk: MemoryDisk) -> None:
    memory_disk.open(PATH)
    access = BlockingAccess(FileCache(memory_disk, open_files_max=4))
    assert TimeIndex(memory_disk, PATH, 0, last=NO_ENTRY).largest(access) == NO_ENTRY
