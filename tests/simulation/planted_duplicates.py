"""Bugs of de-duplication to be found, planted as those of `planted.py` are."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from tidelog.base.ids import Offset
from tidelog.broker import deduplication
from tidelog.core.deduplication.index import Duplicates
from tidelog.storage.log import Log


@contextmanager
def begin_with_an_empty_index() -> Iterator[None]:
    """A new leader remembers what it is sent, not what is in its log."""

    def nothing(log: Log, *, remembered_ms: int) -> tuple[Offset, int]:
        return log.log_end_offset, -1

    with patch.object(deduplication, "first_needed", nothing):
        yield


@contextmanager
def acknowledge_before_the_first_copy_is_committed() -> Iterator[None]:
    """That it was seen is taken for that it is safe."""
    with patch.object(Duplicates, "end_offset", property(lambda _self: Offset(0))):
        yield


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    planted.__name__: planted
    for planted in (
        begin_with_an_empty_index,
        acknowledge_before_the_first_copy_is_committed,
    )
}
