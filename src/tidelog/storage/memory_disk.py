"""A disk in memory that can lose power, for tests and the simulator.

It remembers what has been flushed and what has not. `crash` then decides, by chance, how much of
the rest reached the platters, within what a POSIX file system allows:

    contents   what was flushed, then some of the later writes in order, the last of them perhaps
               in part, and perhaps with a stretch of zeros where a page was never written
    names      what the folder held when it was flushed, or after any number of later changes, in
               order; each folder on its own

Files that are open over a crash belong to the process that died and must not be used again.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tidelog.base.errors import StorageError
from tidelog.base.ports import BytesLike

_SECTOR_BYTES = 512


class _Contents:
    """The bytes of a file, whatever it is called.

    What is durable is the first `_kept_bytes` of `data`, and then `_cut`. So flushing, which a log
    does much more often than it crashes, copies nothing.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self._kept_bytes = 0
        self._cut = b""
        self._unflushed: list[bytes | int] = []  # Bytes appended, or the length after a cut.

    def append(self, data: BytesLike) -> None:
        self.data += data
        self._unflushed.append(bytes(data))

    def truncate(self, size_bytes: int) -> None:
        assert size_bytes <= len(self.data)
        if size_bytes < self._kept_bytes:
            self._cut = bytes(self.data[size_bytes : self._kept_bytes]) + self._cut
            self._kept_bytes = size_bytes
        del self.data[size_bytes:]
        self._unflushed.append(size_bytes)

    def flush(self) -> None:
        self._kept_bytes = len(self.data)
        self._cut = b""
        self._unflushed.clear()

    def crash(self, random: Random) -> None:
        data = self.data[: self._kept_bytes] + self._cut
        doubtful_from = len(data)
        reached = random.randint(0, len(self._unflushed))
        for number, change in enumerate(self._unflushed[: reached + 1]):
            if isinstance(change, int):
                if number < reached:
                    del data[change:]
                    doubtful_from = min(doubtful_from, change)
            elif number < reached:
                data += change
            else:
                data += change[: random.randint(0, len(change))]
        if random.random() < 0.3 and doubtful_from < len(data):
            start = random.randrange(doubtful_from, len(data))
            stretch = data[start : start + _SECTOR_BYTES]
            data[start : start + len(stretch)] = bytes(len(stretch))
        self.data = data
        self.flush()


class _Folder:
    """The names in a folder, those it had when it was flushed, and every change since."""

    def __init__(self) -> None:
        self.entries: dict[str, _Contents | _Folder] = {}
        self._durable: dict[str, _Contents | _Folder] = {}
        self._unflushed: list[_NamesChange] = []

    def change(self, change: "_NamesChange") -> None:
        """Give names what they stand for from now on, None for nothing; all at once."""
        _apply(change, self.entries)
        self._unflushed.append(change)

    def flush(self) -> None:
        for change in self._unflushed:
            _apply(change, self._durable)
        self._unflushed.clear()

    def crash(self, random: Random) -> None:
        reached = random.randint(0, len(self._unflushed))
        del self._unflushed[reached:]
        self.flush()
        self.entries = dict(self._durable)
        for entry in self.entries.values():
            entry.crash(random)


_NamesChange = dict[str, _Contents | _Folder | None]


def _apply(change: _NamesChange, entries: dict[str, _Contents | _Folder]) -> None:
    for name, entry in change.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


class MemoryLogFile:
    """An open file of a `MemoryDisk`."""

    def __init__(self, path: Path, contents: _Contents) -> None:
        self.path = path
        self._contents = contents
        self._size_bytes = len(contents.data)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def append(self, data: BytesLike) -> int:
        self._contents.append(data)
        self._size_bytes += len(data)
        return len(data)

    def read(self, position: int, size_bytes: int) -> bytes:
        return bytes(self._contents.data[position : position + size_bytes])

    def read_cached(self, position: int, size_bytes: int) -> bytes | bytearray | None:
        return self.read(position, size_bytes)

    def truncate(self, size_bytes: int) -> None:
        self._contents.truncate(size_bytes)
        self._size_bytes = size_bytes

    def start_writing(self, position: int, size_bytes: int) -> None:
        """Nothing is slow here; and `crash` keeps what it likes of what was not flushed."""

    def flush(self) -> None:
        self._contents.flush()

    def close(self) -> None:
        """Nothing to release."""


