"""A disk in memory loses what was not flushed, and nothing else."""

from pathlib import Path
from random import Random

import pytest

from tidelog.base.errors import StorageError
from tidelog.storage.memory_disk import MemoryDisk

FOLDER = Path("/logs")
FILE = FOLDER / "a.log"
SEEDS = range(60)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk(total_bytes=2**20, now_ms=5)
    disk.make_folder(FOLDER)
    disk.flush_folder(Path("/"))
    return disk


def durable_file(disk: MemoryDisk) -> None:
    disk.open(FILE).flush()
    disk.flush_folder(FOLDER)


@pytest.mark.parametrize("seed", SEEDS)
def test_flushed_bytes_survive(disk: MemoryDisk, seed: int) -> None:
    durable_file(disk)
    file = disk.open(FILE)
    file.append(b"flushed")
    file.flush()
    file.append(b"not flushed")
    disk.crash(Random(seed))
    assert disk.read_file(FILE).startswith(b"flushed")


def outcomes(disk: MemoryDisk) -> set[bytes]:
    """What is left of three unflushed appends, over many crashes."""
    found = set()
    for seed in range(300):
        durable_file(disk)
        file = disk.open(FILE)
        for part in (b"aa", b"bb", b"cc"):
            file.append(part)
        disk.crash(Random(seed))
        found.add(disk.read_file(FILE))
        disk.remove(FILE)
    return found


def test_any_prefix_of_unflushed_bytes_may_survive(disk: MemoryDisk) -> None:
    whole = b"aabbcc"
    assert {whole[:size_bytes] for size_bytes in range(7)} <= outcomes(disk)


def test_page_that_was_never_written_reads_as_zeros(disk: MemoryDisk) -> None:
    assert any(b"\0" in found for found in outcomes(disk))


def test_truncation_that_was_not_flushed_may_come_undone(disk: MemoryDisk) -> None:
    lengths = set()
    for seed in SEEDS:
        durable_file(disk)
        file = disk.open(FILE)
        file.append(b"hello")
        file.flush()
        file.truncate(1)
        disk.crash(Random(seed))
        lengths.add(disk.size_bytes(FILE))
        disk.remove(FILE)
    assert lengths == {1, 5}


def test_bytes_in_place_of_cut_ones_come_after_the_cut_or_not_at_all(disk: MemoryDisk) -> None:
    found = set()
    for seed in range(300):
        durable_file(disk)
        file = disk.open(FILE)
        file.append(b"hello")
        file.flush()
        file.truncate(3)
        file.append(b"p")
        file.truncate(1)
        file.append(b"i")
        disk.crash(Random(seed))
        found.add(disk.read_file(FILE).replace(b"\0", b"?"))
        disk.remove(FILE)
    whole = {b"hello", b"hel", b"help", b"h", b"hi"}
    assert whole <= found
    assert all(b"?" in each for each in found - whole)


def test_name_that_was_not_flushed_may_be_gone(disk: MemoryDisk) -> None:
    seen = set()
    for seed in SEEDS:
        disk.open(FILE).flush()
        disk.crash(Random(seed))
        seen.add(disk.exists(FILE))
        disk.remove(FILE)
        disk.flush_folder(FOLDER)
    assert seen == {True, False}


def test_removal_that_was_not_flushed_may_come_undone(disk: MemoryDisk) -> None:
    seen = set()
    for seed in SEEDS:
        durable_file(disk)
        disk.remove(FILE)
        disk.crash(Random(seed))
        seen.add(disk.exists(FILE))
    assert seen == {True, False}


@pytest.mark.parametrize("seed", SEEDS)
def test_replaced_file_survives_as_a_whole(disk: MemoryDisk, seed: int) -> None:
    disk.replace_file(FILE, b"old")
    disk.replace_file(FILE, b"new")
    disk.crash(Random(seed))
    assert disk.read_file(FILE) == b"new"


def test_locks_do_not_outlive_a_crash(disk: MemoryDisk) -> None:
    disk.lock(FOLDER / ".lock")
    disk.crash(Random(0))
    disk.lock(FOLDER / ".lock")


def test_file_is_no_folder(disk: MemoryDisk) -> None:
    disk.replace_file(FILE, b"")
    with pytest.raises(StorageError):
        disk.make_folder(FILE / "x")
    with pytest.raises(StorageError):
        disk.open(FILE / "x")
