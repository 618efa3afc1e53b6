"""The compiled shortcut for ordinary Produce requests, on machines where it was compiled.

It is built from `_fast_produce.pyx` when tidelog is installed where there is a C compiler
(`hatch_build.py`). Without it every request takes the way through Python, with the same result.
"""

import importlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.ports import Clock
from tidelog.broker.connection import FastProduce
from tidelog.broker.partitions import Partitions
from tidelog.wire.produce_template import ProduceTemplate

if TYPE_CHECKING:
    from types import ModuleType

Shortcut = Callable[[ProduceTemplate | None, Partitions, Clock], FastProduce | None]

SOURCE = Path(__file__).with_name("_fast_produce.pyx")


def _load() -> "ModuleType | None":
    try:
        compiled = importlib.import_module("tidelog.broker._fast_produce")
    except ImportError:
        return None
    is_stale = zlib.crc32(SOURCE.read_bytes()) != compiled.SOURCE_CHECKSUM
    return None if is_stale else compiled


_compiled = _load()


def is_compiled() -> bool:
    """Whether this installation has the shortcut."""
    return _compiled is not None


def fast_produce(
    template: ProduceTemplate | None, partitions: Partitions, clock: Clock
) -> FastProduce | None:
    """What answers requests like `template`; None if only Python can."""
    if _compiled is None or template is None:
        return None
    made: FastProduce = _compiled.FastProduce(template, partitions, clock)
    return made


def no_shortcut(
    _template: ProduceTemplate | None, _partitions: Partitions, _clock: Clock
) -> FastProduce | None:
    """All through Python, as where there is no compiler."""
    return None
