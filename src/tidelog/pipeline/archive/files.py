"""The folder of an archive: on this machine, or wherever pyarrow has a file system for.

A path as it is means this machine (or a disk that all machines of a cluster see); `hdfs://`,
`s3://` and `gs://` mean what they say. One thing differs: to make a file only if nobody has made it
is one step on a local disk (`link`), and elsewhere a look and a move. So two runs that write to the
same archive at the same time are told apart with certainty on a local disk alone.

What was written is flushed before it is named in a manifest, on a local disk; other file systems
have made it durable when it is closed.
"""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from tidelog.pipeline.archive.errors import ArchiveError


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below the folder."""

    path: str
    size_bytes: int


class ArchiveFiles:
    """Paths are below the root, with slashes. Raises ArchiveError where a disk says no."""

    def __init__(self, root: str) -> None:
        self.root = root
        try:
            if "://" in root:
                self._system, self._base = FileSystem.from_uri(root)
            else:
                self._system, self._base = LocalFileSystem(), str(Path(root).absolute())
        except (OSError, pa.ArrowInvalid) as error:
            raise ArchiveError(f"there is no file system for {root}: {error}") from error

    @property
    def is_local(self) -> bool:
        return isinstance(self._system, LocalFileSystem)

    def full_path(self, path: str) -> str:
        """As Spark takes it."""
        return f"{self.root.rstrip('/')}/{path}" if "://" in self.root else f"{self._base}/{path}"

    def create(self, path: str) -> pa.NativeFile:
        """A new file to write to; its folder is made."""
        try:
            self._system.create_dir(self._at(path.rpartition("/")[0]), recursive=True)
            return self._system.open_output_stream(self._at(path))
        except OSError as error:
            raise ArchiveError(f"{self.full_path(path)} cannot be written: {error}") from error

    def open(self, path: str) -> pa.NativeFile:
        try:
            return self._system.open_input_file(self._at(path))
        except OSError as error:
            raise ArchiveError(f"{self.full_path(path)} cannot be read: {error}") from error

    def read_text(self, path: str) -> str:
        with self.open(path) as file:
            return bytes(file.read()).decode()

    def size_bytes(self, path: str) -> int | None:
        """None: it is not there."""
        [found] = self._system.get_file_info([self._at(path)])
        return found.size if found.type is FileType.File else None

    def make_durable(self, path: str) -> None:
        """What was written to it outlives a crash of the machine from here on."""
        if self.is_local:
            _flush(Path(self._at(path)))
            _flush(Path(self._at(path)).parent)

    def put_new(self, path: str, text: str) -> bool:
        """Make the file with all of its text at once; False if there is one of that name."""
        draft = f"{path.rpartition('/')[0]}/.{uuid.uuid4().hex}"
        with self.create(draft) as file:
            file.write(text.encode())
        self.make_durable(draft)
        if not self.is_local:
            return self._moved(draft, path)
        try:
            os.link(self._at(draft), self._at(path))
        except FileExistsError:
            return False
        finally:
            Path(self._at(draft)).unlink()
        _flush(Path(self._at(path)).parent)
        return True

    def put(self, path: str, text: str) -> None:
        """Make the file with all of its text at once, or replace it."""
        draft = f"{path.rpartition('/')[0]}/.{uuid.uuid4().hex}"
        with self.create(draft) as file:
            file.write(text.encode())
        self.make_durable(draft)
        self._system.move(self._at(draft), self._at(path))

    def delete(self, path: str) -> None:
        """It need not be there."""
        try:
            self._system.delete_file(self._at(path))
        except FileNotFoundError:
            return

    def below(self, folder: str) -> Iterator[FoundFile]:
        """All files in it and in folders of it; none if it is not there."""
        selector = FileSelector(self._at(folder), allow_not_found=True, recursive=True)
        try:
            found = self._system.get_file_info(selector)
        except OSError as error:
            raise ArchiveError(f"{self.full_path(folder)} cannot be read: {error}") from error
        for info in found:
            if info.type is FileType.File:
                yield FoundFile(info.path[len(self._base) :].lstrip("/"), info.size)

    def _moved(self, draft: str, path: str) -> bool:
        if self.size_bytes(path) is not None:
            self.delete(draft)
            return False
        self._system.move(self._at(draft), self._at(path))
        return True

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
