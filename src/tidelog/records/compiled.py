"""The compiled part of this layer, on machines where it was compiled.

It is built from `_ids.pyx` when tidelog is installed where there is a C compiler
(`hatch_build.py`). Without it everything takes the way through Python, with the same result.
"""

import importlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def source_checksum(folder: Path) -> int:
    """Of what is compiled, as `hatch_build.py` states it."""
    checksum = 0
    for path in sorted([*folder.glob("_ids*.pyx"), *folder.glob("_ids*.pxi")]):
        checksum = zlib.crc32(path.read_bytes(), checksum)
    return checksum


def _load() -> "ModuleType | None":
    try:
        module = importlib.import_module("tidelog.records._ids")
    except ImportError:
        return None
    is_stale = source_checksum(Path(__file__).parent) != module.SOURCE_CHECKSUM
    return None if is_stale else module


compiled = _load()
