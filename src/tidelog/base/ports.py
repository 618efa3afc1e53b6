"""What the broker needs from outside the process: a clock and a disk.

Each is a Protocol with a real implementation and one that tests or the simulator put in its place;
one contract suite (`tests/contract`) runs on all of them. The coordinator is a port as well and
lives in `coordination/port.py` next to its implementations. The network is asyncio's own
`Transport` and `BufferedProtocol`, which the simulator implements without a socket.

Every `Disk` and `LogFile` method may block and raises `StorageError` (or its subclass `DiskFull`)
in place of `OSError`; the message names the file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

BytesLike = bytes | bytearray | memoryview


class Clock(Protocol):
    """Tells the time. Only runners hold one; machines are told `now_ms`."""

    def now_ms(self) -> int:
        """Wall-clock time, as record timestamps use it. May jump."""
        ...

    def monotonic_ms(self) -> int:
        """Time that never goes back, for leases and time-outs."""
        ...


class LogFile(Protocol):
    """An open file that grows at its end and is read anywhere."""

    @property
    def path(self) -> Path: ...

    @property
    def size_bytes(self) -> int:
        """Length as this object knows it: what was there at opening plus what was appended."""
        ...

    def append(self, data: BytesLike) -> int:
        """Write all of `data` at the end and return how many bytes that was.

        All or nothing: if the disk takes only a part (it is full), the file is cut back to
        its former length before the error is raised.
        """
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer only at the end of the file. May wait."""
        ...

    def read_cached(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        """Like `read`, but None rather than wait when the bytes are not in memory."""
        ...

    def truncate(self, size_bytes: int) -> None: ...

    def start_writing(self, position: int, size_bytes: int) -> None:
        """Have the system begin to write these bytes to the device. Promises nothing, cannot fail,
        and does nothing where there is no such thing."""
        ...

    def flush(self) -> None:
        """Return once everything appended is on stable storage. Raises FlushFailed."""
        ...

    def close(self) -> None: ...


class HeldLock(Protocol):
    """A folder that no other process may use meanwhile."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system, reduced to what a log needs."""

    def open(self, path: Path) -> LogFile:
        """Open for appending and reading; the file is created if absent."""
        ...

    def open_existing(self, path: Path) -> LogFile:
        """Open for appending and reading; absent is a StorageError."""
        ...

    def exists(self, path: Path) -> bool: ...

    def is_folder(self, path: Path) -> bool: ...

    def size_bytes(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int: ...

    def list_folder(self, path: Path) -> Sequence[str]:
        """Names in `path`, sorted."""
        ...

    def make_folder(self, path: Path) -> None:
        """Create `path` and its parents; present already is fine."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Replace `target` by `source` atomically. Durable after `flush_folder` of the parent."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; absent already is fine."""
        ...

    def remove_folder(self, path: Path) -> None:
        """Remove a folder and all it holds; absent already is fine."""
        ...

    def read_file(self, path: Path) -> bytes: ...

    def replace_file(self, path: Path, data: bytes) -> None:
        """Put `data` at `path`, durably: a crash leaves the old content or the new."""
        ...

    def flush_folder(self, path: Path) -> None:
        """Make renames, creations and removals in `path` durable."""
        ...

    def lock(self, path: Path) -> HeldLock:
        """Hold the lock file `path`, created if absent, until released or the process ends.

        Held by anybody else, this process included, is a StorageError.
        """
        ...

    def free_bytes(self, path: Path) -> int: ...

    def total_bytes(self, path: Path) -> int: ...
