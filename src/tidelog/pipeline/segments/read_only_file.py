"""A file of somebody else's: opened for reading alone, and never locked."""

import os
from pathlib import Path
from types import TracebackType

from tidelog.pipeline.segments.errors import SegmentError, SegmentsChanged


class ReadOnlyFile:
    """An open file, as long as it was when it was opened. It may grow meanwhile, or be removed."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.size_bytes = os.fstat(self._descriptor).st_size
        except FileNotFoundError as error:
            raise SegmentsChanged(
                f"{path} is not there: it was removed since it was looked for, or this machine "
                "does not see the folder"
            ) from error
        except OSError as error:
            raise SegmentError(f"cannot open {path}: {error.strerror}") from error

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer only at the end of the file."""
        parts = []
        try:
            while size_bytes > 0:
                part = os.pread(self._descriptor, size_bytes, position)
                parts.append(part)
                if not part:
                    break
                size_bytes -= len(part)
                position += len(part)
        except OSError as error:
            raise self._unreadable(error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; how far, which is less only at the end of the file."""
        filled = 0
        try:
            while filled < len(buffer):
                part_bytes = os.preadv(self._descriptor, (buffer[filled:],), position + filled)
                if not part_bytes:
                    break
                filled += part_bytes
        except OSError as error:
            raise self._unreadable(error) from error
        return filled

    def _unreadable(self, error: OSError) -> SegmentError:
        return SegmentError(f"cannot read {self.path}: {error.strerror}")

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> "ReadOnlyFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
