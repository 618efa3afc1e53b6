"""The files of closed segments, kept open while they are in use.

A log may have a thousand segments and a broker thousands of logs, so descriptors are bounded: the
file that was not used for longest is let go. It is not closed: a reader on another thread may just
be using it, and the file closes itself when the last of them is done (`LogFile`, D2). For the same
reason there is no lock; every step is one dictionary operation on string keys, which the
interpreter does not interrupt. Two threads that miss at once open the file twice and one of the
two is let go.

Files in here are read, or flushed, never appended to.

`CachedAccess` and `BlockingAccess` are the two ways to read through the cache: on the event loop
nothing may wait for the disk, so what would have to is given up with `WouldBlock`.
"""

from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tidelog.base.ports import BytesLike, Disk, LogFile


class WouldBlock(Exception):
    """The bytes or the open file are not in memory. Never leaves this package."""


class FileCache:
    """One per log dir; at most `open_files_max` files, least recently used first to go."""

    __slots__ = ("_disk", "_files", "_open_files_max")

    def __init__(self, disk: Disk, *, open_files_max: int) -> None:
        assert open_files_max > 0
        self._disk = disk
        self._open_files_max = open_files_max
        self._files: OrderedDict[str, LogFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def peek(self, path: Path) -> LogFile | None:
        """The file if it is open."""
        key = str(path)
        file = self._files.get(key)
        if file is not None:
            # Another thread may let it go meanwhile; what we hold is still open.
            with suppress(KeyError):
                self._files.move_to_end(key)
        return file

    def open(self, path: Path) -> LogFile:
        """The file, opened now if need be. Absent is a StorageError."""
        file = self.peek(path)
        if file is None:
            file = self._disk.open_existing(path)
            self.adopt(file)
        return file

    def adopt(self, file: LogFile) -> None:
        """Keep `file`, which somebody else opened and will not use any more."""
        self._files[str(file.path)] = file
        while len(self._files) > self._open_files_max:
            try:
                self._files.popitem(last=False)
            except KeyError:
                return  # Another thread made room.

    def forget(self, path: Path) -> None:
        """Let go of a file that is about to be removed, replaced or written to."""
        self._files.pop(str(path), None)

    def forget_folder(self, folder: Path) -> None:
        """Let go of everything below `folder`, which is about to be renamed."""
        prefix = f"{folder}/"
        for key in list(self._files):
            if key.startswith(prefix):
                self._files.pop(key, None)


class Access(Protocol):
    """How to come by the bytes of a file that may not be in memory."""

    def open(self, path: Path) -> LogFile: ...

    def read(self, file: LogFile, position: int, size_bytes: int) -> BytesLike: ...


class BlockingAccess:
    """For threads: waits for the disk."""

    __slots__ = ("_files",)

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def open(self, path: Path) -> LogFile:
        return self._files.open(path)

    def read(self, file: LogFile, position: int, size_bytes: int) -> BytesLike:
        return file.read(position, size_bytes)


class CachedAccess:
    """For the event loop: raises WouldBlock in place of waiting."""

    __slots__ = ("_files",)

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def open(self, path: Path) -> LogFile:
        file = self._files.peek(path)
        if file is None:
            raise WouldBlock
        return file

    def read(self, file: LogFile, position: int, size_bytes: int) -> BytesLike:
        data = file.read_cached(position, size_bytes)
        if data is None:
            raise WouldBlock
        return data