class MemoryLock:
    """A lock of a `MemoryDisk`."""

    def __init__(self, held: set[Path], path: Path) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryDisk:
    """See the module docstring. Every path is absolute; the root is there from the start."""

    def __init__(self, *, total_bytes: int, now_ms: int) -> None:
        self._root = _Folder()
        self._locks: set[Path] = set()
        self._total_bytes = total_bytes
        self._now_ms = now_ms

    def kill(self) -> None:
        """The process that uses it dies: its locks go, its writes stay."""
        self._locks.clear()

    def crash(self, random: Random) -> None:
        """Lose power: what was not flushed may be gone, in part or as a whole."""
        self._locks.clear()
        self._root.crash(random)

    def open(self, path: Path) -> MemoryLogFile:
        parent = self._folder(path.parent)
        if path.name not in parent.entries:
            parent.change({path.name: _Contents()})
        return MemoryLogFile(path, self._contents(path))

    def open_existing(self, path: Path) -> MemoryLogFile:
        return MemoryLogFile(path, self._contents(path))

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def is_folder(self, path: Path) -> bool:
        return isinstance(self._find(path), _Folder)

    def size_bytes(self, path: Path) -> int:
        return len(self._contents(path).data)

    def modified_ms(self, path: Path) -> int:
        self._contents(path)
        return self._now_ms

    def list_folder(self, path: Path) -> Sequence[str]:
        return sorted(self._folder(path).entries)

    def make_folder(self, path: Path) -> None:
        folder = self._root
        for name in path.parts[1:]:
            if name not in folder.entries:
                folder.change({name: _Folder()})
            entry = folder.entries[name]
            if not isinstance(entry, _Folder):
                raise StorageError(f"cannot create {path}: {name} is a file")
            folder = entry

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent
        assert source != target
        parent = self._folder(source.parent)
        if source.name not in parent.entries:
            raise StorageError(f"cannot rename {source}: it does not exist")
        parent.change({target.name: parent.entries[source.name], source.name: None})

    def remove(self, path: Path) -> None:
        self._remove(path)

    def remove_folder(self, path: Path) -> None:
        self._remove(path)

    def _remove(self, path: Path) -> None:
        parent = self._find(path.parent)
        if isinstance(parent, _Folder) and path.name in parent.entries:
            parent.change({path.name: None})

    def read_file(self, path: Path) -> bytes:
        return bytes(self._contents(path).data)

    def replace_file(self, path: Path, data: bytes) -> None:
        parent = self._folder(path.parent)
        contents = _Contents()
        contents.append(data)
        contents.flush()
        parent.change({path.name: contents})
        parent.flush()

    def flush_folder(self, path: Path) -> None:
        self._folder(path).flush()

    def lock(self, path: Path) -> MemoryLock:
        self.open(path)
        if path in self._locks:
            raise StorageError(f"another process holds {path}")
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def free_bytes(self, path: Path) -> int:
        self._folder(path)
        return self._total_bytes - sum(len(contents.data) for contents in _files(self._root))

    def total_bytes(self, path: Path) -> int:
        self._folder(path)
        return self._total_bytes

    def _find(self, path: Path) -> "_Contents | _Folder | None":
        entry: _Contents | _Folder = self._root
        for name in path.parts[1:]:
            if not isinstance(entry, _Folder) or name not in entry.entries:
                return None
            entry = entry.entries[name]
        return entry

    def _folder(self, path: Path) -> _Folder:
        entry = self._find(path)
        if not isinstance(entry, _Folder):
            raise StorageError(f"cannot use {path}: it is not a folder")
        return entry

    def _contents(self, path: Path) -> _Contents:
        entry = self._find(path)
        if not isinstance(entry, _Contents):
            raise StorageError(f"cannot open {path}: it is not a file")
        return entry


def _files(folder: _Folder) -> Iterator[_Contents]:
    pending = [folder]
    while pending:
        for entry in pending.pop().entries.values():
            if isinstance(entry, _Folder):
                pending.append(entry)
            else:
                yield entry
