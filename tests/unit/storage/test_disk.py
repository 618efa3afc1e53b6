"""What only the real disk can get wrong: writes that stop halfway, descriptors, errors."""

import errno
import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.base.errors import DiskFull, FlushFailed, StorageError
from tidelog.storage.disk import RealDisk

OPEN_DESCRIPTORS = Path("/proc/self/fd")


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    """Writes beyond `size_bytes` fail halfway, as on a disk that fills up.

    Around as little as possible: the limit is the whole process's, and the test runner writes too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_write_that_succeeds_in_part_is_cut_back(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "a.log")
    file.append(b"x" * 9_000)
    with files_limited_to(10_000), pytest.raises(StorageError, match=r"a\.log"):
        file.append(b"y" * 5_000)
    assert (file.size_bytes, (tmp_path / "a.log").stat().st_size) == (9_000, 9_000)
    file.append(b"z" * 1_000)
    assert file.read(8_999, 2) == b"xz"


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, StorageError)],
)
def test_errors_are_told_apart_and_name_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[StorageError]
) -> None:
    file = RealDisk().open(tmp_path / "a.log")
    file.append(b"whole")
    written = os.write

    def fail_halfway(descriptor: int, data: bytes) -> int:
        if len(data) < 10:
            raise OSError(number, os.strerror(number))
        return written(descriptor, data[:6])

    monkeypatch.setattr("tidelog.storage.disk.os.write", fail_halfway)
    with pytest.raises(StorageError, match=r"append to .*a\.log") as raised:
        file.append(b"in two parts")
    assert type(raised.value) is error
    assert (tmp_path / "a.log").read_bytes() == b"whole"


def test_write_in_several_parts_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(tmp_path / "a.log")
    written = os.write
    monkeypatch.setattr(
        "tidelog.storage.disk.os.write", lambda descriptor, data: written(descriptor, data[:3])
    )
    assert file.append(b"in several parts") == 16
    assert file.read(0, 100) == b"in several parts"


def test_the_system_is_asked_to_begin_writing(tmp_path: Path) -> None:
    """That it does is seen only by who measures; that it harms nothing is seen here."""
    file = RealDisk().open(tmp_path / "a.log")
    file.append(b"x" * 100_000)
    file.start_writing(0, 100_000)
    file.start_writing(50_000, 1_000_000)
    file.flush()
    assert file.read(99_999, 10) == b"x"
    file.close()
    file.start_writing(0, 100_000)  # As a thread may do that was asked before.


def test_read_in_several_parts_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(tmp_path / "a.log")
    file.append(b"in several parts")
    read = os.pread
    monkeypatch.setattr(
        "tidelog.storage.disk.os.pread",
        lambda descriptor, size, position: read(descriptor, min(size, 3), position),
    )
    assert file.read(3, 100) == b"several parts"
    assert file.read(3, 7) == b"several"


def test_cached_read_falls_back_where_nowait_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(tmp_path / "a.log")
    file.append(b"hello")

    def unsupported(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr("tidelog.storage.disk.os.preadv", unsupported)
    assert file.read_cached(1, 3) == b"ell"
    assert file.read_cached(1, 30) == b"ello"


def test_cached_read_that_would_wait_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(tmp_path / "a.log")
    file.append(b"hello")

    def would_wait(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "try again")

    monkeypatch.setattr("tidelog.storage.disk.os.preadv", would_wait)
    assert file.read_cached(1, 3) is None


def test_cached_read_that_got_only_a_part_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(tmp_path / "a.log")
    file.append(b"hello")
    monkeypatch.setattr("tidelog.storage.disk.os.preadv", lambda *_: 2)
    assert file.read_cached(0, 5) is None


def test_cached_read_of_a_broken_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk().open(tmp_path / "a.log")
    file.append(b"hello")

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr("tidelog.storage.disk.os.preadv", broken)
    with pytest.raises(StorageError, match=r"a\.log"):
        file.read_cached(0, 5)


@pytest.mark.skipif(not OPEN_DESCRIPTORS.exists(), reason="needs /proc")
def test_file_that_is_let_go_is_closed(tmp_path: Path) -> None:
    gc.collect()
    before = len(list(OPEN_DESCRIPTORS.iterdir()))
    disk = RealDisk()
    for _ in range(50):
        disk.open(tmp_path / "a.log")
    assert len(list(OPEN_DESCRIPTORS.iterdir())) <= before + 1


def test_failed_replacement_leaves_the_old_file(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.replace_file(tmp_path / "a", b"old")
    with files_limited_to(10_000), pytest.raises(StorageError):
        disk.replace_file(tmp_path / "a", b"x" * 10_001)
    assert disk.read_file(tmp_path / "a") == b"old"
    assert disk.list_folder(tmp_path) == ["a"]


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC])
def test_failed_flush_is_told_apart_from_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """Even of a full disk: what was written before may be gone (D3)."""
    file = RealDisk().open(tmp_path / "a")
    monkeypatch.setattr("tidelog.storage.disk._sync_data", failing(reason))
    monkeypatch.setattr(os, "fsync", failing(reason))
    with pytest.raises(FlushFailed, match=str(tmp_path / "a")):
        file.flush()
    with pytest.raises(FlushFailed, match=str(tmp_path)):
        RealDisk().flush_folder(tmp_path)


@pytest.mark.parametrize(
    ("reason", "expected"), [(errno.EIO, StorageError), (errno.ENOSPC, DiskFull)]
)
def test_replacement_that_cannot_be_flushed_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int, expected: type[StorageError]
) -> None:
    path = tmp_path / "a"
    RealDisk().replace_file(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.storage.disk._sync_data", failing(reason))
        with pytest.raises(StorageError) as failure:
            RealDisk().replace_file(path, b"new")
    assert type(failure.value) is expected
    assert path.read_bytes() == b"old"
    RealDisk().replace_file(path, b"new")
    assert path.read_bytes() == b"new"


def failing(reason: int) -> Callable[[int], None]:
    def fail(_descriptor: int) -> None:
        raise OSError(reason, os.strerror(reason))

    return fail
