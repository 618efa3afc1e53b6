"""`.txnindex` files: round trip and damage (D3)."""

from pathlib import Path

import pytest

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, ProducerId
from tidelog.storage.memory_disk import MemoryDisk
from tidelog.storage.transaction_index import (
    AbortedTransaction,
    append_aborted,
    cut_aborted,
    find_aborted,
    read_aborted,
)

PATH = Path("/00000000000000000000.txnindex")


def aborted(last_offset: int) -> AbortedTransaction:
    return AbortedTransaction(
        ProducerId(7), Offset(last_offset - 1), Offset(last_offset), Offset(last_offset + 1)
    )


@pytest.fixture
def disk(memory_disk: MemoryDisk) -> MemoryDisk:
    for last_offset in (3, 5, 9):
        append_aborted(memory_disk, PATH, aborted(last_offset))
    return memory_disk


def test_entries_are_read_as_written(disk: MemoryDisk) -> None:
    assert read_aborted(disk, PATH) == [aborted(3), aborted(5), aborted(9)]


def test_transactions_that_begin_behind_what_is_read_are_left_out(disk: MemoryDisk) -> None:
    """A long one that ends later makes the search go on behind them."""
    long = AbortedTransaction(ProducerId(8), Offset(1), Offset(12), Offset(13))
    entries = [aborted(5)._replace(last_stable_offset=Offset(1)), aborted(9), long]
    entries[1] = entries[1]._replace(last_stable_offset=Offset(1))
    path = PATH.with_name("1.txnindex")
    for entry in entries:
        append_aborted(disk, path, entry)
    data = disk.read_file(path)
    found = find_aborted(path, data, offset=Offset(0), end_offset=Offset(6))
    assert found == ([entries[0], long], True)
    found = find_aborted(path, data, offset=Offset(6), end_offset=Offset(7))
    assert found == ([long], True)


def test_entry_has_kafkas_size(disk: MemoryDisk) -> None:
    assert disk.size_bytes(PATH) == 3 * 34


def test_entries_beyond_the_end_are_cut(disk: MemoryDisk) -> None:
    cut_aborted(disk, PATH, end_offset=Offset(6))
    assert read_aborted(disk, PATH) == [aborted(3), aborted(5)]


def test_half_an_entry_is_cut(disk: MemoryDisk) -> None:
    disk.open(PATH).truncate(2 * 34 + 5)
    cut_aborted(disk, PATH, end_offset=Offset(100))
    assert read_aborted(disk, PATH) == [aborted(3), aborted(5)]


def test_half_an_entry_is_refused_by_name(disk: MemoryDisk) -> None:
    disk.open(PATH).truncate(40)
    with pytest.raises(StorageError, match=PATH.name):
        read_aborted(disk, PATH)


def test_unknown_version_is_refused_by_name(disk: MemoryDisk) -> None:
    data = bytearray(disk.read_file(PATH))
    data[1] = 9
    disk.replace_file(PATH, bytes(data))
    with pytest.raises(StorageError, match=PATH.name):
        read_aborted(disk, PATH)
