"""A disk whose user dies at a write of one's choice."""

from pathlib import Path

from tidelog.base.errors import StorageError
from tidelog.base.ports import BytesLike, Disk, LogFile
from tidelog.storage.faulty_disk import FaultyDisk, FaultyLogFile

_WRITES = frozenset(
    ("append", "truncate", "flush", "rename", "remove", "replace_file", "flush_folder", "open")
)


class Died(StorageError):
    """The process is gone; nothing it does afterwards reaches the disk."""


class StoppingDisk(FaultyDisk):
    """Counts what changes the disk, and from the `stop_at`th on lets nothing through."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.writes = 0
        self.stop_at: int | None = None

    def attempt(self, operation: str, path: Path) -> None:
        super().attempt(operation, path)
        if operation in _WRITES:
            self.writes += 1
            if self.stop_at is not None and self.writes > self.stop_at:
                raise Died(f"{operation} {path.name}")

    def open(self, path: Path) -> LogFile:
        file = super().open(path)
        return _StoppingFile(self, file)

    def open_existing(self, path: Path) -> LogFile:
        return FaultyLogFile(self, self._disk.open_existing(path))


class _StoppingFile(FaultyLogFile):
    """Writes half of what it is writing when the process dies."""

    def append(self, data: BytesLike) -> int:
        assert isinstance(self._disk, StoppingDisk)
        try:
            return super().append(data)
        except Died:
            if self._disk.writes == (self._disk.stop_at or 0) + 1:
                self._file.append(memoryview(data)[: len(data) // 2])
            raise
