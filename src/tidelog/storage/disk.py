"""The real disk: plain system calls, `OSError` translated where it enters.

Files are opened with O_APPEND, so a write always lands at the end and a truncation needs no seek.
Nothing is mapped into memory: a bad sector must be an exception here, not a SIGBUS somewhere else.

Reads that must not wait use `preadv` with RWF_NOWAIT: the page cache answers or nobody does. Where
the platform or the file system has no such thing, an ordinary read takes its place.

    D1  `append` is all or nothing: what a full disk took of a batch is cut off again before the
        error is raised, so the next append continues at a batch boundary
    D2  a file that is let go without `close` is closed with its last reference; a reader on
        another thread can therefore never see its descriptor closed and reused under it
    D3  a flush that fails is FlushFailed, whatever the reason: a full disk, too, may have dropped
        what was written before
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from tidelog.base.buffers import new_buffer
from tidelog.base.errors import DiskFull, FlushFailed, StorageError
from tidelog.base.ports import BytesLike

TEMPORARY_SUFFIX = ".tmp"

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_NOWAIT_UNSUPPORTED = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
_OPEN_EXISTING = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_OPEN_OR_CREATE = _OPEN_EXISTING | os.O_CREAT
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_FILE_MODE = 0o644
# Not on every platform; where it is, it saves writing the time of modification.
_sync_data = getattr(os, "fdatasync", os.fsync)
_SYNC_FILE_RANGE_WRITE = 2


def _find_sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux has it, Python does not hand it on."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast(Callable[[int, int, int, int], int], function)


_sync_file_range = _find_sync_file_range()


class RealLogFile:
    """An open file of the real disk."""

    __slots__ = ("_descriptor", "_nowait", "path", "size_bytes")

    def __init__(self, path: Path, flags: int) -> None:
        self._descriptor = -1
        self.path = path
        self._nowait = _RWF_NOWAIT
        try:
            self._descriptor = os.open(path, flags, _FILE_MODE)
            self.size_bytes = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise _translated(error, "open", path) from error

    def append(self, data: BytesLike) -> int:
        return self.append_rest(data, 0)

    def append_rest(self, data: BytesLike, written_bytes: int) -> int:
        """Append `data`, of which the first bytes were written; D1 holds for them as well."""
        size_bytes = len(data)
        try:
            while written_bytes < size_bytes:
                # A second time after a signal, or if the disk is full, and then it says so.
                written_bytes += os.write(self._descriptor, memoryview(data)[written_bytes:])
        except OSError as error:
            self._cut_back(error)
            raise _translated(error, "append to", self.path) from error
        self.size_bytes += size_bytes
        return size_bytes

    def _cut_back(self, cause: OSError) -> None:
        try:
            os.ftruncate(self._descriptor, self.size_bytes)
        except OSError as error:
            raise StorageError(
                f"cannot cut {self.path} back to {self.size_bytes} bytes after {cause.strerror}: "
                f"{error.strerror}"
            ) from error

    def read(self, position: int, size_bytes: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size_bytes, position)
            if len(data) == size_bytes or not data:
                return data
            return self._read_rest(data, position, size_bytes)
        except OSError as error:
            raise _translated(error, "read", self.path) from error

    def _read_rest(self, data: bytes, position: int, size_bytes: int) -> bytes:
        parts = [data]
        missing_bytes = size_bytes - len(data)
        while missing_bytes and data:
            data = os.pread(self._descriptor, missing_bytes, position + size_bytes - missing_bytes)
            parts.append(data)
            missing_bytes -= len(data)
        return b"".join(parts)

    def read_cached(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        if not self._nowait:
            return self.read(position, size_bytes)
        buffer = new_buffer(size_bytes)
        try:
            read_bytes = os.preadv(self._descriptor, (buffer,), position, self._nowait)
            if read_bytes == size_bytes:
                return buffer
            # Short at the end of the file is all there is; short before it would have waited.
            if position + read_bytes < os.fstat(self._descriptor).st_size:
                return None
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NOWAIT_UNSUPPORTED:
                raise _translated(error, "read", self.path) from error
            self._nowait = 0
            return self.read(position, size_bytes)
        del buffer[read_bytes:]
        return buffer

    def truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._descriptor, size_bytes)
        except OSError as error:
            raise _translated(error, "truncate", self.path) from error
        self.size_bytes = size_bytes

    def start_writing(self, position: int, size_bytes: int) -> None:
        if _sync_file_range is not None:
            # An error is not lost: this way of asking leaves it for the next flush to report.
            _sync_file_range(self._descriptor, position, size_bytes, _SYNC_FILE_RANGE_WRITE)

    def flush(self) -> None:
        try:
            _sync_data(self._descriptor)
        except OSError as error:
            raise _flush_failed(error, self.path) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:  # D2
        self.close()


class RealLock:
    """Both kinds of lock, because Kafka's JVM takes the POSIX one, which does not exclude us
    from ourselves; the BSD one does."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDisk:
    """The file system of this machine."""

    def open(self, path: Path) -> RealLogFile:
        return RealLogFile(path, _OPEN_OR_CREATE)

    def open_existing(self, path: Path) -> RealLogFile:
        return RealLogFile(path, _OPEN_EXISTING)

    def exists(self, path: Path) -> bool:
        with _translating("look for", path):
            return path.exists()

    def is_folder(self, path: Path) -> bool:
        with _translating("look for", path):
            return path.is_dir()

    def size_bytes(self, path: Path) -> int:
        with _translating("stat", path):
            return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        with _translating("stat", path):
            return path.stat().st_mtime_ns // 1_000_000

    def list_folder(self, path: Path) -> Sequence[str]:
        with _translating("list", path):
            return sorted(os.listdir(path))  # noqa: PTH208 - names, not a Path object for each

    def make_folder(self, path: Path) -> None:
        with _translating("create", path):
            path.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        with _translating("rename", source):
            source.rename(target)

    def remove(self, path: Path) -> None:
        with _translating("remove", path):
            path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        with _translating("remove", path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def read_file(self, path: Path) -> bytes:
        with _translating("read", path):
            return path.read_bytes()

    def replace_file(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        try:
            self._write_new(temporary, data)
        except StorageError as error:
            with contextlib.suppress(StorageError):
                self.remove(temporary)
            if isinstance(error, FlushFailed) and isinstance(error.__cause__, OSError):
                # Nobody had seen the new file, and the old one is as it was.
                raise _translated(error.__cause__, "write", path) from error
            raise
        self.rename(temporary, path)
        self.flush_folder(path.parent)

    def _write_new(self, path: Path, data: bytes) -> None:
        file = self.open(path)
        try:
            file.truncate(0)  # What an earlier crash may have left.
            file.append(data)
            file.flush()
        finally:
            file.close()

    def flush_folder(self, path: Path) -> None:
        with _translating("flush", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            except OSError as error:
                raise _flush_failed(error, path) from error
            finally:
                os.close(descriptor)

    def lock(self, path: Path) -> RealLock:
        try:
            return RealLock(path)
        except BlockingIOError as error:
            raise StorageError(f"another process holds {path}") from error
        except OSError as error:
            raise _translated(error, "lock", path) from error

    def free_bytes(self, path: Path) -> int:
        with _translating("ask for free space", path):
            status = os.statvfs(path)
            return status.f_bavail * status.f_frsize

    def total_bytes(self, path: Path) -> int:
        with _translating("ask for free space", path):
            status = os.statvfs(path)
            return status.f_blocks * status.f_frsize


@contextlib.contextmanager
def _translating(attempt: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _translated(error, attempt, path) from error


def _translated(error: OSError, attempt: str, path: Path) -> StorageError:
    kind = DiskFull if error.errno in _FULL else StorageError
    return kind(f"cannot {attempt} {path}: {error.strerror}")


def _flush_failed(error: OSError, path: Path) -> FlushFailed:
    return FlushFailed(f"cannot flush {path}: {error.strerror}")
