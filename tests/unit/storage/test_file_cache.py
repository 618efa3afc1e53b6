"""Open files of closed segments are bounded, and never pulled from under a reader."""

from pathlib import Path

import pytest

from tidelog.base.errors import StorageError
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.file_cache import BlockingAccess, CachedAccess, FileCache, WouldBlock
from tidelog.storage.memory_disk import MemoryDisk

PATHS = [Path(f"/{number}.log") for number in range(5)]


@pytest.fixture
def disk(memory_disk: MemoryDisk) -> FaultyDisk:
    for path in PATHS:
        memory_disk.replace_file(path, path.name.encode())
    return FaultyDisk(memory_disk)


@pytest.fixture
def cache(disk: FaultyDisk) -> FileCache:
    return FileCache(disk, open_files_max=3)


def test_file_is_opened_once(cache: FileCache) -> None:
    assert cache.open(PATHS[0]) is cache.open(PATHS[0])


def test_least_recently_used_file_goes_first(cache: FileCache) -> None:
    for path in PATHS[:3]:
        cache.open(path)
    cache.open(PATHS[0])
    cache.open(PATHS[3])
    assert len(cache) == 3
    assert cache.peek(PATHS[1]) is None
    assert cache.peek(PATHS[0]) is not None


def test_file_that_was_let_go_can_still_be_read(cache: FileCache) -> None:
    file = cache.open(PATHS[0])
    for path in PATHS:
        cache.open(path)
    assert cache.peek(PATHS[0]) is None
    assert file.read(0, 100) == b"0.log"


def test_forgotten_file_is_opened_again(cache: FileCache) -> None:
    file = cache.open(PATHS[0])
    cache.forget(PATHS[0])
    assert cache.open(PATHS[0]) is not file


def test_forgotten_folder_takes_its_files_only(memory_disk: MemoryDisk) -> None:
    cache = FileCache(memory_disk, open_files_max=5)
    paths = [Path("/a-1/x"), Path("/a-1/y"), Path("/a-10/x")]
    for path in paths:
        memory_disk.make_folder(path.parent)
        memory_disk.replace_file(path, b"")
        cache.open(path)
    cache.forget_folder(Path("/a-1"))
    assert [cache.peek(path) is None for path in paths] == [True, True, False]


def test_absent_file_is_a_storage_error(cache: FileCache) -> None:
    with pytest.raises(StorageError, match="absent"):
        cache.open(Path("/absent"))


def test_loop_does_not_open_files(cache: FileCache) -> None:
    access = CachedAccess(cache)
    with pytest.raises(WouldBlock):
        access.open(PATHS[0])
    BlockingAccess(cache).open(PATHS[0])
    assert access.read(access.open(PATHS[0]), 0, 5) == b"0.log"


def test_loop_does_not_wait_for_bytes(cache: FileCache, disk: FaultyDisk) -> None:
    file = BlockingAccess(cache).open(PATHS[0])
    disk.is_cold = True
    with pytest.raises(WouldBlock):
        CachedAccess(cache).read(file, 0, 5)
    assert BlockingAccess(cache).read(file, 0, 5) == b"0.log"
