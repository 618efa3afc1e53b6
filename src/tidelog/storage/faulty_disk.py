"""A disk that fails on demand, around one that does not.

Faults are armed by operation and by file name and stay until `heal`. An operation that fails leaves
the file as it was, which is what the port promises: `DiskFull` for a disk without room, any other
`StorageError` for one that is broken.

    disk = FaultyDisk(RealDisk())
    disk.arm("append", "*.log", DiskFull)                 from now on
    disk.arm("flush", "*.index", StorageError, after=3)   the fourth and all later ones
    disk.heal()

`is_cold` makes it forget its page cache: every read has to wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tidelog.base.errors import StorageError
from tidelog.base.ports import BytesLike, Disk, HeldLock, LogFile


@dataclass(slots=True)
class _Fault:
    operation: str
    pattern: str
    error: type[StorageError]
    passes_left: int


class FaultyDisk:
    """Passes everything on, unless a fault is armed for it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._faults: list[_Fault] = []
        self.is_cold = False

    def arm(
        self, operation: str, pattern: str, error: type[StorageError], *, after: int = 0
    ) -> None:
        """Fail `operation`, a method of Disk or LogFile, on names that match, `after` successes."""
        self._faults.append(_Fault(operation, pattern, error, after))

    @property
    def is_armed(self) -> bool:
        """Whether anything can fail."""
        return bool(self._faults)

    def heal(self) -> None:
        """Disarm every fault."""
        self._faults.clear()

    def attempt(self, operation: str, path: Path) -> None:
        """Raise if a fault is armed for this."""
        for fault in self._faults:
            if fault.operation == operation and fnmatchcase(path.name, fault.pattern):
                if fault.passes_left == 0:
                    raise fault.error(f"cannot {operation} {path}: fault injected")
                fault.passes_left -= 1

    def open(self, path: Path) -> LogFile:
        self.attempt("open", path)
        return FaultyLogFile(self, self._disk.open(path))

    def open_existing(self, path: Path) -> LogFile:
        self.attempt("open", path)
        return FaultyLogFile(self, self._disk.open_existing(path))

    def exists(self, path: Path) -> bool:
        self.attempt("exists", path)
        return self._disk.exists(path)

    def is_folder(self, path: Path) -> bool:
        self.attempt("is_folder", path)
        return self._disk.is_folder(path)

    def size_bytes(self, path: Path) -> int:
        self.attempt("size_bytes", path)
        return self._disk.size_bytes(path)

    def modified_ms(self, path: Path) -> int:
        self.attempt("modified_ms", path)
        return self._disk.modified_ms(path)

    def list_folder(self, path: Path) -> Sequence[str]:
        self.attempt("list_folder", path)
        return self._disk.list_folder(path)

    def make_folder(self, path: Path) -> None:
        self.attempt("make_folder", path)
        self._disk.make_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        self.attempt("rename", source)
        self._disk.rename(source, target)

    def remove(self, path: Path) -> None:
        self.attempt("remove", path)
        self._disk.remove(path)

    def remove_folder(self, path: Path) -> None:
        self.attempt("remove_folder", path)
        self._disk.remove_folder(path)

    def read_file(self, path: Path) -> bytes:
        self.attempt("read_file", path)
        return self._disk.read_file(path)

    def replace_file(self, path: Path, data: bytes) -> None:
        self.attempt("replace_file", path)
        self._disk.replace_file(path, data)

    def flush_folder(self, path: Path) -> None:
        self.attempt("flush_folder", path)
        self._disk.flush_folder(path)

    def lock(self, path: Path) -> HeldLock:
        self.attempt("lock", path)
        return self._disk.lock(path)

    def free_bytes(self, path: Path) -> int:
        self.attempt("free_bytes", path)
        return self._disk.free_bytes(path)

    def total_bytes(self, path: Path) -> int:
        self.attempt("total_bytes", path)
        return self._disk.total_bytes(path)


class FaultyLogFile:
    """A file of a `FaultyDisk`."""

    def __init__(self, disk: FaultyDisk, file: LogFile) -> None:
        self._disk = disk
        self._file = file

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def append(self, data: BytesLike) -> int:
        self._disk.attempt("append", self.path)
        return self._file.append(data)

    def read(self, position: int, size_bytes: int) -> bytes:
        self._disk.attempt("read", self.path)
        return self._file.read(position, size_bytes)

    def read_cached(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        self._disk.attempt("read", self.path)
        if self._disk.is_cold:
            return None
        return self._file.read_cached(position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        self._disk.attempt("truncate", self.path)
        self._file.truncate(size_bytes)

    def start_writing(self, position: int, size_bytes: int) -> None:
        self._file.start_writing(position, size_bytes)

    def flush(self) -> None:
        self._disk.attempt("flush", self.path)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
