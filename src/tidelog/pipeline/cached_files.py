"""Small files that Spark is started with: each is written once and then found again.

    ~/.cache/tidelog/spark/            or below XDG_CACHE_HOME
      1f0c9a3e/bin/java                a folder for each content, named after it
      77b1e2d4/log4j2.properties

A file is never changed after it was put in place, because another process may be reading it. Where
no cache can be written, this process has a folder of its own, for as long as it lives.
"""

import functools
import os
import tempfile
import zlib
from pathlib import Path
from typing import Final

_TEXT_MODE: Final = 0o644
_PROGRAM_MODE: Final = 0o755


def cached_text(name: str, text: str) -> Path:
    """A file of this name and content."""
    return _cached(name, text, _TEXT_MODE)


def cached_program(name: str, text: str) -> Path:
    """The same, to be executed."""
    return _cached(name, text, _PROGRAM_MODE)


def _cached(name: str, text: str, mode: int) -> Path:
    fingerprint = f"{zlib.crc32(text.encode()):08x}"
    inside = Path(fingerprint) / name
    try:
        return _put_once(_cache_folder() / inside, text, mode)
    except (OSError, RuntimeError):  # RuntimeError: nobody knows where home is.
        return _put_once(Path(_own_folder().name) / inside, text, mode)


def _put_once(path: Path, text: str, mode: int) -> Path:
    """Several processes may do so at once: each puts the same file in place, whole."""
    if not os.access(path, os.X_OK if mode == _PROGRAM_MODE else os.R_OK):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as beside:
            written = Path(beside) / path.name
            written.write_text(text, encoding="utf-8")
            written.chmod(mode)
            written.replace(path)
    return path


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tidelog" / "spark"


@functools.cache
def _own_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="tidelog-spark-")
