"""The folder of an archive: on this machine, or in a bucket of S3.

A path as it is, or with `file://`, means this machine, or a disk that all machines of a cluster
see. `s3://bucket/folder` goes through pyarrow, which takes credentials, the region and an endpoint
other than Amazon's from the environment (`AWS_ENDPOINT_URL`, ...), on every machine of a cluster,
or from the address (`?endpoint_override=`, ...). Other schemes are refused: nobody has tried
whether an archive keeps its promises there.

One thing differs: to make a file only if nobody has made it is one step on a disk (`link`), and a
look and a move on S3, since pyarrow cannot ask for it (`If-None-Match`). So there two runs that
write to the same archive at the same time may both believe that they are the only one; who cannot
rule that out keeps the manifest on a disk.

What was written is flushed before it is named in a manifest, on a disk; S3 has made it durable when
it is closed, and shows nothing of it before.
"""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.errors import OptionError

_SCHEMES: Final = frozenset({"file", "s3"})


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below the folder."""

    path: str
    size_bytes: int


class ArchiveFiles:
    """Paths are below the root, with slashes. Raises ArchiveError where a disk says no."""

    def __init__(self, root: str) -> None:
        scheme, has_scheme, _ = root.partition("://")
        if has_scheme and scheme.lower() not in _SCHEMES:
            raise OptionError(
                f"an archive cannot be in {root}: it is a folder that all machines see, or "
                "s3://bucket/folder"
            )
        self.root = root
        try:
            if has_scheme:
                self._system, self._base = FileSystem.from_uri(root)
            else:
                self._system, self._base = LocalFileSystem(), str(Path(root).absolute())
        except (OSError, pa.ArrowInvalid) as error:
            raise ArchiveError(f"{root} cannot be used: {error}") from error

    @property
    def is_local(self) -> bool:
        return isinstance(self._system, LocalFileSystem)

    def full_path(self, path: str) -> str:
        """With the folder; on a disk, as Spark takes it. Says nothing of credentials."""
        return f"{self._base}/{path}" if self.is_local else f"s3://{self._base}/{path}"

    def create(self, path: str) -> pa.NativeFile:
        """A new file to write to; its folder is made."""
        try:
            self._system.create_dir(self._at(path.rpartition("/")[0]), recursive=True)
            return self._system.open_output_stream(self._at(path))
        except OSError as error:
            raise self._unwritable(path, error) from error

    def open(self, path: str) -> pa.NativeFile:
        try:
            return self._system.open_input_file(self._at(path))
        except OSError as error:
            raise self._unreadable(path, error) from error

    def read_text(self, path: str) -> str:
        with self.open(path) as file:
            return bytes(file.read()).decode()

    def size_bytes(self, path: str) -> int | None:
        """None: it is not there."""
        try:
            [found] = self._system.get_file_info([self._at(path)])
        except OSError as error:
            raise self._unreadable(path, error) from error
        return found.size if found.type is FileType.File else None

    def make_durable(self, path: str) -> None:
        """What was written to it outlives a crash of the machine from here on."""
        if self.is_local:
            _flush(Path(self._at(path)))
            _flush(Path(self._at(path)).parent)

    def put_new(self, path: str, text: str) -> bool:
        """Make the file with all of its text at once; False if there is one of that name."""
        draft = self._draft(path, text)
        if not self.is_local:
            if self.size_bytes(path) is not None:
                self.delete(draft)
                return False
            self._move(draft, path)
            return True
        try:
            os.link(self._at(draft), self._at(path))
        except FileExistsError:
            return False
        except OSError as error:
            raise self._unwritable(path, error) from error
        finally:
            Path(self._at(draft)).unlink()
        _flush(Path(self._at(path)).parent)
        return True

    def put(self, path: str, text: str) -> None:
        """Make the file with all of its text at once, or replace it."""
        self._move(self._draft(path, text), path)

    def _draft(self, path: str, text: str) -> str:
        """The text, whole and durable, under a name of its own."""
        draft = f"{path.rpartition('/')[0]}/.{uuid.uuid4().hex}"
        with self.create(draft) as file:
            file.write(text.encode())
        self.make_durable(draft)
        return draft

    def _move(self, draft: str, path: str) -> None:
        try:
            self._system.move(self._at(draft), self._at(path))
        except OSError as error:
            raise self._unwritable(path, error) from error

    def delete(self, path: str) -> None:
        """It need not be there."""
        try:
            self._system.delete_file(self._at(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unwritable(path, error) from error

    def below(self, folder: str) -> Iterator[FoundFile]:
        """All files in it and in folders of it; none if it is not there."""
        selector = FileSelector(self._at(folder), allow_not_found=True, recursive=True)
        try:
            found = self._system.get_file_info(selector)
        except OSError as error:
            raise self._unreadable(folder, error) from error
        for info in found:
            if info.type is FileType.File:
                yield FoundFile(info.path[len(self._base) :].lstrip("/"), info.size)

    def _at(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base

    def _unreadable(self, path: str, error: OSError) -> ArchiveError:
        return ArchiveError(f"{self.full_path(path)} cannot be read: {error}")

    def _unwritable(self, path: str, error: OSError) -> ArchiveError:
        return ArchiveError(f"{self.full_path(path)} cannot be written: {error}")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
